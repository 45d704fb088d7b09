"""Transactions between real clients and nodes: all or nothing, once, whoever is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logboom.client import Client, Message, Producer, connect
from logboom.client.producer_options import Isolation
from logboom.deploy import Cluster
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import (
    ClientClosed,
    GroupError,
    InvalidRequest,
    LogboomError,
    Refused,
    TransactionError,
    UnknownResource,
)
from tests.integration.waiting import wait_until


def values(boom: Client, topic: str) -> list[bytes | None]:
    """All that can be read, queue by queue."""
    found: list[bytes | None] = []
    for queue, (at, end) in boom.admin.offsets(topic).items():
        while at < end:
            result = boom.pull(topic, queue, at, max_messages=1_000)
            found += [message.value for message in result.messages]
            at = result.next_offset
    return found


def test_a_commit_publishes_across_topics_and_queues(boom: Client) -> None:
    boom.admin.create_topic("debits", queues=4)
    boom.admin.create_topic("credits", queues=2)
    with boom.producer() as producer:
        with producer.transaction() as txn:
            sent = [txn.send("debits", b"%d" % n, key=b"%d" % n) for n in range(40)]
            many = txn.send_many("credits", [b"a", b"b"], queue=1, tags="x")
            producer.flush()
            assert sum(end for _, end in boom.admin.offsets("debits").values()) == 0
        assert {future.result(200).offset for future in sent} == {-1}
        assert many.result(200) == [(1, -1, 2)]
        assert sorted(int(value or b"") for value in values(boom, "debits")) == list(range(40))
        assert values(boom, "credits") == [b"a", b"b"]
        with pytest.raises(TransactionError, match="has ended"):
            txn.send("credits", b"late")
        txn.commit()
        with pytest.raises(TransactionError):
            txn.abort()
    assert values(boom, "credits") == [b"a", b"b"]


def test_an_exception_aborts(boom: Client) -> None:
    boom.admin.create_topic("aborted", queues=2)

    class Broke(Exception):
        pass

    def fail(txn_queue: int) -> None:
        with producer.transaction("transfer") as txn:
            txn.send("aborted", b"no", queue=txn_queue)
            raise Broke

    with boom.producer() as producer:
        for queue in range(2):
            with pytest.raises(Broke):
                fail(queue)
        with producer.transaction("transfer") as txn:
            txn.send("aborted", b"no", queue=0)
            txn.abort()
        with producer.transaction("transfer") as txn:
            txn.send("aborted", b"yes", queue=0)
    assert values(boom, "aborted") == [b"yes"]


def test_a_sequence_is_committed_once(boom: Client) -> None:
    boom.admin.create_topic("once", queues=1)
    for attempt in range(2):
        with boom.producer() as producer:
            for sequence in (3, 5, 4):
                with producer.transaction("job", sequence) as txn:
                    assert txn.duplicate == (attempt == 1 or sequence == 4)
                    txn.send("once", b"%d" % sequence)
                    txn.send_many("once", [b"%d" % sequence])
    assert values(boom, "once") == [b"3", b"3", b"5", b"5"]


def test_a_newer_process_fences_the_older(node: Embedded, boom: Client) -> None:
    boom.admin.create_topic("fenced", queues=1)
    with boom.producer() as producer, connect(node.endpoints) as other:
        old = producer.transaction("mover")
        old.send("fenced", b"old")
        with pytest.raises(InvalidRequest, match="is open"):
            producer.transaction("mover")
        with pytest.raises(InvalidRequest, match="is open"), boom.producer() as second:
            second.transaction("mover")
        with other.producer() as newer, newer.transaction("mover") as txn:
            txn.send("fenced", b"new")
        with pytest.raises(Refused) as caught:
            old.commit()
        assert caught.value.code == "FENCED"
        with pytest.raises(Refused):
            producer.transaction("mover")
    assert values(boom, "fenced") == [b"new"]


def test_many_threads_of_one_producer_have_transactions_of_their_own(boom: Client) -> None:
    boom.admin.create_topic("own", queues=2)
    with boom.producer() as producer:
        first, second = producer.transaction(), producer.transaction()
        assert first.app_id != second.app_id
        first.send("own", b"1", queue=0)
        second.send("own", b"2", queue=1)
        first.commit()
        second.abort()
        third = producer.transaction()
        third.send("own", b"3", queue=0)
    assert values(boom, "own") == [b"1"]
    with pytest.raises(TransactionError):
        third.send("own", b"4")
    with pytest.raises(ClientClosed):
        producer.transaction()


def test_a_transaction_that_its_closed_producer_aborted_holds_nothing_up(boom: Client) -> None:
    boom.admin.create_topic("held", queues=1)
    with boom.producer() as producer:
        left = producer.transaction("holder")
        left.send("held", b"left open")
    with boom.producer() as producer:
        txn = producer.transaction("holder")
        with pytest.raises(TransactionError):
            left.commit()
        with pytest.raises(InvalidRequest, match="is open"):
            producer.transaction("holder")
        txn.send("held", b"kept")
        txn.commit()
    assert values(boom, "held") == [b"kept"]


def test_bad_input_publishes_nothing(boom: Client) -> None:
    boom.admin.create_topic("bad", queues=1, max_message_bytes=1_000)
    with boom.producer() as producer:
        nobody: Any = b"a group's name in bytes"
        first = producer.transaction()
        first.send("bad", b"1")
        with pytest.raises(UnknownResource):
            first.send("no-such-topic", b"2")
        with pytest.raises(InvalidRequest):
            first.send("bad", b"x" * 2_000)
        with pytest.raises(InvalidRequest, match="not bytes"):
            first.send_offsets(nobody, {})
        first.abort()
        for wrong in ("", "a\0b", "x" * 300):
            with pytest.raises(InvalidRequest):
                producer.transaction(wrong)
        with pytest.raises(InvalidRequest):
            producer.transaction("bad", -1)
        boom.admin.alter_group("bad-readers", subscription={"bad": "*"}, create=True)
        for group, offset, error in (
            ("no-such-group", 0, UnknownResource),
            ("bad-readers", 7, GroupError),
        ):
            refused = producer.transaction()
            refused.send("bad", b"1")
            refused.send_offsets(group, {("bad", 0): offset})
            with pytest.raises(error):
                refused.commit()
            with pytest.raises(TransactionError):
                refused.commit()
    assert values(boom, "bad") == []


def test_handles_are_decided_by_another_client(node: Embedded, boom: Client) -> None:
    boom.admin.create_topic("sink", queues=3)
    handles = []
    for task in range(3):
        with connect(node.endpoints) as executor:
            handles += executor.park([("sink", task, [b"%d" % task] * 10)], "spark", 99, 7)
            executor.park([("sink", task, [b"a failed try"])], "spark", 99, 7)
    assert values(boom, "sink") == []
    decision = boom.decide("spark", 7, handles)
    assert (decision.outcome, decision.again) == ("commit", False)
    assert Counter(values(boom, "sink")) == {b"0": 10, b"1": 10, b"2": 10}
    assert boom.decide("spark", 7, handles).again
    with pytest.raises(TransactionError) as caught:
        boom.park([("sink", 0, [b"late"])], "spark", 99, 7)
    assert caught.value.code == "TRANSACTION_CLOSED"
    handles = boom.park([("sink", 0, [b"dropped"])], "spark", 99, 8)
    assert boom.decide("spark", 8, handles, commit=False).outcome == "abort"
    with pytest.raises(TransactionError) as caught:
        boom.decide("spark", 8, handles)
    assert caught.value.code == "UNKNOWN_HANDLES"
    assert len(values(boom, "sink")) == 30


def test_all_that_waits_is_listed_however_much(boom: Client) -> None:
    boom.admin.create_topic("much", queues=3)
    batches = [("much", n % 3, [b"%d" % n]) for n in range(2_300)]
    handles = boom.park(batches, app_id="much", attempt=1)
    for app_id in ("much", ""):
        listed = boom.admin.transactions(app_id)
        assert not listed.more
        [found] = [each for each in listed.transactions if each.app_id == "much"]
        assert found.messages == 2_300
        assert {(each.queue, each.side) for each in found.parked} == {
            (each.queue, each.side) for each in handles
        }
    assert boom.admin.transactions("much", most=1_000).more
    boom.decide("much", 0, handles, commit=False)
    assert boom.admin.transactions("much").transactions == []


def test_an_application_id_that_a_producer_makes_up_is_its_own(boom: Client) -> None:
    boom.admin.create_topic("made-up", queues=1)
    with boom.producer() as producer:
        with producer.transaction() as txn:
            txn.send("made-up", b"1")
        assert re.fullmatch("%OWN%[0-9a-f]{32}", txn.app_id), "of nothing that others are shown"
        with producer.transaction() as again:
            again.send("made-up", b"2")
        assert (again.app_id, again.sequence) == (txn.app_id, txn.sequence + 1)
        with pytest.raises(InvalidRequest, match="choose another"):
            producer.transaction(txn.app_id)
    with pytest.raises(InvalidRequest, match="choose another"):
        boom.park([("made-up", 0, [b"3"])], app_id=txn.app_id, attempt=1)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_push_consumers_say_what_they_see(boom: Client, isolation: Isolation) -> None:
    topic = f"pushed-{isolation}"
    boom.admin.create_topic(topic, queues=2)
    seen: list[bytes | None] = []
    with (
        boom.producer() as producer,
        boom.push_consumer(
            topic,
            group=topic,
            listener=lambda message: seen.append(message.value),
            isolation=isolation,
        ),
    ):
        with producer.transaction() as txn:
            for number in range(50):
                txn.send(topic, b"%d" % number)
        wait_until(lambda: len(seen) == 50, "all are pushed")
    assert Counter(seen) == Counter(b"%d" % number for number in range(50))
    wrong: Any = "committed"
    with pytest.raises(InvalidRequest, match="read_committed"):
        boom.push_consumer(topic, group=topic, listener=seen.append, isolation=wrong)


def test_half_messages_are_published_when_their_local_transaction_says_so(boom: Client) -> None:
    boom.admin.create_topic("orders", queues=1)
    asked: list[Message] = []
    looked = threading.Event()

    def check(message: Message) -> str:
        # The producer group is asked after six seconds, however far this test has come.
        looked.wait(200)
        asked.append(message)
        return "rollback" if message.value == b"never paid" else "commit"

    def crash(message: Message) -> str:
        raise KeyError(message.value)

    with (
        boom.producer() as producer,
        producer.transactional_sender(group="shop", check=check) as sender,
    ):
        paid = sender.send("orders", b"paid", local=lambda message: "commit", key=b"1")
        refused = sender.send("orders", b"refused", local=lambda message: "rollback")
        with pytest.raises(KeyError):
            sender.send("orders", b"crashed", local=crash)
        unknown = sender.send("orders", b"never paid", local=lambda message: "unknown")
        assert [paid.outcome, refused.outcome, unknown.outcome] == [
            "committed",
            "aborted",
            "unknown",
        ]
        assert values(boom, "orders") == [b"paid"]
        with pytest.raises(InvalidRequest):
            sender.send("orders", b"x", local=lambda message: None)
        looked.set()
        # Again about one whose answer comes late.
        wait_until(lambda: len({each.value for each in asked}) == 3, "the producer group is asked")
        wait_until(lambda: len(values(boom, "orders")) == 3, "what checks commit is published")
    assert {message.value for message in asked} == {b"crashed", b"never paid", b"x"}
    assert Counter(values(boom, "orders")) == Counter([b"crashed", b"paid", b"x"])


MOVER = """
import sys

