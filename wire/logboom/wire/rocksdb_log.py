"""RocksDB's log format, in which its MANIFEST is written: where the last whole record ends.

A log is blocks of 32 KiB with fragments of records. A fragment is: masked crc32c of kind and bytes
u32, length u16, kind u8 (whole, first, middle, last), bytes; all little endian.
"""

from __future__ import annotations

import struct
from typing import Final

from logboom.wire.validation import crc32c

BLOCK: Final = 32 * 1024
FRAGMENT: Final = struct.Struct("<IHB")
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def masked(crc: int) -> int:
    """Compute a crc32c as RocksDB stores it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def torn_from(content: bytes) -> int | None:
    """Return the position behind the last record before the first that is torn or damaged.

    It is None if all records are whole. Zeros at the end are no record.
    """
    at = end = 0
    within = False
    while at + FRAGMENT.size <= len(content):
        left = BLOCK - at % BLOCK
        if left < FRAGMENT.size:
            at += left
            continue
        crc, size, kind = FRAGMENT.unpack_from(content, at)
        behind = at + FRAGMENT.size + size
        if kind == 0 or behind > min(len(content), at + left):
            break
        if masked(crc32c(content[at + 6 : behind])) != crc or within != (kind in (MIDDLE, LAST)):
            break
        at = behind
        within = kind in (FIRST, MIDDLE)
        if not within:
            end = at
    return end if content[end:].strip(b"\0") else None
