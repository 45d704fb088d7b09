"""The client for threads, against an embedded node: the whole public surface."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logboom.client import Client, Message, connect
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded
from logboom.deploy.polling import ask_until
from logboom.wire.errors import (
    AlreadyExists,
    ClientClosed,
    GroupError,
    InvalidRequest,
    LogboomError,
    OffsetOutOfRange,
    TimedOut,
    UnknownResource,
)
from tests.integration.waiting import wait_until


def topic(boom: Client, name: str, queues: int = 1) -> str:
    boom.admin.create_topic(name, queues=queues)
    return name


def read(boom: Client, name: str, count: int) -> list[Message]:
    found: list[Message] = []
    with boom.consumer(name) as consumer:
        while len(found) < count:
            messages = consumer.poll(count - len(found), timeout_s=200)
            assert messages, f"{len(found)} of {count} came"
            found += messages
    return found


@pytest.fixture
def alone() -> Iterator[Client]:
    """The only client of a node, which holds no pull of another that has gone."""
    with embedded() as node, connect(node.endpoints) as client:
        yield client


def holds(boom: Client) -> int:
    """How many pulls the broker holds."""
    return sum(int((node.counters or {}).get("holds", 0)) for node in boom.admin.stats())


def test_send_and_read_every_field(boom: Client) -> None:
    name = topic(boom, "fields")
    with boom.producer() as producer:
        sent = producer.send(
            name, b"v", key=b"k", tag="late", headers={"h": b"1"}, timestamp_ms=1_234
        ).result(200)
        producer.send(name, None, key=b"k").result(200)
    assert (sent.topic, sent.queue, sent.offset, sent.timestamp_ms) == (name, 0, 0, 1_234)
    first, second = read(boom, name, 2)
    assert first == Message(name, 0, 0, b"k", b"v", "late", {"h": b"1"}, 1_234)
    assert (second.value, second.tag, second.headers, second.attempt) == (None, None, None, 1)
    assert abs(second.timestamp_ms - time.time() * 1000) < 60_000


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_send_many_by_key_and_read_in_order(boom: Client, compression: str) -> None:
    name = topic(boom, f"many-{compression}", queues=4)
    values = [b"%05d" % n for n in range(5_000)]
    keys = [b"key-%d" % (n % 37) for n in range(5_000)]
    with boom.producer(compression=compression, max_batch_bytes=4_096) as producer:
        runs = producer.send_many(name, values, keys).result(200)
    assert sum(count for _, _, count in runs) == 5_000
    seen: dict[bytes, list[bytes]] = {}
    for message in read(boom, name, 5_000):
        seen.setdefault(message.key or b"", []).append(message.value or b"")
    assert seen == {
        key: [v for v, k in zip(values, keys, strict=True) if k == key] for key in set(keys)
    }


def test_a_loop_over_a_consumer_goes_on_where_it_was_left(boom: Client) -> None:
    name = topic(boom, "loop")
    with boom.producer() as producer:
        producer.send_many(name, [b"%d" % n for n in range(100)]).result(200)
    with boom.consumer(name) as consumer:
        first = [message.value for message, _ in zip(consumer, range(10), strict=False)]
        assert consumer.position(name, 0) == 11
        rest = consumer.poll(1_000)
        assert [m.value for m in rest] == [b"%d" % n for n in range(11, 100)]
    assert first == [b"%d" % n for n in range(10)]


def test_columns(boom: Client) -> None:
    name = topic(boom, "columns")
    with boom.producer() as producer:
        producer.send_many(name, [b"a", b"b"]).result(200)
    with boom.consumer(name) as consumer:
        (batch,) = consumer.poll_columns(timeout_s=200)
    assert batch.columns.values() == [b"a", b"b"]
    assert [m.offset for m in batch.messages()] == [0, 1]


def test_starts_and_seeks(boom: Client) -> None:
    name = topic(boom, "starts")
    with boom.producer() as producer:
        for n in range(5):
            producer.send(name, b"%d" % n, timestamp_ms=1_000 * (n + 1)).result(200)
        with boom.consumer(name, start=2_500) as consumer:
            assert consumer.poll(1, 200)[0].value == b"2"
        with boom.consumer(name, start="last") as consumer:
            assert consumer.poll(9, 0.2) == []
            wait_until(lambda: consumer.position(name, 0) == 5, "the end is not found")
            producer.send(name, b"new").result(200)
            assert [m.value for m in consumer.poll(9, 200)] == [b"new"]
            consumer.seek(name, 0, 3)
            assert consumer.poll(1, 200)[0].value == b"3"
            consumer.seek_to_time(name, 0, 1_001)
            assert consumer.poll(1, 200)[0].value == b"1"
            consumer.pause(name, 0)
            assert consumer.poll(9, 0.2) == []
            consumer.resume(name, 0)
            assert consumer.poll(1, 200)[0].value == b"2"


WRONG = (
    *(TypeError, AttributeError, KeyError),
    *(InvalidRequest, UnknownResource, OffsetOutOfRange, GroupError),
)
NOT_TEXT = [None, 5, 1.5, b"t", (), [], {}, object(), "\ud800", "a\0b", "ü" * 300]


def test_what_cannot_be_sent_fails_its_own_call(node: Embedded) -> None:
    """A wrong argument ends neither the client's thread nor its view of the cluster."""
    with connect(node.endpoints) as boom, boom.producer() as producer:
        name = topic(boom, "sound")
        for number, wrong in enumerate(NOT_TEXT):
            given: Any = wrong
            for call in (
                partial(producer.send, given, b"v"),
                partial(producer.send_many, given, [b"v"]),
                partial(boom.admin.offsets, given),
                partial(boom.admin.get_message, name, given, 0),
                partial(boom.admin.find_messages, name, b"k", queue=given),
                partial(boom.admin.offsets_ahead, name, {0: 0}, {1: 5}),
                partial(boom.admin.describe_group, given),
                partial(boom.admin.create_topic, given),
                partial(_poll_once, boom.consumer, given),
                partial(_poll_once, boom.consumer, name, group=given, instance=given),
                partial(_poll_once, boom.subscribe, name, subscription=given, name=given),
            ):
                with suppress(*WRONG):
                    call()
            # Metadata is still followed: this topic is not known here yet.
            new = topic(boom, f"new-{number}")
            assert producer.send(new, b"v").result(200).offset == 0, f"not after {wrong!r}"


