"""Rows of RocksDB's files as they are found, whatever else of the store can be read.

RocksDB opens a store that is whole. Here each file is read by itself: nothing of what stands in
MANIFEST, CURRENT or another file is needed, and a damaged place costs what stands there and no more.
Every row that is given has passed a checksum of RocksDB's; entries of logs have one of ours too.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class StoreRow(NamedTuple):
    """A key and where its value stands."""

    key: bytes
    sequence: int
    """RocksDB's number of the write: the greatest is the newest; -1: unknown."""
    at: int
    """Where the value begins in the file; -1: it is in `value`, since it does not stand in one
    piece."""
    size: int
    value: bytes = b""


def masked(crc: int) -> int:
    """A crc32c as RocksDB stores it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


_MORE: Final = 0x80


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A varint32 and where it ends.

    Raises:
        ValueError: it does not end before `end`, or is too long.
    """
    value = shift = 0
    while at < end and shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, at
        shift += 7
    raise ValueError("no varint")
