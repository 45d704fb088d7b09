"""Filtered pulls at work: each goes on a little per turn, so that none holds up the loop.

A scan ends when something was found, at the HW, or when its time is up; then its reader gets the
offset that it came to. Those that are not done go to the back of the line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logboom.nodes.replica import QueueKey
from logboom.nodes.sieves import Sieve
from logboom.nodes.turn import Turn
from logboom.wire.actor import Inbound
from logboom.wire.messages import Pull

SLICE_UNITS: Final = 10_000
"""Units of work (`wire.filters.Budget`) of one scan in one turn: about a millisecond."""
SLICE_BYTES: Final = 1024 * 1024
"""Bytes of entries that one scan reads in one turn, about."""
TURN_UNITS: Final = 30_000
"""Units of work of all scans in one turn."""
TURN_BYTES: Final = 4 * 1024 * 1024
"""Bytes of entries that all scans read in one turn, about."""
LONGEST: Final = 1.0
"""Seconds after which a scan without a match tells its reader how far it came."""


@dataclass(slots=True)
class Scan:
    """One filtered pull; `message.offset` goes forward with it."""

    address: Inbound
    message: Pull
    key: QueueKey
    sieve: Sieve
    deadline: float
    """When its reader's wait ends."""
    until: float
    """When it is answered with what it came to."""
    woken: bool
    """It waited at the HW before, and goes back there if it finds nothing."""
    moved: bool = False
    """It has passed over something."""


class Spent:
    """What the scans of one turn cost."""

    __slots__ = ("size", "units")

    def __init__(self) -> None:
        self.units = 0
        self.size = 0

    @property
    def enough(self) -> bool:
        """The others wait for the next turn."""
        return self.units >= TURN_UNITS or self.size >= TURN_BYTES


class Scanning:
    """The line of scans."""

    def __init__(self, go_on: Callable[[Scan, Spent, Turn], bool]) -> None:
        """`go_on` lets one scan go on and says whether it is done."""
        self._go_on = go_on
        self._line: dict[tuple[Inbound, int], Scan] = {}

    def __len__(self) -> int:
        return len(self._line)

    def add(self, scan: Scan) -> None:
        """To the back of the line; a request sent again replaces its older self."""
        self._line[scan.address, scan.message.id] = scan

    def take_if(self, key: QueueKey, wanted: Callable[[Pull], bool]) -> list[Scan]:
        """Take scans of a queue out of the line."""
        line = self._line.items()
        names = [name for name, scan in line if scan.key == key and wanted(scan.message)]
        return [self._line.pop(name) for name in names]

    def step(self, turn: Turn) -> None:
        """Let each go on, as far as the turn's bounds allow."""
        spent = Spent()
        for name in list(self._line):
            if spent.enough:
                return
            scan = self._line.pop(name)
            if not self._go_on(scan, spent, turn):
                self._line[name] = scan
