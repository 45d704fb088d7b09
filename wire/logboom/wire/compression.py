"""The codecs of a batch body: none, LZ4 block, Zstandard frame.

The plain length is in the batch head, so no size inside the compressed bytes is trusted: output
never grows beyond the length that the caller gives. A Zstandard context serves one call at a time
and is expensive to create. Idle ones are kept in a list, whose pop and append are atomic, so that
threads never share one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from enum import IntEnum
from functools import partial
from typing import Final, TypeAlias

import lz4.block
import zstandard

from logboom.wire.errors import DamagedBatch, InvalidRequest

ZSTD_LEVEL: Final[int] = 3
"""Zstandard's default level; above it a Python producer waits for the compressor."""

LEAST_WINDOW: Final[int] = 8 * 1024 * 1024
"""Window of a Zstandard frame that is accepted for any body, in bytes: its usual levels have less."""

LEAST_OPENED: Final[int] = 128 * 1024
"""Bytes of a Zstandard frame that are decompressed at once: its largest block."""

STEP_BYTES: Final[int] = 512 * 1024
"""Bytes that one step of `decompress_steps` makes, in up to two milliseconds."""

_BLOCKS_AT_ONCE: Final[int] = 4
_BLOCKS_PER_STEP: Final[int] = 4_096

WIDEST_WINDOW: Final[int] = 128 * 1024 * 1024
"""Window up to which a Zstandard frame of unknown content is decompressed in steps, in bytes. It is
reserved, and used as far as there is content."""


Opener: TypeAlias = Callable[[Callable[[], bytes]], Generator[None, None, bytes]]
"""Makes a call elsewhere, in steps that wait for it, and returns its result."""


class _OpenerOfThread(threading.local):
    """What opens large LZ4 bodies for a thread; None: it opens them itself, at once."""

    opener: Opener | None = None


_of_thread = _OpenerOfThread()

_idle_compressors: list[zstandard.ZstdCompressor] = []
_idle_decompressors: list[zstandard.ZstdDecompressor] = []


class Codec(IntEnum):
    """The codec of a body, as in the lowest three attribute bits."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


def open_with(opener: Opener | None) -> None:
    """Let large LZ4 bodies that this thread opens in steps be opened by `opener`."""
    _of_thread.opener = opener


def codec_for(name: str) -> Codec:
    """Return the codec called "none", "lz4" or "zstd".

    Raises:
        InvalidRequest: No codec has this name.
    """
    try:
        return Codec[name.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise InvalidRequest(f"unknown compression {name!r}: use one of {known}") from None


def compress(codec: Codec, plain: bytes, lz4_speed: int = 1) -> bytes:
    """Return `plain` as `codec` stores it; the result may be longer than `plain`.

    Args:
        lz4_speed: LZ4's acceleration: 32 is four times as fast, and finds little but long repeats.
    """
    match codec:
        case Codec.NONE:
            return plain
        case Codec.LZ4:
            block: bytes = lz4.block.compress(
                plain, mode="fast", acceleration=lz4_speed, store_size=False
            )
            return block
        case Codec.ZSTD:
            return _zstd_compress(plain)


def decompress(codec: Codec, stored: bytes | memoryview, plain_length: int) -> bytes:
    """Return the `plain_length` bytes in `stored`; never allocates more than that.

    Raises:
        DamagedBatch: `stored` is not a whole block of the codec, or has another length.
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


def decompress_steps(
    codec: Codec, stored: bytes | memoryview, plain_length: int
) -> Generator[None, None, memoryview]:
    """Do what `decompress` does in steps, and return the bytes.

    A Zstandard frame takes a step for each `STEP_BYTES`. A larger LZ4 block cannot be cut: it is
    opened by the thread's opener (`open_with`), or at once if there is none, 4 ms a MiB at worst.

    Raises:
        DamagedBatch: as `decompress`.
    """
    if codec is Codec.NONE:
        return memoryview(stored)
    if codec is Codec.ZSTD and plain_length > STEP_BYTES and _may_stream(stored):
        return (yield from _zstd_steps(memoryview(stored), plain_length))
    opener = _of_thread.opener
    if codec is Codec.LZ4 and plain_length > STEP_BYTES and opener is not None:
        call = partial(decompress, codec, stored, plain_length)
        return memoryview((yield from opener(call)))
    return memoryview(decompress(codec, stored, plain_length))


