"""Columns: single reads, slices and rows agree with the lists; Arrow wraps the same bytes."""

from __future__ import annotations

import pickle
import struct
from itertools import compress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.batch import HEAD_LENGTH, encode_batch, open_batch, stamp
from logboom.wire.columns import Columns
from logboom.wire.errors import DamagedBatch
from logboom.wire.unpacking import BinaryBuffers
from tests.unit.wire.batches import CODECS, Plain, forge, plains


@given(plains(), CODECS, st.integers(-2, 45), st.none() | st.integers(-2, 45))
def test_slices_read_like_lists(plain: Plain, codec: str, start: int, stop: int | None) -> None:
    whole = open_batch(stamp(plain.encode(codec), 1000, 1, 1))
    begin = max(start, 0)
    end = len(whole) if stop is None else max(stop, begin)
    part = whole.slice(start, stop)
    assert part.values() == plain.values[begin:end]
    assert part.keys() == plain.keys[begin:end]
    assert part.tags() == plain.tags[begin:end]
    assert part.all_headers() == plain.headers[begin:end]
    assert part.timestamps() == plain.timestamps_ms[begin:end]
    assert part.next_offset - part.base_offset == len(part) == len(plain.values[begin:end])
    assert part.base_offset == 1000 + min(begin, len(whole))


