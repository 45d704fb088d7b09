"""Which consumer of a key-shared subscription gets which keys: Pulsar's three selectors.

A key's slot is its hash mod 65,536 (`wire.hashing.slot_of`). `AutoSplitSelector` halves the largest range for
a newcomer, `StickySelector` takes the ranges that consumers name, `ConsistentHashSelector` puts points on a ring.
A consumer is its name, or anything hashable with a `name` and maybe a `priority` (0 is the best).

Additions and removals return what they have changed: ranges and their new owners. They cost as much as the
consumer has of ranges or points, besides what is moved and searched in C.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import SLOTS, murmur3

C = TypeVar("C", bound=Hashable)

Range: TypeAlias = tuple[int, int]
"""First and last slot, both included."""
Change: TypeAlias = tuple[C | None, Sequence[Range]]
"""Who owns these slots or hashes now."""

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

    def add(self, consumer: C, ranges: Sequence[Range] | None = None) -> list[Change[C]]:
        """Give a consumer the lower half of the largest range; of equal ranges, of the lowest.

        Return what has changed.

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
            return [(consumer, [(0, self.size)])]
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
        return [(consumer, [(self._lower(at), self._uppers[at])])]

    def remove(self, consumer: C) -> list[Change[C]]:
        """Give a consumer's range to the next higher one, or from the top to the next lower one.

        Return what has changed. Unknown consumers are ignored.
        """
        if consumer not in self._owners:
            return []
        at = self._owners.index(consumer)
        lower, upper = self._lower(at), self._uppers[at]
        del self._owners[at]
        if not self._owners:
            self._uppers = []
            return [(None, [(lower, upper)])]
        # The next lower range takes over the bound of the topmost one.
        topmost = at == len(self._owners)
        del self._uppers[at - 1 if topmost else at]
        return [(self._owners[-1 if topmost else at], [(lower, upper)])]

    def _lower(self, at: int) -> int:
        return self._uppers[at - 1] + 1 if at else 0

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
        self._held: dict[C, Sequence[Range]] = {}
        """The ranges of each consumer, as it has named them."""
        self._taken = bytearray(size)
        """1 for each slot that has an owner."""

    def add(self, consumer: C, ranges: Sequence[Range] | None = None) -> list[Change[C]]:
        """Give a consumer all of its ranges, or raise an error and change nothing.

        Return what has changed.

        Raises:
            InvalidRequest: no range is named, or one is reversed, out of bounds or overlaps
                another.
        """
        if consumer in self._held:
            raise _present(consumer)
        if not ranges:
            raise InvalidRequest("a consumer with sticky ranges must name at least one")
        taken, size = self._taken, self.size
        for at, (first, last) in enumerate(ranges):
            if not 0 <= first <= last < size:
                self._clear(ranges[:at])
                text = f"{first} to {last} is not a range within 0 to {size - 1}"
                raise InvalidRequest(f"{text}: give (first, last), both included")
            slot = taken.find(1, first, last + 1)
            if slot >= 0:
                self._clear(ranges[:at])
                other = self.select(slot)
                text = f"slot {slot} belongs to both "
                text += f"{_name(consumer if other is None else other)!r} and {_name(consumer)!r}"
                raise InvalidRequest(f"{text}: give ranges that do not overlap")
            taken[first : last + 1] = b"\1" * (last + 1 - first)
        self._held[consumer] = ranges
        return [(consumer, ranges)]

    def remove(self, consumer: C) -> list[Change[C]]:
        """Take a consumer's slots away, and return what has changed.

        Unknown consumers are ignored.
        """
        ranges = self._held.pop(consumer, ())
        self._clear(ranges)
        return [(None, ranges)]

    def _clear(self, ranges: Sequence[Range]) -> None:
        taken = self._taken
        for first, last in ranges:
            taken[first : last + 1] = bytes(last + 1 - first)

    def select(self, slot: int) -> C | None:
        """Return the owner of a slot, or None."""
        for owner, ranges in self._held.items():
            if any(first <= slot <= last for first, last in ranges):
                return owner
        return None

    def ranges(self) -> dict[C, list[Range]]:
        """Return the slots of each consumer."""
        return {owner: sorted(ranges) for owner, ranges in self._held.items()}

    def uncovered(self, most: int = SLOTS) -> list[Range]:
        """Return the slots without an owner: the first `most` ranges."""
        holes: list[Range] = []
        end = 0
        while len(holes) < most and (first := self._taken.find(0, end)) >= 0:
            end = self._taken.find(1, first)
            end = self.size if end < 0 else end
            holes.append((first, end - 1))
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
        self._ring = array("I")
        """All points, in their order; an array, since the integers of a list are all over the memory."""
        self._at: dict[int, list[C]] = {}
        """The consumers at each point; the first one owns it."""
        self._selected: dict[C, int] = {}
        """The number of points of each consumer."""

    def add(self, consumer: C, ranges: Sequence[Range] | None = None) -> list[Change[C]]:
        """Put a consumer's points on the ring, and return what has changed.

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
        taken = []
        for point in self._points_of(consumer):
            here = self._at.setdefault(point, [])
            if consumer in here:
                continue
            if not here:
                insort(self._ring, point)
            here.append(consumer)
            if len(here) == 1:
                self._selected[consumer] += 1
            elif self._displaces(consumer, here[0]):
                self._selected[here[0]] -= 1
                self._selected[consumer] += 1
                here.insert(0, here.pop())
            if here[0] == consumer:
                taken.append(point)
        return self._arcs(taken)

    def remove(self, consumer: C) -> list[Change[C]]:
        """Give a consumer's points to those that wait there, and return what has changed.

        Unknown consumers are ignored.
        """
        if consumer not in self._selected:
            return []
        left = []
        for point in set(self._points_of(consumer)):
            here = self._at[point]
            had = here[0] == consumer
            here.remove(consumer)
            if not here:
                del self._at[point]
                del self._ring[bisect_left(self._ring, point)]
            elif had:
                best = min(here, key=lambda c: (_priority(c), _name(c), self._selected[c]))
                here.remove(best)
                here.insert(0, best)
                self._selected[best] += 1
            if had:
                left.append(point)
        del self._selected[consumer]
        return self._arcs(left)

    def _arcs(self, points: list[int]) -> list[Change[C]]:
        """Return the owners of these points, with the hashes from the points before to these.

        Those beyond the last point are among them, since they belong to the first one.
        """
        if not self._ring:
            return [(None, [(0, RING - 1)])]
        arcs: list[Change[C]] = []
        for point in points:
            at = bisect_left(self._ring, point)
            first = self._ring[at - 1] + 1 if at else 0
            arcs.append((self.select(point), [(first, point)]))
        if self._ring[-1] < RING - 1:
            arcs.append((self.select(RING - 1), [(self._ring[-1] + 1, RING - 1)]))
        return arcs

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


def _name(consumer: object) -> str:
    return str(getattr(consumer, "name", consumer))


def _priority(consumer: object) -> int:
    return int(getattr(consumer, "priority", 0))


def _present(consumer: object) -> InvalidRequest:
    return InvalidRequest(f"consumer {_name(consumer)!r} has its keys already: remove it first")
