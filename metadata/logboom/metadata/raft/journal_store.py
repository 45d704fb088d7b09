"""What a raft node asks of its disk, so that a simulated one can stand in for RocksDB.

Everything but a snapshot is *staged* and becomes durable, all together and in order, at `sync`.
A store that fails to sync must raise and is not asked again (SAFETY Q14, R9).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from logboom.metadata.raft.raft_config import RaftError

Entry = tuple[bytes, int, int]
"""(command, index, term): the shape that PySyncObj keeps and compares as a tuple (SAFETY R7)."""


MEND: Final = "restore the folder, or join anew under a new raft id with an empty one"
"""What an operator does about a damaged journal or snapshot (R9)."""


class JournalError(RaftError):
    """The journal or snapshot cannot be used: damaged, of another node, or of a newer format."""


@dataclass(slots=True)
class StoredJournal:
    """What a store held when it was opened."""

    entries: list[Entry] = field(default_factory=list)
    """Contiguous, ascending."""
    term: int = 0
    voted_for: str | None = None
    commit_index: int = 1


class JournalStore(Protocol):
    """Entries, term, vote, commit index and the newest snapshot of one raft node."""

    def load(self) -> StoredJournal:
        """Everything durable but the snapshot; raises `JournalError` if it is damaged."""

    def load_snapshot(self) -> bytes | None:
        """The newest snapshot as it was saved, or None if there never was one."""

    def put_entry(self, entry: Entry) -> None:
        """Stage one entry at its index."""

    def cut_from(self, index: int) -> None:
        """Stage the removal of every entry at or after `index`."""

    def cut_below(self, index: int) -> None:
        """Stage the removal of every entry before `index`."""

    def put_vote(self, term: int, voted_for: str | None) -> None:
        """Stage the current term and the vote given in it."""

    def put_commit(self, index: int) -> None:
        """Stage the commit index. It rides along with the next sync and does not ask for one."""

    @property
    def unsynced(self) -> bool:
        """Whether something other than a commit index waits for `sync`."""

    def sync(self) -> None:
        """Make all that is staged durable, atomically; raises `JournalError` if that fails."""

    def save_snapshot(self, data: bytes) -> None:
        """Replace the snapshot, durable (file and folder) on return; the old one stays until then."""

    def close(self) -> None:
        """Sync what is staged and let go of the files. Idempotent."""
