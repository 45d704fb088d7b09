"""What clients saw of queues with one copy, whose loss an operator accepts (Q15).

What the copy no longer holds when the queue is led again was lost: it is owed to nobody, and its
offsets are given again. Everything else is promised as ever, and readers go back to get it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from tests.sim.judges.history import History, Queue
from tests.sim.world.trace import BrokenProperty, Trace


class LossyHistory(History):
    """A history that can lose the end of a queue."""

    def __init__(
        self, trace: Trace, now: Callable[[], float], holds: Callable[[Queue, int, bytes], bool]
    ) -> None:
        """`holds`: whether the disk with the only copy has this value at this offset now."""
        super().__init__(trace, now)
        self._holds = holds
        self._losers: set[Queue] = set()
        self._got: defaultdict[str, set[tuple[Queue, int]]] = defaultdict(set)
        """Reader → what it was given, as long as that is not lost."""

    def lose(self, queue: Queue, end: int) -> None:
        """A queue is led again, and its log ends at `end`."""
        self._losers.add(queue)
        known = self._of(queue)
        for offset, value in list(known.at.items()):
            if offset < end or self._holds(queue, offset, value):
                continue
            del known.at[offset]
            known.acked.pop(offset, None)
            for got in self._got.values():
                got.discard((queue, offset))
            if self.acked.get(value) == (queue, offset):
                del self.acked[value]
                self._forget(value)
        known.end = known.seen = max(known.at, default=-1) + 1

    def _forget(self, value: bytes) -> None:
        self.failed[value] = "it was acknowledged, and lost with the disk"
        self._trace.count("messages lost")

    def ack(self, value: bytes, queue: Queue, offset: int) -> None:
        """A producer was told of a value, which may have been lost before it heard so."""
        if self._holds(queue, offset, value):
            super().ack(value, queue, offset)
        else:
            # Who looks at disks knows whether it was there.
            self.on_ack(queue, offset, value)
            self._forget(value)

    def fail(self, value: bytes, why: str) -> None:
        """A producer was told that a send failed: no loss of what was there before is a reason."""
        raise BrokenProperty("retries succeed", f"{value!r}: {why}")

    def read(self, reader: str, queue: Queue, messages: Sequence[tuple[int, bytes]]) -> None:
        """A reader was given messages, some of which may be lost meanwhile."""
        super().read(reader, queue, messages)
        held = [offset for offset, value in messages if self._holds(queue, offset, value)]
        self._got[reader].update((queue, offset) for offset in held)

    def _place(self, queue: Queue, offset: int, value: bytes, how: str) -> None:
        if self._holds(queue, offset, value):
            super()._place(queue, offset, value, how)

    def illegal(self, reader: str, queue: Queue, offset: int, told: int) -> None:
        """A reader goes back, as it may where messages were lost."""
        if queue not in self._losers or told > offset:
            super().illegal(reader, queue, offset, told)
            return
        self._positions[reader, queue] = told
        self._trace.count("readers that went back")

    def unread(self, reader: str) -> list[bytes]:
        """Acknowledged values that are not lost, and that a reader was not given."""
        got = self._got[reader]
        return [value for value, place in self.acked.items() if place not in got]
