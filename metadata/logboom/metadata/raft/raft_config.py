"""What is set and what comes back: the raft group's settings, outcomes and errors.

Times are seconds, sizes bytes. `RaftConfig` checks the relations between its fields when made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_COMMAND_BYTES: Final = 60 * 1024
"""The longest command that may be submitted (SAFETY R11): longer is refused, never split by raft."""


class RaftError(Exception):
    """The raft node cannot go on: its process must stop (SAFETY R9). One line, for an operator."""


class RaftDivergedError(RaftError):
    """An entry already committed would have been cut, or two leaders claim one term."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Timing and limits of one raft group; the same on every member."""

    heartbeat_s: float = 0.1
    """The leader sends an append at least this often."""
    election_min_s: float = 0.4
    """A follower that heard nothing for a random time in [election_min_s, election_max_s] stands."""
    election_max_s: float = 1.0
    leader_fallback_s: float = 1.0
    """A leader without a majority's answer to appends sent in this time steps down (Q11)."""
    append_batch_bytes: int = 64 * 1024
    """Entries of one append frame; always above a whole entry, so no entry is ever torn."""
    max_command_bytes: int = MAX_COMMAND_BYTES
    """Longest single command, and longest entry that packs several."""
    compact_entries: int = 5_000
    """Applied entries after which a snapshot replaces them."""
    compact_bytes: int = 16 * 1024 * 1024
    """Bytes of log after which a snapshot is taken, however few the entries."""
    snapshot_chunk_bytes: int = 256 * 1024
    """Snapshots travel in frames of this size."""
    hash_every: int = 1_024
    """State hashes are taken at entries whose index is a multiple of this, and compared."""
    commit_sync_s: float = 1.0
    """A commit index alone is synced after this long; with entries it always is at once."""

    def __post_init__(self) -> None:
        """Check the relations; `ValueError` says which one fails."""
        relations = {
            "election_min_s > 3 * heartbeat_s": self.election_min_s > 3 * self.heartbeat_s > 0,
            "election_max_s > election_min_s": self.election_max_s > self.election_min_s,
            "leader_fallback_s > heartbeat_s": self.leader_fallback_s > self.heartbeat_s,
            "append_batch_bytes > max_command_bytes + 64": (
                self.append_batch_bytes > self.max_command_bytes + 64
            ),
            "compact_entries >= 4": self.compact_entries >= 4,
            "snapshot_chunk_bytes > 0": self.snapshot_chunk_bytes > 0,
            "hash_every > 0": self.hash_every > 0,
        }
        for relation, holds in relations.items():
            if not holds:
                raise ValueError(f"raft configuration: {relation} must hold")


class SubmitStatus(Enum):
    """What became of a submitted command."""

    APPLIED = "applied"
    """Committed and applied here; `result` is what apply returned."""
    REFUSED = "refused"
    """Never entered the log and never will; `reason` says why. Safe to send elsewhere."""
    UNKNOWN = "unknown"
    """Leadership was lost meanwhile: it may or may not be applied. Retry by request id."""


class Refusal(Enum):
    """Why a command was refused."""

    NOT_LEADER = "not the raft leader"
    TOO_LARGE = "the command is longer than max_command_bytes"
    CHANGE_PENDING = "another membership change is not applied yet"
    NOTHING_TO_CHANGE = "the membership already is as asked"
    IS_LEADER = "the leader cannot be removed; transfer leadership first"


@dataclass(frozen=True, slots=True)
class SubmitOutcome:
    """The answer to one `RaftNode.submit`, given out by `RaftNode.sync` and never earlier."""

    status: SubmitStatus
    result: bytes = b""
    index: int = 0
    """Index of the entry that holds the command (0 unless APPLIED)."""
    term: int = 0
    """Term of that entry."""
    refusal: Refusal | None = None

    @property
    def applied(self) -> bool:
        """Whether the command is committed and applied."""
        return self.status is SubmitStatus.APPLIED
