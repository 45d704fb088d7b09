"""The encoding of columns into a batch body: sequences in, Arrow-shaped pieces out.

Every piece is padded to 8 bytes, so that each buffer is 8-byte aligned in the body. The offsets of
values of equal length come from a table and are not summed up for every batch.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import key_summary, tag_summary
from logboom.wire.head import MAX_BODY, Attribute

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

if sys.byteorder != "little":
    raise ImportError("logboom.wire lays out buffers little endian: run it on such a machine")

TABLE_LIMIT: Final[int] = 65_536
"""Maximum length of columns that use the table of even offsets, which bounds its memory."""

_PADDING: Final = tuple(bytes(length) for length in range(8))
_encode_headers: Final = msgspec.msgpack.Encoder().encode


class PackedColumns(NamedTuple):
    """One or more columns, ready to be joined into a body."""

    parts: list[bytes]
    attributes: int
    tag_summary: int = 0
    key_summary: int = 0


def pack_values(values: Sequence[bytes | None]) -> PackedColumns:
    """Pack the values column; None is a tombstone."""
    parts, nulls = _binary(values, "values")
    return PackedColumns(parts, Attribute.NULL_VALUES if nulls else 0)


def pack_keys(keys: Sequence[bytes | None]) -> PackedColumns:
    """Pack the keys column with its summary; nothing if no message has a key."""
    if keys[0] is None and keys.count(None) == len(keys):
        return PackedColumns([], 0)
    parts, nulls = _binary(keys, "keys")
    attributes = Attribute.KEYS | (Attribute.NULL_KEYS if nulls else 0)
    return PackedColumns(parts, attributes, key_summary=key_summary(keys))


def pack_tags(tags: Sequence[str | None]) -> PackedColumns:
    """Pack the dictionary-encoded tags with their summary; nothing if no message has a tag."""
    places: dict[str | None, int] = dict.fromkeys(tags, 0)
    nulls = None in places
    distinct = [tag for tag in places if tag is not None]
    if not distinct:
        return PackedColumns([], 0)
    places.update({tag: place for place, tag in enumerate(distinct)})
    try:
        dictionary, _ = _binary([tag.encode() for tag in distinct], "tags")
        summary = tag_summary(distinct)
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"tags must be text that UTF-8 can hold: {error}") from error
    parts = [len(distinct).to_bytes(8, "little")]
    if nulls:
        parts.append(_validity(tags))
    indices = array("i", map(places.__getitem__, tags)).tobytes()
    parts += [indices, _padding(len(indices)), *dictionary]
    attributes = Attribute.TAGS | (Attribute.NULL_TAGS if nulls else 0)
    return PackedColumns(parts, attributes, tag_summary=summary)


def pack_headers(headers: Sequence[Mapping[str, bytes] | None]) -> PackedColumns:
    """Pack the headers column, one msgpack map per message; nothing if no message has headers."""
    if headers[0] is None and headers.count(None) == len(headers):
        return PackedColumns([], 0)
    encoded: list[bytes | None] = []
    last, packed = None, None
    for each in headers:
        if each is not last:  # messages that were sent together often share one map
            last, packed = each, None if each is None else _headers(each)
        encoded.append(packed)
    parts, nulls = _binary(encoded, "headers")
    return PackedColumns(parts, Attribute.HEADERS | (Attribute.NULL_HEADERS if nulls else 0))


def pack_timestamps(timestamps_ms: Sequence[int]) -> PackedColumns:
    """Pack the timestamps column."""
    try:
        return PackedColumns([array("q", timestamps_ms).tobytes()], Attribute.TIMESTAMPS)
    except (TypeError, OverflowError) as error:
        text = f"timestamps_ms must be whole milliseconds of 64 bits: {error}"
        raise InvalidRequest(text) from error


def even_offsets(width: int, count: int) -> bytes:
    """Return the offsets of `count` values of `width` bytes.

    `count` is at most TABLE_LIMIT, and the product at most MAX_BODY.
    """
    return _even_table(width, count.bit_length())[: 4 * (count + 1)]


@lru_cache(maxsize=16)
def _even_table(width: int, bits: int) -> bytes:
    # One table serves all counts of the same bit length: a producer's batches vary in count.
    if width == 0:
        return bytes(4 << bits)
    return array("i", range(0, width << bits, width)).tobytes()


def _binary(items: Sequence[bytes | None], field: str) -> tuple[list[bytes], bool]:
    """Return padded validity (if an item is None), offsets and blob; and True with nulls."""
    try:
        # Joining is the cheapest way to find out that no item is None.
        return _offsets_and_blob(items, field), False
    except TypeError as error:
        if None not in items:
            raise InvalidRequest(f"{field} must be bytes or None: {error}") from error
    present = [b"" if item is None else item for item in items]
    try:
        return [_validity(items), *_offsets_and_blob(present, field)], True
    except TypeError as error:
        raise InvalidRequest(f"{field} must be bytes or None: {error}") from error


def _offsets_and_blob(items: Sequence[bytes | None], field: str) -> list[bytes]:
    count = len(items)
    blob = b"".join(items)  # type: ignore[arg-type]  # TypeError on None is what _binary awaits
    lengths = list(map(len, items))  # type: ignore[arg-type]  # none is None any more
    check_body_length(len(blob))
    width = lengths[0]
    if count <= TABLE_LIMIT and width * count == len(blob) and lengths.count(width) == count:
        offsets = even_offsets(width, count)
    else:
        ends = list(accumulate(lengths, initial=0))
        if ends[-1] != len(blob):  # a memoryview whose items are wider than a byte
            raise InvalidRequest(f"{field} must be bytes: a view of wider items was given")
        offsets = array("i", ends).tobytes()
    return [offsets, _padding(len(offsets)), blob, _padding(len(blob))]


def check_body_length(length: int) -> None:
    """Refuse a body that is too large.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    if length > MAX_BODY:
        text = f"a batch holds at most {MAX_BODY} bytes, this one {length}: send smaller batches"
        raise InvalidRequest(text, "TOO_LARGE")


def _validity(items: Sequence[object]) -> bytes:
    """Return Arrow's bitmap: bit i % 8 of byte i // 8 is set if item i is not None; padded."""
    bits = "".join(["0" if item is None else "1" for item in reversed(items)])
    return int(bits, 2).to_bytes(-(-len(items) // 64) * 8, "little")


def padded(piece: bytes) -> tuple[bytes, bytes]:
    """Return a piece of a body, and the padding after it."""
    return piece, _padding(len(piece))


def _padding(length: int) -> bytes:
    return _PADDING[-length % 8]


def _headers(headers: Mapping[str, bytes]) -> bytes:
    plain = dict(headers)
    for name, content in plain.items():
        if type(name) is not str or type(content) is not bytes:
            raise InvalidRequest(f"headers map text to bytes, not {name!r} to {content!r:.40}")
    try:
        return _encode_headers(plain)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"header names must be text that UTF-8 can hold: {error}") from error
