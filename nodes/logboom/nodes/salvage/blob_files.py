"""Blob files: a head of 30 bytes, then records, each with its key, its value and two checksums.

| at | bytes | of a record                                     |
|---:|------:|-------------------------------------------------|
|  0 |     8 | length of the key, little endian like the rest  |
|  8 |     8 | length of the value                             |
| 16 |     8 | expiration, unused                              |
| 24 |     4 | masked crc32c of bytes 0..23                    |
| 28 |     4 | masked crc32c of key and value                  |
| 32 |       | key, value                                      |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from logboom.nodes.salvage.store_rows import StoreRow
from logboom.wire.rocksdb_log import masked
from logboom.wire.validation import crc32c

_FILE_HEAD: Final = 30
_RECORD: Final = struct.Struct("<QQQII")
_CHECKED: Final = 24
_LONGEST_KEY: Final = 1 << 20
_PIECE: Final = 1 << 20


def blob_rows(data: bytes) -> Iterator[StoreRow]:
    """Yield every intact record, in order."""
    at, end = _FILE_HEAD, len(data)
    while at + _RECORD.size <= end:
        head = _head(data, at, end)
        if head is None:
            # Only the checksum of a record shows where the next one begins.
            at = _next(data, at + 1, end)
            continue
        key_size, size, crc = head
        body = at + _RECORD.size
        behind = body + key_size + size
        if masked(crc32c(data[body:behind])) == crc:
            yield StoreRow(data[body : body + key_size], -1, body + key_size, size)
        at = behind


def _head(data: bytes, at: int, end: int) -> tuple[int, int, int] | None:
    key_size, size, _, head_crc, crc = _RECORD.unpack_from(data, at)
    if key_size > _LONGEST_KEY or at + _RECORD.size + key_size + size > end:
        return None
    if masked(crc32c(data[at : at + _CHECKED])) != head_crc:
        return None
    return key_size, size, crc


_NO_KEY_SO_LONG: Final = bytes(6)


def _next(data: bytes, at: int, end: int) -> int:
    """Find where the next record with an intact head begins; `end` if there is none."""
    while at + _RECORD.size <= end:
        piece = data[at : at + _PIECE]
        # The length of a key uses only two of its eight bytes.
        place = piece.find(_NO_KEY_SO_LONG)
        while place >= 0:
            begin = at + place - 2
            if begin > at - 2 and begin + _RECORD.size <= end and _head(data, max(begin, at), end):
                return max(begin, at)
            place = piece.find(_NO_KEY_SO_LONG, place + 1)
        at += max(1, len(piece) - _RECORD.size)
    return end
