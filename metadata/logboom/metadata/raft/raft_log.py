"""PySyncObj's journal over a `JournalStore`: the whole log in memory, every change staged.

It also derives the membership from the entries: the newest membership entry counts as soon as it is
in the log, committed or not (see docs/SAFETY.md, R12).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, overload

from logboom.metadata.raft.journal_store import Entry, JournalError, JournalStore, StoredJournal
from logboom.metadata.raft.raft_config import RaftDivergedError
from logboom.metadata.raft.raft_entries import MembershipChange, pack_change, unpack_change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logboom.metadata.raft.raft_snapshot import RaftSnapshot


class RaftLog:
    """Entries, term, vote and commit index. Method names in camel case are PySyncObj's."""

    def __init__(
        self,
        disk: JournalStore,
        stored: StoredJournal,
        snapshot: RaftSnapshot | None,
        founders: Iterable[str],
    ) -> None:
        self._disk = disk
        self._entries: list[Entry] = []
        self._changes: list[tuple[int, MembershipChange]] = []
        self._members_before: frozenset[str] = frozenset()
        self._term, self._voted_for = stored.term, stored.voted_for
        self._commit = max(1, stored.commit_index)
        self.bytes = 0
        """Sum of the entries' lengths."""
        self.cuts = 0
        """Number of conflicting tails that were truncated."""
        _check_contiguous(stored.entries)
        if snapshot is not None:
            self._open_after(snapshot, stored)
        elif stored.entries:
            if stored.entries[0][1] != 1:
                raise JournalError(
                    f"the journal begins at entry {stored.entries[0][1]} and the snapshot before"
                    " it is missing: restore the folder, or join again under a new raft id"
                )
            self._take(stored.entries)
        else:
            self._append((pack_change(MembershipChange("found", tuple(sorted(founders)))), 1, 0))
        if self._commit > self.last_index:
            raise JournalError(
                f"the journal ends at entry {self.last_index}, but entry {self._commit} was"
                " committed: restore the folder, or join again under a new raft id"
            )

    # -- opening ----------------------------------------------------------------------------

    def _open_after(self, snapshot: RaftSnapshot, stored: StoredJournal) -> None:
        """Begin with the snapshot's two entries, and keep the entries that follow them (R7)."""
        before, last = snapshot.before, snapshot.last
        entries = stored.entries
        self._members_before = frozenset(snapshot.members)
        if entries and entries[0][1] > before[1]:
            raise JournalError(
                f"the journal begins at entry {entries[0][1]}, after the snapshot's {last[1]}:"
                " restore the folder, or join again under a new raft id"
            )
        skip = before[1] - entries[0][1] if entries else 0
        if entries[skip : skip + 2] == [before, last]:
            self._take(entries[skip:])
            if skip:
                self._disk.cut_below(before[1])
            self._commit = max(self._commit, last[1])
            return
        if entries and entries[-1][1] >= last[1] and stored.commit_index >= last[1]:
            raise JournalError(
                f"journal and snapshot disagree about committed entry {last[1]}: restore the"
                " folder, or join again under a new raft id"
            )
        self._restart(before, last)

    def _take(self, entries: list[Entry]) -> None:
        """Hold entries that are already on disk."""
        self._entries = list(entries)
        for entry in entries:
            self._note(entry)

    # -- what PySyncObj calls ---------------------------------------------------------------

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append one entry; raises `RaftDivergedError` if it would leave a hole."""
        if index != self.last_index + 1:
            raise RaftDivergedError(f"entry {index} does not follow {self.last_index}")
        self._append((command, index, term))

    def clear(self) -> None:
        """Fail: only `install` replaces the log, by a snapshot."""
        raise RaftDivergedError("the raft log was asked to forget everything")

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802 - PySyncObj's name
        """Truncate the log at a position; raises rather than remove a committed entry."""
        index = self._entries[position][1] if position < len(self._entries) else None
        if index is None:
            return
        if index <= self._commit:
            raise RaftDivergedError(
                f"entry {index} was to be cut, but {self._commit} is committed: this member has"
                " diverged; stop it, keep its folder, and join again under a new raft id"
            )
        for command, _, _ in self._entries[position:]:
            self.bytes -= len(command)
        del self._entries[position:]
        while self._changes and self._changes[-1][0] >= index:
            self._changes.pop()
        self.cuts += 1
        self._disk.cut_from(index)

    def deleteEntriesTo(self, position: int) -> None:  # noqa: N802 - PySyncObj's name
        """Remove the entries before a position, which the snapshot contains."""
        if position <= 0:
            return
        index = self._entries[position][1]
        self._members_before = self.members_at(index - 1)
        self._changes = [change for change in self._changes if change[0] >= index]
        for command, _, _ in self._entries[:position]:
            self.bytes -= len(command)
        del self._entries[:position]
        self._disk.cut_below(index)

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802 - PySyncObj's name
        """Journal the commit index (R11)."""
        if index > self._commit:
            self._commit = index
            self._disk.put_commit(index)

    def getRaftCommitIndex(self) -> int:  # noqa: N802 - PySyncObj's name
        """Return the commit index as journalled."""
        return self._commit

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:  # noqa: N802 - PySyncObj's
        """Journal the term and the vote."""
        self._term, self._voted_for = term, voted_for
        self._disk.put_vote(term, voted_for)

    def getCurrentTerm(self) -> int:  # noqa: N802 - PySyncObj's name
        """Return the term as journalled."""
        return self._term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802 - PySyncObj's name
        """Return the vote given in that term."""
        return self._voted_for

    def onOneSecondTimer(self) -> None:  # noqa: N802 - PySyncObj's name
        """Do nothing: the loop syncs at the end of each turn."""

    def _destroy(self) -> None:
        """Do nothing: the owner closes the store."""

    # -- ours -------------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """Index of the first entry held."""
        return self._entries[0][1]

    @property
    def last_index(self) -> int:
        """Index of the last entry held; 0 while the log is being opened."""
        return self._entries[-1][1] if self._entries else 0

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, None if it is not held."""
        position = index - self._entries[0][1]
        if not 0 <= position < len(self._entries):
            return None
        return self._entries[position][2]

    def entry_at(self, index: int) -> Entry:
        """Return an entry that is held."""
        return self._entries[index - self._entries[0][1]]

    @property
    def members(self) -> frozenset[str]:
        """The current membership: that of the newest membership entry."""
        return self.members_at(self.last_index)

    def members_at(self, index: int) -> frozenset[str]:
        """Return the membership after an entry."""
        members = self._members_before
        for changed_at, change in self._changes:
            if changed_at <= index:
                members = change.applied_to(members)
        return members

    @property
    def changed_at(self) -> int:
        """Index of the newest membership entry held, 0 if there is none."""
        return self._changes[-1][0] if self._changes else 0

    def install(self, snapshot: RaftSnapshot) -> None:
        """Replace everything by a snapshot's two entries, which are committed."""
        self._members_before = frozenset(snapshot.members)
        self._restart(snapshot.before, snapshot.last)
        self._disk.put_commit(self._commit)

    def _restart(self, before: Entry, last: Entry) -> None:
        self._entries, self._changes, self.bytes = [], [], 0
        self._disk.cut_from(0)
        self._append(before)
        self._append(last)
        self._commit = max(self._commit, last[1])

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._note(entry)
        self._disk.put_entry(entry)

    def _note(self, entry: Entry) -> None:
        self.bytes += len(entry[0])
        change = unpack_change(entry[0])
        if change is not None:
            self._changes.append((entry[1], change))


def _check_contiguous(entries: list[Entry]) -> None:
    for earlier, later in pairwise(entries):
        if later[1] != earlier[1] + 1 or later[2] < earlier[2]:
            raise JournalError(
                f"the journal is damaged: entry {later[1]} of term {later[2]} follows entry"
                f" {earlier[1]} of term {earlier[2]}"
            )
