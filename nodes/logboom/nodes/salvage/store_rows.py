"""Rows found in RocksDB's files, whatever else of the store is readable.

RocksDB opens only an intact store. Here each file is read on its own, without MANIFEST, CURRENT or
any other file, and a damaged place loses only its own content. Every row that is returned has
passed a checksum of RocksDB, and log entries one of ours too.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class StoreRow(NamedTuple):
    """A key and the position of its value."""

    key: bytes
    sequence: int
    """RocksDB's number of the write: the greatest is the newest; -1: unknown."""
    at: int
    """Position of the value in the file; -1: it is in `value`, because it is not contiguous there.
    """
    size: int
    value: bytes = b""


_MORE: Final = 0x80


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Decode a varint32; return it and its end.

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
