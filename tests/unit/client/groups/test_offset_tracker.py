"""The commit point and the finished ranges above it, against a plain set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.client.groups.offset_tracker import (
    MAX_RANGES_BYTES,
    OffsetTracker,
    decode_ranges,
    trying_of,
)
from logboom.wire.errors import DamagedBatch

RANGE = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair)))


@given(st.integers(0, 20), st.lists(RANGE, max_size=30))
def test_it_is_what_a_set_says(floor: int, ranges: list[tuple[int, int]]) -> None:
    progress, done = OffsetTracker(floor), set(range(floor))
    for start, stop in ranges:
        progress.finish(start, stop)
        done |= set(range(start, stop))
        lowest = next(n for n in range(1000) if n not in done)
        assert progress.floor == lowest
        above = [n for n in range(lowest, 100) if progress.is_finished(n)]
        assert above == sorted(n for n in done if n > lowest)
        for below in (0, 7, 33, 90):
            assert progress.unfinished(below) == sum(n not in done for n in range(below))
        runs = [n for start, stop in progress.gaps(5, 70) for n in range(start, stop)]
        assert runs == [n for n in range(5, 70) if n not in done]
    flat = [edge for pair in progress.ranges for edge in pair]
    assert flat == sorted(set(flat))


@given(st.integers(0, 1 << 40), st.lists(RANGE, max_size=30))
def test_ranges_survive_a_commit(floor: int, ranges: list[tuple[int, int]]) -> None:
    progress = OffsetTracker(floor)
    for start, stop in ranges:
        progress.finish(floor + start, floor + stop)
    again = OffsetTracker(progress.floor, progress.encode())
    assert (again.floor, again.ranges) == (progress.floor, progress.ranges)


def test_what_a_commit_cannot_hold_is_left_out_from_above() -> None:
    progress = OffsetTracker(0)
    for offset in range(1, 10_000, 2):
        progress.finish(offset, offset + 1)
    encoded = progress.encode()
    assert len(encoded) <= MAX_RANGES_BYTES
    kept = decode_ranges(0, encoded)
    assert kept == progress.ranges[: len(kept)]
    assert len(kept) > 2_000


def test_ranges_of_a_later_version_are_not_guessed_at() -> None:
    assert decode_ranges(5, b"\x02\x01\x01") == []


@pytest.mark.parametrize("encoded", [b"\x01\x80", b"\x01\x01"])
def test_ranges_that_are_cut_off_are_refused(encoded: bytes) -> None:
    with pytest.raises(DamagedBatch, match="reset"):
        decode_ranges(0, encoded)


@given(st.integers(0, 1 << 40), st.lists(RANGE, max_size=30), st.integers(0, 1 << 20))
def test_what_is_tried_travels_with_the_ranges(
    floor: int, ranges: list[tuple[int, int]], trying: int
) -> None:
    progress = OffsetTracker(floor)
    for start, stop in ranges:
        progress.finish(floor + start, floor + stop)
    encoded = progress.encode(trying)
    assert trying_of(encoded) == trying
    again = OffsetTracker(progress.floor, encoded)
    assert (again.floor, again.ranges) == (progress.floor, progress.ranges)
    if not trying:
        assert encoded == progress.encode()


def test_who_does_not_know_of_it_finds_a_range_without_length() -> None:
    progress = OffsetTracker(5)
    progress.finish(7, 9)
    assert progress.encode(3) == bytes([1, 2, 2, 3, 0])


def test_what_is_tried_is_never_left_out() -> None:
    progress = OffsetTracker(0)
    for offset in range(1, 10_000, 2):
        progress.finish(offset, offset + 1)
    encoded = progress.encode(300)
    assert len(encoded) <= MAX_RANGES_BYTES
    assert trying_of(encoded) == 300
