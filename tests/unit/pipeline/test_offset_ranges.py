"""What a micro-batch takes, and how it is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logboom.pipeline.offset_ranges import OffsetRange, cut, limited, limited_bytes, ranges
from logboom.pipeline.queue_offsets import Offsets

QUEUES = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9)),
    st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
    max_size=12,
)


def bounds(drawn: dict[tuple[str, int], tuple[int, int]]) -> tuple[Offsets, Offsets]:
    """Start and end, the end not before the start."""
    start = {place: low for place, (low, _) in drawn.items()}
    return start, {place: low + more for place, (low, more) in drawn.items()}


@given(QUEUES, st.integers(1, 20_000))
def test_a_limit_is_kept_and_every_queue_gets_on(
    drawn: dict[tuple[str, int], tuple[int, int]], most: int
) -> None:
    start, end = bounds(drawn)
    found = limited(start, end, most)
    taken = {place: found[place] - start[place] for place in end}
    assert sum(taken.values()) <= most + len(end)  # a message of each queue at least
    for place, stop in end.items():
        assert start[place] <= found[place] <= stop
        assert (found[place] > start[place]) == (stop > start[place])


def test_shares_are_those_of_the_backlog() -> None:
    start = {("t", 0): 0, ("t", 1): 100}
    end = {("t", 0): 900, ("t", 1): 200}
    assert limited(start, end, 100) == {("t", 0): 90, ("t", 1): 110}
    assert limited(start, end, 1_000) == end


@given(QUEUES, st.integers(1, 1_000_000), st.floats(1, 1_000))
def test_a_limit_of_bytes_is_kept(
    drawn: dict[tuple[str, int], tuple[int, int]], most: int, size: float
) -> None:
    start, end = bounds(drawn)
    found = limited_bytes(start, end, most, dict.fromkeys(end, size))
    taken = sum(found[place] - start[place] for place in end)
    assert taken * size <= most + size * len(end)
    for place, stop in end.items():
        assert start[place] <= found[place] <= stop
        assert (found[place] > start[place]) == (stop > start[place])


@given(QUEUES, st.integers(0, 40), st.integers(0, 3_000))
def test_ranges_cover_everything_exactly_once(
    drawn: dict[tuple[str, int], tuple[int, int]], least: int, most: int
) -> None:
    start, end = bounds(drawn)
    found = ranges(start, end, least, most)
    assert all(part.size > 0 for part in found)
    assert not most or all(part.size <= most for part in found)
    for place, stop in end.items():
        parts = sorted(part for part in found if part[:2] == place)
        edges = [start[place], *(part.stop for part in parts)]
        assert edges[-1] == stop
        assert [part.start for part in parts] == edges[:-1]


def test_a_large_queue_is_cut_more_than_a_small_one() -> None:
    start = {("t", 0): 0, ("t", 1): 0}
    found = ranges(start, {("t", 0): 900, ("t", 1): 100}, min_partitions=10)
    assert [part.queue for part in found] == [0] * 9 + [1]


def test_a_range_is_cut_no_more_than_it_must_be() -> None:
    sizes = [part.size for part in ranges({("t", 0): 0}, {("t", 0): 10}, max_records=4)]
    assert sizes == [3, 3, 4]
    assert len(ranges({("t", 0): 0}, {("t", 0): 8}, max_records=4)) == 2


def test_a_range_is_not_cut_below_a_message() -> None:
    assert cut(OffsetRange("t", 0, 5, 7), 10) == [
        OffsetRange("t", 0, 5, 6),
        OffsetRange("t", 0, 6, 7),
    ]
