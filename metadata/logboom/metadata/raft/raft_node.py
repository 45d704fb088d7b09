"""The raft node: PySyncObj 0.3.17 wrapped so that it keeps what it commits (SAFETY R1-R13).

Bytes in, effects out: no socket, disk, clock, thread or randomness of its own. The skin's turn is

    for each frame:            node.receive(peer, frame, session)
    for each client command:   node.submit(command, on_result)      # leader only
    node.tick(now)                                                  # elections, commits, applies
    node.sync()                                                     # one fsync; then on_result calls
    for peer, frame in node.take_outbox(): send                     # never before sync (R8)

and it sleeps until `node.deadline` or until a frame or a command arrives. After a tick that
leaves `deadline <= now`, take another turn at once. A turn for which `node.due(now)` is False
needs no tick: nothing was journalled in it and nothing waits to be sent.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pysyncobj.syncobj

from logboom.metadata.raft.engine import engine_class, replace_environment
from logboom.metadata.raft.engine_adapter import EngineAdapter
from logboom.metadata.raft.raft_config import RaftConfig, RaftError, Refusal
from logboom.metadata.raft.raft_entries import MembershipChange
from logboom.metadata.raft.raft_frames import (
    AppendResponse,
    FrameError,
    HigherTerm,
    PreVote,
    TimeoutNow,
    Vote,
    decode,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from logboom.metadata.raft.journal_store import JournalStore
    from logboom.metadata.raft.submissions import OnResult

_EPSILON_S = 0.000_5
"""PySyncObj acts strictly after its deadlines."""

_COUNTED_FRAMES = (AppendResponse, Vote, PreVote, HigherTerm, TimeoutNow)
"""What only a member may say: it is counted towards a majority or obeyed (R12)."""


def _private_module() -> ModuleType:
    """PySyncObj's module once more, for one node: its globals are this node's outside world."""
    spec = importlib.util.find_spec(pysyncobj.syncobj.__name__)
    assert spec is not None, "it was imported above"
    assert spec.loader is not None, "it was imported above"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RaftNode(EngineAdapter):
    """One member of the raft group. Not thread-safe: one loop owns it.

    Any `RaftError` raised out of a method is final: the process must stop (R9).
    """

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
        """Open the journal and restore the newest snapshot; committed entries follow at `tick`.

        Args:
            node_id: this member's raft id.
            members: raft ids of the founding members. A node that is not among them joins: it
                follows, but neither stands nor counts until `add_member` reached it. Once the
                log or a snapshot knows the membership, that knowledge wins.
            disk: its journal; raises `JournalError` from here if it is damaged (R9).
            apply: applies one command; deterministic and never raises. While it runs,
                `applying_index` and `applying_term` tell the entry.
            snapshot: the whole state, canonical: equal states give equal bytes (hash compare).
            restore: replaces the whole state by a snapshot's.
            clock: monotonic seconds.
            rng: the source of election time-outs.
            config: timing and limits.
        """
        super().__init__(
            node_id,
            members,
            disk,
            apply=apply,
            snapshot=snapshot,
            restore=restore,
            clock=clock,
            rng=rng,
            config=config,
        )
        self._stirred = True
        """Whether something happened since the last tick that the next one goes by."""
        self._engine = self._start_engine()
        if self._newest is not None:
            self._restore(self._newest.state)
            self._engine.last_applied = self._newest.last[1]
            self._newest = None

    def _start_engine(self) -> Any:
        module = _private_module()
        door = replace_environment(module, self._log, lambda: self._now)
        door.latest, door.install = self._disk.load_snapshot, self._install
        config = self._config
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
            onStateChanged=self.state_changed,
        )
        others = sorted(self._members - {self._id})
        engine = engine_class(module)(self, self._id, others, conf)
        # Asking costs nobody anything (raft_canvass), so a cluster that starts need not wait long.
        engine.election_deadline = self._now + self._config.election_min_s * self._rng.random()
        return engine

    def receive(self, peer: str, frame: bytes, session: int | None = None) -> bool:
        """Take one frame of a peer. False: the frame is malformed, restart the session (R1).

        Dropped without a word: frames of another session, of peers not up, and what a non-member
        says where members are counted. A leader or candidate outside the membership known here
        is heard: this node may not have seen yet that it was added (see R12 in the tests).
        """
        self._begin()
        if not self._sessions.is_up(peer, session):
            self._counts["frames_dropped"] += 1
            return True
        try:
            message = decode(frame)
        except FrameError:
            self._counts["frames_refused"] += 1
            return False
        if peer not in self._members and isinstance(message, _COUNTED_FRAMES):
            self._counts["frames_dropped"] += 1
            return True
        try:
            self._dispatch(peer, message)
        except RaftError as error:
            self._failure = error
            raise
        return True

    def submit(self, command: bytes, on_result: OnResult) -> None:
        """Ask for a command to be committed; leader only, else REFUSED (R13).

        The commands of a turn share one raft entry (R11). `on_result` is called once, out of
        `sync`: APPLIED, REFUSED or UNKNOWN.
        """
        self._stirred = True
        if not self.is_leader:
            self._submissions.refuse(on_result, Refusal.NOT_LEADER)
        else:
            self._submissions.add_command(self.term, command, on_result)

    def due(self, now: float) -> bool:
        """Whether a tick has anything to do: after a frame, a command or a change of links, or
        when a deadline has come."""
        return self._stirred or self.deadline <= now

    def tick(self, now: float) -> None:
        """One PySyncObj tick: elections, commit, apply, ship what was submitted, compaction."""
        self._begin(now)
        self._stirred = False
        try:
            if self._disk.unsynced:
                # The tick counts this node's own log as written (R8).
                self._sync_disk()
            self._engine.doTick(0.0)
        except RaftError as error:
            self._failure = error
            raise

    @property
    def needs_sync(self) -> bool:
        """Whether something journalled waits for its fsync."""
        if self._disk.unsynced:
            return True
        commit_waits = self._log.getRaftCommitIndex() > self._synced_commit
        return commit_waits and self._now - self._synced_at >= self._config.commit_sync_s

    def sync(self) -> None:
        """End the turn: fsync what was journalled, then call every `on_result` that is due."""
        self._check_alive()
        if self.needs_sync:
            self._sync_disk()
        self._submissions.give_out()

    def take_outbox(self) -> list[tuple[str, bytes]]:
        """The (peer, frame) pairs to send now, in order. Raises `RaftError` before `sync` (R8)."""
        if self._disk.unsynced:
            raise RaftError("sync() comes before take_outbox(): nothing unsynced is announced")
        return self._sessions.take()

    @property
    def deadline(self) -> float:
        """When the next tick is due at the latest, monotonic seconds; at once if <= now."""
        engine = self._engine
        if self._submissions:
            return self._now
        if self.is_leader:
            if len(self._members) == 1 and engine.commit_index < self._log.last_index:
                return self._now
            next_append = max(float(engine.next_append_at), self._now - 2 * _EPSILON_S)
            return min(next_append + _EPSILON_S, self._unheard_at())
        if self._id not in self._members:
            return self._now + self._config.election_min_s
        standing = max(engine.election_deadline, self._canvass.ask_at) + _EPSILON_S
        return max(float(standing), self._now + _EPSILON_S)

    def _unheard_at(self) -> float:
        """When a leader whom nobody answers any more steps down."""
        answered = sorted(self._engine.answered_at.values(), reverse=True)
        needed = len(self._members) // 2
        if not 0 < needed <= len(answered):
            return float("inf")
        return float(answered[needed - 1]) + self._config.leader_fallback_s

    def _begin(self, now: float | None = None) -> None:
        self._check_alive()
        self._stirred = True
        self._now = max(self._now, self._clock() if now is None else now)

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _sync_disk(self) -> None:
        commit = self._log.getRaftCommitIndex()
        try:
            self._disk.sync()
        except RaftError as error:
            self._failure = error
            raise
        self._counts["syncs"] += 1
        self._synced_commit, self._synced_at = commit, self._now

    def peer_up(self, peer: str, session: int) -> None:
        """A fresh FIFO session with a peer: whatever was queued for it is dropped (R10)."""
        self._begin()
        self._sessions.up(peer, session)
        if peer not in self._members:
            return
        engine = self._engine
        engine.connect(peer)
        if self.is_leader:
            node = engine.peer(peer)
            resume = engine.match_index[node] + 1
            # What was under way is lost; without a known match the follower will ask.
            if resume > self._log.first_index:
                engine.next_index[node] = resume
            engine.append_soon()

    def peer_down(self, peer: str) -> None:
        """The session ended, fell silent or lost a frame (R1)."""
        self._begin()
        self._sessions.down(peer)
        self._engine.disconnect(peer)

    def add_member(self, node_id: str, on_result: OnResult) -> None:
        """Add one member through the log; REFUSED while another change is not applied."""
        self._submit_change(MembershipChange("add", (node_id,)), on_result)

    def remove_member(self, node_id: str, on_result: OnResult) -> None:
        """Remove one member other than the leader through the log; REFUSED as `add_member`."""
        self._submit_change(MembershipChange("remove", (node_id,)), on_result)

    def _submit_change(self, change: MembershipChange, on_result: OnResult) -> None:
        self._stirred = True
        if not self.is_leader:
            self._submissions.refuse(on_result, Refusal.NOT_LEADER)
        else:
            self._submissions.add_change(self.term, change, on_result)

    def transfer_leadership(self) -> bool:
        """Ask the most caught-up follower to stand at once; False if none is caught up."""
        failures: list[int] = []
        self._stirred = True
        self._engine.transferLeadership(None, lambda _result, failure: failures.append(failure))
        return failures == [0]

    def close(self) -> None:
        """Sync and close the journal. Idempotent."""
        if not self._closed:
            self._closed = True
            self._disk.close()
