"""LZ4 blocks that are made to take long: all their sequences are as short and as near as they may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from unittest import mock

from logboom.wire import batch as batches
from logboom.wire.compression import Codec

_RUN: Final = b"abc"
_MATCH: Final = b"\x00\x03\x00"
"""No literals, and four bytes that begin three before: the slowest that there is, some 4 ms for a MiB."""


def run(size: int) -> bytes:
    """Content of which `slow_block` makes such sequences."""
    return _RUN * (size // len(_RUN))


def slow_block(plain: bytes) -> bytes:
    """An LZ4 block of what holds nothing but one `run` and little around it."""
    first = plain.index(_RUN * 4) + len(_RUN)
    matches = (plain.rindex(_RUN * 4) - first) // 4
    assert matches > 0
    rest = plain[first + 4 * matches :]
    start = _literals(plain[:first])
    return start + b"\x03\x00" + _MATCH * (matches - 1) + _literals(rest)


def _literals(content: bytes) -> bytes:
    """A sequence of these literals, whose match has four bytes if there is one."""
    more = len(content) - 15
    assert more >= 0
    return b"\xf0" + b"\xff" * (more // 255) + bytes([more % 255]) + content


def slow_batch(size: int, headers: Sequence[dict[str, bytes] | None] | None = None) -> bytes:
    """A batch of two messages with keys whose values together are such a run."""

    def compress(codec: Codec, plain: bytes, lz4_speed: int) -> bytes:
        assert codec is Codec.LZ4
        assert lz4_speed
        return slow_block(plain)

    with mock.patch.object(batches, "compress", compress):
        keys = [b"a", b"b"]
        return batches.encode_batch(
            [run(size // 2)] * 2, keys, headers=headers, now_ms=1, codec="lz4"
        )
