"""Batches as Arrow record batches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from logboom.pipeline.record_batches import (
    BATCH_ROWS,
    MAX_TIMESTAMP_MS,
    TYPES,
    arrow_schema,
    record_batches,
)
from logboom.pipeline.sink_columns import packed_headers
from logboom.wire.batch import encode_batch, open_batch, stamp
from logboom.wire.columns import Columns
from logboom.wire.errors import InvalidRequest

EVERY = [(name, True) for name in TYPES]
NOW = 1_700_000_000_123


def batch(count: int = 3, base: int = 0, codec: str = "none", **columns: Any) -> Columns:
    """A stored batch of small values."""
    values = [b"%d" % (base + n) for n in range(count)]
    made = encode_batch(values, now_ms=NOW, codec=codec, **columns)
    return open_batch(stamp(made, base, 1, NOW))


def rows(parts: list[Columns], fields: list[tuple[str, bool]] = EVERY) -> list[dict[str, Any]]:
    """All rows, and a look whether the buffers hold together."""
    found: list[dict[str, Any]] = []
    for each in record_batches(parts, "flights", 7, fields):
        each.validate(full=True)
        assert each.schema == arrow_schema(fields)
        found += each.to_pylist()
    return found


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_every_column_is_as_it_was_sent(codec: str) -> None:
    part = batch(
        base=40,
        codec=codec,
        keys=[b"a", None, b"ccc"],
        tags=["late", None, "early"],
        headers=[{"x": b"1", "y": b""}, None, {}],
        timestamps_ms=[NOW, NOW + 1, NOW - 1],
    )
    found = rows([part])
    assert found[0] == {
        "key": b"a",
        "value": b"40",
        "topic": "flights",
        "partition": 7,
        "offset": 40,
        "timestamp": datetime.fromtimestamp(NOW / 1000, UTC),
        "timestampType": 0,
        "headers": [{"key": "x", "value": b"1"}, {"key": "y", "value": b""}],
        "tag": "late",
    }
    assert [row["key"] for row in found] == [b"a", None, b"ccc"]
    assert [row["tag"] for row in found] == ["late", None, "early"]
    assert [row["headers"] for row in found][1:] == [None, []]
    assert [row["offset"] for row in found] == [40, 41, 42]
    assert [row["timestamp"].microsecond for row in found] == [123_000, 124_000, 122_000]


def test_headers_of_traces_pass_through_source_and_sink() -> None:
    trace = {
        "traceparent": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": b"vendor=a1",
    }
    read = pa.array(
        [row["headers"] for row in rows([batch(headers=[trace, None, {"x": b""}])])],
        TYPES["headers"],
    )
    written = [
        None if each is None else msgspec.msgpack.decode(each)
        for each in packed_headers(read).to_pylist()
    ]
    assert written == [trace, None, {"x": b""}]


WILD = 10**18
"""Nanoseconds where milliseconds belong."""


@pytest.mark.parametrize(
    "times", [WILD, [WILD, NOW, -WILD], [NOW, MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS + 1], -WILD]
)
def test_times_that_no_timestamp_holds_are_cut_to_the_nearest(times: int | list[int]) -> None:
    part = batch(3, timestamps_ms=times)
    expected = [times] * 3 if isinstance(times, int) else times
    for begin in (0, 2):
        (found,) = record_batches([part.slice(begin)], "t", 0, [("timestamp", True)])
        micros = found.column(0).cast(pa.int64()).to_pylist()
        assert micros == [
            max(-MAX_TIMESTAMP_MS, min(each, MAX_TIMESTAMP_MS)) * 1000 for each in expected[begin:]
        ]


def test_columns_that_a_batch_lacks_are_null_or_all_the_same() -> None:
    found = rows([batch(2)])
    assert [(row["key"], row["tag"], row["headers"]) for row in found] == [(None, None, None)] * 2
    assert {row["timestamp"].timestamp() for row in found} == {NOW / 1000}


def test_a_tombstone_is_null() -> None:
    part = open_batch(encode_batch([b"a", None, b""], now_ms=NOW))
    assert [row["value"] for row in rows([part])] == [b"a", None, b""]


def test_slices_and_small_batches_are_put_together() -> None:
    keys = [b"k%d" % n for n in range(10)]
    tags = ["even" if n % 2 == 0 else None for n in range(10)]
    times = [NOW + n for n in range(10)]
    part = batch(10, keys=keys, tags=tags, timestamps_ms=times)
    found = rows([part.slice(3, 7), batch(2, base=7), part.slice(9)])
    assert [row["offset"] for row in found] == [3, 4, 5, 6, 7, 8, 9]
    assert [row["value"] for row in found] == [b"%d" % n for n in range(3, 10)]
    assert [row["key"] for row in found] == [*keys[3:7], None, None, keys[9]]
    assert [row["tag"] for row in found] == [*tags[3:7], None, None, None]
    assert [row["timestamp"].microsecond for row in found[:4]] == [
        (123 + n) * 1000 for n in range(3, 7)
    ]


def test_record_batches_go_when_they_are_large_enough() -> None:
    parts = [batch(100, base=n) for n in range(0, 3 * BATCH_ROWS, 100)]
    found = list(record_batches(parts, "t", 0, EVERY[:3]))
    assert [each.num_rows for each in found] == [BATCH_ROWS] * 3
    wide = open_batch(encode_batch([bytes(5 << 20)] * 2, now_ms=NOW))
    assert [each.num_rows for each in record_batches([wide, wide], "t", 0, EVERY)] == [2, 2]
    assert list(record_batches([], "t", 0, EVERY)) == []


def test_only_what_is_asked_for_is_made_in_that_order() -> None:
    (found,) = record_batches([batch()], "t", 0, [("value", True), ("topic", False)])
    assert found.schema == pa.schema(
        [pa.field("value", pa.binary()), pa.field("topic", pa.string(), nullable=False)]
    )


def test_values_are_where_they_came_in() -> None:
    part = batch()
    (found,) = record_batches([part], "t", 0, [("value", True)])
    body = pa.py_buffer(part.arrow_buffers().value.data)
    assert found.column(0).buffers()[2].address == body.address


def test_columns_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="no column 'body': there are key, value"):
        arrow_schema([("body", True)])
    with pytest.raises(InvalidRequest, match="'value' may be null: leave out NOT NULL"):
        arrow_schema([("value", False)])