def _poll_once(make: Callable[..., Any], *topics: Any, **options: Any) -> None:
    with make(*topics, **options) as consumer:
        consumer.poll(1, 0)


@pytest.mark.parametrize("wrong", [None, "5", float("nan"), float("inf")])
def test_a_time_out_is_a_number_of_seconds(node: Embedded, wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="timeout_s must be"):
        connect(node.endpoints, timeout_s=wrong)


def test_a_close_that_is_given_no_number_of_seconds_closes_nothing(boom: Client) -> None:
    name = topic(boom, "closed-wrongly")
    with (
        boom.consumer(name, group="closing") as member,
        boom.subscribe(name, subscription="closing") as subscriber,
        boom.push_consumer(name, group="pushed", listener=print) as pushed,
        boom.producer() as producer,
    ):
        wrong: Any
        for wrong in ("5", float("nan")):
            for call in (member.close, subscriber.flush, subscriber.close, pushed.close):
                with pytest.raises(InvalidRequest, match="timeout_s must be"):
                    call(wrong)
        assert member.poll(1, float("nan")) == []
        producer.send(name, b"v").result(200)
        for reader in (member, subscriber):
            assert [message.value for message in reader.poll(1, 200)] == [b"v"]


def test_a_delivery_time_out_is_a_number(boom: Client) -> None:
    with pytest.raises(InvalidRequest, match="delivery_timeout_s must be"):
        boom.producer(delivery_timeout_s=float("nan"))


