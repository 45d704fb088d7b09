"""The leader epochs of one log: the positions at which each leader's history begins.

Each epoch has one leader and therefore one history. Two logs with the same epoch just before a
position are equal up to there (see docs/SAFETY.md, Q4). The table is written with an epoch's first
entry, and truncated with the log. Epoch -1 stands for an empty log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from logboom.nodes.log.keys import Position


class EpochTable:
    """(epoch, position of its first entry), oldest first; both grow."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[tuple[int, Position]] = ()) -> None:
        self.entries = [(epoch, Position(*start)) for epoch, start in entries]

    @property
    def last(self) -> int:
        """Epoch of the last entry; -1 if there is none."""
        return self.entries[-1][0] if self.entries else -1

    def begin(self, epoch: int, position: Position) -> bool:
        """Note that an entry of `epoch` is at `position`; True if the epoch is new."""
        if self.entries and self.entries[-1][0] >= epoch:
            return False
        self.entries.append((epoch, position))
        return True

    def before(self, position: Position) -> int:
        """Return the epoch of the last entry that begins before `position`; -1 if there is none."""
        at = bisect_left(self.entries, position, key=_start)
        return self.entries[at - 1][0] if at else -1

    def floor(self, epoch: int, end: Position) -> tuple[int, Position] | None:
        """Find the largest epoch ≤ `epoch`, and the end of its entries in a log that ends at `end`."""
        found = None
        for at, (known, _) in enumerate(self.entries):
            if known > epoch:
                break
            last = at + 1 == len(self.entries)
            found = (known, end if last else self.entries[at + 1][1])
        return found

    def cut(self, end: Position) -> bool:
        """Forget epochs that begin at or after `end`; True if there were any."""
        kept = bisect_left(self.entries, end, key=_start)
        if kept == len(self.entries):
            return False
        del self.entries[kept:]
        return True

    def prune(self, start: Position) -> bool:
        """Forget epochs that ended before `start`; True if there were any.

        The epoch of the entry just before `start` stays: a follower whose log ends there names it.
        """
        first = bisect_left(self.entries, start, key=_start) - 1
        if first <= 0:
            return False
        del self.entries[:first]
        return True


def _start(entry: tuple[int, Position]) -> Position:
    return entry[1]
