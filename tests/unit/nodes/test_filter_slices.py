"""Filters open large batches in slices: no turn lasts, whatever is written."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.nodes.body_worker import opening_beside
from logboom.wire.actor import Received
from logboom.wire.batch import encode_batch
from logboom.wire.messages import Pull, Pulled
from logboom.wire.subscription_messages import SubscriptionConfig
from tests.unit.nodes.requests.test_many_holds import wishes
from tests.unit.nodes.rig import Rig, produce
from tests.unit.nodes.subscriptions.test_slot_slices import (
    LARGEST,
    MOST_MS,
    SIZE,
    receiving,
    text,
    tiny,
)
from tests.unit.nodes.subscriptions.test_subscription_handler import Reader, alone
from tests.unit.wire.slow_blocks import slow_batch
from tests.unit.wire.work import longest_ms, without_garbage_of_others

WANTED: Final = "WHERE KEYS = 'b' OR TAGS = 't7'"


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others(), opening_beside():
        yield


def texts(count: int) -> list[bytes]:
    """Batches that are slow to decompress, of about 8 MiB together."""
    size = SIZE // count // 2 - 100
    return [encode_batch([text(size)] * 2, [b"a", b"b"], now_ms=1, codec="zstd")] * count


WORST: Final[dict[str, Callable[[], list[bytes]]]] = {
    "one": lambda: texts(1) * 2,
    "eight": lambda: texts(8),
    "many": lambda: texts(100),
    "tiny": lambda: [tiny()],
    "sequences of LZ4": lambda: [slow_batch(SIZE - 1_000)],
    "tags": lambda: [
        encode_batch([b""] * LARGEST, tags=[f"t{n}" for n in range(LARGEST)], now_ms=1)
    ],
    "keys": lambda: [
        encode_batch(
            [b""] * LARGEST,
            [b"%0*d" % (80 + n % 7, n) for n in range(LARGEST)],
            now_ms=1,
            codec="zstd",
        )
    ],
}


def written(batches: list[bytes]) -> Rig:
    """A broker with these batches."""
    rig = alone()
    producer = rig.client("producer")
    for batch in batches:
        producer.ask(produce(), [batch])
        producer.answer()
    return rig


def begin(rig: Rig, events: list[Received], more: Callable[[], bool]) -> Callable[[], bool]:
    """Turns as long as there is something to do."""
    gc.collect()
    gc.freeze()

    def turn() -> bool:
        rig.turn(*events)
        events.clear()
        return more()

    return turn


def pulling(batches: list[bytes], pulls: int) -> Callable[[], bool]:
    """Turns in which several clients pull with a filter."""
    rig = written(batches)
    clients = [rig.client(f"c{number}") for number in range(pulls)]
    pull = Pull(0, 30_000, "flights", 0, 0, 1 << 20, 0, filter=WANTED)
    events = [event for client in clients for event in wishes(client, [pull])]
    scans = rig.broker.parts.pull_handler.scan_scheduler

    def more() -> bool:
        if len(scans):
            return True
        for client in clients:
            answer = client.answer()
            assert isinstance(answer, Pulled)
            assert answer.status == "FOUND" or answer.next_offset > 0
        return False

    return begin(rig, events, more)


def dealing(batches: list[bytes], subscriptions: int) -> Callable[[], bool]:
    """Turns in which several subscriptions with a filter are dealt out."""
    rig = written(batches)
    readers = []
    for number in range(subscriptions):
        reader = Reader(rig, f"c{number}", SubscriptionConfig(kind="shared", filter=WANTED))
        reader.subscription = f"s{number}"
        reader.subscribe()
        reader.peer.taken()
        readers.append(reader)
    events = [event for reader in readers for event in receiving(reader)]
    served = rig.broker.parts.subscriptions.served

    def more() -> bool:
        return any(each.dispatcher.deadline() <= rig.mono for each in served.values())

    return begin(rig, events, more)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("case", WORST)
def test_no_turn_of_a_pull_lasts(case: str, count: int) -> None:
    batches = WORST[case]()
    assert longest_ms(lambda: pulling(batches, count), MOST_MS) <= MOST_MS


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("case", WORST)
def test_no_turn_of_a_subscription_lasts(case: str, count: int) -> None:
    batches = WORST[case]()
    assert longest_ms(lambda: dealing(batches, count), MOST_MS) <= MOST_MS
