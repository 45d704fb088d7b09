"""Consumers of groups against real nodes: sharing, leaving, dying, coming back, failing."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.client import Client, Consumer, Context, GroupConsumer, Later, Message, connect
from logboom.deploy import Cluster, embedded
from logboom.wire.errors import ClientClosed, GroupError, InvalidRequest, UnknownResource
from logboom.wire.view import TopicConfig


@pytest.fixture
def boom() -> Iterator[Client]:
    with embedded() as node, connect(node.endpoints) as client:
        client.admin.create_topic("t", queues=4)
        yield client


def fill(boom: Client, first: int, count: int, topic: str = "t") -> None:
    """Send the numbers first, first + 1, …, by key."""
    values = [b"%06d" % n for n in range(first, first + count)]
    with boom.producer() as producer:
        producer.send_many(topic, values, keys=values).result(200)


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.value or b"-1") for message in messages]


def until(condition: Callable[[], object], seconds: float = 200.0) -> None:
    """Wait for a condition; fail if it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        # Any condition at all: what makes it true tells nobody.
        time.sleep(0.005)


def share(consumer: GroupConsumer, least: int, most: int) -> None:
    """Wait until the member has so many queues. (The group's retry queue counts in the
    allocation, so that of four two members may have three and one.)"""
    until(lambda: least <= len(consumer.queues) <= most)


def polled(consumer: GroupConsumer | Consumer, count: int) -> list[Message]:
    """The next `count` messages, not acknowledged."""
    messages: list[Message] = []
    end = time.monotonic() + 200.0
    while len(messages) < count:
        assert time.monotonic() < end, f"only {messages} came"
        messages += consumer.poll(count - len(messages), 5)
    return messages


def read(consumer: GroupConsumer, count: int, seconds: float = 200.0) -> list[Message]:
    """The next `count` messages, acknowledged."""
    taken: list[Message] = []
    end = time.monotonic() + seconds
    while len(taken) < count and time.monotonic() < end:
        some = consumer.poll(count - len(taken), 0.2)
        consumer.ack(some)
        taken += some
    return taken


def test_a_group_goes_on_where_it_was(boom: Client) -> None:
    fill(boom, 0, 1_000)
    with boom.consumer("t", group="g") as consumer:
        first = read(consumer, 600)
        consumer.commit(sync=True)
        assert sum(consumer.committed("t", queue) for queue in range(4)) == 600
    with boom.consumer("t", group="g") as consumer:
        rest = read(consumer, 400)
        assert consumer.poll(10, 0.3) == []
    assert sorted(numbers(first + rest)) == list(range(1_000))


def test_what_is_finished_out_of_order_is_not_read_again(boom: Client) -> None:
    fill(boom, 0, 200)
    with boom.consumer("t", group="g") as consumer:
        messages = polled(consumer, 200)
        left = messages[::7]
        consumer.ack([m for m in messages if m not in left])
    with boom.consumer("t", group="g") as consumer:
        again = read(consumer, len(left))
        assert consumer.poll(10, 0.3) == []
    assert sorted(numbers(again)) == sorted(numbers(left))


def test_a_copy_that_cannot_be_encoded_holds_up_no_other(boom: Client) -> None:
    fill(boom, 0, 2)
    given: Any = ["no text"]
    with boom.consumer("t", group="g", retry="exponential", retry_first_ms=1) as consumer:
        wrong, right = polled(consumer, 2)
        consumer.nack(msgspec.structs.replace(wrong, tag=given))
        consumer.nack(right)
        (again,) = polled(consumer, 1)
        assert (again.value, again.attempt) == (right.value, 2)


def test_two_members_share_and_a_clean_leave_doubles_nothing(boom: Client) -> None:
    fill(boom, 0, 2_000)
    seen: list[Message] = []
    with boom.consumer("t", group="g") as one:
        seen += read(one, 100)
        two = boom.consumer("t", group="g")
        taken: list[Message] = []

        def both() -> bool:
            for consumer in (one, two):
                some = consumer.poll(20, 0.01)
                consumer.ack(some)
                taken.extend(some)
            return len(one.queues) < 4 and len(one.queues) + len(two.queues) == 4

        until(both)
        assert not set(one.queues) & set(two.queues)
        two.close()
        seen += taken
        seen += read(one, 2_000 - len(seen))
        share(one, 4, 4)
        assert one.poll(10, 0.3) == []
    assert sorted(numbers(seen)) == list(range(2_000))


