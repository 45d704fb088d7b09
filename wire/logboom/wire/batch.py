"""The batch: what a client builds, a broker stamps and stores, and a reader takes apart.

All numbers are little endian. One entry of a queue's log is:

| at | bytes | field             | type | meaning                                                |
|---:|------:|-------------------|------|--------------------------------------------------------|
|  0 |     8 | base offset       | u64  | *stamped head*: zero until a broker stores the batch   |
|  8 |     4 | leader epoch      | u32  |                                                        |
| 12 |     8 | append time       | i64  | ms since 1970 UTC, the leader's clock                  |
| 20 |     4 | stamp crc         | u32  | crc32c of bytes 0..19                                  |
| 24 |     3 | magic             |      | *head*: `LGB`                                          |
| 27 |     1 | version           | u8   | 1                                                      |
| 28 |     4 | crc               | u32  | crc32c of bytes 32..end, as stored (SAFETY W2)         |
| 32 |     2 | attributes        | u16  | codec and column bits, `head.Attribute`                |
| 34 |     1 | kind              | u8   | 0 messages, else a control entry's `head.Kind`         |
| 35 |     1 | reserved          | u8   | 0                                                      |
| 36 |     4 | count             | u32  | messages, ≤ 1,048,576; 0 in a control entry but LOST   |
| 40 |     8 | producer id       | i64  | -1: not idempotent                                     |
| 48 |     4 | producer epoch    | i32  | -1: not idempotent                                     |
| 52 |     4 | base sequence     | i32  | -1: not idempotent                                     |
| 56 |     8 | first timestamp   | i64  | message time of the first message, ms since 1970       |
| 64 |     8 | max timestamp     | i64  | the greatest message time                              |
| 72 |     8 | tag summary       | u64  | `hashing.tag_mask` of every tag, or-ed                 |
| 80 |     8 | key summary       | u64  | `hashing.key_mask` of every key, or-ed                 |
| 88 |     4 | stored length     | u32  | body bytes as stored, ≤ 64 MiB                         |
| 92 |     4 | plain length      | u32  | body bytes after decompression, ≤ 64 MiB (SAFETY W3)   |
| 96 |       | body              |      | columns (`logboom.wire.columns`), or a control's bytes |

docs/PROTOCOL.md, chapter 4, says the same for writers of other clients.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TypeVar

from logboom.wire.columns import Columns
from logboom.wire.compression import Codec, codec_for, compress, decompress
from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import tag_mask
from logboom.wire.head import (
    CRC_START,
    EMPTY_STAMP,
    HEAD_LENGTH,
    MAGIC,
    MAX_BODY,
    MAX_COUNT,
    NO_PRODUCER,
    PREFIX,
    RELEASED_FROM,
    STAMP,
    STAMP_LENGTH,
    TAIL,
    VERSION,
    Attribute,
    BatchHead,
    ControlKind,
    peek,
)
from logboom.wire.packing import (
    PackedColumns,
    check_body_length,
    pack_headers,
    pack_keys,
    pack_tags,
    pack_timestamps,
    pack_values,
)
from logboom.wire.validation import check_fields, crc32c, damaged, extend, validate_batch

__all__ = [
    "HEAD_LENGTH",
    "MAX_BODY",
    "MAX_COUNT",
    "NO_PRODUCER",
    "STAMP_LENGTH",
    "Attribute",
    "BatchHead",
    "Columns",
    "ControlKind",
    "control_body",
    "control_view",
    "encode_batch",
    "encode_control",
    "encode_lost",
    "may_contain_tag",
    "open_batch",
    "peek",
    "release",
    "released_from",
    "set_producer",
    "stamp",
    "tag_mask",
    "validate_batch",
]

_PRODUCER = struct.Struct("<qii")
_PRODUCER_AT = 40
_ATTRIBUTES = struct.Struct("<H")
_Column = TypeVar("_Column", bound=Sequence[object])


def encode_batch(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    tags: str | Sequence[str | None] | None = None,
    headers: Sequence[Mapping[str, bytes] | None] | None = None,
    timestamps_ms: int | Sequence[int] | None = None,
    *,
    now_ms: int,
    codec: str = "none",
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_PRODUCER,
    base_sequence: int = NO_PRODUCER,
    lz4_speed: int = 1,
) -> bytes:
    """Encode a batch with an empty stamped head.

    Args:
        values: one per message; None is a tombstone.
        tags: one per message, or one text for all.
        timestamps_ms: message times, or one for all; None means `now_ms` for all.
        codec: "none", "lz4" or "zstd"; a body that would not shrink is stored plain.
        lz4_speed: see `compression.compress`.

    Raises:
        InvalidRequest: no messages, columns of unequal length, a wrong type, or TOO_LARGE.
    """
    count = len(values)
    if count == 0:
        raise InvalidRequest("a batch needs at least one message")
    if count > MAX_COUNT:
        text = f"a batch holds at most {MAX_COUNT} messages, not {count}: send smaller batches"
        raise InvalidRequest(text, "TOO_LARGE")
    columns = [pack_values(values)]
    if keys is not None:
        columns.append(pack_keys(_sized(keys, count, "keys")))
    if tags is not None:
        spread = list(repeat(tags, count)) if isinstance(tags, str) else tags
        columns.append(pack_tags(_sized(spread, count, "tags")))
    if headers is not None:
        columns.append(pack_headers(_sized(headers, count, "headers")))
    first_ms = max_ms = now_ms
    if isinstance(timestamps_ms, int):
        first_ms = max_ms = timestamps_ms
    elif timestamps_ms is not None:
        times = _sized(timestamps_ms, count, "timestamps_ms")
        columns.append(pack_timestamps(times))
        first_ms, max_ms = times[0], max(times)
    producer = (producer_id, producer_epoch, base_sequence)
    return assemble(columns, count, codec_for(codec), producer, (first_ms, max_ms), lz4_speed)


def assemble(
    columns: list[PackedColumns],
    count: int,
    codec: Codec,
    producer: tuple[int, int, int],
    times: tuple[int, int],
    lz4_speed: int = 1,
) -> bytes:
    """Return the whole entry: head and body, with the body's pieces joined once.

    Args:
        producer: Its id, epoch and base sequence.
        times: Message times in ms, of the first message and the greatest.
        lz4_speed: see `compression.compress`.
    """
    parts: list[bytes] = []
    attributes = tags = keys = 0
    for column in columns:
        parts += column.parts
        attributes |= column.attributes
        tags |= column.tag_summary
        keys |= column.key_summary
    plain_length = sum(map(len, parts))
    check_body_length(plain_length)
    stored_length = plain_length
    if codec is not Codec.NONE:
        stored = compress(codec, b"".join(parts), lz4_speed)
        if len(stored) < plain_length:
            parts, stored_length = [stored], len(stored)
            attributes |= codec
    lengths = (stored_length, plain_length)
    return _entry(parts, (attributes, 0, 0, count, *producer, *times, tags, keys, *lengths))


def _entry(parts: list[bytes], fields: tuple[int, ...]) -> bytes:
    try:
        tail = TAIL.pack(*fields)
    except struct.error as error:
        text = f"a batch field is out of its range: {error} (producer id, epoch, time in ms)"
        raise InvalidRequest(text) from error
    crc = crc32c(tail)
    for part in parts:
        crc = extend(crc, part)
    return b"".join((EMPTY_STAMP, PREFIX.pack(MAGIC, VERSION, crc), tail, *parts))


def encode_control(kind: ControlKind, body: bytes) -> bytes:
    """Encode a control entry with an empty stamped head; `body` is opaque here.

    Raises:
        InvalidRequest: The entry is too large, or the kind takes offsets.
    """
    if kind in (ControlKind.MESSAGES, ControlKind.LOST):
        raise InvalidRequest("a control entry needs a control kind: use encode_batch for messages")
    check_body_length(len(body))
    nobody = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)
    lengths = (len(body), len(body))
    return _entry([body], (Attribute.CONTROL, kind, 0, 0, *nobody, 0, 0, 0, 0, *lengths))


def encode_lost(count: int) -> bytes:
    """Encode an entry that stands for `count` lost messages, with an empty stamped head.

    Its message times precede all others, so that no search for a time ends here.

    Raises:
        InvalidRequest: The count is not between 1 and `MAX_COUNT`.
    """
    if not 1 <= count <= MAX_COUNT:
        raise InvalidRequest(f"an entry stands for 1 to {MAX_COUNT} lost messages, not {count}")
    nobody = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)
    times = (-(1 << 63), -(1 << 63))
    return _entry([], (Attribute.CONTROL, ControlKind.LOST, 0, count, *nobody, *times, 0, 0, 0, 0))


def set_producer(
    batch: bytes | memoryview, producer_id: int, producer_epoch: int, base_sequence: int
) -> bytes:
    """Return the same batch with another producer id, epoch and sequence, and a new checksum."""
    changed = bytearray(batch)
    try:
        _PRODUCER.pack_into(changed, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    except struct.error as error:
        raise InvalidRequest(f"the producer does not fit the batch head: {error}") from error
    crc = crc32c(memoryview(changed)[CRC_START:])
    PREFIX.pack_into(changed, STAMP_LENGTH, MAGIC, VERSION, crc)
    return bytes(changed)


def release(batch: bytes | memoryview, offset: int, side: int) -> bytes:
    """Return the batch as the leader appends it on release, with the position of the parked entry.

    Whoever applies it removes that parked entry, exactly once in spite of crashes.

    Raises:
        InvalidRequest: The batch was released before, or is a control entry.
    """
    head = peek(batch)
    if head.attributes & (Attribute.RELEASED | Attribute.CONTROL):
        raise InvalidRequest("only a parked batch of messages can be released, and once")
    tail = bytearray(batch[CRC_START:HEAD_LENGTH])
    _ATTRIBUTES.pack_into(tail, 0, head.attributes | Attribute.RELEASED)
    body, trailer = bytes(batch[HEAD_LENGTH:]), RELEASED_FROM.pack(offset, side)
    crc = extend(extend(crc32c(tail), body), trailer)
    return b"".join((EMPTY_STAMP, PREFIX.pack(MAGIC, VERSION, crc), tail, body, trailer))


def released_from(
    batch: bytes | memoryview, head: BatchHead | None = None
) -> tuple[int, int] | None:
    """Return the position (offset, side) of the parked entry that this batch was, or None."""
    head = _whole(batch, head)
    if not head.has(Attribute.RELEASED):
        return None
    offset, side = RELEASED_FROM.unpack_from(batch, HEAD_LENGTH + head.stored_length)
    return offset, side


def stamp(
    batch: bytes | memoryview, base_offset: int, leader_epoch: int, append_time_ms: int
) -> bytes:
    """Return the batch with its stamped head, the only part that a broker writes, in one copy."""
    head = STAMP.pack(base_offset, leader_epoch, append_time_ms)
    crc = crc32c(head).to_bytes(4, "little")
    return b"".join((head, crc, memoryview(batch)[STAMP_LENGTH:]))


def open_batch(batch: bytes | memoryview, head: BatchHead | None = None) -> Columns:
    """Return the columns of a batch; decompression waits for the first access.

    Checksums are left to `validate_batch`. Without it a damaged body may be read as other messages,
    but only DamagedBatch is ever raised.

    Args:
        head: Result of `validate_batch` or `peek`, if there is one already.

    Raises:
        DamagedBatch: Immediately for a wrong length or a control entry, and on first access for a
            body with inconsistent columns.
    """
    head = _whole(batch, head)
    if head.is_control:
        raise damaged("a control entry has no columns", "use control_body")
    return Columns(head, batch)


def control_body(batch: bytes | memoryview, head: BatchHead | None = None) -> bytes:
    """Return the opaque bytes of a control entry.

    Raises:
        DamagedBatch: The length is wrong, or the entry is a batch of messages.
    """
    head = _whole(batch, head)
    if not head.is_control:
        raise damaged("a batch of messages has no control body", "use open_batch")
    return decompress(Codec.NONE, batch[HEAD_LENGTH:], head.plain_length)


def control_view(entry: bytes) -> memoryview:
    """Return a view of the bytes of a control entry that was checked, without a copy."""
    return memoryview(entry)[HEAD_LENGTH:]


def split_entries(content: bytes | memoryview) -> Iterator[memoryview]:
    """Yield entries that follow one after the other, by the lengths in their heads.

    Raises:
        DamagedBatch: the lengths do not add up.
    """
    view = memoryview(content)
    at = 0
    while at < len(view):
        length = peek(view[at : at + HEAD_LENGTH]).length
        if at + length > len(view):
            raise damaged("an entry is longer than its block", "read it again")
        yield view[at : at + length]
        at += length


def may_contain_tag(head: BatchHead, tags: Collection[str]) -> bool:
    """Return True if the batch may hold a message with one of `tags`; False is certain."""
    summary = head.tag_summary
    return any(summary & mask == mask for mask in map(tag_mask, tags))


def _whole(batch: bytes | memoryview, head: BatchHead | None) -> BatchHead:
    head = peek(batch) if head is None else head
    if len(batch) != head.length or head.plain_length > MAX_BODY:
        raise damaged(f"{len(batch)} bytes, its head says {head.length}", "fetch it again")
    check_fields(head)
    return head


def _sized(column: _Column, count: int, field: str) -> _Column:
    if len(column) != count:
        raise InvalidRequest(f"{len(column)} {field} for {count} values: give one per message")
    return column
