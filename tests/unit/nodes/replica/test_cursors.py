"""Cursors of subscriptions: derived alike from any piece of the log, small, and never too far."""

from __future__ import annotations

from random import Random

import pytest

from logboom.nodes.log.keys import Position
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica.cursors import QueueCursors, whole_delta
from logboom.nodes.replica.offset_set import OffsetSet
from logboom.wire.batch import encode_control, peek, stamp
from logboom.wire.cursor_deltas import (
    CursorDelta,
    encode_deltas,
    pack_counts,
    pack_spans,
)
from logboom.wire.head import ControlKind
from tests.sim.world.storage import SimulatedStorage
from tests.thorough import seeds

IDS = (1, 0)


class Shelf:
    """Cursors on a disk of their own."""

    def __init__(self, storage: SimulatedStorage | None = None) -> None:
        self.storage = storage or SimulatedStorage("store-1")
        self.cursors = QueueCursors(*IDS)
        self.cursors.load(self.storage)
        self.written = 0

    def note(self, at: Position, *deltas: CursorDelta) -> None:
        """An entry is appended."""
        entry = stamp(
            encode_control(ControlKind.CURSOR_DELTA, encode_deltas(list(deltas))), at.offset, 1, 5
        )
        self.cursors.note(peek(entry), entry, at)

    def apply(self, reach: Position) -> None:
        """The HW is here."""
        writes = WriteSet()
        self.cursors.apply(reach, writes)
        self.written = writes.size
        self.write(writes)

    def write(self, writes: WriteSet) -> None:
        """Carry out what was staged."""
        self.storage.write(writes)
        self.storage.sync()

    def shown(self) -> dict[str, object]:
        """Every cursor, as plain values."""
        return {
            name: (cursor.acks.floor, list(cursor.acks.spans()), cursor.counts)
            for name, cursor in self.cursors.cursors.items()
        }


def acked(
    *spans: tuple[int, int], name: str = "s", counts: dict[int, int] | None = None
) -> CursorDelta:
    """Messages that were acknowledged."""
    found = OffsetSet()
    for start, stop in spans:
        found.add(start, stop)
    return CursorDelta(name, "acked", 0, pack_spans(found.spans()), pack_counts(counts or {}))


def whole(floor: int = 0, name: str = "s") -> CursorDelta:
    """A subscription begins, or is told as a whole."""
    return CursorDelta(name, "whole", floor)


def test_only_what_lies_below_the_hw_is_taken_in() -> None:
    shelf = Shelf()
    shelf.note(Position(5, 0), whole(2))
    shelf.note(Position(5, 1), acked((3, 5), counts={2: 1}))
    shelf.apply(Position(5, 1))
    assert shelf.shown() == {"s": (2, [], {})}
    shelf.apply(Position(5, 2))
    assert shelf.shown() == {"s": (2, [(3, 5)], {2: 1})}
    assert Shelf(shelf.storage).shown() == shelf.shown()
    shelf.note(Position(5, 2), acked((2, 3)), CursorDelta("gone", "ended"))
    shelf.apply(Position(6, 0))
    assert shelf.shown() == {"s": (5, [], {})}
    assert Shelf(shelf.storage).shown() == shelf.shown()


def test_an_ended_subscription_leaves_nothing() -> None:
    shelf = Shelf()
    shelf.note(Position(9, 0), whole())
    shelf.note(Position(9, 1), acked((3, 5), counts={2: 1}))
    shelf.apply(Position(9, 2))
    shelf.note(Position(9, 2), CursorDelta("s", "ended"))
    shelf.note(Position(9, 3), acked((5, 6)))
    shelf.apply(Position(9, 4))
    assert shelf.shown() == {}
    assert shelf.storage.content("cursor") == {}


@pytest.mark.parametrize("seed", seeds(20))
def test_any_pieces_give_the_same(seed: int) -> None:
    rng = Random(seed)
    log: list[tuple[Position, CursorDelta]] = [(Position(0, 0), whole())]
    for offset in range(0, 60_000, 1_500):
        start = rng.randrange(offset + 1)
        change = rng.random()
        delta = acked((start, start + rng.randint(1, 4_000)), counts={offset: rng.randint(1, 9)})
        if change < 0.05:
            delta = CursorDelta("s", "ended")
        elif change < 0.15:
            delta = whole(rng.randrange(offset + 1))
        log.append((Position(offset, 1), delta))
    at_once, piecewise = Shelf(), Shelf()
    for at, delta in log:
        at_once.note(at, delta)
        piecewise.note(at, delta)
        if rng.random() < 0.4:
            piecewise.apply(Position(at.offset, 2))
        if rng.random() < 0.2:
            before = piecewise.shown()
            behind = [entry for entry in log if entry[0] <= at]
            piecewise = Shelf(piecewise.storage)
            # What was not applied is noted again, and some that was.
            for again in behind[rng.randrange(len(behind)) :] if "s" in before else behind:
                piecewise.note(*again)
            if rng.random() < 0.5:
                for missing in behind:
                    piecewise.note(*missing)
    end = Position(90_000)
    at_once.apply(end)
    for at, delta in log:
        piecewise.note(at, delta)
    piecewise.apply(end)
    assert piecewise.shown() == at_once.shown()
    assert Shelf(piecewise.storage).shown() == at_once.shown()