def test_a_start_in_the_future_is_the_end_at_that_moment(boom: Client, tmp_path: Path) -> None:
    name = topic(boom, "ahead")
    tomorrow = int((time.time() + 86_400) * 1_000)
    alone = partial(boom.consumer, mode="broadcasting", offsets_file=tmp_path / "offsets.json")
    with boom.producer() as producer:
        producer.send_many(name, [b"old"] * 3).result(200)
        with (
            boom.consumer(name, start=tomorrow) as plain,
            boom.consumer(name) as sought,
            boom.consumer(name, group="ahead", start=tomorrow) as member,
            alone(name, group="alone", start=tomorrow) as broadcast,
            boom.subscribe(name, subscription="ahead", start=tomorrow) as subscriber,
        ):
            sought.seek_to_time(name, 0, tomorrow)
            assert member.wait_assigned(200)
            for each in (plain, sought, broadcast):
                assert each.poll(9, 0) == []
                wait_until(partial(_is_at, each, name, 3), "the end is not found")
            producer.send(name, b"new").result(200)
            for reader in (plain, sought, member, broadcast, subscriber):
                assert [message.value for message in reader.poll(9, 200)] == [b"new"]
    (moved,) = boom.admin.subscriptions.reset(name, "ahead", tomorrow)
    (reset,) = boom.admin.reset_offsets("ahead", tomorrow, topic=name)
    assert (moved.target, reset.target) == (4, 4)


def _is_at(consumer: Any, name: str, offset: int) -> bool:
    return bool(consumer.position(name, 0) == offset)


def test_a_consumer_of_all_queues_sees_queues_that_come_later(boom: Client) -> None:
    name = topic(boom, "growing")
    with boom.consumer(name) as consumer, boom.producer() as producer:
        assert consumer.poll(1, 0.1) == []
        boom.admin.alter_topic(name, queues=3)
        deadline = time.monotonic() + 200
        while len(consumer.queues) < 3 and time.monotonic() < deadline:
            consumer.poll(1, 0.1)
        producer.send(name, b"x", queue=2).result(200)
        (message,) = consumer.poll(1, 200)
        assert (message.queue, message.value) == (2, b"x")


def test_pull_and_its_statuses(boom: Client) -> None:
    name = topic(boom, "pulled")
    empty = boom.pull(name, 0, 0, wait_ms=0)
    assert (empty.status, len(empty.messages), empty.next_offset) == ("NO_NEW_MESSAGE", 0, 0)
    with boom.producer() as producer:
        producer.send_many(name, [b"%d" % n for n in range(10)]).result(200)
    found = boom.pull(name, 0, 3, max_messages=4)
    assert found.status == "FOUND"
    assert [m.value for m in found.messages] == [b"3", b"4", b"5", b"6"]
    assert (found.next_offset, found.min_offset, found.max_offset) == (7, 0, 10)
    assert sum(len(c) for c in found.columns()) == 4
    beyond = boom.pull(name, 0, 99)
    assert (beyond.status, beyond.next_offset) == ("OFFSET_ILLEGAL", 10)


def test_a_held_pull_is_woken(alone: Client) -> None:
    name = topic(alone, "held")
    results = []
    thread = threading.Thread(target=lambda: results.append(alone.pull(name, 0, 0, wait_ms=60_000)))
    with alone.producer() as producer:
        thread.start()
        wait_until(lambda: holds(alone) == 1, "the pull is not held")
        producer.send(name, b"x").result(200)
        thread.join(200)
    assert [m.value for m in results[0].messages] == [b"x"]


