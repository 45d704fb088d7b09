"""The most recent entries of all queues in memory, so that reads at the tail need no store.

Bounded over all queues; the oldest go first, between turns only: what a turn appends can be read
in that turn, though the store does not show it yet. Since entries go in the order in which they
came, a queue's cached entries are always a gap-free piece that reaches to its end.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from logboom.nodes.log.keys import Position

Tail: TypeAlias = dict[Position, tuple[bytes, Position]]
"""Position → the entry that begins there, and the position behind it."""


class TailCache:
    """Counts what all tails hold, and lets the oldest go."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size = 0
        self._order: deque[tuple[Tail, Position, bytes]] = deque()

    def add(self, tail: Tail, position: Position, entry: bytes, after: Position) -> None:
        """Keep an entry that was just appended."""
        tail[position] = (entry, after)
        self._order.append((tail, position, entry))
        self.size += len(entry)

    def trim(self) -> None:
        """Let go of the oldest; called between turns."""
        while self.size > self.max_bytes:
            tail, position, entry = self._order.popleft()
            self.size -= len(entry)
            held = tail.get(position)
            # After a cut another entry may stand there: it has its own turn.
            if held is not None and held[0] is entry:
                del tail[position]


def cut_tail(tail: Tail, end: Position) -> None:
    """Forget what a log that now ends at `end` no longer holds."""
    for position in [position for position in tail if position >= end]:
        del tail[position]
