"""Consumers far behind read from a follower, if brokers and group let them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logboom.client import Client, GroupConsumer, connect
from logboom.deploy import Cluster

COUNT = 20_000
SIZE = 500
MORE_READINGS = 2


@pytest.fixture(scope="module")
def boom() -> Iterator[Client]:
    settings = {"follower_reads": True, "memory_bytes": 1_000_000}
    with (
        Cluster(name_servers=1, brokers=2, broker_settings=settings) as cluster,
        connect(cluster.endpoints) as client,
    ):
        client.admin.create_topic("history", queues=1, replicas=2)
        values = [b"%06d" % n + bytes(SIZE) for n in range(COUNT)]
        with client.producer(max_batch_bytes=64 * 1024) as producer:
            producer.send_many("history", values, queue=0).result()
        yield client


def pulled(boom: Client) -> dict[str, int]:
    """Messages that each broker has sent to readers."""
    stats = {node.node: node.counters for node in boom.admin.stats() if node.role == "broker"}
    return {name: int(counters.get("pulled_messages", 0)) for name, counters in stats.items()}


def read_all(boom: Client, consumer: GroupConsumer, before: dict[str, int]) -> float:
    """Read the whole queue; the share of its messages that a follower sent since `before`."""
    (queue,) = boom.admin.describe_topic("history").queues
    (follower,) = set(queue.replicas) - {queue.leader}
    messages = iter(consumer)
    for expected in range(COUNT):
        message = next(messages)
        assert message.offset == expected
        consumer.ack(message)
    told = pulled(boom)
    more = {name: count - before[name] for name, count in told.items()}
    assert sum(more.values()) >= COUNT
    return more[follower] / COUNT


@pytest.mark.parametrize(("when_slow", "away"), [("stay", False), ("follower", True)])
def test_a_group_far_behind_reads_where_it_says(
    boom: Client, when_slow: str, *, away: bool
) -> None:
    before = pulled(boom)
    with boom.consumer("history", group=f"slow-{when_slow}", when_slow=when_slow) as consumer:
        share = read_all(boom, consumer, before)
        # A broker that has yet to hear of the group sends nobody away.
        for _ in range(MORE_READINGS):
            if away and share > 0.5:
                break
            before = pulled(boom)
            consumer.seek("history", 0, "first")
            share = read_all(boom, consumer, before)
    assert (share > 0.5) == away
    boom.admin.alter_group(f"slow-{when_slow}", when_slow="stay")


def test_a_range_far_behind_is_read_at_a_follower(boom: Client) -> None:
    (queue,) = boom.admin.describe_topic("history").queues
    (follower,) = set(queue.replicas) - {queue.leader}
    before = pulled(boom)
    parts = list(boom.read_range("history", 0, 0, COUNT))
    assert sum(map(len, parts)) == COUNT
    assert pulled(boom)[follower] - before[follower] > COUNT // 4
