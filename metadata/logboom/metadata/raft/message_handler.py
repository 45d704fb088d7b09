"""Frames in: what a raft node does with what its peers say (SAFETY R2, R3, R6, R10, R11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.metadata.raft.log_matching import MatchedAppend, at_the_end, match_append
from logboom.metadata.raft.raft_config import RaftDivergedError, RaftError
from logboom.metadata.raft.raft_frames import (
    AppendEntries,
    AppendResponse,
    Frame,
    HigherTerm,
    PreVote,
    PreVoteRequest,
    SnapshotChunk,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from logboom.metadata.raft.raft_snapshot import RaftSnapshot, decode_snapshot
from logboom.metadata.raft.raft_state import RaftState

if TYPE_CHECKING:
    from logboom.metadata.raft.engine import Message


class RaftMessageHandler(RaftState):
    """Places appends, gathers snapshots, counts answers and votes."""

    def _dispatch(self, peer: str, message: Frame) -> None:
        match message:
            case AppendEntries():
                self._on_append(peer, message)
            case SnapshotChunk():
                self._on_snapshot_chunk(peer, message)
            case AppendResponse():
                self._on_answer(peer, message)
            case VoteRequest(term, last_index, last_term):
                self._on_vote_request(peer, term, last_index, last_term)
            case Vote(term):
                if term == self.term and self._ballot.count(term, peer):
                    self._engine.deliver(peer, {"type": "response_vote", "term": term})
            case TimeoutNow(term):
                if term == self.term and peer == self.leader:
                    self._stand_at_once = True
                    self._engine.deliver(peer, {"type": "timeout_now", "term": term})
            case PreVoteRequest():
                self._on_canvass(peer, message)
            case PreVote(term):
                self._canvass.support(term, peer)
            case HigherTerm(term):
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
            self._send(peer, HigherTerm(self.term))
            return False
        if term == self.term and self.is_leader:
            raise RaftDivergedError(
                f"{peer} claims to lead in term {term}, in which this member leads: two members"
                " run under one raft id, or a folder was replaced"
            )
        self._heard_at = self._now
        self._canvass.clear()
        return True

    def _on_append(self, peer: str, append: AppendEntries) -> None:
        if not self._is_current(peer, append.term):
            return
        engine = self._engine
        placement = match_append(self._log, engine.commit_index, engine.last_applied, append)
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
        self._answer = AppendResponse(chunk.term, chunk.sent_at, matched=index)
        message: Message = {"type": "append_entries", "term": chunk.term, "commit_index": index}
        engine.deliver(peer, message | {"serialized": snapshot})
        self._follow_membership()

    def _received(self, data: bytes) -> RaftSnapshot | None:
        """A received snapshot, None if it is damaged: it is dropped and asked for again (R6)."""
        try:
            return decode_snapshot(data)
        except RaftError:
            self._counts["snapshots_refused"] += 1
            return None

    def _follow(
        self, peer: str, said: AppendEntries | SnapshotChunk, placement: MatchedAppend
    ) -> None:
        """Let PySyncObj follow the leader as far as the placement goes, and answer."""
        wanted = placement.wanted
        if wanted:
            if self._sessions.may_hint(peer, self._now, self._config.heartbeat_s):
                self._counts["hints_sent"] += 1
            else:
                wanted = 0
        self._answer = AppendResponse(said.term, said.sent_at, placement.matched, wanted)
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

    def _on_answer(self, peer: str, answer: AppendResponse) -> None:
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
            engine.append_soon()

    def _on_canvass(self, peer: str, asked: PreVoteRequest) -> None:
        if asked.term <= self.term:
            self._send(peer, HigherTerm(self.term))
            return
        hears_leader = self._now - self._heard_at < self._config.election_min_s
        if (hears_leader and self.leader is not None) or self.leads_at(self._now):
            return
        _, last_index, last_term = self._log[-1]
        if (asked.last_term, asked.last_index) >= (last_term, last_index):
            self._send(peer, PreVote(asked.term))
