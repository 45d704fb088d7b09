"""A computer of a simulated cluster: its clock and its disks outlive the processes that run on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tests.sim.world.journal_disk import NO_SPACE, JournalDisk
from tests.sim.world.storage import IO_ERROR, SimulatedStorage

if TYPE_CHECKING:
    from logboom.wire.actor import Core
    from tests.sim.world.process import Process
    from tests.sim.world.scheduler import Clock

Kind: TypeAlias = Literal["name-server", "broker", "client"]
OLD_UNTIL: Final = (0, 0, 2, 3, 5, 8)
"""Each broker's folder is upgraded at one of these starts, or was made by the program of today."""


@dataclass(slots=True, eq=False)
class Machine:
    """A computer: its clock and disks outlive the processes that run on it."""

    name: str
    kind: Kind
    clock: Clock
    listeners: dict[str, str]
    build: Callable[[], Core]
    storage: SimulatedStorage | None = None
    journal: JournalDisk | None = None
    emptied: bool = False
    """Whether a member of the Raft group lost its folder, and so may not count again (R9)."""
    process: Process | None = None
    starts: int = 0
    old_until: int = 0
    """Before this start, a broker's folder is as an older program left it; 0: never."""
    idle: bool = False
    """It is not to start (again) for now."""
    retired: bool = False
    """Taken out of the cluster for good."""

    def excused(self, reason: str) -> bool:
        """Whether its disk refused something in this life of its process, and the process says so:
        then it may, and must, end (Q14, R9). Only the disk itself knows, and forgets it in a crash:
        what it is about to refuse, or refused long ago, excuses nothing."""
        disks = [disk for disk in (self.storage, self.journal) if disk is not None]
        return any(disk.failed for disk in disks) and (IO_ERROR in reason or NO_SPACE in reason)