@given(plains(), CODECS, st.integers(0, 10), st.data())
def test_some_rows_are_those_of_all(
    plain: Plain, codec: str, cut: int, data: st.DataObject
) -> None:
    columns = open_batch(stamp(plain.encode(codec), 500, 1, 1)).slice(cut)
    count = len(columns)
    picked = bytes(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    found = list(zip(*columns.some_parts(picked), strict=False))
    assert found == list(compress(columns.iter_rows(), picked))


@given(plains(), CODECS, st.integers(0, 10))
def test_rows_and_single_reads_agree(plain: Plain, codec: str, cut: int) -> None:
    columns = open_batch(stamp(plain.encode(codec), 500, 1, 1)).slice(cut)
    values, keys, tags, headers, times = (column[cut:] for column in plain)
    offsets = range(500 + cut, 500 + len(plain.values))
    expected = list(zip(offsets, keys, values, tags, headers, times, strict=True))
    assert list(columns.iter_rows()) == expected
    assert [
        (
            columns.base_offset + i,
            columns.key(i),
            columns.value(i),
            columns.tag(i),
            columns.headers(i),
            columns.timestamp_ms(i),
        )
        for i in range(len(columns))
    ] == expected


@given(st.integers(0, 5000), st.integers(1, 300), st.integers(0, 300), st.integers(0, 300))
def test_even_values_of_any_width_and_count(width: int, count: int, start: int, stop: int) -> None:
    values = [bytes([place % 251]) * width for place in range(count)]
    columns = open_batch(encode_batch(values, now_ms=0))
    assert columns.values() == values
    assert columns.slice(start, stop).values() == values[start:stop]


def test_equal_sums_do_not_pass_for_equal_lengths() -> None:
    values = [b"ab", b"abcd", b"", b"ab"]
    assert open_batch(encode_batch(values, now_ms=0)).values() == values


def test_a_long_column_is_read_without_the_table() -> None:
    values = [b"%d" % (place % 10) for place in range(70_000)]
    columns = open_batch(encode_batch(values, now_ms=0))
    assert columns.values() == values
    assert columns.value(69_999) == b"9"


def test_absent_columns_read_as_nothing() -> None:
    columns = open_batch(encode_batch([b"a", b"b"], now_ms=8))
    assert (columns.key(0), columns.tag(0), columns.headers(0), columns.timestamp_ms(1)) == (
        None,
        None,
        None,
        8,
    )
    assert columns.keys() == [None, None]
    assert columns.tags() == [None, None]
    assert columns.all_headers() == [None, None]
    assert columns.arrow_buffers()[1:] == (None, None, None, None)


def test_a_pull_may_begin_inside() -> None:
    columns = open_batch(stamp(encode_batch([b"a", b"b", b"c"], now_ms=0), 10, 1, 1))
    assert columns.from_offset(11).values() == [b"b", b"c"]
    assert columns.from_offset(11).slice(1).base_offset == 12
    assert columns.from_offset(3).base_offset == 10
    assert len(columns.from_offset(13)) == 0


@pytest.mark.parametrize("i", [-1, 2, 3])
def test_past_the_end_is_an_index_error(i: int) -> None:
    columns = open_batch(encode_batch([b"a", b"b", b"c"], [b"k"] * 3, now_ms=0)).slice(0, 2)
    for read in (columns.value, columns.key, columns.tag, columns.headers, columns.timestamp_ms):
        with pytest.raises(IndexError):
            read(i)


# A forger's body, its checksums right

EVEN = encode_batch([b"aaaa", b"bbbb", b"cccc"], now_ms=0)
TAGGED = encode_batch([b"", b"", b""], tags=["x", "y", "x"], now_ms=0)
HEADED = encode_batch([b""], headers=[{"k": b"v"}], now_ms=0)


@pytest.mark.parametrize(
    ("batch", "at", "content", "named"),
    [
        (EVEN, 0, struct.pack("<4i", 0, 8, 4, 12), "do not grow from 0"),
        (EVEN, 0, struct.pack("<4i", -4, 4, 8, 12), "do not grow from 0"),
        (EVEN, 0, struct.pack("<4i", 4, 4, 8, 12), "do not grow from 0"),
        (EVEN, 0, struct.pack("<4i", 0, 4, 99, 12), "do not grow from 0"),
        (EVEN, 0, struct.pack("<4i", 0, 4, 8, -1), "ends at -1"),
        (EVEN, 0, struct.pack("<4i", 0, 4, 8, 2**31 - 1), "needs 2147483664 bytes"),
        (EVEN, 0, struct.pack("<4i", 0, 4, 8, 8), "bytes follow the last column"),
        (TAGGED, 16, (0).to_bytes(8, "little"), "0 distinct tags"),
        (TAGGED, 16, (4).to_bytes(8, "little"), "4 distinct tags"),
        (TAGGED, 16, (2**64 - 1).to_bytes(8, "little"), "distinct tags"),
        (TAGGED, 24, struct.pack("<i", 2), "tag index"),
        (TAGGED, 24, struct.pack("<i", -1), "tag index"),
        (TAGGED, 56, b"\xff", "not UTF-8"),
        (HEADED, 16, b"\xc1", "not a msgpack map"),
        (HEADED, 16, b"\x82", "not a msgpack map"),
        (HEADED, 17, b"\xc0", "not a msgpack map"),
        (HEADED, 18, b"\xff", "not a msgpack map"),
    ],
)
def test_a_forged_body_is_named(batch: bytes, at: int, content: bytes, named: str) -> None:
    columns = open_batch(forge(batch, HEAD_LENGTH + at, content))
    with pytest.raises(DamagedBatch, match=named) as caught:
        list(columns.iter_rows())
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# Arrow


def arrow_binary(buffers: BinaryBuffers, count: int, first: int = 0) -> pa.Array:
    wrapped = [None if view is None else pa.py_buffer(view) for view in buffers]
    return pa.Array.from_buffers(pa.binary(), count, wrapped, offset=first)


def arrow_table(columns: Columns) -> list[pa.Array]:
    """Values, keys, tags, headers and times as Arrow arrays over the batch's own bytes."""
    buffers, count, first = columns.arrow_buffers(), len(columns), columns.first
    assert buffers.key is not None
    assert buffers.tag is not None
    assert buffers.headers is not None
    assert buffers.timestamp is not None
    validity, indices, dictionary = buffers.tag
    tags = pa.DictionaryArray.from_arrays(
        pa.Array.from_buffers(
            pa.int32(),
            count,
            [None if validity is None else pa.py_buffer(validity), pa.py_buffer(indices)],
            offset=first,
        ),
        arrow_binary(dictionary, len(dictionary.offsets) // 4 - 1).cast(pa.string()),
    )
    times = pa.Array.from_buffers(
        pa.int64(), count, [None, pa.py_buffer(buffers.timestamp)], offset=first
    )
    return [
        arrow_binary(buffers.value, count, first),
        arrow_binary(buffers.key, count, first),
        tags,
        arrow_binary(buffers.headers, count, first),
        times,
    ]


@given(plains(), CODECS, st.integers(0, 5))
def test_arrow_reads_what_was_written(plain: Plain, codec: str, cut: int) -> None:
    full = plain._replace(
        keys=[b"k", *plain.keys[1:]], tags=["t", *plain.tags[1:]], headers=[{}, *plain.headers[1:]]
    )
    columns = open_batch(full.encode(codec)).slice(cut)
    values, keys, tags, headers, times = arrow_table(columns)
    for array in (values, keys, tags, headers, times):
        array.validate(full=True)
    assert values.to_pylist() == full.values[cut:]
    assert keys.to_pylist() == full.keys[cut:]
    assert tags.to_pylist() == full.tags[cut:]
    assert times.to_pylist() == full.timestamps_ms[cut:]
    assert headers.is_null().to_pylist() == [each is None for each in full.headers[cut:]]


def test_arrow_wraps_the_batch_without_a_copy() -> None:
    batch = Plain(
        [b"one", None, b"three"],
        [b"k", None, b"l"],
        ["late", None, "early"],
        [{"h": b"v"}, None, {}],
        [1, 2, 3],
    ).encode()
    start = pa.py_buffer(batch).address
    values, keys, tags, headers, times = arrow_table(open_batch(batch))
    arrays = (values, keys, tags.indices, headers, times)
    found = [buffer for array in arrays for buffer in array.buffers() if buffer is not None]
    assert len(found) == 3 + 3 + 2 + 3 + 1
    for buffer in found:
        assert start + HEAD_LENGTH <= buffer.address
        assert buffer.address + buffer.size <= start + len(batch)
        assert (buffer.address - start) % 8 == 0
