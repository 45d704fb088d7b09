"""Cursor deltas: packed small, read as they were, and refused where they do not fit."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.nodes.replica.offset_set import OffsetSet
from logboom.wire.cursor_deltas import (
    CursorDelta,
    decode_deltas,
    encode_deltas,
    pack_counts,
    pack_spans,
)
from logboom.wire.errors import DamagedBatch

OFFSETS = st.sets(st.integers(0, 2_000), max_size=60)


@given(st.integers(0, 50), OFFSETS, st.dictionaries(st.integers(0, 500), st.integers(1, 3)))
def test_what_is_packed_is_read(floor: int, acked: set[int], counts: dict[int, int]) -> None:
    found = OffsetSet()
    found.add_each(offset for offset in acked if offset > floor)
    spans = list(found.spans())
    delta = CursorDelta("s", "whole", floor, pack_spans(spans, floor), pack_counts(counts))
    [read] = decode_deltas(encode_deltas([delta]))
    assert list(read.spans()) == spans
    assert dict(read.counted()) == counts
    assert {o for start, stop in spans for o in range(start, stop)} == {
        o for o in acked if o > floor
    }


def test_a_hundred_thousand_holes_are_packed_into_little() -> None:
    spans = [(offset, offset + 1) for offset in range(1, 200_000, 2)]
    counts = dict.fromkeys(range(100_000), 2)
    delta = CursorDelta("billing", "whole", 0, pack_spans(spans), pack_counts(counts))
    assert len(encode_deltas([delta])) < 250_000
    assert delta.counts == [0, 100_000, 2]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        msgspec.msgpack.encode([["s", "gone"]]),
        msgspec.msgpack.encode([["s", "acked", 0, [1]]]),
        msgspec.msgpack.encode([["s", "acked", 0, [], [1, 2]]]),
        msgspec.msgpack.encode([["s", "acked", -1]]),
        msgspec.msgpack.encode([["s", "acked", 0, [3, -1]]]),
        msgspec.msgpack.encode([["s", "acked", 0, [], [0, 1 << 40, 1]]]),
        msgspec.msgpack.encode([["s", "acked", 1 << 63]]),
    ],
)
def test_no_delta(body: bytes) -> None:
    with pytest.raises(DamagedBatch):
        decode_deltas(body)
