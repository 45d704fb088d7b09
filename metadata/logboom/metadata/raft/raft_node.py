"""The Raft node: PySyncObj 0.3.17, wrapped so that it keeps what it commits (SAFETY R1-R13).

Bytes in, effects out: the node has no socket, disk, clock, thread or randomness of its own. The
skin's turn is

    for each frame:            node.receive(peer, frame, session)
    for each client command:   node.submit(command, on_result)      # leader only
    node.tick(now)                                                  # elections, commits, applies
    node.sync()                                                     # one fsync; then on_result calls
    for peer, frame in node.take_outbox(): send                     # never before sync (R8)

and it sleeps until `node.deadline`, or until a frame or a command arrives. After a tick that leaves
`deadline <= now`, take another turn at once. A turn for which `node.due(now)` is False needs no
tick: nothing was journalled in it and nothing waits to be sent.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pysyncobj.syncobj

from logboom.metadata.raft.engine import engine_class, replace_environment
from logboom.metadata.raft.engine_adapter import EngineAdapter
from logboom.metadata.raft.message_handler import RaftMessageHandler
from logboom.metadata.raft.raft_config import RaftConfig, RaftError, Refusal
from logboom.metadata.raft.raft_entries import COMMANDS, MembershipChange, unpack_commands
from logboom.metadata.raft.raft_frames import (
    AppendResponse,
    FrameError,
    HigherTerm,
    PreVote,
    TimeoutNow,
    Vote,
    decode,
)
from logboom.metadata.raft.raft_log import RaftLog
from logboom.metadata.raft.raft_snapshot import own_snapshot
from logboom.metadata.raft.raft_state import RaftCallbacks, RaftState

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from logboom.metadata.raft.journal_store import JournalStore
    from logboom.metadata.raft.submissions import OnResult

_EPSILON_S = 0.000_5
"""PySyncObj acts strictly after its deadlines."""

_COUNTED_FRAMES = (AppendResponse, Vote, PreVote, HigherTerm, TimeoutNow)
"""Frames that only a member may send: they count towards a majority or are obeyed (R12)."""


def _private_module() -> ModuleType:
    """Load another copy of PySyncObj's module; its globals are one node's outside world."""
    spec = importlib.util.find_spec(pysyncobj.syncobj.__name__)
    assert spec is not None, "it was imported above"
    assert spec.loader is not None, "it was imported above"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RaftNode:
    """One member of the raft group. Not thread-safe: one loop owns it.

    Any `RaftError` raised by a method is final: the process must stop (R9).
    """

    def __init__(
        self,
        node_id: str,
        members: Iterable[str],
        disk: JournalStore,
        callbacks: RaftCallbacks,
        rng: random.Random,
        config: RaftConfig | None = None,
    ) -> None:
        """Open the journal and restore the newest snapshot; committed entries follow at `tick`.

        Args:
            node_id: this member's Raft id.
            members: Raft ids of the founding members. A node that is not among them joins: it
                follows, but neither stands nor counts until `add_member` has reached it. A
                membership in the log or a snapshot takes precedence.
            disk: its journal; raises `JournalError` from here if it is damaged (R9).
            callbacks: the state and the clock of the owner.
            rng: the source of election timeouts.
            config: timing and limits.
        """
        stored, saved = disk.load(), disk.load_snapshot()
        newest = own_snapshot(saved) if saved is not None else None
        log = RaftLog(disk, stored, newest, members)
        state = RaftState(node_id, log, disk, callbacks, rng, config or RaftConfig())
        self._state = state
        self._handler = RaftMessageHandler(state)
        self._failure: RaftError | None = None
        self._closed = False
        self._stirred = True
        """True if something happened since the last tick that the next one has to consider."""
        self._synced_at, self._synced_commit = state.now, log.getRaftCommitIndex()
        state.engine = self._start_engine()
        if newest is not None:
            callbacks.restore(newest.state)
            state.engine.last_applied = newest.last[1]

    def _start_engine(self) -> Any:
        module, state, host = _private_module(), self._state, EngineAdapter(self._state)
        door = replace_environment(module, state.log, lambda: state.now)
        door.latest, door.install = state.disk.load_snapshot, host.install
        config = state.config
        conf = module.SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            useFork=False,
            dynamicMembershipChange=False,
            commandsWaitLeader=False,
            appendEntriesPeriod=config.heartbeat_s,
            raftMinTimeout=config.election_min_s,
            raftMaxTimeout=config.election_max_s,
            connectionTimeout=max(3.5, config.election_max_s),
            leaderFallbackTimeout=config.leader_fallback_s,
            appendEntriesBatchSizeBytes=config.append_batch_bytes,
            onStateChanged=host.state_changed,
        )
        others = sorted(state.members - {state.node_id})
        engine = engine_class(module)(host, state.node_id, others, conf)
        # Pre-votes disturb nobody, so a cluster that starts need not wait long.
        engine.election_deadline = state.now + config.election_min_s * state.rng.random()
        return engine

    @property
    def node_id(self) -> str:
        """This member's raft id."""
        return self._state.node_id

    @property
    def is_leader(self) -> bool:
        """True if this node believes that it leads."""
        return self._state.is_leader

    def leads_at(self, now: float) -> bool:
        """Return True if a majority answered this leader's appends of the last leader_fallback_s.

        The age of an append counts from sending, so a leader that was paused gets False. Grant
        leases only while this is True: another leader may have been elected otherwise (see
        docs/SAFETY.md, Q11 and R13).
        """
        return self._state.leads_at(now)

    @property
    def leader(self) -> str | None:
        """The leader of the current term, if it is known."""
        return self._state.leader

    @property
    def term(self) -> int:
        """The current Raft term."""
        return self._state.term

    @property
    def last_index(self) -> int:
        """The last entry of this node's log, committed or not."""
        return self._state.log.last_index

    @property
    def commit_index(self) -> int:
        """The last entry known to be committed."""
        return self._state.commit_index

    @property
    def applied_index(self) -> int:
        """The last entry applied to the state."""
        return self._state.applied_index

    @property
    def journal_id(self) -> str:
        """The id of this node's journal; "" if it has none."""
        return self._state.disk.journal_id

    @property
    def joining(self) -> bool:
        """True until the log names this journal as a member's: until then it does not vote (R9)."""
        return self._state.disk.joining

    def end_joining(self) -> None:
        """Vote and stand from now on, after a restart too."""
        try:
            self._state.disk.end_joining()
        except RaftError as error:
            self._failure = error
            raise

    def unapplied_commands(self) -> Iterator[bytes]:
        """Yield the commands that this node's log holds beyond what is applied."""
        for entry, index, _ in self._state.log[:]:
            if index > self.applied_index and entry[:1] == COMMANDS:
                yield from unpack_commands(entry)

    def earlier_commands(self) -> Iterator[bytes]:
        """Yield the commands of former terms that this node's log holds, applied or not."""
        for entry, _, term in self._state.log[:]:
            if term < self.term and entry[:1] == COMMANDS:
                yield from unpack_commands(entry)

    @property
    def applying_index(self) -> int:
        """Index of the entry that `apply` is called for."""
        return self._state.applying[0]

    @property
    def applying_term(self) -> int:
        """Term of the entry that `apply` is called for; commands that carry one compare it (R13)."""
        return self._state.applying[1]

    @property
    def members(self) -> frozenset[str]:
        """Raft ids of the voting members, by the newest membership entry in the log (R12)."""
        return self._state.members

    @property
    def applied_members(self) -> frozenset[str]:
        """Raft ids of the voting members at the applied index, the same on every node there."""
        return self._state.log.members_at(self._state.applied_index)

    def status(self) -> dict[str, int | float | str]:
        """Return flat figures for STATS."""
        return self._state.status()

    def receive(self, peer: str, frame: bytes, session: int | None = None) -> bool:
        """Take one frame of a peer; False if it is malformed and the session must restart (R1).

        Frames of another session and of peers that are not up are dropped, as are those of
        non-members that would count towards a majority. A leader or candidate outside the
        membership known here is heard, because this node may not have seen yet that it was added
        (see docs/SAFETY.md, R12).
        """
        state = self._state
        self._begin()
        if not state.outboxes.is_up(peer, session):
            state.counts["frames_dropped"] += 1
            return True
        try:
            message = decode(frame)
        except FrameError:
            state.counts["frames_refused"] += 1
            return False
        if peer not in state.members and isinstance(message, _COUNTED_FRAMES):
            state.counts["frames_dropped"] += 1
            return True
        try:
            self._handler.handle(peer, message)
        except RaftError as error:
            self._failure = error
            raise
        return True

    def submit(self, command: bytes, on_result: OnResult) -> None:
        """Submit a command to be committed; it is REFUSED unless this node leads (R13).

        The commands of a turn share one Raft entry (R11). `on_result` is called once from within
        `sync`, with APPLIED, REFUSED or UNKNOWN.
        """
        state = self._state
        self._stirred = True
        if not state.is_leader:
            state.submissions.refuse(on_result, Refusal.NOT_LEADER)
        else:
            state.submissions.add_command(state.term, command, on_result)

    def due(self, now: float) -> bool:
        """Return True if a tick has anything to do.

        That is after a frame, a command or a change of links, and when a deadline has passed.
        """
        return self._stirred or self.deadline <= now

    def tick(self, now: float) -> None:
        """Run one PySyncObj tick: elections, commit, apply, compaction, sending of submissions."""
        self._begin(now)
        self._stirred = False
        try:
            if self._state.disk.unsynced:
                # The tick counts this node's own log as written (R8).
                self._sync_disk()
            self._state.engine.doTick(0.0)
        except RaftError as error:
            self._failure = error
            raise

    @property
    def needs_sync(self) -> bool:
        """True if something journalled waits for its fsync."""
        state = self._state
        if state.disk.unsynced:
            return True
        commit_waits = state.log.getRaftCommitIndex() > self._synced_commit
        return commit_waits and state.now - self._synced_at >= state.config.commit_sync_s

    def sync(self) -> None:
        """End the turn: fsync what was journalled, then call every `on_result` that is due."""
        self._check_alive()
        if self.needs_sync:
            self._sync_disk()
        self._state.submissions.give_out()

    def take_outbox(self) -> list[tuple[str, bytes]]:
        """Return the (peer, frame) pairs to send now, in order.

        Raises:
            RaftError: `sync` has not been called, so they may announce what is not on disk (R8).
        """
        if self._state.disk.unsynced:
            raise RaftError("sync() comes before take_outbox(): nothing unsynced is announced")
        return self._state.outboxes.take()

    @property
    def deadline(self) -> float:
        """Monotonic time at which the next tick is due at the latest; at once if <= now."""
        state, engine, now = self._state, self._state.engine, self._state.now
        if state.submissions:
            return now
        if state.is_leader:
            if len(state.members) == 1 and engine.commit_index < state.log.last_index:
                return now
            next_append = max(float(engine.next_append_at), now - 2 * _EPSILON_S)
            return min(next_append + _EPSILON_S, self._unheard_at())
        if state.node_id not in state.members:
            return now + state.config.election_min_s
        standing = max(engine.election_deadline, state.pre_votes.ask_at) + _EPSILON_S
        return max(float(standing), now + _EPSILON_S)

    def _unheard_at(self) -> float:
        """Return when a leader that gets no more answers steps down."""
        answered = sorted(self._state.engine.answered_at.values(), reverse=True)
        needed = len(self._state.members) // 2
        if not 0 < needed <= len(answered):
            return float("inf")
        return float(answered[needed - 1]) + self._state.config.leader_fallback_s

    def _begin(self, now: float | None = None) -> None:
        self._check_alive()
        self._stirred = True
        state = self._state
        state.now = max(state.now, state.callbacks.clock() if now is None else now)

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _sync_disk(self) -> None:
        commit = self._state.log.getRaftCommitIndex()
        try:
            self._state.disk.sync()
        except RaftError as error:
            self._failure = error
            raise
        self._state.counts["syncs"] += 1
        self._synced_commit, self._synced_at = commit, self._state.now

    def peer_up(self, peer: str, session: int) -> None:
        """Begin a fresh FIFO session with a peer, and drop what was queued for the peer (R10)."""
        state, engine = self._state, self._state.engine
        self._begin()
        state.outboxes.up(peer, session)
        if peer not in state.members:
            return
        engine.connect(peer)
        if state.is_leader:
            node = engine.peer(peer)
            resume = engine.match_index[node] + 1
            # Entries in flight are lost; without a known match the follower will ask for them.
            if resume > state.log.first_index:
                engine.next_index[node] = resume
            engine.append_soon()

    def peer_down(self, peer: str) -> None:
        """End a session that broke, fell silent or lost a frame (R1)."""
        self._begin()
        self._state.outboxes.down(peer)
        self._state.engine.disconnect(peer)

    def add_member(self, node_id: str, on_result: OnResult) -> None:
        """Add one member through the log; REFUSED while another change is not applied."""
        self._submit_change(MembershipChange("add", (node_id,)), on_result)

    def remove_member(self, node_id: str, on_result: OnResult) -> None:
        """Remove one member other than the leader through the log; REFUSED as in `add_member`."""
        self._submit_change(MembershipChange("remove", (node_id,)), on_result)

    def _submit_change(self, change: MembershipChange, on_result: OnResult) -> None:
        state = self._state
        self._stirred = True
        if not state.is_leader:
            state.submissions.refuse(on_result, Refusal.NOT_LEADER)
        else:
            state.submissions.add_change(state.term, change, on_result)

    def transfer_leadership(self) -> bool:
        """Ask the most advanced follower to stand at once; False if none is caught up."""
        failures: list[int] = []
        self._stirred = True
        self._state.engine.transferLeadership(
            None, lambda _result, failure: failures.append(failure)
        )
        return failures == [0]

    def close(self) -> None:
        """Sync and close the journal. Idempotent."""
        if not self._closed:
            self._closed = True
            self._state.disk.close()
