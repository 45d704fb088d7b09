"""A simulated disk for one raft node: what was not synced is gone after a crash."""

from __future__ import annotations

import copy
from collections.abc import Callable

from logboom.metadata.raft.journal_store import Entry, JournalError, StoredJournal


class PowerLossError(Exception):
    """The power failed in the middle of a disk operation."""


class SimulatedDisk:
    """What a `JournalStore` keeps, split into durable and staged; survives its node's crashes.

    `crash()` drops what is staged. `fail_in` counts operations down; at 0 the power fails before
    the operation, at 1 right after it became durable.
    """

    def __init__(self, journal_id: str = "", *, joining: bool = False) -> None:
        self.journal_id = journal_id
        self.joining = joining
        self.durable = StoredJournal()
        self.snapshot: bytes | None = None
        self._staged: list[Callable[[StoredJournal], None]] = []
        self._unsynced = False
        self.syncs = 0
        self.fail_in: int | None = None
        self.closed = False

    # -- JournalStore -----------------------------------------------------------------------

    def load(self) -> StoredJournal:
        return copy.deepcopy(self.durable)

    def load_snapshot(self) -> bytes | None:
        return self.snapshot

    def put_entry(self, entry: Entry) -> None:
        self._stage(lambda journal: journal.entries.append(entry))

    def cut_from(self, index: int) -> None:
        def cut(journal: StoredJournal) -> None:
            journal.entries = [entry for entry in journal.entries if entry[1] < index]

        self._stage(cut)

    def cut_below(self, index: int) -> None:
        def cut(journal: StoredJournal) -> None:
            journal.entries = [entry for entry in journal.entries if entry[1] >= index]

        self._stage(cut)

    def put_vote(self, term: int, voted_for: str | None) -> None:
        def vote(journal: StoredJournal) -> None:
            journal.term, journal.voted_for = term, voted_for

        self._stage(vote)

    def put_commit(self, index: int) -> None:
        def commit(journal: StoredJournal) -> None:
            journal.commit_index = index

        self._staged.append(commit)

    @property
    def unsynced(self) -> bool:
        return self._unsynced

    def sync(self) -> None:
        self._count_down()
        staged, self._staged = self._staged, []
        for change in staged:
            change(self.durable)
        self._unsynced = False
        self.syncs += 1
        self._count_down()

    def save_snapshot(self, data: bytes) -> None:
        self._count_down()
        self.snapshot = data
        self._count_down()

    def end_joining(self) -> None:
        self._count_down()
        self.joining = False
        self._count_down()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.sync()

    # -- the simulation's side --------------------------------------------------------------

    def crash(self) -> int:
        """Lose what is staged; how many changes that were."""
        lost = len(self._staged)
        self._staged, self._unsynced, self.fail_in, self.closed = [], False, None, False
        return lost

    def holds(self, index: int, command: bytes) -> bool:
        """Whether a command is durable here, in its entry or in the snapshot."""
        entries = self.durable.entries
        position = index - entries[0][1] if entries else 0
        if 0 <= position < len(entries):
            return command in entries[position][0]
        return self.snapshot is not None and command in self.snapshot

    def _stage(self, change: Callable[[StoredJournal], None]) -> None:
        if self.closed:
            raise JournalError("the journal is closed")
        self._staged.append(change)
        self._unsynced = True

    def _count_down(self) -> None:
        if self.fail_in is None:
            return
        if self.fail_in == 0:
            raise PowerLossError
        self.fail_in -= 1
