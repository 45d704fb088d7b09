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
    """Ranges by their inclusive upper bounds, up to `size`.

    Each new consumer halves the largest one.
    """

    def __init__(self, size: int = SLOTS) -> None:
        """Create a selector.

        Raises:
            InvalidRequest: `size` is not a power of two, or below 2.
        """
        if size < 2 or size & (size - 1):
            raise InvalidRequest(f"{size} slots cannot be halved: give a power of two from 2 on")
        self.size = size
        self._uppers: list[int] = []
        self._owners: list[C] = []

    def add(self, consumer: C, ranges: Sequence[Range] | None = None) -> None:
        """Give a consumer the lower half of the largest range; of equal ranges, of the lowest.

        Raises:
            InvalidRequest: the consumer names ranges or has one already, or the largest cannot be
                halved.
        """
        if ranges is not None:
            raise InvalidRequest("this hashing assigns the ranges: name none, or use sticky ranges")
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
        """Give a consumer's range to the next higher one, or from the top to the next lower one.

        Unknown consumers are ignored.
        """
        if consumer not in self._owners:
            return
        at = self._owners.index(consumer)
        del self._owners[at]
        # The next lower range takes over the bound of the topmost one.
        del self._uppers[at - 1 if at and at == len(self._owners) else at]

    def select(self, slot: int) -> C | None:
        """Return the owner of a slot, or None."""
        at = bisect_left(self._uppers, slot)
        return self._owners[at] if slot >= 0 and at < len(self._uppers) else None

    def ranges(self) -> dict[C, list[Range]]:
        """Return the slots of each consumer."""
        lowers = [0, *(upper + 1 for upper in self._uppers[:-1])]
        rows = zip(lowers, self._uppers, self._owners, strict=False)
        return {owner: [(lower, upper)] for lower, upper, owner in rows}

    def uncovered(self) -> list[Range]:
        """Return the slots without an owner: all of them if there are no consumers."""
        return [] if self._uppers else [(0, self.size - 1)]


class StickySelector(Generic[C]):
    """The ranges that consumers name themselves. Gaps are allowed."""

    def __init__(self, size: int = SLOTS) -> None:
        """Create a selector.

        Raises:
            InvalidRequest: there are no slots.
        """
        if size < 1:
            raise InvalidRequest(f"sticky ranges need at least one slot, not {size}")
        self.size = size
        self._held: list[tuple[int, int, C]] = []

    def add(self, consumer: C, ranges: Sequence[Range] | None = None) -> None:
        """Give a consumer all of its ranges, or raise an error and change nothing.

        Raises:
            InvalidRequest: no range is named, or one is reversed, out of bounds or overlaps
                another.
        """
        if any(owner == consumer for _, _, owner in self._held):
            raise _present(consumer)
        wanted = sorted(ranges or ())
        if not wanted:
            raise InvalidRequest("a consumer with sticky ranges must name at least one")
        for first, last in wanted:
            if not 0 <= first <= last < self.size:
                text = f"{first} to {last} is not a range within 0 to {self.size - 1}"
                raise InvalidRequest(f"{text}: give (first, last), both included")
        held = sorted([*self._held, *((a, b, consumer) for a, b in wanted)], key=_first)
        for (_, last, other), (first, _, owner) in pairwise(held):
            if first <= last:
                text = f"slot {first} belongs to both {_name(other)!r} and {_name(owner)!r}"
                raise InvalidRequest(f"{text}: give ranges that do not overlap")
        self._held = held

    def remove(self, consumer: C) -> None:
        """Take a consumer's slots away. Unknown consumers are ignored."""
        self._held = [row for row in self._held if row[2] != consumer]

    def select(self, slot: int) -> C | None:
        """Return the owner of a slot, or None."""
        at = bisect_right(self._held, slot, key=_first) - 1
        if at < 0:
            return None
        _, last, owner = self._held[at]
        return owner if slot <= last else None

    def ranges(self) -> dict[C, list[Range]]:
        """Return the slots of each consumer."""
        table: dict[C, list[Range]] = {}
        for first, last, owner in self._held:
            table.setdefault(owner, []).append((first, last))
        return table

    def uncovered(self) -> list[Range]:
        """Return the slots without an owner."""
        holes, at = [], 0
        for first, last, _ in [*self._held, (self.size, self.size, None)]:
            if first > at:
                holes.append((at, first - 1))
            at = last + 1
        return holes


class ConsistentHashSelector(Generic[C]):
    """A ring of hashes with several points of each consumer. A hash belongs to the next point."""

    def __init__(self, points: int = POINTS) -> None:
        """Create a selector.

        Raises:
            InvalidRequest: `points` is below 1.
        """
        if points < 1:
            raise InvalidRequest(f"a consumer needs at least one point on the ring, not {points}")
        self.points = points
        self._ring: list[int] = []
        self._at: dict[int, list[C]] = {}
        """The consumers at each point; the first one owns it."""
        self._selected: dict[C, int] = {}
        """The number of points of each consumer."""

    def add(self, consumer: C, ranges: Sequence[Range] | None = None) -> None:
        """Put a consumer's points on the ring.

        At an occupied point it waits behind the owner, unless it has a better priority, or a
        consumer of the same name has more points.

        Raises:
            InvalidRequest: the consumer names ranges, or is on the ring already.
        """
        if ranges is not None:
            raise InvalidRequest("this hashing assigns the ranges: name none, or use sticky ranges")
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
        """Give a consumer's points to those that wait there. Unknown consumers are ignored."""
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
        """Return the owner of a 31-bit hash, or None."""
        if not self._ring:
            return None
        at = bisect_left(self._ring, digest)
        return self._at[self._ring[at if at < len(self._ring) else 0]][0]

    def ranges(self) -> dict[C, list[Range]]:
        """Return the hashes of each consumer, with adjacent ranges joined."""
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
        """Return the hashes without an owner: all of them if there are no consumers."""
        return [] if self._ring else [(0, RING - 1)]

    def held(self) -> dict[C, int]:
        """Return how many of its points each consumer owns."""
        return dict(self._selected)

    def _points_of(self, consumer: C) -> list[int]:
        # Without the zero byte, "a1" + "1" and "a" + "11" would be the same point.
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
