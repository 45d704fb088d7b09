"""The node as PySyncObj sees it: messages out, applies, elections, submissions, snapshots."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from logboom.metadata.raft.engine import LEADER, EngineHost, Message
from logboom.metadata.raft.raft_config import RaftError, Refusal
from logboom.metadata.raft.raft_entries import (
    COMMANDS,
    EMPTY,
    MEMBERSHIP,
    MembershipChange,
    pack_change,
    unpack_commands,
)
from logboom.metadata.raft.raft_frames import (
    AppendEntries,
    PreVoteRequest,
    TimeoutNow,
    Vote,
    VoteRequest,
    chunks,
)
from logboom.metadata.raft.raft_snapshot import RaftSnapshot, decode_snapshot, encode_snapshot

if TYPE_CHECKING:
    from logboom.metadata.raft.raft_state import RaftState
    from logboom.metadata.raft.submissions import OnResult


class EngineAdapter(EngineHost):
    """The `EngineHost` of the wrapped PySyncObj."""

    def __init__(self, state: RaftState) -> None:
        self._state = state

    def send_message(self, peer: str, message: Message) -> None:
        """Translate one of PySyncObj's messages into a frame and queue it."""
        term = message.get("term", 0)
        match message["type"]:
            case "append_entries" if "serialized" in message:
                self._send_snapshot(peer, message["serialized"])
            case "append_entries":
                self._send_append(peer, message)
            case "request_vote":
                journal = self._state.callbacks.journal_of(peer)
                last_index, last_term = message["last_log_index"], message["last_log_term"]
                self._state.send(peer, VoteRequest(term, last_index, last_term, journal))
            case "response_vote":
                self._state.send(peer, Vote(term))
            case "timeout_now":
                self._state.send(peer, TimeoutNow(term))
            case other:
                raise AssertionError(f"PySyncObj sent {other}: nothing is forwarded (R13)")

    def _send_append(self, peer: str, message: Message) -> None:
        assert "transmission" not in message, "no entry is as long as an append frame (R11)"
        state = self._state
        append = AppendEntries(
            term=message["term"],
            sent_at=state.now,
            commit_index=message["commit_index"],
            previous_index=message["prevLogIdx"],
            previous_term=message["prevLogTerm"],
            entries=message["entries"],
            state_index=state.hashes.newest[0],
            state_hash=state.hashes.newest[1],
        )
        state.send(peer, append)

    def _send_snapshot(self, peer: str, transmission: tuple[bytes, bool, bool] | None) -> None:
        if transmission is None:
            raise RaftError("the journal begins after entry 1, but there is no snapshot before it")
        data, state = transmission[0], self._state
        # A peer would refuse a snapshot that was damaged here, and request it again without end.
        decode_snapshot(data)
        state.counts["snapshots_sent"] += 1
        for chunk in chunks(data, state.config.snapshot_chunk_bytes, state.term, state.now):
            state.send(peer, chunk)

    def send_answer(self, peer: str) -> None:
        """Queue the answer that was prepared when the append was placed (R10)."""
        self._state.send(peer, self._state.answer)

    def apply_entry(self, index: int, term: int, entry: bytes) -> list[bytes]:
        """Apply one committed entry, and return the results of its commands."""
        state, kind = self._state, entry[:1]
        results: list[bytes] = []
        if kind == COMMANDS:
            state.applying = (index, term)
            try:
                results = [state.callbacks.apply(command) for command in unpack_commands(entry)]
            except RaftError:
                raise
            # Whatever a handler raises, half an entry is applied, and the node must end.
            except Exception as error:
                # Half an entry is applied: this state must be neither served nor saved.
                raise RaftError(f"the state failed on entry {index}: {error!r}") from error
        elif kind not in (EMPTY, MEMBERSHIP):
            raise RaftError(f"entry {index} is of a kind unknown to this program: upgrade it")
        state.counts["applied"] += len(results)
        if index % state.config.hash_every == 0:
            state.hashes.take(index, state.callbacks.snapshot())
        return results

    def election_timeout(self) -> float:
        """Draw the seconds until the next election."""
        config = self._state.config
        return self._state.rng.uniform(config.election_min_s, config.election_max_s)

    def may_stand(self) -> bool:
        """Return True if a majority would vote for this node; ask them if that is not known."""
        state = self._state
        if state.node_id not in state.members or state.disk.joining:
            return False
        if state.stand_at_once or len(state.members) == 1:
            state.stand_at_once = False
            return True
        term = state.term + 1
        if state.pre_votes.won(term, state.members):
            state.pre_votes.clear()
            state.counts["elections_begun"] += 1
            return True
        if state.pre_votes.is_due(state.now):
            state.pre_votes.start(term, state.now)
            _, last_index, last_term = state.log[-1]
            for peer in sorted(state.members - {state.node_id}):
                journal = state.callbacks.journal_of(peer)
                state.send(peer, PreVoteRequest(term, last_index, last_term, journal))
        return False

    def state_changed(self, old: int, new: int) -> None:
        """Count an election won; when leadership ends, report waiting commands as unknown."""
        state = self._state
        if new == LEADER:
            state.counts["elections_won"] += 1
        elif old == LEADER:
            waiting = state.engine.waiting
            for index in sorted(waiting):
                for _, done in waiting[index]:
                    state.submissions.unknown(done.args[0])
            waiting.clear()

    def ship_submitted(self) -> None:
        """Append what was submitted to the log and send it at once; refuse it if not leader.

        Only the leader's log decides the order of commands (see docs/SAFETY.md, R13).
        """
        state, submissions = self._state, self._state.submissions
        term, end = state.term if state.is_leader else None, state.log.last_index
        for packed in submissions.take_commands(term):
            self._wait_for(packed.entry, packed.waiting)
        for change, on_result in submissions.take_changes(term):
            refusal = self._refusal_of(change)
            if refusal is not None:
                submissions.refuse(on_result, refusal)
                continue
            self._wait_for(self._change_entry(change), [on_result])
            state.follow_membership()
        if state.log.last_index > end:
            state.engine.send_appends()

    def _change_entry(self, change: MembershipChange) -> bytes:
        """Encode the whole membership after a change.

        A node that joins then counts as all others do, though its own log begins with the members
        that it was started with.
        """
        members = change.applied_to(self._state.members)
        return pack_change(MembershipChange("found", tuple(sorted(members))))

    def _wait_for(self, entry: bytes, waiting: list[OnResult]) -> None:
        state = self._state
        index, term = state.log.last_index + 1, state.term
        state.log.add(entry, index, term)
        done = partial(self._entry_done, waiting, index, term)
        state.engine.waiting[index].append((term, done))

    def _entry_done(
        self, waiting: list[OnResult], index: int, term: int, results: list[bytes], failure: int
    ) -> None:
        if failure:
            self._state.submissions.unknown(waiting)
        else:
            self._state.submissions.applied(waiting, results, index, term)

    def _refusal_of(self, change: MembershipChange) -> Refusal | None:
        state = self._state
        if change.operation == "remove" and state.node_id in change.node_ids:
            return Refusal.IS_LEADER
        if state.applied_index < max(state.engine.noop_index, state.log.changed_at):
            return Refusal.CHANGE_PENDING
        if change.applied_to(state.members) == state.members:
            return Refusal.NOTHING_TO_CHANGE
        return None

    def compact_if_due(self) -> None:
        """Replace applied entries by a snapshot, which is durable before the journal is trimmed."""
        state, log, config = self._state, self._state.log, self._state.config
        applied = state.applied_index
        held = applied - log.first_index
        due = held >= config.compact_entries or (
            log.bytes >= config.compact_bytes and held >= max(2, len(log) // 2)
        )
        if not due:
            return
        snapshot = RaftSnapshot(
            before=log.entry_at(applied - 1),
            last=log.entry_at(applied),
            members=sorted(log.members_at(applied)),
            state=state.callbacks.snapshot(),
        )
        state.disk.save_snapshot(encode_snapshot(snapshot))
        log.deleteEntriesTo(held - 1)
        state.counts["snapshots_taken"] += 1

    def install(self, snapshot: RaftSnapshot) -> None:
        """Replace state, snapshot file and journal by a leader's snapshot, in this order."""
        state = self._state
        state.callbacks.restore(snapshot.state)
        state.disk.save_snapshot(state.incoming)
        state.incoming = b""
        state.log.install(snapshot)
        state.counts["snapshots_installed"] += 1
