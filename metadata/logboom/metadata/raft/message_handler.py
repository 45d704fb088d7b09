"""The frames that a Raft node receives from its peers, and how it reacts to each.

Appends and snapshots follow the leader only where that loses nothing committed, and answers and
votes count only for the term they were given in (see docs/SAFETY.md, R2, R3, R6, R10, R11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.metadata.raft.log_matching import MatchedAppend, at_the_end, match_append
from logboom.metadata.raft.pre_vote import VoteTally
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

if TYPE_CHECKING:
    from logboom.metadata.raft.engine import Message
    from logboom.metadata.raft.raft_state import RaftState


_STANDING = (VoteRequest, PreVoteRequest, TimeoutNow)
"""Frames to which only a member whose journal counts reacts."""


class RaftMessageHandler:
    """The handler of frames: it places appends, gathers snapshots, counts answers and votes."""

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._votes = VoteTally()
        self._heard_at = state.now
        """When a leader was last heard."""

    def handle(self, peer: str, message: Frame) -> None:
        """React to one frame of a connected peer."""
        state = self._state
        if state.disk.joining and isinstance(message, _STANDING):
            # This journal may be empty where another one under this id has promised something (R9).
            if isinstance(message, TimeoutNow) or message.journal != state.disk.journal_id:
                return
            state.disk.end_joining()
        match message:
            case AppendEntries():
                self._on_append(peer, message)
            case SnapshotChunk():
                self._on_snapshot_chunk(peer, message)
            case AppendResponse():
                self._on_response(peer, message)
            case VoteRequest(term, last_index, last_term):
                self._on_vote_request(peer, term, last_index, last_term)
            case Vote(term):
                if term == state.term and self._votes.count(term, peer):
                    state.engine.deliver(peer, {"type": "response_vote", "term": term})
            case TimeoutNow(term):
                if term == state.term and peer == state.leader:
                    state.stand_at_once = True
                    state.engine.deliver(peer, {"type": "timeout_now", "term": term})
            case PreVoteRequest():
                self._on_pre_vote_request(peer, message)
            case PreVote(term):
                state.pre_votes.support(term, peer)
            case HigherTerm(term):
                if term > state.term:
                    # A request that nobody can grant raises the term and ends leadership.
                    self._on_vote_request(peer, term, -1, -1)

    def _on_vote_request(self, peer: str, term: int, last_index: int, last_term: int) -> None:
        self._state.engine.deliver(
            peer,
            {
                "type": "request_vote",
                "term": term,
                "last_log_index": last_index,
                "last_log_term": last_term,
            },
        )

    def _is_current(self, peer: str, term: int) -> bool:
        """Return True if an append or snapshot of this term is to be followed.

        Raises:
            RaftDivergedError: this node leads in that term itself.
        """
        state = self._state
        if term < state.term:
            state.counts["frames_stale"] += 1
            state.send(peer, HigherTerm(state.term))
            return False
        if term == state.term and state.is_leader:
            raise RaftDivergedError(
                f"{peer} claims to lead in term {term}, in which this member leads: two members"
                " run under one raft id, or a folder was replaced"
            )
        self._heard_at = state.now
        state.pre_votes.clear()
        return True

    def _on_append(self, peer: str, append: AppendEntries) -> None:
        if not self._is_current(peer, append.term):
            return
        state, engine = self._state, self._state.engine
        placement = match_append(state.log, engine.commit_index, engine.last_applied, append)
        self._follow(peer, append, placement)
        state.hashes.hear(append.state_index, append.state_hash)

    def _on_snapshot_chunk(self, peer: str, chunk: SnapshotChunk) -> None:
        if not self._is_current(peer, chunk.term):
            return
        state, log, engine = self._state, self._state.log, self._state.engine
        data = state.outboxes.collector(peer).add(chunk)
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
        state.incoming = data
        state.answer = AppendResponse(chunk.term, chunk.sent_at, matched=index)
        message: Message = {"type": "append_entries", "term": chunk.term, "commit_index": index}
        engine.deliver(peer, message | {"serialized": snapshot})
        state.follow_membership()

    def _received(self, data: bytes) -> RaftSnapshot | None:
        """Decode a received snapshot; None if it is damaged, and has to be requested again (R6)."""
        try:
            return decode_snapshot(data)
        except RaftError:
            self._state.counts["snapshots_refused"] += 1
            return None

    def _follow(
        self, peer: str, said: AppendEntries | SnapshotChunk, placement: MatchedAppend
    ) -> None:
        """Let PySyncObj follow the leader as far as the placement goes, and answer."""
        state, wanted = self._state, placement.wanted
        if wanted:
            if state.outboxes.may_hint(peer, state.now, state.config.heartbeat_s):
                state.counts["hints_sent"] += 1
            else:
                wanted = 0
        state.answer = AppendResponse(said.term, said.sent_at, placement.matched, wanted)
        state.engine.deliver(
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
        state.follow_membership()

    def _on_response(self, peer: str, answer: AppendResponse) -> None:
        """Note what a follower has on disk; PySyncObj's handling would resend entries in flight."""
        state, engine = self._state, self._state.engine
        if not state.is_leader or answer.term != state.term:
            state.counts["frames_stale"] += 1
            return
        node, end = engine.peer(peer), state.log.last_index
        # Counted from sending, so that a leader that was paused does not seem fresh (Q11).
        engine.answered_at[node] = max(engine.answered_at[node], min(answer.sent_at, state.now))
        if 0 < answer.matched <= end:
            engine.match_index[node] = max(engine.match_index[node], answer.matched)
            engine.next_index[node] = max(engine.next_index[node], answer.matched + 1)
        elif answer.wanted:
            state.counts["hints_heard"] += 1
            engine.next_index[node] = min(max(answer.wanted, 2), end + 1)
            engine.append_soon()

    def _on_pre_vote_request(self, peer: str, asked: PreVoteRequest) -> None:
        state = self._state
        if asked.term <= state.term:
            state.send(peer, HigherTerm(state.term))
            return
        hears_leader = state.now - self._heard_at < state.config.election_min_s
        if (hears_leader and state.leader is not None) or state.leads_at(state.now):
            return
        _, last_index, last_term = state.log[-1]
        if (asked.last_term, asked.last_index) >= (last_term, last_index):
            state.send(peer, PreVote(asked.term))
