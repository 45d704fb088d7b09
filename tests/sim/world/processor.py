"""How long the turns of a process keep its processor busy, by the work that they really do.

A turn costs simulated time for each call of a function, Python's or the interpreter's own, and for
each byte that it takes and sends. Both are counted, not timed, so a run is the same on every machine.
A core that touches 10,000 queues in one turn is therefore away for as long as it would be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, TypeVar

from logboom.wire.actor import Effects, Event, Received

CALL_S: Final = 0.25e-6
"""Seconds of one call on an idle machine, all that is done between calls included."""
BYTE_S: Final = 10e-9
"""Seconds of one byte: encoded or decoded, copied, and sent or received."""
COUNTED: Final = frozenset(("call", "c_call"))
T = TypeVar("T")


class Processor:
    """The processor of one machine; `slowness` 10 is a tenth of the speed."""

    def __init__(self, slowness: float = 1.0) -> None:
        self.slowness = slowness
        self.longest_s = 0.0
        """The longest turn."""

    def seconds(self, calls: int, events: Sequence[Event], effects: Effects) -> float:
        """Return what a turn costs."""
        size = sum(
            sum(map(len, event.frames)) for event in events if isinstance(event, Received)
        ) + sum(sum(map(len, frames)) for _, frames in effects.sends)
        cost_s = self.slowness * (calls * CALL_S + size * BYTE_S)
        self.longest_s = max(self.longest_s, cost_s)
        return cost_s


def counted(work: Callable[[], T]) -> tuple[T, int]:
    """Do some work, and return its result and the number of calls that it took."""
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in COUNTED

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = work()
    finally:
        sys.setprofile(before)
    return found, calls
