"""The storage interface of a Raft node, which RocksDB and the simulated disk implement.

Everything but a snapshot is *staged*, and becomes durable at `sync`, all together and in order. A
store that fails to sync must raise and is not asked again, because a second sync may report success
for data that the first one lost (see docs/SAFETY.md, Q14 and R9).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from logboom.metadata.raft.raft_config import RaftError

Entry = tuple[bytes, int, int]
"""(command, index, term): the tuple that PySyncObj keeps and compares (R7)."""


MEND: Final = "restore the folder, or join again under a new raft id with an empty one"
"""The remedy for a damaged journal or snapshot (R9)."""


class JournalError(RaftError):
    """The journal or snapshot cannot be used: damaged, of another node, or of a newer format."""


@dataclass(slots=True)
class StoredJournal:
    """The contents of a store when it was opened."""

    entries: list[Entry] = field(default_factory=list)
    """Contiguous, ascending."""
    term: int = 0
    voted_for: str | None = None
    commit_index: int = 1


class JournalStore(Protocol):
    """The entries, term, vote, commit index and newest snapshot of one Raft node."""

    @property
    def journal_id(self) -> str:
        """The id drawn when the journal was made; "" if the store has none.

        Another journal under the same Raft id never counts again (R9).
        """

    @property
    def joining(self) -> bool:
        """True from the creation of the journal by a name server that joins until `end_joining`."""

    def end_joining(self) -> None:
        """Note durably that the log names this journal as a member's."""

    def load(self) -> StoredJournal:
        """Return everything durable but the snapshot; raises `JournalError` if it is damaged."""

    def load_snapshot(self) -> bytes | None:
        """Return the newest snapshot as it was saved, or None if there never was one."""

    def put_entry(self, entry: Entry) -> None:
        """Stage one entry at its index."""

    def cut_from(self, index: int) -> None:
        """Stage the removal of every entry at or after `index`."""

    def cut_below(self, index: int) -> None:
        """Stage the removal of every entry before `index`."""

    def put_vote(self, term: int, voted_for: str | None) -> None:
        """Stage the current term and the vote given in it."""

    def put_commit(self, index: int) -> None:
        """Stage the commit index. It is written with the next sync and does not require one."""

    @property
    def unsynced(self) -> bool:
        """True if anything but a commit index waits for `sync`."""

    def sync(self) -> None:
        """Make all that is staged durable, atomically; raises `JournalError` if that fails."""

    def save_snapshot(self, data: bytes) -> None:
        """Replace the snapshot durably (file and folder); the old one stays until then."""

    def close(self) -> None:
        """Sync what is staged and release the files. Idempotent."""
