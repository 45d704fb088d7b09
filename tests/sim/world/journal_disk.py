"""A name server's disk in the cluster simulation: it may also fail an fsync, or be full.

A turn is one record of the real journal's write-ahead log: a torn one is dropped whole. So what a
failed or interrupted sync leaves behind is all of the turn or nothing of it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Final

from logboom.metadata.raft.journal import FORMAT
from logboom.metadata.raft.journal_store import JournalError, StoredJournal
from tests.sim.world.raft_disk import SimulatedDisk
from tests.sim.world.storage import IO_ERROR

NO_SPACE: Final = "no space left on device"


class JournalDisk(SimulatedDisk):
    """Like a `SimulatedDisk`, with faults that the process lives to see."""

    def __init__(self, rng: random.Random, journal_id: str = "", *, joining: bool = False) -> None:
        super().__init__(journal_id, joining=joining)
        self._rng = random.Random(rng.random())
        self.format = FORMAT
        """Of the data folder; a run may begin on an older one."""
        self.full = False
        """Whether others have filled the file system."""
        self.refuses = False
        """Whether the next write fails."""
        self.failed = False
        """Whether a write failed in this life of the process, which must end then (R9)."""
        self._copy: tuple[StoredJournal, bytes | None] | None = None
        self.on_snapshot: Callable[[], None] = lambda: None
        """Called before a snapshot is written."""

    def load(self) -> StoredJournal:
        """What is durable, if this build reads the folder's format."""
        assert 1 <= self.format <= FORMAT, f"a data folder of format {self.format} is not opened"
        return super().load()

    def sync(self) -> None:
        """Make durable what is staged; after a failure it may be, or not."""
        if self.full or self.refuses:
            if not self.full and self._rng.random() < 0.5:
                super().sync()
            self._fail()
        super().sync()

    def save_snapshot(self, data: bytes) -> None:
        """Keep the snapshot."""
        self.on_snapshot()
        if self.full or self.refuses:
            self._fail()
        super().save_snapshot(data)

    def back_up(self) -> None:
        """Copy what is durable now."""
        self._copy = (copy.deepcopy(self.durable), self.snapshot)

    def restore(self) -> bool:
        """Be as the copy is; False without one."""
        if self._copy is None:
            return False
        self.durable, self.snapshot = copy.deepcopy(self._copy[0]), self._copy[1]
        return True

    @property
    def last_index(self) -> int:
        """Index of the last durable entry; -1 if there is none."""
        entries = self.durable.entries
        return entries[-1][1] if entries else -1

    def crash(self) -> int:
        """The process is gone; what was wrong with one write is over."""
        self.refuses = self.failed = False
        return super().crash()

    def _fail(self) -> None:
        self.failed = True
        what = NO_SPACE if self.full else IO_ERROR
        raise JournalError(f"the journal cannot be written: {what}")
