"""A batch's body as columns: buffers that Arrow can wrap, and Python objects on demand.

The body holds, each padded to 8 bytes and in this order:

- values, then keys if KEYS: [validity bitmap if NULL_…], count + 1 i32 offsets from 0, blob
- tags if TAGS: u64 size of the dictionary, [validity], count i32 indices, the dictionary's
  size + 1 i32 offsets, its blob (UTF-8)
- headers if HEADERS: like keys; each is one msgpack map of text to bytes
- timestamps if TIMESTAMPS: count i64, ms since 1970; else all have the head's first timestamp

Bit i % 8 of byte i // 8 of a validity bitmap is set where message i is not null. The reading of
one column, and the verification of its offsets, is in `logboom.wire.unpacking`.
"""

from __future__ import annotations

from itertools import compress, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from logboom.wire.base import UNDECODABLE
from logboom.wire.compression import Codec, decompress, decompress_steps
from logboom.wire.errors import DamagedBatch
from logboom.wire.head import HEAD_LENGTH, Attribute, BatchHead
from logboom.wire.unpacking import BinaryBuffers, BinaryColumn, BodyReader, TagBuffers, TagColumn

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

_decode_headers: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode

Row = tuple[int, bytes | None, bytes | None, str | None, dict[str, bytes] | None, int]
"""offset, key, value, tag, headers, timestamp in ms."""


class ArrowBuffers(NamedTuple):
    """Views of the body, one group per column; None for a column that the batch lacks.

    They cover the whole batch: of a slice, take `Columns.first` as Arrow's offset.
    """

    value: BinaryBuffers
    key: BinaryBuffers | None
    tag: TagBuffers | None
    headers: BinaryBuffers | None
    timestamp: memoryview | None
    """None: every message has the head's first timestamp."""


class _Body:
    """The verified layout of one plain body, shared by all slices of the batch."""

    __slots__ = ("headers", "key", "tag", "timestamps", "value")

    def __init__(self) -> None:
        self.value: BinaryColumn
        self.key: BinaryColumn | None = None
        self.tag: TagColumn | None = None
        self.headers: BinaryColumn | None = None
        self.timestamps: memoryview | None = None

    def read(self, head: BatchHead, body: memoryview) -> Iterator[None]:
        """Read the columns of a body in steps.

        Raises:
            DamagedBatch: They are inconsistent.
        """
        cursor = BodyReader(body)
        count = head.count
        self.value = BinaryColumn(cursor, count, nulls=head.has(Attribute.NULL_VALUES))
        yield
        if head.has(Attribute.KEYS):
            self.key = BinaryColumn(cursor, count, nulls=head.has(Attribute.NULL_KEYS))
            yield
        if head.has(Attribute.TAGS):
            self.tag = TagColumn(count)
            yield from self.tag.read(cursor, nulls=head.has(Attribute.NULL_TAGS))
            yield
        if head.has(Attribute.HEADERS):
            self.headers = BinaryColumn(cursor, count, nulls=head.has(Attribute.NULL_HEADERS))
        if head.has(Attribute.TIMESTAMPS):
            self.timestamps = cursor.take(8 * count).cast("q")
        cursor.finish()