def test_admin(boom: Client) -> None:
    boom.admin.create_topic("admin", queues=2, retention_ms=1_000_000)
    with pytest.raises(AlreadyExists):
        boom.admin.create_topic("admin")
    with pytest.raises(InvalidRequest, match="no topic setting"):
        boom.admin.create_topic("admin-2", retention=5)
    with pytest.raises(LogboomError) as bad_name:
        boom.admin.create_topic("bad name!")
    assert bad_name.value.code == "INVALID_NAME"
    boom.admin.alter_topic("admin", max_message_bytes=100)
    found = boom.admin.describe_topic("admin")
    assert (found.config.retention_ms, found.config.max_message_bytes) == (1_000_000, 100)
    assert "admin" in [t.name for t in boom.admin.topics()]
    with boom.producer() as producer:
        producer.send_many("admin", [b"a", b"b", b"a"], [b"x", b"y", b"x"], queue=1).result(200)
        with pytest.raises(InvalidRequest, match="at most 100"):
            producer.send("admin", bytes(101))
    assert boom.admin.offsets("admin") == {0: (0, 0), 1: (0, 3)}
    assert boom.admin.get_message("admin", 1, 1).value == b"b"
    with pytest.raises(OffsetOutOfRange, match="0 to 2"):
        boom.admin.get_message("admin", 1, 9)
    assert [m.offset for m in boom.admin.find_messages("admin", b"x")] == [2, 0]
    assert boom.admin.offset_for_time("admin", 1, 1 << 50) == 3
    assert [b.alive for b in boom.admin.brokers()] == [True]
    assert boom.admin.raft_leader() == boom.admin.name_servers()[0].id

    def all_tell() -> bool:
        stats = boom.admin.stats()
        roles = {s.role for s in stats if s.counters and not s.error}
        return len(stats) == 2 and roles == {"broker", "raft leader"}

    # A node that does not answer within two seconds is told as an error.
    wait_until(all_tell, "the nodes do not tell their counters")
    boom.admin.delete_topic("admin")
    with pytest.raises(UnknownResource):
        boom.admin.describe_topic("admin")


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [(99_999, 1_001, 1_000), (1, 0, 0), (3_000, 200, 200), (3_001, 201, 200)],
)
def test_rocketmqs_vectors_of_searches_by_time(
    boom: Client, time_ms: int, lower: int, upper: int
) -> None:
    if "times" not in [topic.name for topic in boom.admin.topics()]:
        boom.admin.create_topic("times", queues=1)
        times = [1_000 + 10 * offset for offset in range(1_001)]
        with boom.producer() as producer:
            for start in range(0, 1_001, 7):
                part = times[start : start + 7]
                producer.send_many("times", [b"x"] * len(part), timestamps_ms=part)
    assert boom.admin.offset_for_time("times", 0, time_ms) == lower
    assert boom.admin.offset_for_time("times", 0, time_ms, "upper") == upper


def test_unknown_topics_and_queues(boom: Client) -> None:
    name = topic(boom, "known")
    with boom.producer() as producer, pytest.raises(UnknownResource, match="topic create"):
        producer.send("never-made", b"x")
    with pytest.raises(UnknownResource):
        boom.consumer("never-made")
    with pytest.raises(UnknownResource, match="queues 0 to 0"):
        boom.consumer(name, queues=[5])
    with pytest.raises(UnknownResource):
        boom.pull(name, 3, 0)


def test_topics_are_created_on_first_use_where_asked(node: Embedded) -> None:
    with connect(node.endpoints, create_topics=True) as boom:
        with boom.producer() as producer:
            producer.send("made-by-use", b"x").result(200)
        assert [m.value for m in read(boom, "made-by-use", 1)] == [b"x"]


def test_many_threads_share_a_producer_and_each_keeps_its_order(boom: Client) -> None:
    name = topic(boom, "threads", queues=2)
    with boom.producer() as producer:

        def work(thread: int) -> None:
            key = b"%d" % thread
            for n in range(2_000):
                producer.send(name, b"%d" % n, key=key)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen: dict[bytes | None, list[bytes | None]] = {}
    for message in read(boom, name, 12_000):
        seen.setdefault(message.key, []).append(message.value)
    assert seen == {b"%d" % t: [b"%d" % n for n in range(2_000)] for t in range(6)}


def test_a_full_buffer_holds_the_sender_and_loses_nothing(boom: Client) -> None:
    name = topic(boom, "full")
    with boom.producer(buffer_bytes=65_536, max_batch_bytes=65_536) as producer:
        for n in range(3_000):
            producer.send(name, b"%06d" % n + bytes(200))
    values = [(m.value or b"")[:6] for m in read(boom, name, 3_000)]
    assert values == [b"%06d" % n for n in range(3_000)]


def test_done_callbacks_and_states(boom: Client) -> None:
    name = topic(boom, "callbacks")
    done = threading.Event()
    seen: list[object] = []
    with boom.producer(linger_ms=60_000) as producer:
        sent = producer.send(name, b"x")
        assert not sent.done()
        with pytest.raises(TimedOut, match="still on its way"):
            sent.result(0.001)
        sent.add_done_callback(seen.append)
        sent.add_done_callback(lambda _: done.set())
        producer.flush(200)
        assert done.wait(200)
        many = producer.send_many(name, [b"a"])
        many.add_done_callback(seen.append)
        producer.flush(200)
    assert seen == [sent, many]
    assert sent.exception() is many.exception() is None
    assert "done" in repr(sent)