def test_a_rolling_restart_of_push_consumers_doubles_nothing(boom: Client) -> None:
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def listener(message: Message) -> None:
        with lock:
            seen[int(message.value or b"-1")] += 1

    members = [boom.push_consumer("t", group="g", listener=listener) for _ in range(3)]
    for round_ in range(6):
        fill(boom, round_ * 1_000, 1_000)
        members.pop(0).close()
        members.append(boom.push_consumer("t", group="g", listener=listener))
    until(lambda: len(seen) == 6_000)
    for member in members:
        member.close()
    assert set(seen.values()) == {1}


def test_a_rolling_restart_of_static_members_is_no_change_of_the_group(boom: Client) -> None:
    fill(boom, 0, 200)
    names = ["left", "right"]
    members = {name: boom.consumer("t", group="g", instance=name) for name in names}
    for consumer in members.values():
        share(consumer, 1, 3)
    until(lambda: sum(len(each.queues) for each in members.values()) == 4)
    had = {name: consumer.queues for name, consumer in members.items()}
    epoch = boom.admin.describe_group("g").group_epoch
    for name in names:
        members[name].ack(members[name].poll(10, 5))
        members[name].close()
        members[name] = boom.consumer("t", group="g", instance=name)
        until(partial(lambda name: members[name].queues == had[name], name))
    assert boom.admin.describe_group("g").group_epoch == epoch
    members["left"].close(leave=True)
    share(members["right"], 4, 4)
    assert boom.admin.describe_group("g").group_epoch > epoch


def test_unmoved_queues_do_not_pause(boom: Client) -> None:
    boom.admin.create_topic("wide", queues=12)
    with boom.consumer("wide", group="w") as one:
        share(one, 12, 12)
        with boom.consumer("wide", group="w") as two:
            share(two, 5, 7)
            share(one, 5, 7)
            kept = one.queues
            with boom.consumer("wide", group="w") as three:
                share(three, 3, 5)
                assert set(one.queues) <= set(kept)


def test_push_retries_and_dead_letters(boom: Client) -> None:
    fill(boom, 0, 100)
    attempts: Counter[int] = Counter()

    def listener(message: Message) -> object:
        number = int(message.value or b"-1")
        attempts[number] += 1
        if number == 7:
            raise ValueError("seven is never taken")
        if number == 9 and message.attempt < 3:
            return Later(0.05)
        return number != 11 or message.attempt == 2

    with boom.push_consumer(
        "t",
        group="g",
        listener=listener,
        max_attempts=3,
        retry="exponential",
        retry_first_ms=20,
    ):
        until(lambda: sum(attempts.values()) >= 97 + 3 + 3 + 2)
        with boom.consumer("%DLQ%g") as letters:
            (dead,) = letters.poll(10, 200)
    assert dead.value == b"000007"
    assert dead.headers is not None
    assert dead.headers["boom-attempt"] == b"3"
    assert b"seven is never taken" in dead.headers["boom-cause"]
    assert (attempts[7], attempts[9], attempts[11]) == (3, 3, 2)
    assert sum(attempts.values()) == 97 + 3 + 3 + 2
    with boom.consumer("t", group="g") as consumer:
        assert consumer.poll(10, 0.5) == [], "all of it is committed"


def test_what_fails_together_waits_together(boom: Client) -> None:
    # Copies that travelled one by one held up a queue for seconds when a batch of it failed.
    fill(boom, 0, 400)
    with boom.push_consumer(
        "t",
        group="g",
        listener=lambda messages: False,
        batch=200,
        retry="exponential",
        retry_first_ms=3_600_000,
    ) as consumer:
        until(lambda: consumer.handled >= 400 and not any(consumer.cached.values()))
        # A broker that does not answer within two seconds tells none.
        until(lambda: parked(boom) > 0)
    assert 1 <= parked(boom) <= 40


def parked(boom: Client) -> int:
    """How many batches wait for their time, as far as the broker tells it."""
    return sum(int(node.counters.get("parked", 0)) for node in boom.admin.stats())


