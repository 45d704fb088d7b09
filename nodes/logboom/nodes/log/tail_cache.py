"""The most recent entries of all queues in memory, so that reads at the tail need no store.

The cache is bounded over all queues. The oldest entries are dropped, and only between turns, so
that a turn can read what it appended although the store does not show it yet. Because entries are
dropped in the order in which they were added, a queue's cached entries always form a gap-free range
up to its end.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

from logboom.nodes.log.keys import Position

Tail: TypeAlias = dict[Position, tuple[bytes, Position]]
"""Position → the entry that begins there, and the position after it."""
ENTRY_BYTES: Final = 320
"""Memory that an entry takes here in addition to its bytes: for most entries that is more."""


class TailCache:
    """The memory of all tails together, and the order in which entries are dropped."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size = 0
        """Bytes that the entries take."""
        self._order: deque[tuple[Tail, Position, bytes]] = deque()

    def add(self, tail: Tail, position: Position, entry: bytes, after: Position) -> None:
        """Keep an entry that was just appended."""
        tail[position] = (entry, after)
        self._order.append((tail, position, entry))
        self.size += len(entry) + ENTRY_BYTES

    def trim(self) -> None:
        """Drop the oldest entries; called between turns."""
        while self.size > self.max_bytes:
            tail, position, entry = self._order.popleft()
            self.size -= len(entry) + ENTRY_BYTES
            held = tail.get(position)
            # After a truncation another entry may be there, which has a turn of its own.
            if held is not None and held[0] is entry:
                del tail[position]


def cut_tail(tail: Tail, end: Position) -> None:
    """Forget entries that a log which now ends at `end` no longer has."""
    for position in [position for position in tail if position >= end]:
        del tail[position]