def test_closed_is_an_error_that_says_so(node: Embedded) -> None:
    boom = connect(node.endpoints)
    producer, consumer = boom.producer(), boom.consumer(topic(boom, "closing"))
    producer.send("closing", b"kept")
    boom.close()
    boom.close()
    producer.close()
    consumer.close()
    for use in (
        lambda: producer.send("closing", b"x"),
        lambda: producer.flush(),
        lambda: consumer.poll(),
        lambda: boom.admin.topics(),
        lambda: boom.pull("closing", 0, 0),
        lambda: boom.producer(),
    ):
        with pytest.raises(ClientClosed):
            use()
    with connect(node.endpoints) as again:
        assert [m.value for m in read(again, "closing", 1)] == [b"kept"]


def test_a_callback_may_send_but_not_wait(boom: Client) -> None:
    name = topic(boom, "from-callback")
    done, errors = threading.Event(), []
    with boom.producer() as producer:

        def again(_: object) -> None:
            producer.send(name, b"second")
            try:
                producer.flush()
            except InvalidRequest as error:
                errors.append(str(error))
            done.set()

        producer.send(name, b"first").add_done_callback(again)
        assert done.wait(200)
    assert "another thread" in errors[0]
    assert [m.value for m in read(boom, name, 2)] == [b"first", b"second"]


def test_a_closed_producer_alone(boom: Client) -> None:
    name = topic(boom, "closed-producer")
    producer = boom.producer()
    producer.close()
    with pytest.raises(ClientClosed, match="make another"):
        producer.send(name, b"x")


def test_close_ends_a_waiting_reader(alone: Client) -> None:
    name = topic(alone, "waiting")
    ended: list[str] = []

    def wait() -> None:
        try:
            alone.pull(name, 0, 0, wait_ms=60_000)
        except ClientClosed:
            ended.append("pull")

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: holds(alone) == 1, "the pull is not held")
    alone.close()
    thread.join(200)
    assert ended == ["pull"]