class Columns:
    """The messages of a batch, or of a slice of it, as made by `logboom.wire.batch.open_batch`.

    Any access to a message raises DamagedBatch if the body is inconsistent, and IndexError beyond
    the end.
    """

    __slots__ = ("_batch", "_body", "count", "first", "head")

    def __init__(
        self,
        head: BatchHead,
        batch: bytes | memoryview,
        first: int = 0,
        count: int | None = None,
        body: _Body | None = None,
    ) -> None:
        self.head: Final = head
        self.first: Final = first
        """Index in the batch at which this slice begins; 0 for a whole batch."""
        self.count: Final = head.count if count is None else count
        self._batch = batch
        self._body = body

    def __len__(self) -> int:
        return self.count

    @property
    def base_offset(self) -> int:
        """Offset of the first message of this slice."""
        return self.head.base_offset + self.first

    @property
    def next_offset(self) -> int:
        """The offset after the last message of this slice."""
        return self.base_offset + self.count

    def slice(self, start: int, stop: int | None = None) -> Columns:
        """Return messages `start` to `stop`, limited to those that exist, in shared buffers."""
        start = min(max(start, 0), self.count)
        end = self.count if stop is None else min(max(stop, start), self.count)
        return Columns(self.head, self._batch, self.first + start, end - start, self._opened())

    def from_offset(self, offset: int) -> Columns:
        """Return the messages from `offset` on: a pull may ask for the middle of a batch."""
        return self.slice(offset - self.base_offset)

    def value(self, i: int) -> bytes | None:
        """Return the value of message `i`; None is a tombstone."""
        return self._opened().value.get(self._place(i))

    def key(self, i: int) -> bytes | None:
        """Return the key of message `i`."""
        place, column = self._place(i), self._opened().key
        return None if column is None else column.get(place)

    def tag(self, i: int) -> str | None:
        """Return the tag of message `i`."""
        place, column = self._place(i), self._opened().tag
        return None if column is None else column.get(place)

    def headers(self, i: int) -> dict[str, bytes] | None:
        """Return the headers of message `i`."""
        place, column = self._place(i), self._opened().headers
        return None if column is None else _headers(column.get(place))

    def timestamp_ms(self, i: int) -> int:
        """Return the message time of message `i`."""
        place, times = self._place(i), self._opened().timestamps
        return self.head.first_timestamp_ms if times is None else int(times[place])

    def values(self) -> list[bytes | None]:
        """Return all values; the fast path."""
        return self._opened().value.get_all(self.first, self.first + self.count)

    def keys(self) -> list[bytes | None]:
        """Return all keys."""
        column = self._opened().key
        if column is None:
            return [None] * self.count
        return column.get_all(self.first, self.first + self.count)

    def tags(self) -> list[str | None]:
        """Return all tags; equal tags are one object."""
        column = self._opened().tag
        if column is None:
            return [None] * self.count
        return column.get_all(self.first, self.first + self.count)

    def all_headers(self) -> list[dict[str, bytes] | None]:
        """Return all headers."""
        column = self._opened().headers
        if column is None:
            return [None] * self.count
        return [_headers(each) for each in column.get_all(self.first, self.first + self.count)]

    def encoded_headers(self) -> list[bytes | None] | None:
        """Return all headers as stored, one msgpack map per message; None if no message has any."""
        column = self._opened().headers
        return None if column is None else column.get_all(self.first, self.first + self.count)

    def timestamps(self) -> list[int]:
        """Return all message times in ms."""
        times = self._opened().timestamps
        if times is None:
            return [self.head.first_timestamp_ms] * self.count
        return times[self.first : self.first + self.count].tolist()

    def parts(
        self,
    ) -> tuple[
        Iterable[int],
        Iterable[bytes | None],
        Iterable[bytes | None],
        Iterable[str | None],
        Iterable[dict[str, bytes] | None],
        Iterable[int],
    ]:
        """Return offsets, keys, values, tags, headers and times, to map a constructor over.

        Absent columns repeat without end: the offsets and the values end the iteration.
        """
        body = self._opened()
        return (
            range(self.base_offset, self.next_offset),
            repeat(None) if body.key is None else self.keys(),
            self.values(),
            repeat(None) if body.tag is None else self.tags(),
            repeat(None) if body.headers is None else self.all_headers(),
            repeat(self.head.first_timestamp_ms) if body.timestamps is None else self.timestamps(),
        )

    def some_parts(
        self, picked: bytes
    ) -> tuple[
        Iterable[int],
        Iterable[bytes | None],
        Iterable[bytes | None],
        Iterable[str | None],
        Iterable[dict[str, bytes] | None],
        Iterable[int],
    ]:
        """Return `parts` of the messages that `picked` selects, by a byte 1 for each.

        If most values and keys are not selected, they are not even cut out of the body.
        """
        if picked.count(1) * 2 > self.count:
            offsets, keys, values, tags, headers, times = self.parts()
            values, keys = compress(values, picked), compress(keys, picked)
        else:
            offsets, body = range(self.base_offset, self.next_offset), self._opened()
            places = list(compress(range(self.first, self.first + self.count), picked))
            values = body.value.get_some(places)
            keys = repeat(None) if body.key is None else body.key.get_some(places)
            tags = repeat(None) if body.tag is None else self.tags()
            headers = repeat(None) if body.headers is None else self.all_headers()
            times = repeat(self.head.first_timestamp_ms)
            if body.timestamps is not None:
                times = self.timestamps()
        rest = (compress(tags, picked), compress(headers, picked), compress(times, picked))
        return compress(offsets, picked), keys, values, *rest

    def iter_rows(self) -> Iterator[Row]:
        """Yield one `Row` per message."""
        return zip(*self.parts(), strict=False)

    def arrow_buffers(self) -> ArrowBuffers:
        """Return the buffers in Arrow's layout, without a copy unless the body was compressed."""
        body = self._opened()
        return ArrowBuffers(
            body.value.buffers(),
            None if body.key is None else body.key.buffers(),
            None if body.tag is None else body.tag.buffers(),
            None if body.headers is None else body.headers.buffers(),
            body.timestamps,
        )

    def _place(self, i: int) -> int:
        if not 0 <= i < self.count:
            raise IndexError(f"message {i} of a batch of {self.count}")
        return self.first + i

    def _opened(self) -> _Body:
        if self._body is None:
            body = _Body()
            for _ in body.read(self.head, _plain(self.head, self._batch)):
                pass
            self._body = body
        return self._body


def open_steps(head: BatchHead, batch: bytes | memoryview) -> Generator[None, None, Columns]:
    """Open a batch of messages in steps of a few milliseconds, and return its columns.

    Raises:
        DamagedBatch: The body is inconsistent.
    """
    stored = memoryview(batch)[HEAD_LENGTH : HEAD_LENGTH + head.stored_length]
    plain = yield from decompress_steps(head.codec, stored, head.plain_length)
    yield
    body = _Body()
    yield from body.read(head, plain)
    return Columns(head, batch, body=body)


def message_times(head: BatchHead, batch: bytes | memoryview) -> memoryview:
    """Return the message times of a batch that has a column of them, without a look at the others.

    Raises:
        DamagedBatch: the body is not one of its codec, or too short.
    """
    # This column is the last, and eight bytes need no padding.
    size = 8 * head.count
    body = _plain(head, batch)
    if size > len(body):
        text = f"batch is damaged: {size} bytes of times in a body of {len(body)}; encode it again"
        raise DamagedBatch(text)
    return body[len(body) - size :].cast("q")


def _plain(head: BatchHead, batch: bytes | memoryview) -> memoryview:
    stored = memoryview(batch)[HEAD_LENGTH : HEAD_LENGTH + head.stored_length]
    codec = head.codec
    if codec is Codec.NONE:
        return stored
    return memoryview(decompress(codec, stored, head.plain_length))


def _headers(encoded: bytes | None) -> dict[str, bytes] | None:
    if encoded is None:
        return None
    try:
        return _decode_headers(encoded)
    except UNDECODABLE as error:
        text = f"batch is damaged: headers are not a msgpack map: {error}; encode it again"
        raise DamagedBatch(text) from error
