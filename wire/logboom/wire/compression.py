"""The codecs of a batch body: none, LZ4 block, Zstandard frame.

The plain length stands in the batch head, so nothing here trusts a size that is written inside
the compressed bytes: output never grows past the length that the caller states (SAFETY W3).
Compressors are not safe to share, so each thread keeps its own.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import Final

import lz4.block
import zstandard

from logboom.wire.errors import DamagedBatch, InvalidRequest

ZSTD_LEVEL: Final[int] = 3
"""Zstandard's own default; above it a Python producer waits for the compressor."""


class Codec(IntEnum):
    """How a body is stored; the number travels in the lowest three attribute bits."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


def codec_for(name: str) -> Codec:
    """The codec called "none", "lz4" or "zstd".

    Raises:
        InvalidRequest: no codec has this name.
    """
    try:
        return Codec[name.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise InvalidRequest(f"unknown compression {name!r}: use one of {known}") from None


def compress(codec: Codec, plain: bytes) -> bytes:
    """`plain` as `codec` stores it; the result may be longer than `plain`."""
    match codec:
        case Codec.NONE:
            return plain
        case Codec.LZ4:
            block: bytes = lz4.block.compress(plain, store_size=False)
            return block
        case Codec.ZSTD:
            return _compressor().compress(plain)


def decompress(codec: Codec, stored: bytes | memoryview, plain_length: int) -> bytes:
    """The `plain_length` bytes that `stored` holds; never allocates more than that.

    Raises:
        DamagedBatch: `stored` is no whole block of the codec, or holds another length.
    """
    match codec:
        case Codec.NONE:
            plain = bytes(stored)
        case Codec.LZ4:
            plain = _lz4(stored, plain_length)
        case Codec.ZSTD:
            plain = _zstd(stored, plain_length)
    if len(plain) != plain_length:
        raise DamagedBatch(
            f"batch body decompressed to {len(plain)} bytes, its head says {plain_length}: "
            "fetch the batch again"
        )
    return plain


def _lz4(stored: bytes | memoryview, plain_length: int) -> bytes:
    try:
        plain: bytes = lz4.block.decompress(stored, uncompressed_size=plain_length)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise DamagedBatch(f"batch body is no LZ4 block: {error}; fetch the batch again") from error
    return plain


def _zstd(stored: bytes | memoryview, plain_length: int) -> bytes:
    try:
        # A frame that states its size is allocated by that size, whatever the limit says.
        stated = zstandard.get_frame_parameters(stored).content_size
        if stated not in (plain_length, zstandard.CONTENTSIZE_UNKNOWN):
            raise DamagedBatch(
                f"batch body states {stated} bytes, its head says {plain_length}: "
                "fetch the batch again"
            )
        return _decompressor().decompress(
            stored, max_output_size=plain_length, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        text = f"batch body is no Zstandard frame: {error}; fetch the batch again"
        raise DamagedBatch(text) from error


_local = threading.local()


def _compressor() -> zstandard.ZstdCompressor:
    made: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if made is None:
        made = _local.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    return made


def _decompressor() -> zstandard.ZstdDecompressor:
    made: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if made is None:
        made = _local.decompressor = zstandard.ZstdDecompressor()
    return made
