"""The frames that Raft nodes exchange: typed msgpack, never pickle (see docs/SAFETY.md, R1).

Every frame is one tagged array. Decoding checks types, bounds and the order of entries, so that
only frames that `encode` could have built reach PySyncObj. Times are seconds on the sender's clock,
and are compared only with that clock.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from logboom.metadata.raft.journal_store import Entry
from logboom.metadata.raft.raft_entries import is_readable
from logboom.wire.base import UNDECODABLE

Index = Annotated[int, msgspec.Meta(ge=0)]
Term = Annotated[int, msgspec.Meta(ge=0)]

MAX_SNAPSHOT_CHUNKS: Final = 16_384
"""Maximum number of chunks: a length from the wire never sizes memory unchecked."""


class FrameError(ValueError):
    """A frame that no Raft node of this version sends."""


class AppendEntries(msgspec.Struct, frozen=True, array_like=True, tag="append"):
    """Entries (or none: a heartbeat) that follow `previous_index` in the leader's log."""

    term: Term
    sent_at: float
    """The leader's clock. The answer returns it, so that freshness counts from sending."""
    commit_index: Index
    previous_index: Index
    previous_term: Term
    entries: list[Entry]
    state_index: Index = 0
    """Index at which the leader took `state_hash`; 0 if it took none yet."""
    state_hash: bytes = b""


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """One piece of a snapshot; pieces 0 .. count-1 arrive in order within a session (R6)."""

    term: Term
    sent_at: float
    number: Index
    count: Index
    data: bytes


class AppendResponse(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """A follower's answer to an append or snapshot.

    `matched` > 0: the follower's log agrees with the leader's up to that index, on disk. `wanted` >
    0: the follower lacks the entries before, and the leader sends from that index (R11). If both
    are 0, the follower is alive and nothing more.
    """

    term: Term
    """Term of the append; the leader drops answers of any other term (R10)."""
    sent_at: float
    matched: Index = 0
    wanted: Index = 0


class VoteRequest(msgspec.Struct, frozen=True, array_like=True, tag="vote?"):
    """A candidate's request for a vote in `term`."""

    term: Term
    last_index: Index
    last_term: Term
    journal: str = ""
    """The receiver's journal, as the candidate's log names it; "" if it names none (R9)."""


class Vote(msgspec.Struct, frozen=True, array_like=True, tag="vote"):
    """A vote for the receiver in `term`."""

    term: Term


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag="stand"):
    """The leader's request that the receiver starts an election at once (leadership transfer)."""

    term: Term


class PreVoteRequest(msgspec.Struct, frozen=True, array_like=True, tag="canvass"):
    """The question whether the receiver would vote for the sender in `term`.

    It promises nothing and raises no term. A node starts an election only with the support of a
    majority, so one that was cut off, paused or starved does not depose a leader that others hear.
    """

    term: Term
    last_index: Index
    last_term: Term
    journal: str = ""
    """As in `VoteRequest`."""


class PreVote(msgspec.Struct, frozen=True, array_like=True, tag="support"):
    """The answer that the sender heard no leader lately, and would vote for the receiver in `term`."""

    term: Term


class HigherTerm(msgspec.Struct, frozen=True, array_like=True, tag="outdated"):
    """The notice that the receiver's term is outdated; it adopts `term` and follows."""

    term: Term


Frame = (
    AppendEntries
    | SnapshotChunk
    | AppendResponse
    | VoteRequest
    | Vote
    | TimeoutNow
    | PreVoteRequest
    | PreVote
    | HigherTerm
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Encode a frame."""
    return _encoder.encode(frame)


def decode(data: bytes) -> Frame:
    """Decode a frame; raises `FrameError` for anything malformed."""
    try:
        frame: Frame = _decoder.decode(data)
    except (*UNDECODABLE, ValueError) as error:
        raise FrameError(f"not a raft frame: {error}") from error
    if isinstance(frame, AppendEntries):
        _check_entries(frame)
    elif isinstance(frame, SnapshotChunk) and not (
        frame.number < frame.count <= MAX_SNAPSHOT_CHUNKS
    ):
        raise FrameError(f"snapshot chunk {frame.number} of {frame.count}")
    return frame


def _check_entries(append: AppendEntries) -> None:
    """Check that indexes are contiguous and terms do not fall, as in every Raft log."""
    index, term = append.previous_index, append.previous_term
    for command, entry_index, entry_term in append.entries:
        if entry_index != index + 1 or not term <= entry_term <= append.term or not command:
            raise FrameError(f"entry {entry_index} of term {entry_term} after {index} of {term}")
        if not is_readable(command):
            raise FrameError(f"entry {entry_index} cannot be read")
        index, term = entry_index, entry_term


def chunks(data: bytes, size: int, term: int, sent_at: float) -> list[SnapshotChunk]:
    """Cut a snapshot into frames of at most `size` bytes."""
    count = max(1, -(-len(data) // size))
    return [
        SnapshotChunk(term, sent_at, number, count, data[number * size : (number + 1) * size])
        for number in range(count)
    ]


class ChunkCollector:
    """The chunks of a snapshot in one peer's session; after a gap it starts from nothing (R6)."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._of: tuple[int, int] = (0, 0)

    def add(self, chunk: SnapshotChunk) -> bytes | None:
        """Add a chunk; return the whole snapshot with its last chunk, else None."""
        if chunk.number == 0:
            self._pieces, self._of = [], (chunk.term, chunk.count)
        elif chunk.number != len(self._pieces) or self._of != (chunk.term, chunk.count):
            self._pieces, self._of = [], (0, 0)
            return None
        self._pieces.append(chunk.data)
        if len(self._pieces) < chunk.count:
            return None
        whole = b"".join(self._pieces)
        self._pieces, self._of = [], (0, 0)
        return whole
