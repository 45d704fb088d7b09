"""Which consumer of a key-shared subscription gets which keys: Pulsar's three selectors.

A key's slot is its hash mod 65,536 (`wire.hashing.slot_of`). `AutoSplitSelector` halves the largest range for
a newcomer, `StickySelector` takes the ranges that consumers name, `ConsistentHashSelector` puts points on a ring.
A consumer is its name, or anything hashable with a `name` and maybe a `priority` (0 is the best).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Final, Generic, TypeAlias, TypeVar

from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import SLOTS, murmur3

C = TypeVar("C", bound=Hashable)

Range: TypeAlias = tuple[int, int]
"""First and last slot, both included."""

POINTS: Final = 100
"""Points of one consumer on a ring."""
RING: Final = 1 << 31
"""Hashes on a ring: 0 to this, less one."""


class AutoSplitSelector(Generic[C]):
    """Ranges by their upper bounds, up to and with `size`; each newcomer halves the largest."""

    def __init__(self, size: int = SLOTS) -> None:
        """
        Raises:
            InvalidRequest: `size` is no power of two, or below 2.
        """
        if size < 2 or size & (size - 1):
            raise InvalidRequest(f"{size} slots cannot be halved: give a power of two from 2 on")
        self.size = size
        self._uppers: list[int] = []
        self._owners: list[C] = []

    def add(self, consumer: C, ranges: Sequence[Range] | None = None) -> None:
        """Give a consumer the lower half of the largest range; of equal ones, of the lowest.

        Raises:
            InvalidRequest: it names ranges, has one already, or the largest cannot be halved.
        """
        if ranges is not None:
            raise InvalidRequest("ranges are given out here: name none, or use sticky ranges")
        if consumer in self._owners:
            raise _present(consumer)
        if not self._uppers:
            self._uppers, self._owners = [self.size], [consumer]
            return
        lowers = [0, *self._uppers[:-1]]
        sizes = [upper - lower for lower, upper in zip(lowers, self._uppers, strict=True)]
        at = sizes.index(max(sizes))
        if sizes[at] <= 1:
            text = (
                f"{len(self._uppers)} consumers share {self.size} slots: no range is left to halve"
            )
            raise InvalidRequest(text)
        self._uppers.insert(at, self._uppers[at] - (sizes[at] >> 1))
        self._owners.insert(at, consumer)

    def remove(self, consumer: C) -> None:
        """Its range goes to the one above, the topmost to the one below; unknown ones are ignored."""
        if consumer not in self._owners:
            return
        at = self._owners.index(consumer)
        del self._owners[at]
        # Without the top the next one below takes its bound.
        del self._uppers[at - 1 if at and at == len(self._owners) else at]

    def select(self, slot: int) -> C | None:
        """Who has a slot; None: nobody is there, or there is no such slot."""
        at = bisect_left(self._uppers, slot)
        return self._owners[at] if slot >= 0 and at < len(self._uppers) else None

    def ranges(self) -> dict[C, list[Range]]:
        """The slots of each consumer."""
        lowers = [0, *(upper + 1 for upper in self._uppers[:-1])]
        rows = zip(lowers, self._uppers, self._owners, strict=False)
        return {owner: [(lower, upper)] for lower, upper, owner in rows}

    def uncovered(self) -> list[Range]:
        """Slots of nobody: all, without consumers."""
        return [] if self._uppers else [(0, self.size - 1)]


class StickySelector(Generic[C]):
    """The ranges that consumers name themselves; holes are legal."""

    def __init__(self, size: int = SLOTS) -> None:
        """
        Raises:
            InvalidRequest: there is no slot.
        """
        if size < 1:
            raise InvalidRequest(f"sticky ranges need at least one slot, not {size}")
        self.size = size
        self._held: list[tuple[int, int, C]] = []

    def add(self, consumer: C, ranges: Sequence[Range] | None = None) -> None:
        """Give a consumer its ranges: all of them, or an error and none.

        Raises:
            InvalidRequest: none is named, one is reversed or beyond the slots, or overlaps another.
        """
        if any(owner == consumer for _, _, owner in self._held):
            raise _present(consumer)
        wanted = sorted(ranges or ())
        if not wanted:
            raise InvalidRequest("a consumer with sticky ranges has to name at least one")
        for first, last in wanted:
            if not 0 <= first <= last < self.size:
                text = f"{first} to {last} is no range within 0 to {self.size - 1}"
                raise InvalidRequest(f"{text}: give (first, last), both included")
        held = sorted([*self._held, *((a, b, consumer) for a, b in wanted)], key=_first)
        for (_, last, other), (first, _, owner) in pairwise(held):
            if first <= last:
                text = f"slot {first} is of {_name(other)!r} and of {_name(owner)!r}"
                raise InvalidRequest(f"{text}: give ranges that do not overlap")
        self._held = held

    def remove(self, consumer: C) -> None:
        """Its slots are nobody's; unknown ones are ignored."""
        self._held = [row for row in self._held if row[2] != consumer]

    def select(self, slot: int) -> C | None:
        """Who has a slot; None: nobody."""
        at = bisect_right(self._held, slot, key=_first) - 1
        if at < 0:
            return None
        _, last, owner = self._held[at]
        return owner if slot <= last else None

    def ranges(self) -> dict[C, list[Range]]:
        """The slots of each consumer."""
        table: dict[C, list[Range]] = {}
        for first, last, owner in self._held:
            table.setdefault(owner, []).append((first, last))
        return table

    def uncovered(self) -> list[Range]:
        """Slots of nobody."""
        holes, at = [], 0
        for first, last, _ in [*self._held, (self.size, self.size, None)]:
            if first > at:
                holes.append((at, first - 1))
            at = last + 1
        return holes


