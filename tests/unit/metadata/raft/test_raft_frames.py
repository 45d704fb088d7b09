"""Frames between raft nodes: round trips, hostile bytes, snapshots in pieces."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.metadata.raft.journal_store import JournalError
from logboom.metadata.raft.raft_frames import (
    AppendEntries,
    AppendResponse,
    ChunkCollector,
    Frame,
    FrameError,
    HigherTerm,
    PreVote,
    PreVoteRequest,
    SnapshotChunk,
    TimeoutNow,
    Vote,
    VoteRequest,
    chunks,
    decode,
    encode,
)
from logboom.metadata.raft.raft_snapshot import RaftSnapshot, decode_snapshot, encode_snapshot

FRAMES: list[Frame] = [
    AppendEntries(3, 1.5, 4, 5, 2, [(b"\x00\x90", 6, 2), (b"\x01", 7, 3)], 1024, b"hash"),
    AppendEntries(3, 1.5, 4, 5, 2, []),
    SnapshotChunk(3, 1.5, 1, 2, b"piece"),
    AppendResponse(3, 1.5, matched=7),
    VoteRequest(4, 7, 3),
    Vote(4),
    TimeoutNow(4),
    PreVoteRequest(5, 7, 3),
    PreVote(5),
    HigherTerm(6),
]
SNAPSHOT = RaftSnapshot((b"\x01", 8, 2), (b"\x00\x90", 9, 2), ["a", "b"], b"state")


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_comes_back_as_it_was(frame: Frame) -> None:
    assert decode(encode(frame)) == frame


@given(st.sampled_from(FRAMES), st.data())
def test_damaged_frames_raise_nothing_but_a_frame_error(frame: Frame, data: st.DataObject) -> None:
    raw = bytearray(encode(frame))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FrameError):
        decode(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_a_frame_error(raw: bytes) -> None:
    with contextlib.suppress(FrameError):
        decode(raw)


@pytest.mark.parametrize(
    "entries",
    [
        [(b"\x01", 7, 2)],
        [(b"\x01", 6, 1)],
        [(b"\x01", 6, 4)],
        [(b"\x01", 6, 3), (b"\x01", 7, 2)],
        [(b"", 6, 2)],
        [(b"\x00\x91", 6, 2)],
        [(b"\x02\x92\xa3add\x91\xa1\xff", 6, 2)],
    ],
    ids=["hole", "falls below", "too new", "falls", "empty", "torn", "not UTF-8"],
)
def test_entries_that_no_log_holds_are_refused(entries: list[tuple[bytes, int, int]]) -> None:
    with pytest.raises(FrameError, match="entry"):
        decode(encode(AppendEntries(3, 1.0, 0, 5, 2, entries)))


@given(st.binary(max_size=300), st.integers(1, 100))
def test_chunks_make_the_whole_again(data: bytes, size: int) -> None:
    collector = ChunkCollector()
    *parts, last = [collector.add(chunk) for chunk in chunks(data, size, 1, 0.0)]
    assert parts == [None] * len(parts)
    assert last == data


def test_a_missing_chunk_starts_from_nothing() -> None:
    collector = ChunkCollector()
    first, second, third = chunks(b"abcdef", 2, 1, 0.0)
    assert [collector.add(chunk) for chunk in (first, third, second, third)] == [None] * 4
    assert [collector.add(chunk) for chunk in (first, first, second, third)][-1] == b"abcdef"


def test_a_chunk_count_from_the_wire_is_bounded() -> None:
    with pytest.raises(FrameError, match="snapshot chunk"):
        decode(encode(SnapshotChunk(1, 0.0, 0, 2**40, b"")))
    with pytest.raises(FrameError, match="snapshot chunk"):
        decode(encode(SnapshotChunk(1, 0.0, 2, 2, b"")))


def test_any_flipped_bit_of_a_snapshot_is_refused() -> None:
    raw = encode_snapshot(SNAPSHOT)
    assert decode_snapshot(raw) == SNAPSHOT
    for position in range(len(raw)):
        for bit in range(8):
            bad = bytearray(raw)
            bad[position] ^= 1 << bit
            with pytest.raises(JournalError, match=r"damaged|upgrade"):
                decode_snapshot(bytes(bad))
    for length in range(len(raw)):
        with pytest.raises(JournalError, match="damaged"):
            decode_snapshot(raw[:length])


def test_a_newer_snapshot_format_is_refused() -> None:
    raw = bytearray(encode_snapshot(SNAPSHOT))
    raw[6] = 2
    with pytest.raises(JournalError, match="has format 2, this program reads 1: upgrade it"):
        decode_snapshot(bytes(raw))
