"""Bounded reads and the lookout, against an embedded node."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from logboom.client import Client, connect
from logboom.deploy import Cluster, embedded
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import InvalidRequest, TimedOut, UnknownResource
from tests.integration.waiting import wait_until

COUNT = 5_000


@pytest.fixture(scope="module", name="node")
def embedded_node() -> Iterator[Embedded]:
    with embedded() as node, node.connect() as boom:
        boom.admin.create_topic("read", queues=2)
        with boom.producer(max_batch_bytes=8_000) as producer:
            values = [b"%d" % n for n in range(COUNT)]
            producer.send_many("read", values, queue=1).result()
        yield node


@pytest.fixture(name="boom")
def client(node: Embedded) -> Iterator[Client]:
    with node.connect(create_topics=False) as boom:
        yield boom


@pytest.mark.parametrize(
    ("start", "stop"), [(0, COUNT), (0, 1), (4_999, COUNT), (7, 7), (123, 4_321)]
)
def test_a_range_holds_what_was_asked(boom: Client, start: int, stop: int) -> None:
    found = list(boom.read_range("read", 1, start, stop))
    values = [value for columns in found for value in columns.values()]
    assert values == [b"%d" % n for n in range(start, stop)]
    assert all(before.next_offset == after.base_offset for before, after in pairwise(found))
    if found:
        assert (found[0].base_offset, found[-1].next_offset) == (start, stop)


def test_a_range_is_read_on_where_its_share_was_full(boom: Client) -> None:
    found = boom.read_range("read", 1, 0, COUNT, prefetch_bytes=1)
    assert sum(map(len, found)) == COUNT


def test_a_range_that_cannot_be_is_refused(boom: Client) -> None:
    with pytest.raises(InvalidRequest, match="a range begins at 0"):
        list(boom.read_range("read", 1, 5, 4))
    with pytest.raises(UnknownResource, match="has queues 0 to 1, not 2"):
        list(boom.read_range("read", 2, 0, 1))
    with pytest.raises(UnknownResource, match="'nothing' does not exist"):
        list(boom.read_range("nothing", 0, 0, 1))


def test_a_queue_may_be_news(node: Embedded) -> None:
    with node.connect() as boom, node.connect() as other:
        boom.admin.create_topic("grows", queues=1)
        assert list(boom.read_range("grows", 0, 0, 0)) == []  # it follows the topic now
        for queue in range(1, 6):
            other.admin.alter_topic("grows", queues=queue + 1)
            assert list(boom.read_range("grows", queue, 0, 0)) == []


def test_what_does_not_come_is_given_up_with_a_name(boom: Client) -> None:
    with pytest.raises(TimedOut, match=r"offset 5000 of queue 1 .* from broker-1 127\.0\.0\.1"):
        list(boom.read_range("read", 1, 4_990, COUNT + 1, timeout_s=5.0))


def test_where_messages_are_missing_the_columns_begin_behind() -> None:
    with embedded() as node, node.connect() as boom:
        boom.admin.create_topic("short", queues=1, retention_bytes=100_000)
        with boom.producer(max_batch_bytes=10_000) as producer:
            producer.send_many("short", [bytes(1_000)] * 2_000).result()
            while (first := boom.admin.offsets("short")[0][0]) == 0:
                # Retention goes by its own clock; nobody tells when it has been.
                time.sleep(0.05)
        found = list(boom.read_range("short", 0, 0, 2_000))
        assert found[0].base_offset >= first
        assert found[-1].next_offset == 2_000
        assert list(boom.read_range("short", 0, 0, first)) == []


def test_a_range_survives_a_fail_over() -> None:
    with Cluster(name_servers=1, brokers=2) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("moved", queues=1, replicas=2, min_in_sync=1)
        with boom.producer(max_batch_bytes=8_000) as producer:
            producer.send_many("moved", [b"%d" % n for n in range(COUNT)]).result()
        found = boom.read_range("moved", 0, 0, COUNT, prefetch_bytes=1, timeout_s=200.0)
        values = next(found).values()
        # With `min_in_sync=1` a follower that was slow may lack what was acknowledged.
        wait_until(
            lambda: len(boom.admin.describe_topic("moved").queues[0].isr) == 2, "both are in sync"
        )
        cluster.kill(cluster.leader("moved", 0))
        for columns in found:
            values += columns.values()
        assert values == [b"%d" % n for n in range(COUNT)]


def test_a_lookout_waits_for_any_of_its_queues(boom: Client) -> None:
    lookout = boom.lookout()
    ends = {("read", 0): 0, ("read", 1): boom.admin.offsets("read")[1][1]}
    assert lookout.wait({("read", 1): COUNT - 1}, 200.0)
    assert not lookout.wait(ends, 0.05)
    sent = threading.Timer(0.1, lambda: producer.send("read", b"new", queue=0))
    with boom.producer() as producer:
        sent.start()
        assert lookout.wait(ends, 200.0)
        sent.join()
    assert lookout.wait(ends, 0.0) or lookout.wait(ends, 200.0)
    assert not lookout.wait({**ends, ("read", 0): 1}, 0.05)


def test_a_queue_that_cannot_be_asked_is_worth_a_look(boom: Client) -> None:
    assert boom.lookout().wait({("nothing", 0): 0}, 200.0)
