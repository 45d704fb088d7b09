"""Batches as Arrow: the row schema of Spark's Kafka source, from a batch's columns.

The buffers of values, keys and times are used in place. Nothing is done per record, except
for headers, which Spark needs as lists of structs, and only if they are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from logboom.wire.columns import Columns
from logboom.wire.errors import InvalidRequest
from logboom.wire.unpacking import BinaryBuffers

HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
TIME: Final = pa.timestamp("us", tz="UTC")
TYPES: Final[dict[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIME,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
    "tag": pa.string(),
}
"""Arrow types of all columns, as Spark maps its own types."""
MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
"""The last message time that fits into such a timestamp, in the year 294247; the first is as far
back. Later times are mistakes (for example nanoseconds), and must not end a read."""
CREATE_TIME: Final = 0
"""Kafka's timestampType for message times."""

BATCH_ROWS: Final = 10_000
"""Rows from which a record batch is emitted. Smaller ones cost more per row."""
BATCH_BYTES: Final = 8 * 1024 * 1024
"""Body bytes from which it is emitted, however few rows it has."""

Field = tuple[str, bool]
"""The name of a column, and whether it may be null."""


def arrow_schema(fields: Sequence[Field]) -> Any:
    """Return the Arrow schema of some columns, in their order.

    Raises:
        InvalidRequest: there is no such column, or a nullable column is declared NOT NULL.
    """
    found = []
    for name, nullable in fields:
        if name not in TYPES:
            text = f"a topic has no column {name!r}: there are {', '.join(TYPES)}"
            raise InvalidRequest(text)
        if not nullable and name in ("key", "value", "headers", "tag"):
            raise InvalidRequest(f"column {name!r} may be null: leave out NOT NULL")
        found.append(pa.field(name, TYPES[name], nullable))
    return pa.schema(found)


def record_batches(
    parts: Iterable[Columns], topic: str, queue: int, fields: Sequence[Field]
) -> Iterator[Any]:
    """Record batches of what a queue holds; small batches are put together."""
    maker = RecordBatchBuilder(topic, queue, fields)
    pile: list[Columns] = []
    rows = size = 0
    for part in parts:
        pile.append(part)
        rows += len(part)
        size += part.head.plain_length * len(part) // part.head.count
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield maker.make(pile)
            pile, rows, size = [], 0, 0
    if pile:
        yield maker.make(pile)


class RecordBatchBuilder:
    """A builder of record batches from one queue's batches."""

    def __init__(self, topic: str, queue: int, fields: Sequence[Field]) -> None:
        self._schema = arrow_schema(fields)
        self._constants = {
            "topic": pa.scalar(topic, TYPES["topic"]),
            "partition": pa.scalar(queue, TYPES["partition"]),
            "timestampType": pa.scalar(CREATE_TIME, TYPES["timestampType"]),
        }
        self._repeated: dict[str, Any] = {}

    def make(self, parts: Sequence[Columns]) -> Any:
        """Return one record batch of some batches."""
        rows = sum(map(len, parts))
        arrays = [self._column(name, parts, rows) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, parts: Sequence[Columns], rows: int) -> Any:
        constant = self._constants.get(name)
        if constant is not None:
            return self._constant(name, constant, rows)
        make = _MAKERS[name]
        arrays = [make(part) for part in parts]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)

    def _constant(self, name: str, value: Any, rows: int) -> Any:
        known = self._repeated.get(name)
        if known is None or len(known) < rows:
            known = self._repeated[name] = pa.repeat(value, max(rows, BATCH_ROWS))
        return known.slice(0, rows)


def _binary(buffers: BinaryBuffers | None, part: Columns, kind: Any) -> Any:
    if buffers is None:
        return pa.nulls(len(part), kind)
    views = (buffers.validity, buffers.offsets, buffers.data)
    wrapped = [None if view is None else pa.py_buffer(view) for view in views]
    return pa.Array.from_buffers(kind, len(part), wrapped, offset=part.first)


def _key(part: Columns) -> Any:
    return _binary(part.arrow_buffers().key, part, pa.binary())


def _value(part: Columns) -> Any:
    return _binary(part.arrow_buffers().value, part, pa.binary())


def _offset(part: Columns) -> Any:
    return pa.arange(part.base_offset, part.next_offset)


def _timestamp(part: Columns) -> Any:
    times = part.arrow_buffers().timestamp
    if times is None:
        millis = min(max(part.head.first_timestamp_ms, -MAX_TIMESTAMP_MS), MAX_TIMESTAMP_MS)
        return pa.repeat(pa.scalar(millis * 1000, TIME), len(part))
    wrapped = pa.py_buffer(times)
    array = pa.Array.from_buffers(pa.int64(), len(part), [None, wrapped], offset=part.first)
    kind = pa.timestamp("ms", tz="UTC")
    try:
        return array.cast(kind).cast(TIME)
    except pa.ArrowInvalid:
        within = pc.min_element_wise(
            pc.max_element_wise(array, -MAX_TIMESTAMP_MS), MAX_TIMESTAMP_MS
        )
        return within.cast(kind).cast(TIME)


def _tag(part: Columns) -> Any:
    tags = part.arrow_buffers().tag
    if tags is None:
        return pa.nulls(len(part), pa.string())
    words = tags.dictionary
    buffers = [pa.py_buffer(view) for view in (words.offsets, words.data)]
    dictionary = pa.Array.from_buffers(pa.string(), len(words.offsets) // 4 - 1, [None, *buffers])
    valid = None if tags.validity is None else pa.py_buffer(tags.validity)
    indices = pa.Array.from_buffers(
        pa.int32(), len(part), [valid, pa.py_buffer(tags.indices)], offset=part.first
    )
    return dictionary.take(indices)


def _headers(part: Columns) -> Any:
    if part.arrow_buffers().headers is None:
        return pa.nulls(len(part), TYPES["headers"])
    rows = [
        None if each is None else [{"key": name, "value": each[name]} for name in each]
        for each in part.all_headers()
    ]
    return pa.array(rows, TYPES["headers"])


_MAKERS: Final[dict[str, Callable[[Columns], Any]]] = {
    "key": _key,
    "value": _value,
    "offset": _offset,
    "timestamp": _timestamp,
    "tag": _tag,
    "headers": _headers,
}