def test_a_cut_below_the_hw_forgets_what_is_gone() -> None:
    shelf = Shelf()
    shelf.note(Position(100, 0), whole())
    shelf.note(Position(100, 1), acked((0, 40), (50, 60), (70, 80), counts={45: 2, 65: 1}))
    shelf.apply(Position(101))
    writes = WriteSet()
    shelf.cursors.cut(Position(55), writes, below_hw=True)
    shelf.write(writes)
    assert shelf.shown() == {"s": (40, [(50, 55)], {45: 2})}
    assert Shelf(shelf.storage).shown() == shelf.shown()
    shelf.note(Position(60, 0), acked((60, 61)))
    writes = WriteSet()
    shelf.cursors.cut(Position(60, 0), writes, below_hw=False)
    assert not shelf.cursors.behind
    writes = WriteSet()
    shelf.cursors.reset(writes)
    shelf.write(writes)
    assert shelf.shown() == {}
    assert shelf.storage.content("cursor") == {}


def test_retention_keeps_the_last_whole_telling() -> None:
    shelf = Shelf()
    assert shelf.cursors.limit(Position(50)) == 50
    shelf.note(Position(10, 0), whole())
    shelf.note(Position(20, 0), whole(name="other"))
    shelf.apply(Position(50))
    assert shelf.cursors.limit(Position(50)) == 10
    cursor = shelf.cursors.cursors["s"]
    shelf.note(Position(50, 0), whole_delta("s", cursor.acks, cursor.counts))
    shelf.apply(Position(60))
    assert shelf.cursors.limit(Position(60)) == 20
    assert Shelf(shelf.storage).cursors.limit(Position(60)) == 20


def test_a_hundred_thousand_holes_take_little_and_an_ack_writes_one_block() -> None:
    shelf = Shelf()
    shelf.note(Position(0, 0), whole())
    shelf.note(Position(200_000, 0), acked(*((o, o + 1) for o in range(1, 200_000, 2))))
    shelf.apply(Position(200_001))
    stored = shelf.storage.content("cursor")
    assert sum(len(key) + len(value) for key, value in stored.items()) < 100_000
    assert shelf.cursors.cursors["s"].acks.unacked(200_000) == 100_000
    shelf.note(Position(200_001, 0), acked((100_000, 100_001)))
    shelf.apply(Position(200_002))
    assert shelf.written < 1_200
    assert Shelf(shelf.storage).shown() == shelf.shown()


def test_a_cut_takes_what_stands_right_behind_it_and_the_telling_that_is_gone() -> None:
    shelf = Shelf()
    shelf.note(Position(20_000, 0), whole())
    counts = {45: 2, 9_000: 3, 9_001: 1}
    shelf.note(Position(20_000, 1), acked((0, 40), (50, 60), counts=counts))
    shelf.apply(Position(20_001))
    writes = WriteSet()
    shelf.cursors.cut(Position(9_001), writes, below_hw=True)
    shelf.write(writes)
    for now in (shelf, Shelf(shelf.storage)):
        assert now.shown() == {"s": (40, [(50, 60)], {45: 2, 9_000: 3})}
        # What comes now is not in the last whole telling that is left.
        assert now.cursors.limit(Position(12_000)) == 9_001


def test_rows_that_the_floor_has_passed_are_removed() -> None:
    shelf = Shelf()
    shelf.note(Position(0, 0), whole())
    shelf.note(Position(40_000, 0), acked((1, 40_000), counts={0: 1}))
    shelf.apply(Position(40_001))
    assert len(shelf.storage.content("cursor")) == 1 + 5 + 1
    shelf.note(Position(40_001, 0), acked((0, 1)))
    shelf.apply(Position(40_002))
    assert shelf.shown() == {"s": (40_000, [], {})}
    assert len(shelf.storage.content("cursor")) <= 1 + 1
    assert Shelf(shelf.storage).shown() == shelf.shown()


def test_an_acknowledging_delta_may_raise_the_floor() -> None:
    shelf = Shelf()
    shelf.note(Position(0, 0), whole())
    shelf.note(Position(60, 0), acked((20, 30), (40, 45), counts={9: 1, 10: 2, 50: 3}))
    shelf.apply(Position(61))
    shelf.note(Position(61, 0), CursorDelta("s", "acked", 10))
    shelf.apply(Position(62))
    assert shelf.shown() == {"s": (10, [(20, 30), (40, 45)], {10: 2, 50: 3})}
    shelf.note(Position(62, 0), CursorDelta("s", "acked", 5))
    shelf.note(Position(62, 1), CursorDelta("s", "acked", 20))
    shelf.apply(Position(63))
    assert shelf.shown() == {"s": (30, [(40, 45)], {50: 3})}
    assert Shelf(shelf.storage).shown() == shelf.shown()