def test_what_is_large_fails_as_all_does(boom: Client) -> None:
    # Retries took 4 MiB, whatever the group's topics take: what was larger came again for ever.
    boom.admin.create_topic("large", queues=1, max_message_bytes=8 * 1024 * 1024)
    value = b"x" * (TopicConfig().max_message_bytes + 1)
    with boom.producer() as producer:
        producer.send("large", value).result(200)
    with boom.consumer("large", group="g", retry="exponential", retry_first_ms=10) as consumer:
        (message,) = consumer.poll(1, 200)
        consumer.nack(message)
        (again,) = consumer.poll(1, 200)
        assert (again.value, again.attempt) == (value, 2)
        consumer.reject(again)
        with boom.consumer("%DLQ%g") as letters:
            (dead,) = letters.poll(1, 200)
    assert dead.value == value


def test_a_copy_that_cannot_go_keeps_no_other(boom: Client) -> None:
    fill(boom, 0, 3)
    with boom.consumer("t", group="g") as consumer:
        first, large, last = polled(consumer, 3)
        until(lambda: "%DLQ%g" in {topic.name for topic in boom.admin.topics()})
        boom.admin.alter_topic("%DLQ%g", max_message_bytes=1_000)
        # The broker hears of that a moment later.
        until(lambda: is_too_large(boom, "%DLQ%g", b"p" * 1_001))
        # While a producer is opened for the first, the others come to be sent together.
        consumer.reject(first, "wrong")
        consumer.reject(large, "too much to tell " * 60)
        consumer.reject(last, "wrong")
        dead: list[Message] = []
        with boom.consumer("%DLQ%g") as letters:
            while len(dead) < 2:
                dead += [
                    each
                    for each in letters.poll(1, 10)
                    if each.value != b"p" * len(each.value or b"")
                ]
    assert sorted(numbers(dead)) == sorted(numbers([first, last]))


def is_too_large(boom: Client, topic: str, value: bytes) -> bool:
    """Whether the broker refuses a value for its size."""
    with boom.producer() as producer:
        try:
            producer.send(topic, value).result()
        except InvalidRequest as error:
            return error.code == "TOO_LARGE"
    return False


def test_a_retry_outlives_its_member(boom: Client) -> None:
    fill(boom, 0, 50)
    with boom.consumer("t", group="g") as consumer:
        messages = polled(consumer, 50)
        failed = messages.pop()
        consumer.ack(messages)
        consumer.nack(failed, delay_s=0.5, cause="not today")
        with pytest.raises(InvalidRequest, match="delay_s"):
            consumer.nack(failed, delay_s=-1)
        until(lambda: consumed(consumer) == 50)
    with boom.consumer("t", group="g") as consumer:
        (again,) = read(consumer, 1)
        assert consumer.poll(1, 0.3) == []
    assert (again.value, again.attempt) == (failed.value, 2)
    assert (again.topic, again.queue, again.offset) == ("t", failed.queue, failed.offset)
    assert again.read_from == ("%RETRY%g", 0, 0)
    assert again.headers is not None
    assert again.headers["boom-cause"] == b"not today"


def consumed(consumer: GroupConsumer) -> int:
    """Sum of the committed offsets of all its queues, after a commit."""
    consumer.commit()
    return sum(consumer.committed(topic, queue) for topic, queue in consumer.queues)


def test_orderly_keeps_the_order_of_each_queue(boom: Client) -> None:
    fill(boom, 0, 2_000)
    seen: dict[int, list[int]] = {queue: [] for queue in range(4)}
    running: Counter[int] = Counter()

    def listener(message: Message) -> bool:
        running[message.queue] += 1
        assert running[message.queue] == 1
        failed = message.offset == 50 and message.attempt == 1
        if not failed:
            seen[message.queue].append(message.offset)
        running[message.queue] -= 1
        return not failed

    with boom.push_consumer("t", group="g", listener=listener, orderly=True):
        until(lambda: sum(map(len, seen.values())) == 2_000)
    for offsets in seen.values():
        assert offsets == list(range(len(offsets)))


def test_a_batch_listener_and_a_context(boom: Client) -> None:
    fill(boom, 0, 3_000)
    sizes: list[int] = []
    tokens: list[bool] = []

    def listener(messages: list[Message], context: Context) -> None:
        sizes.append(len(messages))
        tokens.append(context.cancelled)

    with boom.push_consumer("t", group="g", listener=listener, batch=500):
        until(lambda: sum(sizes) == 3_000)
    assert max(sizes) == 500
    assert not any(tokens)


