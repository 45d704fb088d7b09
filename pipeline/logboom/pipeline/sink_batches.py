"""Batches of a task's rows: routed, collected by queue, and encoded from Arrow's buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from logboom.pipeline.sink_columns import NO_KEY, Normalizer
from logboom.pipeline.sink_options import SinkOptions
from logboom.wire.arrow_batches import encode_arrow
from logboom.wire.columns import ArrowBuffers
from logboom.wire.errors import InvalidRequest, UnknownResource
from logboom.wire.unpacking import BinaryBuffers, TagBuffers

TARGET: Final = 1024 * 1024
"""Bytes of a batch: a decision can name so many batches, so they should not be small."""
LARGE_TARGET: Final = 3 * 1024 * 1024
"""The same in a task that has made many. Below a topic's usual `max_message_bytes`, beyond which
brokers have to measure a batch's messages."""
MANY: Final = 64
MAX_ROWS: Final = 65_536
MAX_HELD: Final = 64 * 1024 * 1024
"""Bytes that wait to become batches, in all queues of a task."""
ROW_BYTES: Final = 8
"""Counted for each row beside its bytes."""


class QueueBatch(NamedTuple):
    """A batch, and its queue."""

    topic: str
    queue: int
    batch: bytes
    rows: int


class Batcher:
    """A converter of record batches to batches. Rows of a queue keep their order.

    Args:
        queues: how many queues a topic has.
        first: the queue that rows without a key begin with; each record batch goes to the next.
    """

    def __init__(
        self, options: SinkOptions, queues: Callable[[str], int], now_ms: int, first: int = 0
    ) -> None:
        self._options = options
        self._queues = queues
        self._now_ms = now_ms
        self._next = first
        self._rows = Normalizer(options, now_ms)
        self._piles: dict[tuple[str, int], _PendingRows] = {}
        self._made = 0

    def batches(self, record_batches: Iterable[Any]) -> Iterator[QueueBatch]:
        """Yield all batches, each as soon as it is full.

        Raises:
            InvalidRequest: rows that cannot be written.
            UnknownResource: no such topic or queue.
        """
        for record_batch in record_batches:
            if not record_batch.num_rows:
                continue
            for place, rows in self._routed(*self._rows.rows(record_batch)):
                pile = self._piles.setdefault(place, _PendingRows())
                pile.add(rows)
                if pile.size >= self._target or pile.count >= MAX_ROWS:
                    yield from self._emptied(place)
            while sum(pile.size for pile in self._piles.values()) > MAX_HELD:
                yield from self._emptied(max(self._piles, key=lambda each: self._piles[each].size))
        for place in list(self._piles):
            yield from self._emptied(place)

    @property
    def _target(self) -> int:
        return TARGET if self._made < MANY else LARGE_TARGET

    def _emptied(self, place: tuple[str, int]) -> Iterator[QueueBatch]:
        rows = self._piles.pop(place).joined()
        for piece in pieces(rows, self._target):
            self._made += 1
            batch = encoded(piece, self._now_ms, self._options.compression)
            yield QueueBatch(*place, batch, piece.num_rows)

    # Routing.

    def _routed(self, rows: Any, routes: dict[str, Any]) -> Iterator[tuple[tuple[str, int], Any]]:
        if self._options.topic:
            yield from self._by_queue(self._options.topic, rows, routes)
            return
        topics = routes["topic"]
        if topics.null_count:
            raise InvalidRequest("a row has no topic: fill the column 'topic', or say option topic")
        words = topics.dictionary_encode()
        names = words.dictionary.to_pylist()
        places = words.indices.to_numpy(zero_copy_only=False)
        for at, name in enumerate(names):
            if len(names) == 1:
                yield from self._by_queue(name, rows, routes)
            else:
                mine = np.flatnonzero(places == at)
                some = {key: _taken(column, mine) for key, column in routes.items()}
                yield from self._by_queue(name, rows.take(pa.array(mine)), some)

    def _by_queue(
        self, topic: str, rows: Any, routes: dict[str, Any]
    ) -> Iterator[tuple[tuple[str, int], Any]]:
        count = self._queues(topic)
        queues = self._queues_of(topic, count, rows.num_rows, routes)
        if isinstance(queues, int):
            yield (topic, queues), rows
            return
        order = np.argsort(queues, kind="stable")
        ordered = rows.take(pa.array(order))
        ends = np.cumsum(np.bincount(queues, minlength=count))
        start = 0
        for queue, end in enumerate(ends.tolist()):
            if end > start:
                yield (topic, queue), ordered.slice(start, end - start)
            start = end

    def _queues_of(self, topic: str, count: int, rows: int, routes: dict[str, Any]) -> Any:
        """Return the queue of each row, or one for all."""
        alone = self._next % count
        self._next += 1
        hashes, keyless = routes.get("hash"), routes.get("keyless")
        queues: Any = alone
        if hashes is not None:
            queues = (hashes % np.uint32(count)).astype(np.uint16)
            if keyless is not None:
                queues[keyless] = alone
        partition = routes.get("partition")
        if partition is None or partition.null_count == rows:
            return queues
        given = partition.fill_null(-1).to_numpy(zero_copy_only=False)
        chosen = partition.is_valid().to_numpy(zero_copy_only=False)
        wrong = given[chosen & ((given < 0) | (given >= count))]
        if len(wrong):
            text = f"topic {topic!r} has queues 0 to {count - 1}, not {wrong[0]}"
            hint = "leave out the column 'partition' to go by key"
            raise UnknownResource(f"{text}: {hint}", "UNKNOWN_QUEUE", topic=topic)
        return np.where(chosen, given, queues).astype(np.uint16)


