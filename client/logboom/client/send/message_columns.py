"""The columns of one `send_many`: checked, divided by queue, cut into batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add, itemgetter
from typing import Any

from logboom.client.argument_checks import check_extras, check_size
from logboom.client.send.producer_batch import (
    OVERHEAD,
    ProducerBatch,
    QueueAccumulator,
    TopicAccumulator,
)
from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import queue_for, queues_for
from logboom.wire.packing import pack_timestamps


class MessageColumns:
    """The checked columns of one `send_many`, or a part of them."""

    __slots__ = ("headers", "keys", "lengths", "tags", "times", "values")

    def __init__(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        tags: str | Sequence[str | None] | None,
        headers: Sequence[Mapping[str, bytes] | None] | None,
        times: int | Sequence[int] | None,
    ) -> None:
        self.values = values
        self.keys = keys
        self.tags = tags
        self.headers = headers
        self.times = times
        self.lengths: list[int] | None = None
        """Bytes of each message; None: not counted yet."""

    def check(self, topic_accumulator: TopicAccumulator) -> None:
        """Check that batches can hold the messages."""
        count = len(self.values)
        if count == 0:
            raise InvalidRequest("send_many needs at least one value")
        lengths = _lengths(self.values, "values")
        if self.keys is not None:
            _same_length(self.keys, count, "keys")
            lengths = list(map(add, lengths, _lengths(self.keys, "keys")))
        if self.headers is not None:
            _same_length(self.headers, count, "headers")
            lengths = list(map(add, lengths, _headers_sizes(self.headers)))
        self._check_tags(count)
        if isinstance(self.times, int):
            check_extras(None, None, self.times)
        elif self.times is not None:
            _same_length(self.times, count, "timestamps_ms")
            pack_timestamps(self.times)
        self.lengths = lengths
        # Counting equal lengths is faster than searching the greatest.
        largest = lengths[0] if lengths.count(lengths[0]) == count else max(lengths)
        if largest + OVERHEAD > topic_accumulator.largest:
            check_size(topic_accumulator.name, topic_accumulator.largest, largest)

    def _check_tags(self, count: int) -> None:
        if isinstance(self.tags, str):
            check_extras(self.tags, None, None)
        elif self.tags is not None:
            _same_length(self.tags, count, "tags")
            for tag in set(self.tags):
                check_extras(tag, None, None)

    def sizes(self) -> list[int]:
        """Return the bytes for which each message counts."""
        lengths = self.lengths or []
        return [length + OVERHEAD for length in lengths]

    def total(self) -> int:
        """Return the bytes for which all messages count."""
        return sum(self.lengths or ()) + OVERHEAD * len(self.values)

    def pick(self, rows: list[int]) -> MessageColumns:
        """Return these rows only."""
        first = rows[0]
        getter = itemgetter(*rows, first)  # at least two, so that it returns a tuple

        def picked(column: Any) -> Any:
            if column is None or isinstance(column, (str, int)):
                return column
            return getter(column)[:-1]

        columns = (self.values, self.keys, self.tags, self.headers, self.times)
        part = MessageColumns(*map(picked, columns))
        part.lengths = picked(self.lengths)
        return part

    def fill(self, batch: ProducerBatch, start: int, stop: int) -> None:
        """Copy rows into a batch: the application may change its lists once `send_many` returns."""
        batch.values = list(self.values[start:stop])
        batch.keys = None if self.keys is None else list(self.keys[start:stop])
        if isinstance(self.tags, str):
            batch.tags = self.tags
        elif self.tags is not None:
            batch.tags = list(self.tags[start:stop])
        batch.headers = None if self.headers is None else list(self.headers[start:stop])
        if isinstance(self.times, int):
            batch.times = self.times
        elif self.times is not None:
            batch.times = list(self.times[start:stop])
        batch.plain = False


def parts_of(
    topic_accumulator: TopicAccumulator, columns: MessageColumns, queue: int | None
) -> list[tuple[QueueAccumulator | None, MessageColumns]]:
    """Divide rows by queue; rows without a key get queue None, and are distributed by batches."""
    if queue is not None:
        return [(topic_accumulator.pick(queue), columns)]
    count, keys = len(topic_accumulator.queues), columns.keys
    if keys is None:
        return [(None, columns)]
    if count == 1:
        return [(topic_accumulator.queues[0], columns)]
    rows: list[list[int]] = [[] for _ in range(count + 1)]
    known = [key for key in keys if key is not None]
    if len(known) < len(keys):
        places = [count if key is None else queue_for(key, count) for key in keys]
    else:
        places = queues_for(known, count)
    for row, place in enumerate(places):
        rows[place].append(row)
    accumulators: list[QueueAccumulator | None] = [*topic_accumulator.queues, None]
    return [
        (accumulator, columns.pick(picked))
        for accumulator, picked in zip(accumulators, rows, strict=True)
        if picked
    ]


def _lengths(column: Sequence[Any], field: str) -> list[int]:
    # What an application passes may have any type until it is checked here.
    kinds = set(map(type, column))
    if kinds == {bytes}:
        return list(map(len, column))
    if not kinds <= {bytes, type(None)}:
        wrong = next(kind.__name__ for kind in kinds if kind not in (bytes, type(None)))
        raise InvalidRequest(f"{field} must be bytes or None, not {wrong}: encode them first")
    return [0 if item is None else len(item) for item in column]


def _headers_sizes(headers: Sequence[Mapping[str, bytes] | None]) -> list[int]:
    """Check headers, and return their sizes; those that several rows in turn share, once."""
    sizes: list[int] = []
    last, size = None, 0
    for each in headers:
        if each is not last:
            last, size = each, 0 if each is None else check_extras(None, each, None)
        sizes.append(size)
    return sizes


def _same_length(column: Sequence[object], count: int, field: str) -> None:
    if len(column) != count:
        raise InvalidRequest(f"{len(column)} {field} for {count} values: give one per message")
