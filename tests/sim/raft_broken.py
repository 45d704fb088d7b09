"""Raft nodes with one rule taken out: the simulation must notice each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.metadata.raft import RaftNode
from logboom.metadata.raft_config import Refusal
from logboom.metadata.raft_frames import Answer, SnapshotChunk
from logboom.metadata.raft_overlap import Placement, at_the_end
from logboom.metadata.raft_snapshot import decode_snapshot

if TYPE_CHECKING:
    from logboom.metadata.raft_entries import Change
    from logboom.metadata.raft_frames import Append


class CutsEveryOverlap(RaftNode):
    """Without R2: an append cuts whatever follows its beginning, as shipped."""

    def _on_append(self, peer: str, append: Append) -> None:
        if not self._is_current(peer, append.term):
            return
        log, engine = self._log, self._engine
        if log.term_at(append.previous_index) != append.previous_term:
            wanted = max(engine.commit_index, engine.last_applied) + 1
            self._follow(peer, append, at_the_end(log, engine.commit_index, wanted=wanted))
            return
        last = append.entries[-1][1] if append.entries else append.previous_index
        placement = Placement(
            append.previous_index,
            append.previous_term,
            append.entries,
            min(append.commit_index, last),
            last,
        )
        self._follow(peer, append, placement)


class AsksForWhatFailed(RaftNode):
    """Without R3 and R11: a rejection asks for the very append that did not fit."""

    def _follow(self, peer: str, said: Append | SnapshotChunk, placement: Placement) -> None:
        if placement.wanted and not isinstance(said, SnapshotChunk):
            placement = Placement(
                placement.previous_index,
                placement.previous_term,
                [],
                placement.commit_index,
                wanted=max(2, said.previous_index),
            )
        super()._follow(peer, said, placement)


class ForgetsItsVote(RaftNode):
    """Without R4: term and vote are not journalled."""

    def tick(self, now: float) -> None:
        self._log.setCurrentTerm = lambda *_: None  # type: ignore[method-assign]  # that is the break
        super().tick(now)


class InstallsEverySnapshot(RaftNode):
    """Without R6: an older snapshot rolls the state back."""

    def _on_snapshot_chunk(self, peer: str, chunk: SnapshotChunk) -> None:
        if not self._is_current(peer, chunk.term):
            return
        data = self._sessions.collector(peer).add(chunk)
        if data is None:
            self._follow(peer, chunk, at_the_end(self._log, self.commit_index))
            return
        snapshot = decode_snapshot(data)
        self._incoming = data
        self._answer = Answer(chunk.term, chunk.sent_at, matched=snapshot.last[1])
        self._engine.deliver(
            peer,
            {
                "type": "append_entries",
                "term": chunk.term,
                "commit_index": snapshot.last[1],
                "serialized": snapshot,
            },
        )
        self._follow_membership()


class AnswersBeforeTheSync(RaftNode):
    """Without R8: messages leave first, the sync comes now and then."""

    def tick(self, now: float) -> None:
        self._begin(now)
        self._engine.doTick(0.0)
        if self._rng.random() < 0.3:
            self._disk.sync()

    def sync(self) -> None:
        self._submissions.give_out()

    def take_outbox(self) -> list[tuple[str, bytes]]:
        return self._sessions.take()


class ChangesAllAtOnce(RaftNode):
    """Without R12: a membership change does not wait for the one before."""

    def _refusal_of(self, change: Change) -> Refusal | None:
        if change.applied_to(self._members) == self._members:
            return Refusal.NOTHING_TO_CHANGE
        return None


BROKEN: list[tuple[type[RaftNode], bool]] = [
    (CutsEveryOverlap, False),
    (AsksForWhatFailed, False),
    (ForgetsItsVote, False),
    (InstallsEverySnapshot, False),
    (AnswersBeforeTheSync, False),
    (ChangesAllAtOnce, True),
]
"""Each broken node, and whether it takes membership changes to break something."""