def descriptors() -> list[str]:
    """What is open, but for files: the node's store opens and closes those when it likes."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        # The node's threads may close one just now.
        with suppress(OSError):
            found.append(str(each.readlink()))
    return [each for each in found if not each.startswith("/")]


def test_no_thread_and_no_descriptor_is_left(node: Embedded) -> None:
    def once() -> None:
        with connect(node.endpoints, create_topics=True) as boom, boom.producer() as producer:
            producer.send("made-by-use-2", b"x").result(200)

    once()
    gc.collect()
    before = descriptors()
    for _ in range(5):
        once()
    gc.collect()
    assert not [t for t in threading.enumerate() if t.name == "logboom-client"]
    # The node closes its side of a connection a moment later.
    found = ask_until(descriptors, lambda found: len(found) <= len(before), 200.0)
    assert len(found) <= len(before), (before, found)


@pytest.mark.parametrize(
    ("endpoints", "text"),
    [("", "at least one"), ("nowhere", "host:port"), ("127.0.0.1:99999", "host:port")],
)
def test_endpoints_that_are_none(endpoints: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        connect(endpoints)


def test_nobody_listens() -> None:
    with pytest.raises(TimedOut, match="is the cluster up"):
        connect("127.0.0.1:1", timeout_s=0.5)


FORK = """
import os, sys
from logboom.client import connect
from logboom.wire.errors import ClientClosed
boom = connect(sys.argv[1], create_topics=True)
producer = boom.producer()
producer.send("forked", b"parent").result(200)
consumer = boom.consumer("forked")
late = producer.send("forked", b"late")
child = os.fork()
if child == 0:
    said = []
    if not late.done():
        try:
            late.result()
        except ClientClosed as error:
            assert error.code == "FORKED"
    for use in (lambda: producer.send("forked", b"x"), lambda: producer.flush(),
                lambda: consumer.poll(), lambda: boom.admin.topics(), lambda: boom.producer()):
        try:
            use()
        except ClientClosed as error:
            said.append(error.code)
    boom.close()
    with connect(sys.argv[1]) as own, own.producer() as fresh:
        fresh.send("forked", b"child").result(200)
    print(",".join(said), flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
producer.send("forked", b"parent again").result(200)
found = []
while len(found) < 4:
    found += [m.value for m in consumer.poll(10, 5)]
print(found)
boom.close()
"""


def test_a_forked_child_is_told_and_the_parent_goes_on(node: Embedded) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORK, node.endpoints[0]],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stderr == ""
    child, parent = done.stdout.splitlines()
    assert child == "FORKED,FORKED,FORKED,FORKED,FORKED"
    for value in ("b'parent'", "b'child'", "b'parent again'"):
        assert value in parent


UNCLOSED = """
import sys
from logboom.client import connect
boom = connect(sys.argv[1], create_topics=True)
boom.producer().send("unclosed", b"x")
consumer = boom.consumer("unclosed")
"""


def test_an_unclosed_client_does_not_hold_up_the_interpreter(node: Embedded) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED, node.endpoints[0]],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Unless it was acknowledged meanwhile, the program is told of its message, and of nothing else.
    lines = done.stderr.splitlines()
    assert all("sent messages are not acknowledged" in line for line in lines), done.stderr
    assert len(lines) <= 1


INTERRUPTED = """
import sys
from logboom.client import connect
with connect(sys.argv[1], create_topics=True) as boom, boom.consumer("interrupted") as consumer:
    try:
        print("reading", flush=True)
        for message in consumer:
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_wait(node: Embedded) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, node.endpoints[0]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    # It prints before it waits: that it waits inside the library now shows nowhere.
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


def test_queues_that_were_added_can_be_named_at_once(node: Embedded) -> None:
    with connect(node.endpoints) as boom, connect(node.endpoints) as other:
        boom.admin.create_topic("grows", queues=1)
        with boom.producer() as producer, other.producer() as beside:
            beside.send("grows", b"0").result()
            for count in range(2, 12):
                boom.admin.alter_topic("grows", queues=count)
                newest = count - 1
                assert len(boom.admin.offsets("grows")) == count
                assert producer.send("grows", b"x", queue=newest).result().queue == newest
                assert beside.send_many("grows", [b"y"], queue=newest).result() == [(newest, 1, 1)]
                assert boom.pull("grows", queue=newest, offset=0).status == "FOUND"
                with other.consumer("grows", queues=[newest]) as consumer:
                    assert consumer.poll(2, 200)[0].queue == newest
            for send in (producer.send, beside.send):
                with pytest.raises(UnknownResource, match="has queues 0 to 10, not 11"):
                    send("grows", b"x", queue=11)


def test_a_wrong_argument_is_told_of_what_was_called(node: Embedded) -> None:
    wrong: dict[str, Any] = {"partition": 1}
    several: Any = ["a", "b"]
    foo: dict[str, Any] = {"foo": 0}
    with connect(node.endpoints) as boom:
        topic(boom, "arguments")
        with boom.producer() as producer:
            with pytest.raises(TypeError, match=r"^Producer\.send\(\) .*'partition'"):
                producer.send("arguments", b"x", **wrong)
            with pytest.raises(TypeError, match=r"^Producer\.send_many\(\) .*'partition'"):
                producer.send_many("arguments", [b"x"], **wrong)
        with pytest.raises(InvalidRequest, match="subscribe to each"):
            boom.subscribe(several, subscription="s")
        with pytest.raises(InvalidRequest, match="takes no 'foo'"):
            boom.consumer("arguments", **foo)
        with pytest.raises(InvalidRequest, match="did you mean 'threads'"):
            boom.push_consumer("arguments", group="g", listener=print, thread=3)


@pytest.mark.parametrize("tags", ['"a||b" || c', ["a||b", "c"]])
def test_a_tag_that_looks_like_two_is_asked_for_in_quotes(
    node: Embedded, tags: str | list[str]
) -> None:
    with connect(node.endpoints, create_topics=True) as boom:
        name = f"odd-tags-{len(tags)}"
        with boom.producer() as producer:
            for tag in ("a||b", "a", "b", "c"):
                producer.send(name, tag.encode(), tag=tag, key=b"k").result()
        with boom.consumer(name, tags=tags) as consumer:
            assert [next(iter(consumer)).tag for _ in range(2)] == ["a||b", "c"]
            assert consumer.poll(timeout_s=0.2) == []
        with boom.consumer(name, group=name, tags=tags) as member:
            assert member.wait_assigned()
            assert [next(iter(member)).tag for _ in range(2)] == ["a||b", "c"]
            assert member.poll(timeout_s=0.2) == []