def test_a_running_listener_finishes_before_its_queue_moves(boom: Client) -> None:
    fill(boom, 0, 40)
    entered, leave = threading.Event(), threading.Event()
    seen: Counter[int] = Counter()

    def slow(message: Message) -> None:
        seen[int(message.value or b"-1")] += 1
        entered.set()
        leave.wait(200)

    def quick(message: Message) -> None:
        seen[int(message.value or b"-1")] += 1

    first = boom.push_consumer("t", group="g", listener=slow, threads=2)
    assert entered.wait(200)
    second = boom.push_consumer("t", group="g", listener=quick)
    until(lambda: second.queues or len(first.queues) < 4)
    leave.set()
    until(lambda: len(seen) == 40)
    first.close()
    second.close()
    assert set(seen.values()) == {1}


def test_a_filter_is_the_groups(boom: Client) -> None:
    with boom.producer() as producer:
        tags = ["late" if n % 3 == 0 else "early" for n in range(300)]
        producer.send_many("t", [b"%06d" % n for n in range(300)], tags=tags).result(200)
    with boom.consumer("t", group="g", tags="late") as consumer:
        assert numbers(read(consumer, 100)) == list(range(0, 300, 3))
        with pytest.raises(GroupError, match="replace") as caught:
            boom.consumer("t", group="g")
        assert caught.value.code == "SUBSCRIPTION_MISMATCH"
        with boom.consumer("t", group="g", subscription="replace") as other:
            fill(boom, 300, 50)

            def all_of_it() -> int:
                for each in (consumer, other):
                    some = each.poll(50, 0.05)
                    each.ack(some)
                    taken.extend(some)
                return len(taken) == 50

            taken: list[Message] = []
            until(all_of_it)
    assert sorted(numbers(taken)) == list(range(300, 350))


def test_errors_say_what_and_how_to_mend_it(boom: Client) -> None:
    with pytest.raises(UnknownResource, match="create it"):
        boom.consumer("nothing", group="g")
    with pytest.raises(InvalidRequest, match="did you mean 'session_ms'"):
        boom.consumer("t", group="g", sesion_ms=1)
    with pytest.raises(InvalidRequest, match="group name"):
        boom.consumer("t", group="no spaces")
    unchecked: Any = boom
    with pytest.raises(InvalidRequest, match="group"):
        unchecked.consumer("t", instance="one")
    with pytest.raises(InvalidRequest, match="queues"):
        unchecked.consumer("t", group="g", queues=[1])
    with boom.consumer("t", group="g") as consumer:
        share(consumer, 4, 4)
        with pytest.raises(GroupError, match="ends at 0"):
            consumer.commit({("t", 0): 5})
        with pytest.raises(UnknownResource, match="does not have"):
            consumer.seek("t", 9, 0)


def test_seek_pause_and_positions(boom: Client) -> None:
    with boom.producer() as producer:
        producer.send_many("t", [b"%06d" % n for n in range(100)], queue=2).result(200)
    with boom.consumer("t", group="g") as consumer:
        assert len(read(consumer, 100)) == 100
        consumer.seek("t", 2, 40)
        assert numbers(read(consumer, 60)) == list(range(40, 100))
        assert consumer.position("t", 2) == 100
        consumer.pause("t", 2)
        with boom.producer() as producer:
            producer.send("t", b"000100", queue=2).result(200)
        assert consumer.poll(1, 0.3) == []
        consumer.resume("t", 2)
        assert numbers(read(consumer, 1)) == [100]
        consumer.commit()
        assert consumer.committed("t", 2) == 101


def test_a_group_may_start_at_the_end_and_new_queues_at_the_first(boom: Client) -> None:
    fill(boom, 0, 100)
    with boom.consumer("t", group="g", start="last") as consumer:
        share(consumer, 4, 4)
        assert consumer.poll(1, 0.5) == []
        boom.admin.alter_topic("t", queues=5)
        with boom.producer() as producer:
            producer.send("t", b"000100", queue=0).result(200)
            until(lambda: len(boom.admin.describe_topic("t").queues) == 5)
            producer.send("t", b"000101", queue=0).result(200)
        with boom.producer() as producer:
            producer.send("t", b"000102", queue=4).result(200)
        assert sorted(numbers(read(consumer, 3))) == [100, 101, 102]