def decompress_start(
    codec: Codec,
    stored: bytes | memoryview,
    plain_length: int,
    length: int,
    opens: Callable[[int], None],
) -> memoryview:
    """Return the first `length` of the `plain_length` bytes in `stored`, or more of them.

    `opens` is called with the number of bytes before they are decompressed, and may raise.

    Raises:
        DamagedBatch: `stored` is not of the codec, or too short.
    """
    if codec is Codec.NONE:
        return memoryview(stored)
    if codec is not Codec.ZSTD or 2 * length > plain_length:
        opens(plain_length)
        return memoryview(decompress(codec, stored, plain_length))
    # A frame may state a window beyond what it holds, for which memory would be taken.
    window = max(LEAST_WINDOW, plain_length)
    opens(max(length, LEAST_OPENED))
    try:
        with zstandard.ZstdDecompressor(max_window_size=window).stream_reader(stored) as reader:
            start = reader.read(length)
    except zstandard.ZstdError as error:
        text = f"batch body is not a Zstandard frame: {error}; encode it again"
        raise DamagedBatch(text) from error
    if len(start) < length:
        raise DamagedBatch(f"batch body ends after {len(start)} bytes: encode it again")
    return memoryview(start)


def _lz4(stored: bytes | memoryview, plain_length: int) -> bytes:
    try:
        plain: bytes = lz4.block.decompress(stored, uncompressed_size=plain_length)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise DamagedBatch(
            f"batch body is not an LZ4 block: {error}; fetch the batch again"
        ) from error
    return plain


def _zstd(stored: bytes | memoryview, plain_length: int) -> bytes:
    try:
        # A frame with a stated size is allocated by that size, whatever the limit is.
        stated = zstandard.get_frame_parameters(stored).content_size
        if stated not in (plain_length, zstandard.CONTENTSIZE_UNKNOWN):
            raise DamagedBatch(
                f"batch body states {stated} bytes, its head says {plain_length}: "
                "fetch the batch again"
            )
        return _zstd_decompress(stored, plain_length)
    except zstandard.ZstdError as error:
        text = f"batch body is not a Zstandard frame: {error}; fetch the batch again"
        raise DamagedBatch(text) from error


def _may_stream(stored: bytes | memoryview) -> bool:
    """Return True if a frame can be decompressed in steps with bounded memory."""
    try:
        frame = zstandard.get_frame_parameters(stored)
    except zstandard.ZstdError:
        return False
    if bytes(stored[:4]) != zstandard.FRAME_HEADER:
        return False
    return frame.content_size != zstandard.CONTENTSIZE_UNKNOWN or frame.window_size <= WIDEST_WINDOW


def _zstd_steps(stored: memoryview, plain_length: int) -> Generator[None, None, memoryview]:
    """Decompress a frame some blocks at a time, as they follow each other in it."""
    frame = zstandard.get_frame_parameters(stored)
    context = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
    plain = memoryview(bytearray(plain_length))
    at, begin, blocks, made, paused = zstandard.frame_header_size(stored), 0, 0, 0, 0
    last = False
    try:
        while not last:
            header = int.from_bytes(stored[at : at + 3], "little")
            last = bool(header & 1)
            # A block of one repeated byte holds that only, whatever its size.
            at += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
            if last and frame.has_checksum:
                at += 4
            if at > len(stored):
                raise _not_a_frame(plain_length)
            blocks += 1
            if not last and blocks % _BLOCKS_AT_ONCE:
                continue
            piece = context.decompress(stored[begin:at])
            begin = at
            if made + len(piece) > plain_length:
                raise _not_a_frame(plain_length)
            plain[made : made + len(piece)] = piece
            made += len(piece)
            if made - paused >= STEP_BYTES or blocks % _BLOCKS_PER_STEP == 0:
                paused = made
                yield
    except zstandard.ZstdError as error:
        text = f"batch body is not a Zstandard frame: {error}; fetch the batch again"
        raise DamagedBatch(text) from error
    if made != plain_length or at != len(stored) or not context.eof:
        raise _not_a_frame(plain_length)
    return plain.toreadonly()


def _not_a_frame(plain_length: int) -> DamagedBatch:
    text = f"batch body is not one Zstandard frame of {plain_length} bytes: fetch the batch again"
    return DamagedBatch(text)


def _zstd_compress(plain: bytes) -> bytes:
    try:
        context = _idle_compressors.pop()
    except IndexError:
        context = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    block = context.compress(plain)
    _idle_compressors.append(context)
    return block


def _zstd_decompress(stored: bytes | memoryview, plain_length: int) -> bytes:
    try:
        context = _idle_decompressors.pop()
    except IndexError:
        context = zstandard.ZstdDecompressor()
    plain = context.decompress(stored, max_output_size=plain_length, allow_extra_data=False)
    _idle_decompressors.append(context)
    return plain
