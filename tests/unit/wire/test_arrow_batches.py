"""Batches from Arrow's buffers are those that are made of sequences, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.arrow_batches import encode_arrow
from logboom.wire.batch import encode_batch, open_batch
from logboom.wire.columns import ArrowBuffers
from logboom.wire.errors import InvalidRequest
from logboom.wire.unpacking import BinaryBuffers

BYTES = st.none() | st.binary(max_size=9)
ROWS = st.lists(
    st.tuples(
        BYTES,
        BYTES,
        st.none() | st.text("aé", max_size=2),
        st.none() | st.dictionaries(st.text("h", max_size=2), st.binary(max_size=2), max_size=2),
        st.integers(0, 1 << 50),
    ),
    min_size=1,
    max_size=20,
)


@given(ROWS, st.sampled_from(["none", "lz4", "zstd"]))
def test_they_are_the_same(
    rows: list[tuple[bytes | None, bytes | None, str | None, dict[str, bytes] | None, int]],
    codec: str,
) -> None:
    values, keys, tags, headers, times = (list(column) for column in zip(*rows, strict=True))
    made = encode_batch(values, keys, tags, headers, times, now_ms=5, codec=codec)
    columns = open_batch(made)
    head = columns.head
    again = encode_arrow(
        len(rows),
        columns.arrow_buffers(),
        (head.first_timestamp_ms, head.max_timestamp_ms),
        codec=codec,
        key_summary=head.key_summary,
    )
    assert again == made


def column(offsets: list[int], data: bytes) -> BinaryBuffers:
    """One of plain numbers."""
    ends = b"".join(each.to_bytes(4, "little") for each in offsets)
    return BinaryBuffers(None, memoryview(ends), memoryview(data))


@pytest.mark.parametrize(
    ("count", "offsets", "data"),
    [
        (0, [0], b""),
        (1, [1, 2], b"ab"),
        (1, [0, 1], b"ab"),
        (1, [0, 3], b"ab"),
        (2, [0, 2], b"ab"),
        ((1 << 20) + 1, [0, 2], b"ab"),
    ],
)
def test_what_does_not_fit_together_is_refused(count: int, offsets: list[int], data: bytes) -> None:
    columns = ArrowBuffers(column(offsets, data), None, None, None, None)
    with pytest.raises(InvalidRequest):
        encode_arrow(count, columns, (1, 1))
