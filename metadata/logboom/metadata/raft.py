"""The raft node: PySyncObj 0.3.17 wrapped so that it keeps what it commits (SAFETY R1-R13).

Bytes in, effects out: no socket, disk, clock, thread or randomness of its own. The skin's turn is

    for each frame:            node.receive(peer, frame, session)
    for each client command:   node.submit(command, on_result)      # leader only
    node.tick(now)                                                  # elections, commits, applies
    node.sync()                                                     # one fsync; then on_result calls
    for peer, frame in node.take_outbox(): send                     # never before sync (R8)

and it sleeps until `node.deadline` or until a frame or a command arrives. After a tick that
leaves `deadline <= now`, take another turn at once.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, Any

import pysyncobj.syncobj

from logboom.metadata.raft_canvass import Ballot, CanvassRound
from logboom.metadata.raft_config import RaftConfig, RaftDivergedError, RaftError, Refusal
from logboom.metadata.raft_engine import LEADER, Message, engine_class, furnish
from logboom.metadata.raft_entries import (
    COMMANDS,
    EMPTY,
    MEMBERSHIP,
    Change,
    pack_change,
    unpack_commands,
)
from logboom.metadata.raft_frames import (
    Answer,
    Append,
    Canvass,
    Frame,
    FrameError,
    Outdated,
    SnapshotChunk,
    Stand,
    Support,
    Vote,
    VoteRequest,
    chunks,
    decode,
    encode,
)
from logboom.metadata.raft_hashes import StateHashes
from logboom.metadata.raft_log import RaftLog
from logboom.metadata.raft_overlap import Placement, at_the_end, place
from logboom.metadata.raft_sessions import Sessions
from logboom.metadata.raft_snapshot import Snapshot, decode_snapshot, encode_snapshot
from logboom.metadata.raft_submissions import OnResult, Submissions

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from logboom.metadata.journal_store import JournalStore

_EPSILON_S = 0.000_5
"""PySyncObj acts strictly after its deadlines."""

_COUNTED_FRAMES = (Answer, Vote, Support, Outdated, Stand)
"""What only a member may say: it is counted towards a majority or obeyed (R12)."""

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


def _private_module() -> ModuleType:
    """PySyncObj's module once more, for one node: its globals are this node's outside world."""
    spec = importlib.util.find_spec(pysyncobj.syncobj.__name__)
    assert spec is not None, "it was imported above"
    assert spec.loader is not None, "it was imported above"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RaftNode:
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
        self._id = node_id
        self._disk = disk
        self._apply, self._snapshot, self._restore = apply, snapshot, restore
        self._clock, self._rng = clock, rng
        self._config = config or RaftConfig()
        self._now = self._synced_at = self._heard_at = clock()
        self._failure: RaftError | None = None
        self._closed = False
        self._sessions = Sessions()
        self._submissions = Submissions(self._config.max_command_bytes)
        self._ballot = Ballot()
        self._canvass = CanvassRound(rng, self._config.heartbeat_s)
        self._stand_at_once = False
        self._hashes = StateHashes(node_id)
        self._applying = (0, 0)
        self._answer = Answer(0, 0.0)
        self._incoming = b""
        self._counts = dict.fromkeys(_COUNTED, 0)
        stored, saved = disk.load(), disk.load_snapshot()
        newest = decode_snapshot(saved) if saved is not None else None
        self._log = RaftLog(disk, stored, newest, members)
        self._members = self._log.members
        self._synced_commit = self._log.getRaftCommitIndex()
        self._engine = self._start_engine()
        if newest is not None:
            self._restore(newest.state)
            self._engine.last_applied = newest.last[1]

    def _start_engine(self) -> Any:
        module = _private_module()
        door = furnish(module, self._log, lambda: self._now)
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

    # -- the turn ---------------------------------------------------------------------------

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
        if not self.is_leader:
            self._submissions.refuse(on_result, Refusal.NOT_LEADER)
        else:
            self._submissions.add_command(self.term, command, on_result)

    def tick(self, now: float) -> None:
        """One PySyncObj tick: elections, commit, apply, ship what was submitted, compaction."""
        self._begin(now)
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
            return float(engine.next_append_at) + _EPSILON_S
        if self._id not in self._members:
            return self._now + self._config.election_min_s
        standing = max(engine.election_deadline, self._canvass.ask_at) + _EPSILON_S
        return max(float(standing), self._now + _EPSILON_S)

    def _begin(self, now: float | None = None) -> None:
        self._check_alive()
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

    # -- peers ------------------------------------------------------------------------------

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
            engine.next_append_at = self._now - _EPSILON_S

    def peer_down(self, peer: str) -> None:
        """The session ended, fell silent or lost a frame (R1)."""
        self._begin()
        self._sessions.down(peer)
        self._engine.disconnect(peer)

    # -- frames in --------------------------------------------------------------------------

    def _dispatch(self, peer: str, message: Frame) -> None:
        match message:
            case Append():
                self._on_append(peer, message)
            case SnapshotChunk():
                self._on_snapshot_chunk(peer, message)
            case Answer():
                self._on_answer(peer, message)
            case VoteRequest(term, last_index, last_term):
                self._on_vote_request(peer, term, last_index, last_term)
            case Vote(term):
                if term == self.term and self._ballot.count(term, peer):
                    self._engine.deliver(peer, {"type": "response_vote", "term": term})
            case Stand(term):
                if term == self.term and peer == self.leader:
                    self._stand_at_once = True
                    self._engine.deliver(peer, {"type": "timeout_now", "term": term})
            case Canvass():
                self._on_canvass(peer, message)
            case Support(term):
                self._canvass.support(term, peer)
            case Outdated(term):
                if term > self.term:
                    # A request nobody can grant raises the term and ends leadership.
                    self._on_vote_request(peer, term, -1, -1)

    def _on_vote_request(self, peer: str, term: int, last_index: int, last_term: int) -> None:
        self._engine.deliver(
            peer,
            {
                "type": "request_vote",
                "term": term,
                "last_log_index": last_index,
                "last_log_term": last_term,
            },
        )

    def _is_current(self, peer: str, term: int) -> bool:
        """Whether an append or snapshot of this term is to be followed."""
        if term < self.term:
            self._counts["frames_stale"] += 1
            self._send(peer, Outdated(self.term))
            return False
        if term == self.term and self.is_leader:
            raise RaftDivergedError(
                f"{peer} claims to lead in term {term}, in which this member leads: two members"
                " run under one raft id, or a folder was replaced"
            )
        self._heard_at = self._now
        self._canvass.clear()
        return True

    def _on_append(self, peer: str, append: Append) -> None:
        if not self._is_current(peer, append.term):
            return
        engine = self._engine
        placement = place(self._log, engine.commit_index, engine.last_applied, append)
        self._follow(peer, append, placement)
        self._hashes.hear(append.state_index, append.state_hash)

    def _on_snapshot_chunk(self, peer: str, chunk: SnapshotChunk) -> None:
        if not self._is_current(peer, chunk.term):
            return
        log, engine = self._log, self._engine
        data = self._sessions.collector(peer).add(chunk)
        snapshot = self._received(data) if data is not None else None
        if snapshot is None:
            wanted = 0 if data is None else max(engine.commit_index, engine.last_applied) + 1
            self._follow(peer, chunk, at_the_end(log, engine.commit_index, wanted=wanted))
            return
        _, index, term = snapshot.last
        if index <= engine.last_applied or log.term_at(index) == term:
            # Installing it would roll the state back or drop entries (R6).
            self._follow(peer, chunk, at_the_end(log, index, matched=index))
            return
        assert data is not None, "a snapshot was decoded from it"
        self._incoming = data
        self._answer = Answer(chunk.term, chunk.sent_at, matched=index)
        message: Message = {"type": "append_entries", "term": chunk.term, "commit_index": index}
        engine.deliver(peer, message | {"serialized": snapshot})
        self._follow_membership()

    def _received(self, data: bytes) -> Snapshot | None:
        """A received snapshot, None if it is damaged: it is dropped and asked for again (R6)."""
        try:
            return decode_snapshot(data)
        except RaftError:
            self._counts["snapshots_refused"] += 1
            return None

    def _follow(self, peer: str, said: Append | SnapshotChunk, placement: Placement) -> None:
        """Let PySyncObj follow the leader as far as the placement goes, and answer."""
        wanted = placement.wanted
        if wanted:
            if self._sessions.may_hint(peer, self._now, self._config.heartbeat_s):
                self._counts["hints_sent"] += 1
            else:
                wanted = 0
        self._answer = Answer(said.term, said.sent_at, placement.matched, wanted)
        self._engine.deliver(
            peer,
            {
                "type": "append_entries",
                "term": said.term,
                "commit_index": placement.commit_index,
                "entries": placement.entries,
                "prevLogIdx": placement.previous_index,
                "prevLogTerm": placement.previous_term,
            },
        )
        self._follow_membership()

    def _on_answer(self, peer: str, answer: Answer) -> None:
        """Count what a follower has on disk; PySyncObj's own handling resends what is under way."""
        engine = self._engine
        if not self.is_leader or answer.term != self.term:
            self._counts["frames_stale"] += 1
            return
        node, end = engine.peer(peer), self._log.last_index
        # Counted from sending, so that a leader that was paused does not feel fresh (Q11).
        engine.answered_at[node] = max(engine.answered_at[node], min(answer.sent_at, self._now))
        if 0 < answer.matched <= end:
            engine.match_index[node] = max(engine.match_index[node], answer.matched)
            engine.next_index[node] = max(engine.next_index[node], answer.matched + 1)
        elif answer.wanted:
            self._counts["hints_heard"] += 1
            engine.next_index[node] = min(max(answer.wanted, 2), end + 1)
            engine.next_append_at = self._now - _EPSILON_S

    def _on_canvass(self, peer: str, asked: Canvass) -> None:
        if asked.term <= self.term:
            self._send(peer, Outdated(self.term))
            return
        hears_leader = self._now - self._heard_at < self._config.election_min_s
        if (hears_leader and self.leader is not None) or self.leads_at(self._now):
            return
        _, last_index, last_term = self._log[-1]
        if (asked.last_term, asked.last_index) >= (last_term, last_index):
            self._send(peer, Support(asked.term))

    # -- what the engine asks (EngineHost) --------------------------------------------------

    def send_message(self, peer: str, message: Message) -> None:
        """Translate one of PySyncObj's messages into a frame."""
        term = message.get("term", 0)
        match message["type"]:
            case "append_entries" if "serialized" in message:
                self._send_snapshot(peer, message["serialized"])
            case "append_entries":
                self._send_append(peer, message)
            case "request_vote":
                request = VoteRequest(term, message["last_log_index"], message["last_log_term"])
                self._send(peer, request)
            case "response_vote":
                self._send(peer, Vote(term))
            case "timeout_now":
                self._send(peer, Stand(term))
            case other:
                raise AssertionError(f"PySyncObj sent {other}: nothing is forwarded (R13)")

    def _send_append(self, peer: str, message: Message) -> None:
        assert "transmission" not in message, "no entry is as long as an append frame (R11)"
        append = Append(
            term=message["term"],
            sent_at=self._now,
            commit_index=message["commit_index"],
            previous_index=message["prevLogIdx"],
            previous_term=message["prevLogTerm"],
            entries=message["entries"],
            state_index=self._hashes.newest[0],
            state_hash=self._hashes.newest[1],
        )
        self._send(peer, append)

    def _send_snapshot(self, peer: str, transmission: tuple[bytes, bool, bool] | None) -> None:
        if transmission is None:
            raise RaftError("the journal begins after entry 1, but there is no snapshot before it")
        data = transmission[0]
        # A snapshot that went bad here would be refused and asked for without end.
        decode_snapshot(data)
        self._counts["snapshots_sent"] += 1
        for chunk in chunks(data, self._config.snapshot_chunk_bytes, self.term, self._now):
            self._send(peer, chunk)

    def send_answer(self, peer: str) -> None:
        """Queue the answer that was prepared when the append was placed (R10)."""
        self._send(peer, self._answer)

    def _send(self, peer: str, frame: Frame) -> None:
        self._sessions.queue(peer, encode(frame))

    def apply_entry(self, index: int, term: int, entry: bytes) -> list[bytes]:
        """Apply one committed entry."""
        kind = entry[:1]
        results: list[bytes] = []
        if kind == COMMANDS:
            self._applying = (index, term)
            results = [self._apply(command) for command in unpack_commands(entry)]
        elif kind not in (EMPTY, MEMBERSHIP):
            raise RaftError(f"entry {index} is of a kind unknown to this program: upgrade it")
        self._counts["applied"] += len(results)
        if index % self._config.hash_every == 0:
            self._hashes.take(index, self._snapshot())
        return results

    def election_timeout(self) -> float:
        """Seconds to the next election."""
        return self._rng.uniform(self._config.election_min_s, self._config.election_max_s)

    def may_stand(self) -> bool:
        """Whether a majority would vote for this node; asks them if not yet known."""
        if self._id not in self._members:
            return False
        if self._stand_at_once or len(self._members) == 1:
            self._stand_at_once = False
            return True
        term = self.term + 1
        if self._canvass.won(term, self._members):
            self._canvass.clear()
            self._counts["elections_begun"] += 1
            return True
        if self._canvass.is_due(self._now):
            self._canvass.start(term, self._now)
            _, last_index, last_term = self._log[-1]
            for peer in sorted(self._members - {self._id}):
                self._send(peer, Canvass(term, last_index, last_term))
        return False

    def state_changed(self, old: int, new: int) -> None:
        """Elected, or no leader any more: what waited then has an unknown outcome."""
        if new == LEADER:
            self._counts["elections_won"] += 1
        elif old == LEADER:
            waiting = self._engine.waiting
            for index in sorted(waiting):
                for _, done in waiting[index]:
                    self._submissions.unknown(done.args[0])
            waiting.clear()

    def ship_submitted(self) -> None:
        """Add what was submitted to the log and send it at once; refuse it if not leader (R13)."""
        term = self.term if self.is_leader else None
        engine, submissions, end = self._engine, self._submissions, self._log.last_index
        for packed in submissions.take_commands(term):
            self._wait_for(packed.entry, packed.waiting)
        for change, on_result in submissions.take_changes(term):
            refusal = self._refusal_of(change)
            if refusal is not None:
                submissions.refuse(on_result, refusal)
                continue
            self._wait_for(pack_change(change), [on_result])
            self._follow_membership()
        if self._log.last_index > end:
            engine.send_appends()

    def _wait_for(self, entry: bytes, waiting: list[OnResult]) -> None:
        index, term = self._log.last_index + 1, self.term
        self._log.add(entry, index, term)
        done = partial(self._entry_done, waiting, index, term)
        self._engine.waiting[index].append((term, done))

    def _entry_done(
        self, waiting: list[OnResult], index: int, term: int, results: list[bytes], failure: int
    ) -> None:
        if failure:
            self._submissions.unknown(waiting)
        else:
            self._submissions.applied(waiting, results, index, term)

    # -- snapshots --------------------------------------------------------------------------

    def compact_if_due(self) -> None:
        """Replace applied entries by a snapshot: durable first, then the journal (R6, R7)."""
        log, applied, config = self._log, self.applied_index, self._config
        held = applied - log.first_index
        due = held >= config.compact_entries or (
            log.bytes >= config.compact_bytes and held >= max(2, len(log) // 2)
        )
        if not due:
            return
        snapshot = Snapshot(
            before=log.entry_at(applied - 1),
            last=log.entry_at(applied),
            members=sorted(log.members_at(applied)),
            state=self._snapshot(),
        )
        self._disk.save_snapshot(encode_snapshot(snapshot))
        log.deleteEntriesTo(held - 1)
        self._counts["snapshots_taken"] += 1

    def _install(self, snapshot: Snapshot) -> None:
        """Replace state, snapshot file and journal by a leader's snapshot, in this order."""
        self._restore(snapshot.state)
        self._disk.save_snapshot(self._incoming)
        self._incoming = b""
        self._log.install(snapshot)
        self._counts["snapshots_installed"] += 1

    # -- membership (R12) -------------------------------------------------------------------

    def add_member(self, node_id: str, on_result: OnResult) -> None:
        """Add one member through the log; REFUSED while another change is not applied."""
        self._submit_change(Change("add", (node_id,)), on_result)

    def remove_member(self, node_id: str, on_result: OnResult) -> None:
        """Remove one member other than the leader through the log; REFUSED as `add_member`."""
        self._submit_change(Change("remove", (node_id,)), on_result)

    def _submit_change(self, change: Change, on_result: OnResult) -> None:
        if not self.is_leader:
            self._submissions.refuse(on_result, Refusal.NOT_LEADER)
        else:
            self._submissions.add_change(self.term, change, on_result)

    def _refusal_of(self, change: Change) -> Refusal | None:
        if change.operation == "remove" and self._id in change.node_ids:
            return Refusal.IS_LEADER
        if self.applied_index < max(self._engine.noop_index, self._log.changed_at):
            return Refusal.CHANGE_PENDING
        if change.applied_to(self._members) == self._members:
            return Refusal.NOTHING_TO_CHANGE
        return None

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

    def transfer_leadership(self) -> bool:
        """Ask the most caught-up follower to stand at once; False if none is caught up."""
        failures: list[int] = []
        self._engine.transferLeadership(None, lambda _result, failure: failures.append(failure))
        return failures == [0]

    # -- what is known ----------------------------------------------------------------------

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

    def close(self) -> None:
        """Sync and close the journal. Idempotent."""
        if not self._closed:
            self._closed = True
            self._disk.close()
