"""Whose each slot is, as it is told and as it is looked up."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.nodes.subscriptions.attached_consumer import AttachedConsumer
from logboom.nodes.subscriptions.dispatch_events import Entry, Hashing
from logboom.nodes.subscriptions.key_ranges import RING, ConsistentHashSelector
from logboom.nodes.subscriptions.slot_table import SlotTable, slots_of
from logboom.wire.batch import encode_batch, peek, stamp
from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import SLOTS, slot_of
from logboom.wire.subscription_messages import MAX_RANGES
from tests.thorough import seeds
from tests.unit.wire.work import cost_ms, longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
HASHINGS: Final[tuple[Hashing, ...]] = ("auto_split", "sticky", "consistent")

RANGES = {"a": ((0, 99), (200, 65_535)), "b": ((100, 150),), "c": ((151, 199),)}


def rebuilt(table: SlotTable) -> list[AttachedConsumer | None]:
    """The owner of each slot, out of all ranges."""
    owners: list[AttachedConsumer | None] = [None] * SLOTS
    scale = RING // SLOTS if isinstance(table.selector, ConsistentHashSelector) else 1
    for owner, ranges in table.selector.ranges().items():
        for first, last in ranges:
            low, stop = -(-first // scale), min(last // scale + 1, SLOTS)
            assert not any(owners[low:stop]), "two have a slot"
            owners[low:stop] = [owner] * max(0, stop - low)
    return owners


def told(table: SlotTable) -> list[str | None]:
    """The owner of each slot, out of the ranges that are told."""
    owners: list[str | None] = [None] * SLOTS
    for name, ranges in table.ranges().items():
        for first, last in ranges:
            assert 0 <= first <= last < SLOTS
            assert not any(owners[first : last + 1]), "two have a slot"
            owners[first : last + 1] = [name] * (last + 1 - first)
    return owners


def looked_up(table: SlotTable) -> list[str | None]:
    """The same, as the dispatcher does it."""
    return [None if owner is None else owner.name for owner in table.owners]


@pytest.mark.parametrize("hashing", HASHINGS)
def test_what_is_told_is_what_is_done(hashing: Hashing) -> None:
    table = SlotTable(hashing)
    assert looked_up(table) == told(table) == [None] * SLOTS
    consumers = [
        AttachedConsumer(name, 1, 0, ranges if hashing == "sticky" else None)
        for name, ranges in RANGES.items()
    ]
    for consumer in consumers:
        table.add(consumer)
        assert looked_up(table) == told(table)
    assert set(looked_up(table)) == set(RANGES)
    assert table.uncovered() == []
    table.remove(consumers[1])
    assert looked_up(table) == told(table)
    holes = [(100, 150)] if hashing == "sticky" else []
    assert table.uncovered() == holes
    assert looked_up(table).count(None) == sum(last + 1 - first for first, last in holes)


def test_messages_without_a_key_share_a_slot_that_their_batch_gives() -> None:
    keys = [b"x", None, b"y", None, b"x"]
    found = []
    for base in (0, 7_000):
        frame = stamp(encode_batch([b""] * 5, keys, now_ms=1), base, 1, 1)
        found.append(slots_of(Entry(peek(frame), frame)))
    for slots in found:
        assert (slots[0], slots[2], slots[4]) == (slot_of(b"x"), slot_of(b"y"), slot_of(b"x"))
        assert slots[1] == slots[3]
        assert 0 <= slots[1] < SLOTS
    assert found[0][1] != found[1][1]


# ── consumers that come and go ──────────────────────────────────────────────────────────────────


def scattered(number: int, slots: int) -> tuple[tuple[int, int], ...]:
    """As many ranges of so many slots as may be named, in no order, between those of others."""
    firsts = range(number * slots, SLOTS, SLOTS // MAX_RANGES)
    own = [(first, first + slots - 1) for first in firsts]
    random.Random(number).shuffle(own)
    return tuple(own)


def drawn(rng: random.Random) -> tuple[tuple[int, int], ...]:
    """A few ranges, which may overlap others."""
    firsts = [rng.randrange(SLOTS) for _ in range(rng.randint(1, 6))]
    return tuple((first, min(SLOTS - 1, first + rng.randrange(4_000))) for first in firsts)


def split_by_owner(
    table: SlotTable, slots: list[int], bits: int
) -> dict[AttachedConsumer | None, int]:
    """The parts of a batch, each owner's joined."""
    parts: dict[AttachedConsumer | None, int] = {}
    for owner, part in table.split(slots, bits):
        assert not parts.get(owner, 0) & part
        parts[owner] = parts.get(owner, 0) | part
    return parts


