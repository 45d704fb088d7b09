"""Consumers far behind read from a follower, if brokers and group let them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logboom.client import Client, connect
from logboom.deploy import Cluster
from tests.integration.waiting import wait_until

COUNT = 20_000
SIZE = 500


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
    counters = counters_of(boom, "broker", 2)
    return {name: int(each.get("pulled_messages", 0)) for name, each in counters.items()}


def counters_of(boom: Client, role: str, count: int) -> dict[str, dict[str, Any]]:
    """The counters of all nodes of a role; one that does not answer within two seconds is asked
    again."""
    found: dict[str, dict[str, Any]] = {}

    def all_tell() -> bool:
        nodes = [node for node in boom.admin.stats() if node.role == role and node.counters]
        found.update({node.node: node.counters for node in nodes})
        return len(nodes) == count

    wait_until(all_tell, f"not every {role} tells its counters")
    return found


def make_known(boom: Client, group: str, when_slow: str) -> None:
    """Have a first consumer make the group, and all brokers hear of it: one that has not sends nobody
    away."""
    with boom.consumer("history", group=group, when_slow=when_slow) as consumer:
        assert consumer.poll(1, timeout_s=200.0)
    (server,) = counters_of(boom, "raft leader", 1).values()
    made = int(server["version"])

    def heard() -> bool:
        brokers = counters_of(boom, "broker", 2).values()
        return all(int(each["metadata_version"]) >= made for each in brokers)

    wait_until(heard, "brokers have not heard of the group")


@pytest.mark.parametrize(("when_slow", "away"), [("stay", False), ("follower", True)])
def test_a_group_far_behind_reads_where_it_says(
    boom: Client, when_slow: str, *, away: bool
) -> None:
    (queue,) = boom.admin.describe_topic("history").queues
    (follower,) = set(queue.replicas) - {queue.leader}
    make_known(boom, f"slow-{when_slow}", when_slow)
    before = pulled(boom)
    with boom.consumer("history", group=f"slow-{when_slow}") as consumer:
        messages = iter(consumer)
        for expected in range(COUNT):
            message = next(messages)
            assert message.offset == expected
            consumer.ack(message)
    told = pulled(boom)
    more = {name: count - before[name] for name, count in told.items()}
    assert sum(more.values()) >= COUNT
    assert (more[follower] > COUNT // 2) == away
    boom.admin.alter_group(f"slow-{when_slow}", when_slow="stay")


def test_a_range_far_behind_is_read_at_a_follower(boom: Client) -> None:
    (queue,) = boom.admin.describe_topic("history").queues
    (follower,) = set(queue.replicas) - {queue.leader}
    before = pulled(boom)
    parts = list(boom.read_range("history", 0, 0, COUNT))
    assert sum(map(len, parts)) == COUNT
    assert pulled(boom)[follower] - before[follower] > COUNT // 4
