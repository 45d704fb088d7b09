"""Settings, outcomes and errors of the Raft group.

Times are seconds, sizes bytes. `RaftConfig` checks the relations between its fields when created.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_COMMAND_BYTES: Final = 60 * 1024
"""Maximum length of a submitted command. Longer ones are refused, because Raft never splits an
entry (see docs/SAFETY.md, R11)."""


class RaftError(Exception):
    """An error that a Raft node cannot survive: its process must stop (R9). One line."""


class RaftDivergedError(RaftError):
    """A committed entry would have been truncated, or two leaders claim one term."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Timing and limits of one Raft group; the same on every member."""

    heartbeat_s: float = 0.1
    """Maximum interval between two appends of a leader."""
    election_min_s: float = 0.4
    """Minimum election timeout; each is drawn at random from [election_min_s, election_max_s]."""
    election_max_s: float = 1.0
    leader_fallback_s: float = 1.0
    """Seconds after which a leader steps down if no majority answered appends *sent* in them (Q11).
    """
    append_batch_bytes: int = 64 * 1024
    """Entries of one append frame; always more than one whole entry, so that no entry is ever
    split."""
    max_command_bytes: int = MAX_COMMAND_BYTES
    """Maximum length of a command, and of an entry that holds several."""
    compact_entries: int = 5_000
    """Applied entries after which a snapshot replaces them."""
    compact_bytes: int = 16 * 1024 * 1024
    """Bytes of log after which a snapshot is taken, however few the entries."""
    snapshot_chunk_bytes: int = 256 * 1024
    """Size of the frames in which a snapshot is sent."""
    hash_every: int = 1_024
    """State hashes are taken at indexes that are a multiple of this, and compared."""
    commit_sync_s: float = 1.0
    """Seconds after which a commit index alone is synced; with entries it is synced at once."""

    def __post_init__(self) -> None:
        """Check the relations; the `ValueError` names the one that fails."""
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
    """The outcome of a submitted command."""

    APPLIED = "applied"
    """Committed and applied here; `result` is what `apply` returned."""
    REFUSED = "refused"
    """Not in the log, now or later; `refusal` gives the reason. It is safe to submit elsewhere."""
    UNKNOWN = "unknown"
    """Leadership was lost meanwhile, so it may or may not be applied. Retry with the same request
    id."""


class Refusal(Enum):
    """The reason why a command was refused."""

    NOT_LEADER = "not the raft leader"
    TOO_LARGE = "the command is longer than max_command_bytes"
    BELOW_LEVEL = "the features level of the cluster is too low for it"
    CHANGE_PENDING = "another membership change is not applied yet"
    NOTHING_TO_CHANGE = "the membership already is as asked"
    IS_LEADER = "the leader cannot be removed; transfer leadership first"


@dataclass(frozen=True, slots=True)
class SubmitOutcome:
    """The answer to one `RaftNode.submit`, delivered by `RaftNode.sync` and never earlier."""

    status: SubmitStatus
    result: bytes = b""
    index: int = 0
    """Index of the entry that holds the command (0 unless APPLIED)."""
    term: int = 0
    """Term of that entry."""
    refusal: Refusal | None = None

    @property
    def applied(self) -> bool:
        """True if the command is committed and applied."""
        return self.status is SubmitStatus.APPLIED