def _taken(column: Any, rows: Any) -> Any:
    return column[rows] if isinstance(column, np.ndarray) else column.take(pa.array(rows))


class _PendingRows:
    """Rows of one queue that wait for more."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self.size = 0
        self.count = 0

    def add(self, rows: Any) -> None:
        self._parts.append(rows)
        self.size += rows.nbytes
        self.count += rows.num_rows

    def joined(self) -> Any:
        """Return all rows as one record batch."""
        if len(self._parts) == 1:
            return self._parts[0]
        return pa.concat_batches(self._parts)


def pieces(rows: Any, target: int) -> Iterator[Any]:
    """Yield rows in pieces for a batch each, of at most 5/4 of `target` bytes or of one row."""
    ends = np.arange(1, rows.num_rows + 1, dtype=np.int64) * ROW_BYTES
    for name in ("value", "key", "headers"):
        if name in rows.schema.names:
            offsets, _, _ = _binary_views(rows.column(name))
            ends += offsets[1:]
    start = 0
    while start < rows.num_rows:
        limit = target + target // 4 + (int(ends[start - 1]) if start else 0)
        stop = int(np.searchsorted(ends, limit, side="right"))
        stop = min(max(stop, start + 1), start + MAX_ROWS)
        yield rows.slice(start, stop - start)
        start = stop


def encoded(rows: Any, now_ms: int, codec: str) -> bytes:
    """Return one encoded batch.

    Raises:
        InvalidRequest: TOO_LARGE: a row that no batch holds.
    """
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    times = columns.get("time")
    first_ms = max_ms = now_ms
    stamps = None
    if times is not None:
        millis = times.to_numpy(zero_copy_only=False)
        first_ms, max_ms = int(millis[0]), int(millis.max())
        stamps = np.ascontiguousarray(millis).data if int(millis.min()) != max_ms else None
    value = _binary(columns["value"])
    key, headers, tag = (columns.get(name) for name in ("key", "headers", "tag"))
    buffers = ArrowBuffers(
        value,
        None if key is None or key.null_count == len(key) else _binary(key),
        None if tag is None or tag.null_count == len(tag) else _tags(tag),
        None if headers is None or headers.null_count == len(headers) else _binary(headers),
        stamps,
    )
    summary = _key_summary(columns["bucket"]) if buffers.key is not None else 0
    return encode_arrow(
        rows.num_rows, buffers, (first_ms, max_ms), codec=codec, key_summary=summary
    )


def _binary_views(column: Any) -> tuple[Any, Any, int]:
    """Return offsets from 0, the blob, and where the column begins in it."""
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    first = int(offsets[0])
    return (offsets - np.int32(first) if first else offsets), data, first


def _binary(column: Any) -> BinaryBuffers:
    offsets, data, first = _binary_views(column)
    end = int(offsets[-1])
    blob = memoryview(b"") if data is None else memoryview(data).cast("B")[first : first + end]
    return BinaryBuffers(_validity(column), np.ascontiguousarray(offsets).data, blob)


def _tags(column: Any) -> TagBuffers:
    words = column.dictionary_encode()
    indices = words.indices.fill_null(0).to_numpy(zero_copy_only=False)
    dictionary = _binary(words.dictionary.cast(pa.binary()))
    return TagBuffers(_validity(column), memoryview(indices.astype(np.int32)), dictionary)


def _validity(column: Any) -> memoryview | None:
    if not column.null_count:
        return None
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    bits: memoryview = np.packbits(valid, bitorder="little").data
    return bits


def _key_summary(buckets: Any) -> int:
    found = np.bincount(buckets.to_numpy(zero_copy_only=False), minlength=NO_KEY + 1)[:64]
    return sum(1 << int(bucket) for bucket in np.flatnonzero(found))