from logboom.client import connect

with connect(sys.argv[1]) as boom, boom.producer() as producer:
    with boom.consumer("raw", group="movers", instance="one", commit_every_s=0) as consumer:
        while True:
            messages = consumer.poll(max_messages=40, timeout_s=1)
            if not messages:
                # The end, or only slow.
                done = sum(end for _, end in boom.admin.offsets("cooked").values())
                if done >= int(sys.argv[2]):
                    break
                continue
            with producer.transaction("mover") as txn:
                for message in messages:
                    txn.send("cooked", b"cooked " + (message.value or b""))
                txn.send_offsets(consumer, messages)
"""
RAW = 1_600


def test_what_is_consumed_is_produced_exactly_once_though_the_process_is_killed(
    tmp_path: Path,
) -> None:
    script = tmp_path / "mover.py"
    script.write_text(MOVER, "utf-8")
    with Cluster(name_servers=1, brokers=2) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("raw", queues=4)
        boom.admin.create_topic("cooked", queues=4)
        with boom.producer() as producer:
            for queue in range(4):
                made = [b"%d" % n for n in range(queue, RAW, 4)]
                producer.send_many("raw", made, queue=queue).result(200)

        def reached(count: int) -> bool:
            return sum(end for _, end in boom.admin.offsets("cooked").values()) >= count

        arguments = [sys.executable, str(script), cluster.endpoints[0], str(RAW)]
        for at in (100, 500, 1_000):
            mover = subprocess.Popen(arguments)
            wait_until(partial(reached, at), f"{at} are done", 200, 0.002)
            os.kill(mover.pid, signal.SIGKILL)
            mover.wait(200)
        last = subprocess.run(arguments, timeout=200, check=True)
        assert last.returncode == 0
        cooked = Counter(values(boom, "cooked"))
        assert cooked == Counter(b"cooked %d" % n for n in range(RAW))
        assert {each.lag for each in boom.admin.describe_group("movers").queues} == {0}


@pytest.mark.thorough
def test_commits_hold_while_brokers_and_name_servers_are_killed() -> None:
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("left", queues=3, replicas=3)
        boom.admin.create_topic("right", queues=3, replicas=3)
        killed = [cluster.leader("left", 0), cluster.raft_leader()]
        with boom.producer() as producer:
            for n in range(60):
                if n in (15, 35):
                    cluster.kill(killed[n > 15])
                with producer.transaction("pairs") as txn:
                    txn.send("left", b"%d" % n, queue=n % 3)
                    txn.send("right", b"%d" % n, queue=(n + 1) % 3)
                if n in (30, 50):
                    cluster.start(killed[n > 30])
        expected = Counter(b"%d" % n for n in range(60))
        assert Counter(values(boom, "left")) == Counter(values(boom, "right")) == expected


class Mover:
    """A member that moves what it is given from one topic to another, in a thread."""

    def __init__(self, endpoints: list[str], name: str) -> None:
        self.refused = 0
        self._stop = threading.Event()
        self._name = name
        self._endpoints = endpoints
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Stop in good order."""
        self._stop.set()
        self._thread.join(200)
        assert not self._thread.is_alive()
        assert self.error is None, self.error

    def _run(self) -> None:
        try:
            with connect(self._endpoints) as boom, boom.producer() as producer:
                self._move(boom, producer)
        except LogboomError as error:
            self.error = error

    def _move(self, boom: Client, producer: Producer) -> None:
        settings: dict[str, Any] = {"heartbeat_ms": 200, "session_ms": 6_000}
        with boom.consumer("from", group="crew", commit_every_s=0, **settings) as consumer:
            while not self._stop.is_set():
                messages = consumer.poll(max_messages=50, timeout_s=0.2)
                if not messages:
                    continue
                try:
                    with producer.transaction(self._name) as txn:
                        txn.send_offsets(consumer, messages)
                        for message in messages:
                            txn.send("to", message.value)
                except GroupError:
                    self.refused += 1  # a queue went to another member: it moves them


def test_queues_that_move_between_members_are_moved_exactly_once(node: Embedded) -> None:
    total = 3_000
    with connect(node.endpoints) as boom:
        boom.admin.create_topic("from", queues=6)
        boom.admin.create_topic("to", queues=2)
        movers = [Mover(node.endpoints, "mover-0")]
        with boom.producer() as producer:
            for begin in range(0, total, 500):
                for queue in range(6):
                    part = [b"%d" % n for n in range(begin + queue, begin + 500, 6)]
                    producer.send_many("from", part, queue=queue).result(200)
                if begin in (500, 1_000):
                    movers.append(Mover(node.endpoints, f"mover-{begin}"))
                if begin in (1_500, 2_000):
                    movers.pop(0).end()

        def moved() -> int:
            return sum(end for _, end in boom.admin.offsets("to").values())

        wait_until(lambda: moved() >= total, "all are moved", 200)
        for mover in movers:
            mover.end()
        assert Counter(values(boom, "to")) == Counter(b"%d" % n for n in range(total))
