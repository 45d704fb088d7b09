"""Types and sizes of a single message, checked before it shares a batch with others."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf, isnan
from typing import TypeAlias

from logboom.wire.errors import InvalidRequest
from logboom.wire.packing import pack_headers

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""Types of a value or a key; all but bytes are copied."""


def as_bytes(given: object, field: str) -> bytes:
    """Convert another bytes-like object to bytes.

    Raises:
        InvalidRequest: the type is wrong.
    """
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    kind = type(given).__name__
    hint = ": encode it, e.g. text.encode()" if isinstance(given, str) else ""
    raise InvalidRequest(f"a {field} must be bytes, not {kind}{hint}")


def check_seconds(given: object, field: str, *, endless: bool = False) -> None:
    """Check a time-out, which the client's thread reckons with.

    Raises:
        InvalidRequest: it is no number; or it is infinite, unless it may be `endless`.
    """
    if not isinstance(given, (int, float)) or isnan(given) or (isinf(given) and not endless):
        raise InvalidRequest(f"{field} must be a number of seconds, not {given!r:.80}")


def check_extras(
    tag: str | None, headers: Mapping[str, bytes] | None, timestamp_ms: int | None
) -> int:
    """Check tag, headers and time, and return the bytes of tag and headers.

    One bad message must not spoil the batch that others share.

    Raises:
        InvalidRequest: a batch cannot hold them.
    """
    size = 0
    if tag is not None:
        if not isinstance(tag, str):
            raise InvalidRequest(f"a tag must be text, not {type(tag).__name__}")
        try:
            size += len(tag.encode())
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"a tag must be text that UTF-8 can encode: {error}") from error
    if headers is not None:
        size += sum(map(len, pack_headers([headers]).parts))
    if timestamp_ms is not None and (
        type(timestamp_ms) is not int or not -(1 << 63) <= timestamp_ms < 1 << 63
    ):
        raise InvalidRequest(
            f"timestamp_ms must be whole milliseconds of 64 bits: {timestamp_ms!r}"
        )
    return size


def check_size(topic: str, largest: int, size: int) -> None:
    """Raise the error of a message that exceeds the topic's limit.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    if size > largest:
        text = (
            f"message of {size} bytes; topic {topic!r} takes at most {largest} "
            "(value, key and headers): raise its max_message_bytes, or split the message"
        )
        raise InvalidRequest(text, "TOO_LARGE", limit=largest)
