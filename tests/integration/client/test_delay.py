"""Delayed messages between real clients and nodes: in time, once, whoever fails; and recalled."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from logboom.client import Client, Message, SendFuture, aio, connect, delay_level
from logboom.deploy import Cluster
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import InvalidRequest


def read(boom: Client, topic: str, count: int, timeout_s: float = 200) -> list[Message]:
    """So many messages, then none for a moment."""
    found: list[Message] = []
    with boom.consumer(topic) as consumer:
        while len(found) < count:
            messages = consumer.poll(count - len(found), timeout_s=timeout_s)
            assert messages, f"{len(found)} of {count} came"
            found += messages
        assert consumer.poll(1, timeout_s=0.3) == []
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_messages_come_at_their_times_in_the_order_of_these(boom: Client) -> None:
    boom.admin.create_topic("times", queues=1)
    begun_ms = now_ms()
    with boom.producer() as producer:
        third = producer.send("times", b"3", key=b"k", tag="t", delay_s=9.0).result(200)
        second = producer.send("times", b"2", deliver_at=begun_ms + 8_500).result(200)
        # All are sent before the first is due, also on a slow machine.
        soon = datetime.fromtimestamp(begun_ms / 1000, UTC) + timedelta(seconds=8)
        first = producer.send("times", b"1", deliver_at=soon).result(200)
        at_once = producer.send("times", b"0").result(200)
        assert (at_once.offset, at_once.parked) == (0, None)
        assert third.offset == -1
        assert third.parked is not None
        assert third.parked.due_ms >= begun_ms + 9_000
        places = [
            (sent.parked.offset, sent.parked.side) for sent in (third, second, first) if sent.parked
        ]
        assert places == [(0, 0), (0, 1), (0, 2)]
        messages = read(boom, "times", 4)
    assert [message.value for message in messages] == [b"0", b"1", b"2", b"3"]
    assert now_ms() >= begun_ms + 9_000
    assert (messages[3].key, messages[3].tag, messages[3].offset) == (b"k", "t", 3)
    assert messages[3].timestamp_ms < third.parked.due_ms


def test_columns_wait_together_and_levels_are_rocketmqs(boom: Client) -> None:
    boom.admin.create_topic("columns", queues=1)
    with boom.producer() as producer:
        values: list[bytes | None] = [b"%d" % n for n in range(1_000)]
        future = producer.send_many("columns", values, delay_s=delay_level(1))
        assert future.result(200) == [(0, -1, 1_000)]
        (parked,) = future.parked()
        assert parked.due_ms <= now_ms() + 1_000
        assert [message.value for message in read(boom, "columns", 1_000)] == values
        assert now_ms() >= parked.due_ms


def test_what_was_recalled_never_comes(boom: Client) -> None:
    boom.admin.create_topic("recalls", queues=1)
    with boom.producer() as producer:
        gone, kept = (producer.send("recalls", value, delay_s=5) for value in (b"a", b"b"))
        assert producer.recall(gone.result(200))
        assert producer.recall(gone.result(200))
        assert [message.value for message in read(boom, "recalls", 1)] == [b"b"]
        assert not producer.recall(kept.result(200))
        with pytest.raises(InvalidRequest):
            producer.recall(producer.send("recalls", b"c").result(200))


def test_delays_that_nobody_can_mean_are_refused_before_they_are_sent(boom: Client) -> None:
    boom.admin.create_topic("refused", queues=1)
    with boom.producer() as producer:
        for delay_s in (-1, 41 * 86_400):
            with pytest.raises(InvalidRequest, match="40 days"):
                producer.send("refused", b"x", delay_s=delay_s)
        with pytest.raises(InvalidRequest):
            producer.send_many("refused", [b"x"], delay_s=-1)


def test_asyncio_delays_and_recalls_too(node: Embedded) -> None:
    async def run() -> list[bytes | None]:
        async with await aio.connect(node.endpoints) as boom:
            await boom.admin.create_topic("async-delays", queues=1)
            async with boom.producer() as producer:
                # The first waits for its topic, the others go at once. What is recalled would have
                # come before what is not.
                whole = producer.send_many("async-delays", [b"x", b"y"], delay_s=5)
                (parked,) = await whole.parked()
                assert await whole == [(0, -1, 2)]
                assert await producer.recall(parked)
                sent = await producer.send("async-delays", b"gone", delay_s=5)
                many = producer.send_many("async-delays", [b"1", b"2"], delay_s=5.5)
                assert await many == [(0, -1, 2)]
                assert len(await many.parked()) == 1
                assert await producer.recall(sent)
            found: list[bytes | None] = []
            async with boom.consumer("async-delays") as consumer:
                while len(found) < 2:
                    found += [m.value for m in await consumer.poll(2, timeout_s=10)]
                assert await consumer.poll(1, timeout_s=0.3) == []
            return found

    assert asyncio.run(run()) == [b"1", b"2"]


def test_a_leader_killed_while_messages_wait_costs_and_doubles_none() -> None:
    with (
        Cluster(name_servers=1, brokers=3) as cluster,
        connect(cluster.endpoints, timeout_s=200) as boom,
    ):
        boom.admin.create_topic("waiting", queues=1, replicas=3)
        with boom.producer() as producer:
            sent: list[SendFuture] = [
                producer.send("waiting", b"%d" % n, delay_s=1 + n / 100) for n in range(200)
            ]
            results = [future.result(200) for future in sent]
            gone = results[199]
            # Half of them are due while nobody leads, or soon after.
            time.sleep(0.8)
            victim = cluster.leader("waiting", 0)
            cluster.kill(victim)
            assert producer.recall(gone) in (True, False)
            recalled = producer.recall(gone)
            messages = read(boom, "waiting", 200 - recalled)
            cluster.start(victim)
        values = [message.value for message in messages]
        assert values == [b"%d" % n for n in range(200 - recalled)]
        assert [message.offset for message in messages] == list(range(200 - recalled))


def test_what_waits_outlives_a_restart_of_everything() -> None:
    with (
        Cluster(name_servers=1, brokers=1) as cluster,
        connect(cluster.endpoints, timeout_s=200) as boom,
    ):
        boom.admin.create_topic("patient", queues=2)
        with boom.producer() as producer:
            for n in range(20):
                producer.send("patient", b"%d" % n, queue=n % 2, delay_s=2).result(200)
        for name in ("broker-1", "name-1"):
            cluster.kill(name)
        for name in ("name-1", "broker-1"):
            cluster.start(name)
        messages = read(boom, "patient", 20)
        assert sorted(int(m.value or b"") for m in messages) == list(range(20))
