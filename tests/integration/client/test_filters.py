"""Filters and lag, from the API to the broker and back, against an embedded node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from logboom.client import Client, aio, connect
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import InvalidFilter
from logboom.wire.filters import Filter
from tests.integration.waiting import wait_until

COUNT = 3_000
DEAR = "price >= 2995 AND region = 'eu'"
WANTED = [n for n in range(2_995, COUNT) if n % 2]


@pytest.fixture(scope="module")
def node() -> Iterator[Embedded]:
    with embedded() as started, connect(started.endpoints) as boom:
        boom.admin.create_topic("orders", queues=1)
        for compression in ("none", "zstd"):
            with boom.producer(compression=compression) as producer:
                for n in range(COUNT):
                    region = b"eu" if n % 2 else b"us"
                    headers = {"price": b"%d" % n, "region": region}
                    producer.send("orders", b"%d" % n, tag=f"t{n % 3}", headers=headers)
        yield started


@pytest.fixture
def boom(node: Embedded) -> Iterator[Client]:
    with connect(node.endpoints) as client:
        yield client


def test_a_pull_finds_what_matches_and_moves_past_the_rest(boom: Client) -> None:
    found, at = [], 0
    while at < 2 * COUNT:
        result = boom.pull("orders", 0, at, max_messages=2, filter=DEAR)
        assert result.next_offset > at
        at = result.next_offset
        assert len(result.messages) <= 2
        assert (result.status == "FOUND") == bool(result.messages)
        found += [int(message.value or b"") for message in result.messages]
    assert found == WANTED * 2
    nothing = boom.pull("orders", 0, 0, filter="price < 0")
    assert nothing.status == "NO_MATCHED_MESSAGE"
    assert 0 < nothing.next_offset <= 2 * COUNT
    assert boom.pull("orders", 0, at, filter=DEAR).status == "NO_NEW_MESSAGE"


def test_a_consumer_gets_what_matches(boom: Client) -> None:
    with boom.consumer("orders", filter=DEAR) as consumer:
        found = [int(next(iter(consumer)).value or b"") for _ in range(2 * len(WANTED))]
    assert found == WANTED * 2
    both = Filter.of("t0 || t1", "price < 6")
    with boom.consumer("orders", filter=both) as consumer:
        found = [int(next(iter(consumer)).value or b"") for _ in range(8)]
    assert found == [0, 1, 3, 4] * 2
    with boom.consumer("orders", tags=["t2"], filter="price < 6") as consumer:
        found = [int(next(iter(consumer)).value or b"") for _ in range(4)]
    assert found == [2, 5] * 2


def test_the_asyncio_twin(node: Embedded) -> None:
    async def read() -> list[int]:
        async with await aio.connect(node.endpoints) as boom:
            result = await boom.pull("orders", 0, 0, max_messages=3, tags="t1", wait_ms=500)
            async with boom.consumer("orders", filter=DEAR) as consumer:
                message = await anext(aiter(consumer))
            return [m.offset for m in result.messages] + [message.offset]

    assert asyncio.run(read()) == [1, 4, 7, WANTED[0]]


def test_a_wrong_filter_points_at_its_character(boom: Client) -> None:
    with pytest.raises(InvalidFilter) as caught:
        boom.pull("orders", 0, 0, filter="price >> 3")
    assert caught.value.pointer().splitlines()[1].startswith("       ^")
    with pytest.raises(InvalidFilter):
        boom.consumer("orders", tags="a | b")


def test_the_lag_of_a_group_counts_what_its_filter_leaves_out(boom: Client) -> None:
    boom.admin.alter_group("dear", subscription={"orders": f"* WHERE {DEAR}"}, create=True)
    boom.admin.reset_offsets("dear", {("orders", 0): WANTED[0] + 1}, dry_run=False)
    (queue,) = (q for q in boom.admin.describe_group("dear").queues if q.topic == "orders")
    assert (queue.committed, queue.end) == (WANTED[0] + 1, 2 * COUNT)
    assert queue.lag == 2 * COUNT - WANTED[0] - 1
    assert queue.age_ms is not None
    assert 0 <= queue.age_ms < 600_000
    assert queue.stuck == "the group has no member"


def test_opened_batches_are_counted(boom: Client) -> None:
    assert boom.pull("orders", 0, WANTED[0], filter=DEAR).messages

    def opened() -> bool:
        return any(node.counters.get("filter_opened_batches") for node in boom.admin.stats())

    # A broker that does not answer within two seconds tells no counters.
    wait_until(opened, "no batch was opened for the filter")


@pytest.mark.parametrize("most", [32, 20, 10])
def test_a_pull_brings_as_many_as_are_asked(boom: Client, most: int) -> None:
    """RocketMQ's vectors: 32 stored, asked for 32, 20 and 10."""
    result = boom.pull("orders", 0, 100, max_messages=most)
    assert (result.status, len(result.messages), result.next_offset) == ("FOUND", most, 100 + most)
