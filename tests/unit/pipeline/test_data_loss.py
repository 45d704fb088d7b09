"""Messages that are gone: an error, or read on."""

from __future__ import annotations

import logging

import pytest

from logboom.pipeline.data_loss import DataLossPolicy
from logboom.pipeline.offset_ranges import OffsetRange
from logboom.pipeline.queue_offsets import Offsets
from logboom.wire.batch import encode_batch, open_batch, stamp
from logboom.wire.columns import Columns
from logboom.wire.errors import OffsetOutOfRange

A = ("t", 0)

CASES = [
    # start, end, what the queue holds, what is said, what is left
    ({A: 3}, {A: 9}, (5, 20), "begins at offset 5 now, messages from 3 are gone", (5, 9)),
    ({A: 3}, {A: 4}, (5, 20), "begins at offset 5 now", (4, 4)),
    ({}, {A: 9}, (5, 20), "begins at offset 5 now, messages from 0 are gone", (5, 9)),
    ({A: 3}, {A: 30}, (0, 20), "ends at offset 20, not at 30", (3, 20)),
    ({A: 30}, {A: 7}, (0, 7), "ends at offset 7, not at 30", (0, 7)),
    ({A: 30}, {A: 30}, (0, 20), "ends at offset 20, not at 30", (20, 20)),
]


def part(base: int, count: int) -> Columns:
    """A stored batch."""
    return open_batch(stamp(encode_batch([b""] * count, now_ms=1), base, 1, 1))


@pytest.mark.parametrize(("start", "end", "holds", "said", "left"), CASES)
def test_what_a_queue_does_not_hold_is_told_or_cut_off(
    start: Offsets,
    end: Offsets,
    holds: tuple[int, int],
    said: str,
    left: tuple[int, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(OffsetOutOfRange, match=f"queue 0 of topic 't' {said}.* failOnDataLoss"):
        DataLossPolicy(fail=True).within(start, end, {A: holds})
    with caplog.at_level(logging.WARNING):
        assert DataLossPolicy(fail=False).within(start, end, {A: holds}) == (
            {A: left[0]},
            {A: left[1]},
        )
    assert "reading on" in caplog.text


def test_before_a_start_that_options_name_nothing_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for start, stop, high, left in [(30, 7, 7, 7), (30, 40, 20, 20), (3, 30, 20, (3, 20))]:
        wanted = left if isinstance(left, tuple) else (left, left)
        asked = max(start, stop)
        said = (
            f"ends at offset {high}, not at {asked}: startingOffsets or endingOffsets ask for more"
        )
        with pytest.raises(OffsetOutOfRange, match=said + ".* read as far as there are messages"):
            DataLossPolicy(fail=True).within({A: start}, {A: stop}, {A: (0, high)}, named=True)
        policy = DataLossPolicy(fail=False)
        found = policy.within({A: start}, {A: stop}, {A: (0, high)}, named=True)
        assert found == ({A: wanted[0]}, {A: wanted[1]})
        assert said in caplog.messages[-1]


def test_the_error_tells_what_is_read_if_losses_are_skipped() -> None:
    policy = DataLossPolicy(fail=True)
    for start, stop, holds, otherwise in [
        (3, 9, (5, 20), "read on without them"),
        (30, 30, (0, 20), "read it from its first message"),
    ]:
        with pytest.raises(OffsetOutOfRange, match=f"say failOnDataLoss false to {otherwise}$"):
            policy.within({A: start}, {A: stop}, {A: holds})


@pytest.mark.parametrize(("start", "end"), [({A: 0}, {A: 5}), ({A: 0}, {}), ({}, {A: 5})])
def test_a_queue_that_is_gone_is_told_or_left_out(start: Offsets, end: Offsets) -> None:
    with pytest.raises(OffsetOutOfRange, match="is gone, and so are its messages"):
        DataLossPolicy(fail=True).within(start, end, {})
    assert DataLossPolicy(fail=False).within(start, end, {}) == ({}, {})
    left = ("u", 0)
    ends = {**end, left: 2}
    assert DataLossPolicy(fail=False).within(start, ends, {left: (0, 9)}) == ({left: 0}, {left: 2})


def test_what_is_there_is_left_as_it_is() -> None:
    new = ("t", 1)
    found = DataLossPolicy(fail=True).within({A: 2}, {A: 5, new: 3}, {A: (1, 9), new: (0, 3)})
    assert found == ({A: 2, new: 0}, {A: 5, new: 3})
    for at in (1, 5, 9):
        assert DataLossPolicy(fail=True).within({A: at}, {A: at}, {A: (1, 9)}) == ({A: at}, {A: at})


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([part(0, 5), part(7, 3)], "lacks offsets 5 to 6"),
        ([part(2, 8)], "lacks offsets 0 to 1"),
        ([part(0, 5)], "lacks offsets 5 to 9"),
        ([], "lacks offsets 0 to 9"),
    ],
)
def test_gaps_between_batches_are_found(parts: list[Columns], said: str) -> None:
    wanted = OffsetRange("t", 0, 0, 10)
    with pytest.raises(OffsetOutOfRange, match=said):
        list(DataLossPolicy(fail=True).contiguous(parts, wanted))
    assert list(DataLossPolicy(fail=False).contiguous(parts, wanted)) == parts


def test_a_whole_range_passes() -> None:
    parts = [part(0, 5), part(5, 5)]
    assert list(DataLossPolicy(fail=True).contiguous(parts, OffsetRange("t", 0, 0, 10))) == parts
