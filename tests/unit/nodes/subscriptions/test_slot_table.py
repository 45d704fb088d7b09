"""Whose each slot is, as it is told and as it is looked up."""

from __future__ import annotations

import pytest

from logboom.nodes.subscriptions.attached_consumer import AttachedConsumer
from logboom.nodes.subscriptions.dispatch_events import Entry, Hashing
from logboom.nodes.subscriptions.slot_table import SlotTable, slots_of
from logboom.wire.batch import encode_batch, peek, stamp
from logboom.wire.hashing import SLOTS, slot_of

RANGES = {"a": ((0, 99), (200, 65_535)), "b": ((100, 150),), "c": ((151, 199),)}


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


@pytest.mark.parametrize("hashing", ["auto_split", "sticky", "consistent"])
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
