"""What PySyncObj asks of the node around it: frames out, applies, elections, submits, snapshots."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from logboom.metadata.raft.engine import LEADER, Message
from logboom.metadata.raft.message_handler import RaftMessageHandler
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
    from logboom.metadata.raft.submissions import OnResult


class EngineAdapter(RaftMessageHandler):
    """The `EngineHost` of the wrapped PySyncObj."""

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
                self._send(peer, TimeoutNow(term))
            case other:
                raise AssertionError(f"PySyncObj sent {other}: nothing is forwarded (R13)")

    def _send_append(self, peer: str, message: Message) -> None:
        assert "transmission" not in message, "no entry is as long as an append frame (R11)"
        append = AppendEntries(
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

    def apply_entry(self, index: int, term: int, entry: bytes) -> list[bytes]:
        """Apply one committed entry."""
        kind = entry[:1]
        results: list[bytes] = []
        if kind == COMMANDS:
            self._applying = (index, term)
            try:
                results = [self._apply(command) for command in unpack_commands(entry)]
            except RaftError:
                raise
            # Whatever a handler raises: half an entry is applied, and the node must end.
            except Exception as error:
                # Half an entry is applied: this state is not to be served or saved.
                raise RaftError(f"the state failed on entry {index}: {error!r}") from error
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
                self._send(peer, PreVoteRequest(term, last_index, last_term))
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
            self._wait_for(self._change_entry(change), [on_result])
            self._follow_membership()
        if self._log.last_index > end:
            engine.send_appends()

    def _change_entry(self, change: MembershipChange) -> bytes:
        """The whole membership, so that who joins counts as all others do, though its own log
        begins with the members that it was told of."""
        return pack_change(
            MembershipChange("found", tuple(sorted(change.applied_to(self._members))))
        )

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

    def _refusal_of(self, change: MembershipChange) -> Refusal | None:
        if change.operation == "remove" and self._id in change.node_ids:
            return Refusal.IS_LEADER
        if self.applied_index < max(self._engine.noop_index, self._log.changed_at):
            return Refusal.CHANGE_PENDING
        if change.applied_to(self._members) == self._members:
            return Refusal.NOTHING_TO_CHANGE
        return None

    def compact_if_due(self) -> None:
        """Replace applied entries by a snapshot: durable first, then the journal (R6, R7)."""
        log, applied, config = self._log, self.applied_index, self._config
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
            state=self._snapshot(),
        )
        self._disk.save_snapshot(encode_snapshot(snapshot))
        log.deleteEntriesTo(held - 1)
        self._counts["snapshots_taken"] += 1

    def _install(self, snapshot: RaftSnapshot) -> None:
        """Replace state, snapshot file and journal by a leader's snapshot, in this order."""
        self._restore(snapshot.state)
        self._disk.save_snapshot(self._incoming)
        self._incoming = b""
        self._log.install(snapshot)
        self._counts["snapshots_installed"] += 1
