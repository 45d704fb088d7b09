"""What a dispatcher knows of one attached consumer."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from logboom.nodes.key_ranges import Range
from logboom.nodes.subscriptions.offset_set import OffsetSet
from logboom.nodes.subscriptions.permits import Permits


class Lent(NamedTuple):
    """Messages of one batch that were sent, until they are due back."""

    deadline: float
    base: int
    bits: int


class Consumer:
    """One attached consumer; compared by identity."""

    __slots__ = (
        "blocked",
        "full",
        "held",
        "later",
        "lent",
        "name",
        "permits",
        "priority",
        "ranges",
        "ready",
        "session",
    )

    def __init__(
        self, name: str, session: int, priority: int = 0, ranges: tuple[Range, ...] | None = None
    ) -> None:
        self.name = name
        self.session = session
        self.priority = priority
        self.ranges = ranges
        self.permits = Permits()
        self.held = OffsetSet()
        """Sent and not acknowledged."""
        self.ready = False
        """The last delivery has arrived: the next may be sent."""
        self.blocked = False
        """Its socket is slow: it gets one batch at a time."""
        self.full = False
        """It holds too much: nothing until it is down to half."""
        self.lent: deque[Lent] = deque()
        """Deliveries in the order of their deadlines, with an ack time-out."""
        self.later: dict[int, list[Lent]] = {}
        """The same by the base of their batch."""

    def lend(self, lent: Lent) -> None:
        """Remember when a delivery is due back."""
        self.lent.append(lent)
        self.later.setdefault(lent.base, []).append(lent)

    def overdue(self, now: float) -> list[tuple[int, int]]:
        """(base, bits) of what is held and was due; what was sent anew meanwhile is not."""
        found = []
        while self.lent and self.lent[0].deadline <= now:
            lent = self.lent.popleft()
            others = self.later[lent.base]
            others.remove(lent)
            bits = lent.bits & self.held.bits(lent.base, lent.base + lent.bits.bit_length())
            for other in others:
                bits &= ~other.bits
            if not others:
                del self.later[lent.base]
            if bits:
                found.append((lent.base, bits))
        return found
