"""The state of a Raft node, shared by the parts that make up the node.

`RaftNode` owns it and passes it to `RaftMessageHandler` (frames in) and to `EngineAdapter` (what
PySyncObj asks).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logboom.metadata.raft.engine import LEADER
from logboom.metadata.raft.peer_outboxes import PeerOutboxes
from logboom.metadata.raft.pre_vote import PreVoteRound
from logboom.metadata.raft.raft_frames import AppendResponse, Frame, encode
from logboom.metadata.raft.state_hashes import StateHashes
from logboom.metadata.raft.submissions import Submissions

if TYPE_CHECKING:
    import random

    from logboom.metadata.raft.journal_store import JournalStore
    from logboom.metadata.raft.raft_config import RaftConfig
    from logboom.metadata.raft.raft_log import RaftLog

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
"""Counters that `status` reports."""


@dataclass(slots=True)
class RaftCallbacks:
    """Functions that a Raft node calls in its owner."""

    apply: Callable[[bytes], bytes]
    """Applies one command: deterministic, and never raises. While it runs, `applying_index` and
    `applying_term` of the node name the entry."""
    snapshot: Callable[[], bytes]
    """The whole state, canonical: equal states give equal bytes, so that their hashes compare."""
    restore: Callable[[bytes], None]
    """Replaces the whole state by that of a snapshot."""
    clock: Callable[[], float]
    """The time in monotonic seconds."""
    journal_of: Callable[[str], str] = lambda _: ""
    """Returns the id of the journal that the log names for a member; "" if it names none."""


class RaftState:
    """The fields of a Raft node, and the questions that its parts ask about them."""

    engine: Any
    """PySyncObj, subclassed (`raft.engine`); set once by `RaftNode`."""

    def __init__(
        self,
        node_id: str,
        log: RaftLog,
        disk: JournalStore,
        callbacks: RaftCallbacks,
        rng: random.Random,
        config: RaftConfig,
    ) -> None:
        self.node_id = node_id
        self.log = log
        self.disk = disk
        self.callbacks = callbacks
        self.rng = rng
        self.config = config
        self.now = callbacks.clock()
        self.members = log.members
        """Raft ids of the voting members, by the newest membership entry in the log (R12)."""
        self.outboxes = PeerOutboxes()
        self.submissions = Submissions(config.max_command_bytes)
        self.pre_votes = PreVoteRound(rng, config.heartbeat_s)
        self.stand_at_once = False
        """True once the leader has handed its leadership to this node."""
        self.hashes = StateHashes(node_id)
        self.applying = (0, 0)
        """Index and term of the entry being applied."""
        self.answer = AppendResponse(0, 0.0)
        """The answer to the append or snapshot being processed."""
        self.incoming = b""
        """The snapshot being installed, as it was received."""
        self.counts = dict.fromkeys(_COUNTED, 0)

    @property
    def is_leader(self) -> bool:
        """True if this node believes that it leads."""
        return bool(self.engine.state == LEADER)

    def leads_at(self, now: float) -> bool:
        """Return True if a majority answered this leader's appends of the last leader_fallback_s."""
        if not self.is_leader:
            return False
        oldest = now - self.config.leader_fallback_s
        fresh = sum(at > oldest for at in self.engine.answered_at.values())
        return bool(2 * (fresh + 1) > len(self.members))

    @property
    def leader(self) -> str | None:
        """The leader of the current term, if it is known."""
        node = self.engine.leader_node
        return None if node is None else str(node.id)

    @property
    def term(self) -> int:
        """The current Raft term."""
        return int(self.engine.current_term)

    @property
    def commit_index(self) -> int:
        """The last entry known to be committed."""
        return int(self.engine.commit_index)

    @property
    def applied_index(self) -> int:
        """The last entry applied to the state."""
        return int(self.engine.last_applied)

    def status(self) -> dict[str, int | float | str]:
        """Return flat figures for STATS."""
        role = ("follower", "candidate", "leader")[self.engine.state]
        return {
            "raft_id": self.node_id,
            "role": role,
            "leader": self.leader or "",
            "term": self.term,
            "commit_index": self.commit_index,
            "applied_index": self.applied_index,
            "first_index": self.log.first_index,
            "last_index": self.log.last_index,
            "log_bytes": self.log.bytes,
            "log_cuts": self.log.cuts,
            "members": len(self.members),
            "peers_up": len(self.outboxes),
            "state_hashes_compared": self.hashes.compared,
            "state_hash_mismatches": self.hashes.mismatches,
            **self.counts,
        }

    def send(self, peer: str, frame: Frame) -> None:
        """Queue a frame for a peer; drop it if the peer is not connected."""
        self.outboxes.queue(peer, encode(frame))

    def follow_membership(self) -> None:
        """Make PySyncObj count the members that the newest membership entry names."""
        members = self.log.members
        if members == self.members:
            return
        for peer in sorted(self.members - members - {self.node_id}):
            self.engine.drop_peer(peer)
        for peer in sorted(members - self.members - {self.node_id}):
            self.engine.add_peer(peer, self.now)
            if self.outboxes.is_up(peer):
                self.engine.connect(peer)
        self.members = members
