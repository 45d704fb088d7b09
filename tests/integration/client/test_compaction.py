"""Compacted topics on real clusters: the latest of each key, beyond retention and over fail-overs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator

import pytest

from logboom.client import Client, Message, aio, connect
from logboom.deploy import Cluster
from logboom.wire.errors import InvalidRequest
from tests.integration.waiting import wait_until

KEYS = 200
SETTINGS = {"retention_check_ms": 200, "follower_reads": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(name_servers=1, brokers=3, broker_settings=SETTINGS) as found:
        yield found


def fill(boom: Client, topic: str, rounds: int = 3) -> dict[bytes, bytes]:
    """Write every key some times, delete some, and wait until all is compacted; what is left."""
    left: dict[bytes, bytes] = {}
    with boom.producer(max_batch_bytes=4 * 1024) as producer:
        for number in range(rounds):
            for key in (b"key %d" % n for n in range(number * 20, KEYS)):
                left[key] = b"%d of %s" % (number, key)
                producer.send(topic, left[key] + bytes(100), key=key)
            producer.flush()
        for key in (b"key %d" % n for n in range(0, KEYS, 10)):
            producer.send(topic, None, key=key)
            left.pop(key)
        producer.send(topic, b"nobody's", key=None)
    return left


def compacted(boom: Client, topic: str) -> None:
    """Wait until everything is."""

    def done() -> bool:
        ends = boom.admin.offsets(topic)
        horizons = boom.admin.horizons(topic)
        return all(horizons.get(n) == end for n, (_, end) in ends.items())

    wait_until(done, "all of the topic is compacted")


def read(boom: Client, topic: str) -> list[Message]:
    """All that a reader of compacted messages sees up to the end."""
    ends = {n: end for n, (_, end) in boom.admin.offsets(topic).items() if end}
    found: list[Message] = []
    with boom.consumer(topic, read_compacted=True) as reader:
        while any((reader.position(topic, n) or 0) < end for n, end in ends.items()):
            found += reader.poll(1_000, 5.0)
    return found


def table(messages: list[Message]) -> dict[bytes, bytes]:
    """The latest value of each key."""
    found: dict[bytes, bytes] = {}
    for message in messages:
        if message.key is not None and message.value is None:
            found.pop(message.key, None)
        elif message.key is not None and message.value is not None:
            found[message.key] = message.value.rstrip(b"\0")
    return found


def test_the_latest_of_each_key_outlives_the_log_and_its_leaders(cluster: Cluster) -> None:
    with connect(cluster.endpoints, timeout_s=200) as boom:
        boom.admin.create_topic(
            "prices", queues=1, replicas=3, compaction=True, retention_bytes=16 * 1024
        )
        expected = fill(boom, "prices")
        compacted(boom, "prices")
        wait_until(lambda: boom.admin.offsets("prices")[0][0] > KEYS, "retention has taken a part")
        first = read(boom, "prices")
        assert table(first) == expected
        keys = [message.key for message in first if message.key is not None]
        assert len(keys) == len(set(keys)) < 2 * KEYS
        # A broker that lost its disk has to fetch the copies before it counts again.
        leader = cluster.leader("prices", 0)
        lost, other = sorted({"broker-1", "broker-2", "broker-3"} - {leader})
        cluster.kill(lost)
        shutil.rmtree(cluster.data / lost / "data")
        cluster.start(lost)
        wait_until(
            lambda: len(boom.admin.describe_topic("prices").queues[0].isr) == 3, "all are in sync"
        )
        boom.admin.elect_leader("prices", 0, lost)
        wait_until(lambda: cluster.leader("prices", 0) == lost, "it leads")
        cluster.kill(leader)
        cluster.kill(other)
        assert table(read(boom, "prices")) == expected
        cluster.start(leader)
        cluster.start(other)
        with boom.producer() as producer:
            producer.send("prices", b"new", key=b"key 199").result()
            expected[b"key 199"] = b"new"
        assert table(read(boom, "prices")) == expected


def test_pulls_columns_and_asyncio_see_the_same(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("small", queues=1, replicas=3, compaction=True)
        with boom.producer() as producer:
            producer.send_many("small", [b"1", b"2", b"3", b"4"], keys=[b"a", b"b", b"a", b"c"])
        compacted(boom, "small")
        result = boom.pull("small", 0, 0, read_compacted=True)
        seen = [(message.offset, message.value) for message in result.messages]
        assert seen == [(1, b"2"), (2, b"3"), (3, b"4")]
        assert (result.status, result.next_offset) == ("FOUND", 4)
        one = boom.pull("small", 0, 0, max_messages=1, read_compacted=True)
        assert ([m.offset for m in one.messages], one.next_offset) == ([1], 2)
        assert len(boom.pull("small", 0, 0).messages) == 4
        with boom.consumer("small", read_compacted=True) as reader:
            columns = reader.poll_columns(200.0)
        assert [value for each in columns for value in each.columns.values()] == [b"2", b"3", b"4"]
        with pytest.raises(InvalidRequest, match="a group reads every message"):
            boom.consumer("small", group="g", read_compacted=True)
        boom.admin.alter_topic("small", compaction=False)
        wait_until(lambda: not boom.admin.horizons("small"), "it is not compacted any more")
        assert len(read(boom, "small")) == 4

    async def over_asyncio() -> list[int]:
        async with aio.connect(cluster.endpoints) as boom:
            pulled = await boom.pull("prices", 0, 0, max_messages=5, read_compacted=True)
            async with boom.consumer("prices", read_compacted=True) as reader:
                polled: list[Message] = []
                while len(polled) < 5:
                    polled += await reader.poll(5 - len(polled), 10.0)
            assert await boom.admin.horizons("prices")
            return [message.offset for message in [*pulled.messages, *polled]]

    offsets = asyncio.run(over_asyncio())
    assert offsets[:5] == offsets[5:] == sorted(offsets[:5])


def test_a_range_holds_copies_and_then_the_whole_log(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("ranged", queues=1, compaction=True, retention_bytes=16 * 1024)
        fill(boom, "ranged")
        compacted(boom, "ranged")
        wait_until(lambda: boom.admin.offsets("ranged")[0][0] > KEYS, "retention has taken a part")
        first, end = boom.admin.offsets("ranged")[0]
        latest = [message.offset for message in read(boom, "ranged")]
        found = [
            offset
            for part in boom.read_range("ranged", 0, 0, end)
            for offset in range(part.base_offset, part.next_offset)
        ]
        # Retention may have gone on since.
        start = boom.admin.offsets("ranged")[0][0]
        assert found[-1] == end - 1
        assert [offset for offset in found if offset >= start] == list(range(start, end))
        assert set(latest) <= set(found)
        assert len([offset for offset in found if offset < first]) < first
        assert boom.admin.offsets("ranged", read_compacted=True) == {0: (0, end)}
