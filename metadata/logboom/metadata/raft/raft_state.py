"""What a raft node holds and what it tells about itself; the base of its other layers.

The layers, each in a module of its own: `RaftState` (fields, figures), `RaftInbox` (frames in),
`RaftHost` (what PySyncObj asks), `RaftNode` in `raft` (the turn, the public face).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logboom.metadata.raft.engine import LEADER
from logboom.metadata.raft.peer_outboxes import PeerOutboxes
from logboom.metadata.raft.pre_vote import PreVoteRound, VoteTally
from logboom.metadata.raft.raft_config import RaftConfig, RaftError
from logboom.metadata.raft.raft_frames import AppendResponse, Frame, encode
from logboom.metadata.raft.raft_log import RaftLog
from logboom.metadata.raft.raft_snapshot import own_snapshot
from logboom.metadata.raft.state_hashes import StateHashes
from logboom.metadata.raft.submissions import Submissions

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from logboom.metadata.raft.journal_store import JournalStore

_COUNTED = (
    "applied",
    "elections_begun",
    "elections_won",
    "frames_dropped",
    "frames_refused",
    "frames_stale",
    "hints_heard",
    "hints_sent",
    "snapshots_installed",
    "snapshots_refused",
    "snapshots_sent",
    "snapshots_taken",
    "syncs",
)
"""What `status` counts."""


class RaftState:
    """Fields of a raft node and read-only questions about them."""

    _engine: Any
    """PySyncObj, subclassed (`raft.engine`); set once by `RaftNode`."""

    def __init__(
        self,
        node_id: str,
        members: Iterable[str],
        disk: JournalStore,
        *,
        apply: Callable[[bytes], bytes],
        snapshot: Callable[[], bytes],
        restore: Callable[[bytes], None],
        clock: Callable[[], float],
        rng: random.Random,
        config: RaftConfig | None = None,
    ) -> None:
        self._id = node_id
        self._disk = disk
        self._apply, self._snapshot, self._restore = apply, snapshot, restore
        self._clock, self._rng = clock, rng
        self._config = config or RaftConfig()
        self._now = self._synced_at = self._heard_at = clock()
        self._failure: RaftError | None = None
        self._closed = False
        self._sessions = PeerOutboxes()
        self._submissions = Submissions(self._config.max_command_bytes)
        self._ballot = VoteTally()
        self._canvass = PreVoteRound(rng, self._config.heartbeat_s)
        self._stand_at_once = False
        self._hashes = StateHashes(node_id)
        self._applying = (0, 0)
        self._answer = AppendResponse(0, 0.0)
        self._incoming = b""
        self._counts = dict.fromkeys(_COUNTED, 0)
        stored, saved = disk.load(), disk.load_snapshot()
        self._newest = own_snapshot(saved) if saved is not None else None
        self._log = RaftLog(disk, stored, self._newest, members)
        self._members = self._log.members
        self._synced_commit = self._log.getRaftCommitIndex()

    @property
    def node_id(self) -> str:
        """This member's raft id."""
        return self._id

    @property
    def is_leader(self) -> bool:
        """Whether this node believes to lead."""
        return bool(self._engine.state == LEADER)

    def leads_at(self, now: float) -> bool:
        """Whether it leads and a majority answered appends *sent* in the last leader_fallback_s.

        Grant leases only under this (Q11, R13): a leader that was paused answers False.
        """
        if not self.is_leader:
            return False
        oldest = now - self._config.leader_fallback_s
        fresh = sum(at > oldest for at in self._engine.answered_at.values())
        return bool(2 * (fresh + 1) > len(self._members))

    @property
    def leader(self) -> str | None:
        """The leader of the current term as far as known."""
        node = self._engine.leader_node
        return None if node is None else str(node.id)

    @property
    def term(self) -> int:
        """The current raft term."""
        return int(self._engine.current_term)

    @property
    def commit_index(self) -> int:
        """The last entry known to be committed."""
        return int(self._engine.commit_index)

    @property
    def applied_index(self) -> int:
        """The last entry applied to the state."""
        return int(self._engine.last_applied)

    @property
    def applying_index(self) -> int:
        """Index of the entry that `apply` is called for."""
        return self._applying[0]

    @property
    def applying_term(self) -> int:
        """Term of the entry that `apply` is called for: commands that carry a term compare (R13)."""
        return self._applying[1]

    @property
    def members(self) -> frozenset[str]:
        """Raft ids of the voting members, the newest membership entry in the log counting (R12)."""
        return self._members

    @property
    def applied_members(self) -> frozenset[str]:
        """Raft ids of the voting members by what is applied: equal wherever as much is."""
        return self._log.members_at(self.applied_index)

    def status(self) -> dict[str, int | float | str]:
        """Flat figures for STATS."""
        role = ("follower", "candidate", "leader")[self._engine.state]
        return {
            "raft_id": self._id,
            "role": role,
            "leader": self.leader or "",
            "term": self.term,
            "commit_index": self.commit_index,
            "applied_index": self.applied_index,
            "first_index": self._log.first_index,
            "last_index": self._log.last_index,
            "log_bytes": self._log.bytes,
            "log_cuts": self._log.cuts,
            "members": len(self._members),
            "peers_up": len(self._sessions),
            "state_hashes_compared": self._hashes.compared,
            "state_hash_mismatches": self._hashes.mismatches,
            **self._counts,
        }

    def _send(self, peer: str, frame: Frame) -> None:
        self._sessions.queue(peer, encode(frame))

    def _follow_membership(self) -> None:
        """Make PySyncObj count the members that the newest membership entry names."""
        members = self._log.members
        if members == self._members:
            return
        for peer in sorted(self._members - members - {self._id}):
            self._engine.drop_peer(peer)
        for peer in sorted(members - self._members - {self._id}):
            self._engine.add_peer(peer, self._now)
            if self._sessions.is_up(peer):
                self._engine.connect(peer)
        self._members = members
