"""The columns that a write may have, as in Kafka's sink, and their normal form in Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.sink_hashing import buckets_of, murmur3_of
from logboom.pipeline.sink_options import SinkOptions
from logboom.wire.errors import InvalidRequest

TYPES: Final[dict[str, tuple[str, ...]]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    "tag": ("string",),
}
"""The columns that may be written, with their types as Spark names them."""
PASSED_OVER: Final = ("offset", "timestampType")
"""Columns of the source that the brokers assign again."""
NO_KEY: Final = 255
"""In place of a bit of the key summary."""

_pack: Final = msgspec.msgpack.Encoder().encode


def check_columns(columns: Sequence[tuple[str, str]], options: SinkOptions) -> None:
    """Check that a frame can be written.

    Args:
        columns: their names and types, as Spark names them.

    Raises:
        InvalidRequest: a column is missing, unknown or of a wrong type; the text has a remedy.
    """
    by_name: dict[str, str] = {}
    for name, kind in columns:
        if name.lower() in by_name:
            text = f"there are two columns {name.lower()!r}, whose names differ in case at most"
            raise InvalidRequest(f"{text}: select one of them")
        by_name[name.lower()] = kind
    known = {name.lower() for name in (*TYPES, *PASSED_OVER)}
    for name, _ in columns:
        if name.lower() not in known:
            text = f"a topic has no column {name!r}: select only {', '.join(TYPES)}"
            raise InvalidRequest(text)
    for name, kinds in TYPES.items():
        kind = by_name.get(name, kinds[0])
        if kind not in kinds:
            text = f"column {name!r} is {kind}, not {' or '.join(kinds)}: cast it before writing"
            raise InvalidRequest(text)
    if "value" not in by_name:
        raise InvalidRequest("there is no column 'value': select what to write as value")
    if "topic" not in by_name and not options.topic:
        raise InvalidRequest("say with option topic where to write, or with a column 'topic'")


class Normalizer:
    """A converter of a task's record batches to the columns that batches are made of.

    These are value, key (with `bucket`: its bit of the key summary), tag, headers (as msgpack) and
    time (ms), each only if the frame has it, and `topic`, `partition`, `hash` and `keyless`,
    which say where a row goes.
    """

    def __init__(self, options: SinkOptions, now_ms: int) -> None:
        self._options = options
        self._now_ms = now_ms

    def rows(self, batch: Any) -> tuple[Any, dict[str, Any]]:
        """Return the columns of the messages, and the columns that route them.

        Raises:
            InvalidRequest: a header has no name or no value.
        """
        given = {name.lower(): batch.column(at) for at, name in enumerate(batch.schema.names)}
        columns = {"value": given["value"].cast(pa.binary())}
        routes: dict[str, Any] = {}
        if "key" in given:
            columns["key"] = keys = given["key"].cast(pa.binary())
            routes["hash"] = hashes = hashes_of(keys)
            buckets = buckets_of(hashes)
            if keys.null_count:
                routes["keyless"] = keyless = keys.is_null().to_numpy(zero_copy_only=False)
                buckets[keyless] = NO_KEY
            columns["bucket"] = pa.array(buckets)
        if "tag" in given:
            columns["tag"] = given["tag"].cast(pa.string())
        if "headers" in given and self._options.include_headers:
            columns["headers"] = packed_headers(given["headers"])
        if "timestamp" in given:
            columns["time"] = self._times(given["timestamp"])
        if not self._options.topic:
            routes["topic"] = given["topic"]
        if "partition" in given:
            routes["partition"] = given["partition"]
        return pa.RecordBatch.from_pydict(columns), routes

    def _times(self, column: Any) -> Any:
        micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        known = pc.fill_null(micros, self._now_ms * 1000).to_numpy(zero_copy_only=False)
        return pa.array(known // 1000)


def hashes_of(keys: Any) -> Any:
    """Return the hash of each key of a binary column. A null has the hash of an empty key."""
    _, ends, data = keys.buffers()
    offsets = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    blob = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return murmur3_of(offsets, blob)


def packed_headers(column: Any) -> Any:
    """Return headers in their wire form, one msgpack map per message.

    Of equal names the last one counts.

    Raises:
        InvalidRequest: a header has no name or no value.
    """
    return pa.array([_headers(row) for row in column.to_pylist()], pa.binary())


def _headers(row: Any) -> bytes | None:
    if row is None:
        return None
    plain = {each["key"]: each["value"] for each in row if each is not None}
    for name, content in plain.items():
        if name is None or content is None:
            text = f"header {name!r} has no value: leave it out, or give it one of no bytes"
            raise InvalidRequest("a header has no name" if name is None else text)
    return _pack(plain)
