"""Where the last whole record of a RocksDB log ends."""

from __future__ import annotations

import pytest

from logboom.wire.rocksdb_log import (
    BLOCK,
    FIRST,
    FRAGMENT,
    LAST,
    MIDDLE,
    WHOLE,
    masked,
    torn_from,
)
from logboom.wire.validation import crc32c


def appended(log: bytes, record: bytes) -> bytes:
    """The log with one more record, in as many fragments as the ends of blocks ask for."""
    first = True
    while True:
        left = BLOCK - len(log) % BLOCK
        if left < FRAGMENT.size:
            log += bytes(left)
            left = BLOCK
        piece = record[: left - FRAGMENT.size]
        record = record[len(piece) :]
        kind = (WHOLE if first else LAST) if not record else FIRST if first else MIDDLE
        checked = bytes([kind]) + piece
        log += FRAGMENT.pack(masked(crc32c(checked)), len(piece), kind) + piece
        first = False
        if not record:
            return log


SIZES = (10, 0, 300, 2 * BLOCK, BLOCK - 400, 100, 5)


def test_whole_records_are_not_torn_and_neither_are_zeros_behind_them() -> None:
    log = b""
    for size in SIZES:
        log = appended(log, b"r" * size)
        assert torn_from(log) is None
        assert torn_from(log + bytes(5000)) is None


@pytest.mark.parametrize("last", range(len(SIZES)))
def test_a_record_that_is_cut_or_flipped_ends_the_log_before_it(last: int) -> None:
    log = b""
    for size in SIZES[:last]:
        log = appended(log, b"r" * size)
    whole = appended(log, b"r" * SIZES[last])
    later = appended(whole, b"later")
    for place in range(len(log), len(whole), max(1, (len(whole) - len(log)) // 40)):
        if place > len(log) and whole[len(log) : place].strip(b"\0"):
            assert torn_from(whole[:place]) == len(log)
        # What fills a block is not read.
        if any(whole[place : place + 1]):
            flipped = bytearray(later)
            flipped[place] ^= 0x10
            assert torn_from(bytes(flipped)) == len(log)


def test_a_hole_ends_the_log_even_if_records_follow() -> None:
    log = appended(b"", b"first")
    assert torn_from(log + bytes(100) + appended(b"", b"third")) == len(log)