class ConsistentHashSelector(Generic[C]):
    """A ring of hashes with some points of each consumer; the next point from a hash on has it."""

    def __init__(self, points: int = POINTS) -> None:
        """
        Raises:
            InvalidRequest: no points.
        """
        if points < 1:
            raise InvalidRequest(f"a consumer needs at least one point on the ring, not {points}")
        self.points = points
        self._ring: list[int] = []
        self._at: dict[int, list[C]] = {}
        """Who is at a point; the first has it."""
        self._selected: dict[C, int] = {}
        """How many points each consumer has."""

    def add(self, consumer: C, ranges: Sequence[Range] | None = None) -> None:
        """Put a consumer's points on the ring. At a point that is taken it waits behind, unless
        its priority is better, or one of the same name has more points.

        Raises:
            InvalidRequest: it names ranges, or is here already.
        """
        if ranges is not None:
            raise InvalidRequest("ranges are given out here: name none, or use sticky ranges")
        if consumer in self._selected:
            raise _present(consumer)
        self._selected[consumer] = 0
        for point in self._points_of(consumer):
            here = self._at.setdefault(point, [])
            if consumer in here:
                continue
            if not here:
                self._ring.append(point)
            here.append(consumer)
            if len(here) == 1:
                self._selected[consumer] += 1
            elif self._displaces(consumer, here[0]):
                self._selected[here[0]] -= 1
                self._selected[consumer] += 1
                here.insert(0, here.pop())
        self._ring.sort()

    def remove(self, consumer: C) -> None:
        """Its points go to who waits there, or vanish; unknown ones are ignored."""
        if consumer not in self._selected:
            return
        for point in set(self._points_of(consumer)):
            here = self._at[point]
            had = here[0] == consumer
            here.remove(consumer)
            if not here:
                del self._at[point]
            elif had:
                best = min(here, key=lambda c: (_priority(c), _name(c), self._selected[c]))
                here.remove(best)
                here.insert(0, best)
                self._selected[best] += 1
        del self._selected[consumer]
        self._ring = sorted(self._at)

    def select(self, digest: int) -> C | None:
        """Who has a hash (31 bits); None: nobody is there."""
        if not self._ring:
            return None
        at = bisect_left(self._ring, digest)
        return self._at[self._ring[at if at < len(self._ring) else 0]][0]

    def ranges(self) -> dict[C, list[Range]]:
        """The hashes of each consumer, neighbouring ones joined."""
        table: dict[C, list[Range]] = {consumer: [] for consumer in self._selected}
        if not self._ring:
            return table
        first = self._at[self._ring[0]][0]
        rows = [(point, self._at[point][0]) for point in self._ring]
        if self._ring[-1] < RING - 1:
            rows.append((RING - 1, first))
        lower = 0
        for upper, owner in rows:
            mine = table[owner]
            if mine and mine[-1][1] == lower - 1:
                mine[-1] = (mine[-1][0], upper)
            else:
                mine.append((lower, upper))
            lower = upper + 1
        return table

    def uncovered(self) -> list[Range]:
        """Hashes of nobody: all, without consumers."""
        return [] if self._ring else [(0, RING - 1)]

    def held(self) -> dict[C, int]:
        """How many points each consumer has, of those that it put."""
        return dict(self._selected)

    def _points_of(self, consumer: C) -> list[int]:
        # Without the zero byte "a1" + "1" and "a" + "11" would share a point.
        name = _name(consumer)
        return [murmur3(f"{name}\0{i}".encode()) for i in range(self.points)]

    def _displaces(self, newcomer: C, holder: C) -> bool:
        if _priority(newcomer) != _priority(holder):
            return _priority(newcomer) < _priority(holder)
        same = _name(newcomer) == _name(holder)
        return same and self._selected[newcomer] + 1 < self._selected[holder]


def _first(row: tuple[int, int, object]) -> int:
    return row[0]


def _name(consumer: object) -> str:
    return str(getattr(consumer, "name", consumer))


def _priority(consumer: object) -> int:
    return int(getattr(consumer, "priority", 0))


def _present(consumer: object) -> InvalidRequest:
    return InvalidRequest(f"consumer {_name(consumer)!r} has its keys already: remove it first")
