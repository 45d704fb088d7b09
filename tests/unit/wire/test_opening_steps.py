"""Large batches are opened in steps: none lasts, and what is opened or refused is the same as at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeVar

import pytest
import zstandard

from logboom.nodes.body_worker import opening_beside
from logboom.wire.batch import encode_batch, open_batch, peek
from logboom.wire.columns import open_steps
from logboom.wire.compression import STEP_BYTES, Codec, decompress, decompress_steps
from logboom.wire.errors import DamagedBatch
from tests.unit.wire.slow_blocks import slow_batch
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
LARGEST: Final = 65_536
"""Messages of a batch that a producer may send."""
SIZE: Final = 8 << 20
"""Bytes that it opens to."""
T = TypeVar("T")


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others(), opening_beside():
        yield


def finish(steps: Generator[None, None, T]) -> T:
    """All steps, and what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: T = ended.value
            return found


def random_text(size: int) -> bytes:
    """Text that is slow to decompress."""
    return bytes(random.Random(1).choices(b"abcdefgh", k=size))


def columns_of_all_kinds() -> bytes:
    """Every column, none of them even, and each tag another one."""
    span = range(LARGEST)
    return encode_batch(
        [b"%d" % (n * 7 % 1_001) if n % 9 else None for n in span],
        [b"%0*d" % (20 + n % 5, n) if n % 5 else None for n in span],
        [f"t{n}" if n % 3 else f"\u00e9{n}" for n in span],
        [{"a": b"%d" % n} if n % 3 else None for n in span],
        list(span),
        now_ms=1,
        codec="zstd",
    )


WORST: Final[dict[str, Callable[[], bytes]]] = {
    "all columns": columns_of_all_kinds,
    "long keys": lambda: encode_batch(
        [b""] * LARGEST,
        [b"%0*d" % (100 + n % 5, n) for n in range(LARGEST)],
        now_ms=1,
        codec="zstd",
    ),
    "large messages": lambda: encode_batch(
        [random_text(SIZE // 2)] * 2, [b"a", b"b"], now_ms=1, codec="zstd"
    ),
    "text": lambda: encode_batch([random_text(SIZE)], [b"a"], now_ms=1, codec="zstd"),
    "zeros": lambda: encode_batch([bytes(SIZE)], [b"a"], now_ms=1, codec="zstd"),
    "text with LZ4": lambda: encode_batch([random_text(SIZE)], [b"a"], now_ms=1, codec="lz4"),
    "sequences of LZ4": lambda: slow_batch(SIZE),
}


@pytest.mark.parametrize("case", WORST)
def test_no_step_lasts(case: str) -> None:
    batch = WORST[case]()
    head = peek(batch)

    def begin() -> Callable[[], bool]:
        steps = open_steps(head, batch)
        return lambda: next(steps, 0) is None

    assert longest_ms(begin, MOST_MS) <= MOST_MS
    assert finish(open_steps(head, batch)).keys() == open_batch(batch).keys()


def test_columns_are_those_of_the_whole() -> None:
    batch = columns_of_all_kinds()
    opened = finish(open_steps(peek(batch), batch))
    assert [*opened.iter_rows()] == [*open_batch(batch).iter_rows()]


def opened(stored: bytes, length: int) -> bytes | None:
    """What is decompressed in steps; None if that is damaged."""
    try:
        return bytes(finish(decompress_steps(Codec.ZSTD, stored, length)))
    except DamagedBatch:
        return None


def opened_at_once(stored: bytes, length: int) -> bytes | None:
    try:
        return decompress(Codec.ZSTD, stored, length)
    except DamagedBatch:
        return None


PLAIN: Final = random_text(STEP_BYTES // 2) + bytes(STEP_BYTES) + random_text(STEP_BYTES // 4)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("sized", [False, True])
def test_frames_are_refused_in_steps_as_they_are_at_once(*, checksum: bool, sized: bool) -> None:
    rng = random.Random(2)
    level = 1
    compressor = zstandard.ZstdCompressor(level, write_checksum=checksum, write_content_size=sized)
    frame = compressor.compress(PLAIN)
    size = len(PLAIN)
    assert opened(frame, size) == PLAIN
    tried = [(frame, size - 1), (frame, size + 1), (frame + b"\0", size), (frame + frame, size)]
    tried += [(frame + frame, 2 * size), (b"", size), (frame[: len(frame) // 2], size)]
    tried += [(frame[:-cut], size) for cut in (1, 2, 3, 4, 5, 6, 7)]
    tried += [(b"\x50\x2a\x4d\x18\0\0\0\0" + frame, size), (b"\0\0\0\0" + frame, size)]
    for place in [*range(20), *(rng.randrange(len(frame)) for _ in range(40)), -1, -2, -3, -4, -5]:
        spoilt = bytearray(frame)
        spoilt[place] ^= 1 << rng.randrange(8)
        tried.append((bytes(spoilt), size))
    for stored, length in tried:
        assert opened(stored, length) == opened_at_once(stored, length)


def test_a_frame_of_empty_blocks_is_opened_in_steps() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    frame = compressor.compress(PLAIN)
    start = zstandard.frame_header_size(frame)
    stored = frame[:start] + bytes(3) * 200_000 + frame[start:]
    assert opened(stored, len(PLAIN)) == opened_at_once(stored, len(PLAIN)) == PLAIN

    def begin() -> Callable[[], bool]:
        steps = decompress_steps(Codec.ZSTD, stored, len(PLAIN))
        return lambda: next(steps, 0) is None

    assert longest_ms(begin, MOST_MS) <= MOST_MS