@pytest.mark.parametrize("most", [6, 300])
@pytest.mark.parametrize("hashing", HASHINGS)
@pytest.mark.parametrize("seed", seeds(3))
def test_a_table_that_changes_is_as_one_that_is_made_anew(
    seed: int, hashing: Hashing, most: int
) -> None:
    rng = random.Random(seed)
    table = SlotTable(hashing)
    here: list[AttachedConsumer] = []
    for step in range(40 if most < 10 else most + 40):
        if len(here) < most and (rng.random() < 0.6 or step < most > 10):
            ranges = drawn(rng) if hashing == "sticky" else None
            # Consumers of one name share points of a ring.
            name = f"c{rng.randrange(2 * most)}"
            consumer = AttachedConsumer(name, step, rng.randrange(3), ranges)
            before = list(table.owners)
            try:
                table.add(consumer)
            except InvalidRequest:
                assert hashing == "sticky"
                assert table.owners == before
            else:
                here.append(consumer)
        elif here:
            table.remove(here.pop(rng.randrange(len(here))))
        if most > 10 and step % 40:
            continue
        owners = rebuilt(table)
        assert table.owners == owners
        slots = [rng.randrange(SLOTS) for _ in range(500)]
        bits = rng.getrandbits(500)
        wanted: dict[AttachedConsumer | None, int] = {}
        for place in range(500):
            if bits >> place & 1:
                wanted[owners[slots[place]]] = wanted.get(owners[slots[place]], 0) | 1 << place
        assert split_by_owner(table, slots, bits) == wanted
        free = {slot for first, last in table.uncovered() for slot in range(first, last + 1)}
        if hashing == "sticky":
            assert free == {slot for slot, owner in enumerate(owners) if owner is None}
    for consumer in here:
        table.remove(consumer)
    assert table.owners == rebuilt(table) == [None] * SLOTS


@pytest.fixture
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def crowd(hashing: Hashing, consumers: int) -> tuple[SlotTable, AttachedConsumer]:
    """A table of all consumers but one, and the last one."""
    table = SlotTable(hashing)
    everyone = [
        AttachedConsumer(
            f"c{n}",
            1,
            0,
            scattered(n, SLOTS // MAX_RANGES // consumers) if hashing == "sticky" else None,
        )
        for n in range(consumers)
    ]
    for consumer in everyone[:-1]:
        table.add(consumer)
    gc.collect()
    gc.freeze()
    return table, everyone[-1]


def coming_and_going(hashing: Hashing, consumers: int) -> Callable[[], bool]:
    """The last of many consumers comes, and goes again."""
    table, last = crowd(hashing, consumers)
    steps: list[Callable[[AttachedConsumer], object]] = [table.remove, table.add]

    def step() -> bool:
        steps.pop()(last)
        return bool(steps)

    return step


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize(
    ("hashing", "consumers"),
    [("sticky", 2), ("sticky", 64), ("consistent", 1_000), ("auto_split", 1_000)],
)
def test_a_consumer_that_comes_or_goes_costs_little(hashing: Hashing, consumers: int) -> None:
    assert longest_ms(lambda: coming_and_going(hashing, consumers), MOST_MS) <= MOST_MS


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize(("hashing", "consumers"), [("sticky", 64), ("consistent", 1_000)])
def test_what_is_told_of_many_ranges_is_bounded(hashing: Hashing, consumers: int) -> None:
    table, _ = crowd(hashing, consumers)
    told_of = table.ranges(1_000)
    assert 500 <= sum(map(len, told_of.values())) <= 1_000
    whole = table.ranges()
    assert all(ranges == whole[name][: len(ranges)] for name, ranges in told_of.items())
    assert table.uncovered(100) == table.uncovered()[:100]
    assert cost_ms(lambda: (table.ranges(1_000), table.uncovered(100)), MOST_MS) <= MOST_MS
