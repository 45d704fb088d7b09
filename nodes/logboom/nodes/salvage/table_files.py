"""Table files (SST): blocks of rows in the order of their keys, each with a checksum.

A block consists of rows, the positions of its restarts u32 each, their number u32, a byte for its
compression and a checksum u32. A row is: bytes shared with the previous key, further bytes of the
key, bytes of the value (varint32 each), then these bytes. Each 16th row shares nothing: a restart.
A key ends with sequence << 8 | kind, u64.

The end of a block follows from its rows and restarts, so neither index nor footer is needed: a
block is intact if its checksum is right. The checksum is XXH3 of block and compression, modified by
a number of the file and by the position. That number is in the footer; if the footer is damaged, it
is the number that two blocks agree on.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import xxhash

from logboom.nodes.salvage.store_rows import StoreRow, varint
from logboom.wire.rocksdb_log import masked
from logboom.wire.validation import crc32c

_U32: Final = struct.Struct("<I")
_TRAILER: Final = struct.Struct("<BI")
_INNER: Final = struct.Struct("<Q")
_FOOTER: Final = 53
_MAGIC: Final = bytes.fromhex("f7cff485b741e288")
_EXTENDED: Final = bytes.fromhex("3e007a00")
_CRC32C, _XXH3 = 1, 4
_VALUE: Final = 1
_LONGEST_KEY: Final = 1 << 16
_RESTART_EVERY: Final = 16


class _Block(NamedTuple):
    rows: list[StoreRow]
    """Rows whose value is here; others are in a blob file or deleted."""
    end: int
    """Position after the checksum."""
    number: int
    """The file's own number, if this block is intact."""


def table_rows(data: bytes) -> Iterator[StoreRow]:
    """Yield the rows of every intact block, in order."""
    kind, number = _footer(data)
    if number is not None:
        for block in _blocks(data, kind, number):
            yield from block.rows
        return
    blocks = list(_blocks(data, kind, None))
    counted = Counter(block.number for block in blocks)
    for block in blocks:
        if counted[block.number] > 1:
            yield from block.rows


def _blocks(data: bytes, kind: int, number: int | None) -> Iterator[_Block]:
    at, end = 0, len(data)
    while at < end:
        block = _block(data, at, end, kind, number)
        if block is not None:
            yield block
            at = block.end
            continue
        # Only the checksum of a block shows where the next one begins; its first row shares
        # nothing.
        at += 1
        while at < end and data[at]:
            at += 1


def _footer(data: bytes) -> tuple[int, int | None]:
    """Return the kind of checksum and the file's own number; None if the footer is damaged."""
    footer = data[-_FOOTER:]
    if len(footer) == _FOOTER and footer[-8:] == _MAGIC:
        if footer[1:5] == _EXTENDED:
            place = len(data) - _FOOTER
            (stored,) = _U32.unpack_from(footer, 5)
            (number,) = _U32.unpack_from(footer, 9)
            cleared = footer[:5] + bytes(4) + footer[9:]
            if _checksum(footer[0], cleared) == (stored - _place(number, place)) & 0xFFFFFFFF:
                return footer[0], number
        elif footer[0] in (_CRC32C, _XXH3) and int.from_bytes(footer[-12:-8], "little") < 6:
            return footer[0], 0
    return _XXH3, None


def _place(number: int, at: int) -> int:
    """Return the modifier of a block's checksum."""
    return (number ^ (at + (at >> 32)) & 0xFFFFFFFF) if number else 0


def _checksum(kind: int, block: bytes, last: int | None = None) -> int:
    """Compute the checksum of a block, whose last byte may be given separately."""
    if kind == _CRC32C:
        return masked(crc32c(block if last is None else block + bytes([last])))
    if last is None:
        block, last = block[:-1], block[-1]
    digest: int = xxhash.xxh3_64_intdigest(block)
    return digest & 0xFFFFFFFF ^ last * 0x6B9083D9 & 0xFFFFFFFF


def _block(data: bytes, at: int, end: int, kind: int, number: int | None) -> _Block | None:
    """Return the block that begins at `at`, if there is one and it is intact."""
    rows: list[StoreRow] = []
    count = 0
    restarts: list[int] = []
    place, key = at, b""
    try:
        while True:
            if data[place : place + 3] == b"\0\0\0":
                break
            shared, behind = varint(data, place, end)
            more, behind = varint(data, behind, end)
            size, behind = varint(data, behind, end)
            if shared > len(key) or not _INNER.size <= shared + more <= _LONGEST_KEY:
                return None
            if behind + more + size > end or (not count and shared):
                return None
            if count % _RESTART_EVERY == 0:
                if shared:
                    return None
                restarts.append(place - at)
            key = key[:shared] + data[behind : behind + more]
            (tag,) = _INNER.unpack_from(key, len(key) - _INNER.size)
            if tag & 0xFF == _VALUE:
                rows.append(StoreRow(key[: -_INNER.size], tag >> 8, behind + more, size))
            count += 1
            place = behind + more + size
    except (ValueError, IndexError):
        return None
    if not count:
        return None
    table = b"".join(map(_U32.pack, [*restarts, len(restarts)]))
    behind = place + len(table)
    if data[place:behind] != table or behind + _TRAILER.size > end:
        return None
    compression, stored = _TRAILER.unpack_from(data, behind)
    if compression:
        return None
    computed = _checksum(kind, data[at:behind], compression)
    found = (stored - computed) & 0xFFFFFFFF
    own = found ^ (at + (at >> 32)) & 0xFFFFFFFF if found else 0
    if number is not None and found != _place(number, at):
        return None
    return _Block(rows, behind + _TRAILER.size, own)