def test_a_killed_broker_doubles_nothing() -> None:
    with Cluster(name_servers=1, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("t", queues=4, replicas=3)
        fill(boom, 0, 500)
        with boom.consumer("t", group="g") as one, boom.consumer("t", group="g") as two:
            taken: list[Message] = []

            def take(count: int) -> Callable[[], bool]:
                def enough() -> bool:
                    for consumer in (one, two):
                        some = consumer.poll(50, 0.05)
                        consumer.ack(some)
                        taken.extend(some)
                    return len(taken) >= count

                return enough

            until(take(500))
            cluster.kill(boom.admin.describe_group("g").coordinator)
            fill(boom, 500, 500)
            until(take(1_000))
            for consumer in (one, two):
                consumer.commit()
            assert one.poll(10, 0.5) == two.poll(10, 0.5) == []
    assert sorted(numbers(taken)) == list(range(1_000))


def test_a_client_that_is_closed_leaves_its_groups(boom: Client) -> None:
    fill(boom, 0, 100)
    endpoints = [broker.endpoint for broker in boom.admin.brokers()]
    with connect(endpoints) as other:
        listening = other.push_consumer("t", group="g", listener=lambda _: None)
        until(lambda: listening.handled == 100)
        reading = other.consumer("t", group="g")
        assert reading.poll(1, 0.1) == []
    with boom.consumer("t", group="g") as consumer:
        share(consumer, 4, 4)
        assert not [m for m in boom.admin.describe_group("g").members if m.id != consumer.member_id]
        assert consumer.poll(1, 0.3) == []


def test_a_consumer_that_nobody_holds_leaves(boom: Client) -> None:
    held = boom.consumer("t", group="g", session_ms=600_000)
    boom.consumer("t", group="g")
    gc.collect()
    until(lambda: len(held.queues) == 4)
    held.close()


def test_broadcasting_gives_everything_to_everybody(boom: Client, tmp_path: Path) -> None:
    fill(boom, 0, 200)
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        with boom.consumer("t", group="b", mode="broadcasting", offsets_file=file) as consumer:
            assert sorted(numbers(read(consumer, 200))) == list(range(200))
    fill(boom, 200, 50)
    seen: list[Message] = []
    with boom.push_consumer(
        "t", group="b", listener=seen.append, mode="broadcasting", offsets_file=files[0]
    ):
        until(lambda: len(seen) >= 50)
        with pytest.raises(InvalidRequest, match="another consumer"):
            boom.consumer("t", group="b", mode="broadcasting", offsets_file=files[0])
    assert sorted(numbers(seen)) == list(range(200, 250))


def test_who_polls_no_more_loses_its_queues_until_it_polls_again(boom: Client) -> None:
    fill(boom, 0, 400)
    with boom.consumer("t", group="g", max_poll_interval_ms=10_000) as hung:
        first = polled(hung, 40)
        hung.ack(first[:30])
        with boom.consumer("t", group="g") as other:
            taken = read(other, 370)
            assert len(other.queues) == 4
            assert hung.queues == []
            assert {*numbers(first[:30]), *numbers(taken)} == set(range(400))
            with pytest.raises(GroupError, match="max_poll_interval_ms") as caught:
                hung.commit()
            assert caught.value.code == "UNKNOWN_MEMBER"
            until(lambda: hung.poll(1, 0.1) is not None and hung.assigned and other.assigned)


@pytest.mark.thorough
def test_a_queue_of_a_member_that_polls_no_more_says_so(boom: Client) -> None:
    fill(boom, 0, 40)
    with boom.consumer("t", group="g", heartbeat_ms=200, session_ms=5_000) as hung:
        polled(hung, 1)

        def stuck() -> set[str]:
            queues = boom.admin.describe_group("g").queues
            return {queue.stuck.partition(" for ")[0] for queue in queues if queue.lag}

        until(lambda: stuck() == {"not polled"})


def test_who_has_no_queue_yet_can_wait_for_one(boom: Client) -> None:
    boom.admin.create_topic("one", queues=1)
    fill(boom, 0, 10, "one")
    with boom.consumer("one", group="g") as first:
        assert first.wait_assigned()
        with boom.consumer("one", group="g") as spare:
            assert not spare.wait_assigned(0.2)
            assert (spare.assigned, spare.poll(1, 0.1)) == (False, [])
            first.close()
            assert spare.wait_assigned()
            assert spare.assigned
            assert len(polled(spare, 10)) == 10
    with pytest.raises(ClientClosed):
        spare.wait_assigned()
