"""Write-ahead logs: logs (`wire/rocksdb_log.py`) of which each record is a batch of writes.

A record is: sequence u64, count u32, then the writes. All are little endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from logboom.nodes.salvage.store_rows import StoreRow, varint
from logboom.wire.rocksdb_log import BLOCK, FIRST, FRAGMENT, LAST, MIDDLE, WHOLE, masked
from logboom.wire.validation import crc32c

_RECORD: Final = struct.Struct("<QI")
_DELETION, _VALUE, _NOTE, _FAMILY_DELETION, _FAMILY_VALUE, _FAMILY_RANGE, _RANGE = (
    *(0x0, 0x1, 0x3, 0x4, 0x5),
    *(0xE, 0xF),
)


def write_ahead_rows(data: bytes) -> Iterator[StoreRow | None]:
    """Yield the puts of every intact record, in order; None where something is not readable."""
    record: list[bytes] | None = None
    at, end = 0, len(data)
    while at + FRAGMENT.size <= end:
        left = BLOCK - at % BLOCK
        if left < FRAGMENT.size:
            at += left
            continue
        crc, size, kind = FRAGMENT.unpack_from(data, at)
        behind = at + FRAGMENT.size + size
        if kind == size == crc == 0:
            # Space that was reserved and not written.
            at += left
            continue
        if behind > min(end, at + left) or masked(crc32c(data[at + 6 : behind])) != crc:
            # Only the next block shows where the next fragment begins.
            yield None
            record = None
            at += left
            continue
        body = data[at + FRAGMENT.size : behind]
        at = behind
        if kind in (WHOLE, FIRST):
            record = [body]
        elif kind in (MIDDLE, LAST) and record is not None:
            record.append(body)
        if kind in (WHOLE, LAST) and record is not None:
            yield from _puts(b"".join(record))
            record = None


def _puts(record: bytes) -> Iterator[StoreRow]:
    """Yield the puts of one batch of writes; deletions do not matter here."""
    if len(record) < _RECORD.size:
        return
    sequence, _ = _RECORD.unpack_from(record)
    at, end = _RECORD.size, len(record)
    try:
        while at < end:
            kind = record[at]
            at += 1
            if kind in (_FAMILY_DELETION, _FAMILY_VALUE, _FAMILY_RANGE):
                _, at = varint(record, at, end)
            if kind == _NOTE:
                _, at = _piece(record, at, end)
                continue
            if kind not in (
                *(_DELETION, _VALUE, _FAMILY_DELETION, _FAMILY_VALUE),
                *(_FAMILY_RANGE, _RANGE),
            ):
                return
            key, at = _piece(record, at, end)
            if kind not in (_DELETION, _FAMILY_DELETION):
                value, at = _piece(record, at, end)
                if kind in (_VALUE, _FAMILY_VALUE):
                    yield StoreRow(key, sequence, -1, len(value), value)
            sequence += 1
    except ValueError:
        return


def _piece(record: bytes, at: int, end: int) -> tuple[bytes, int]:
    size, at = varint(record, at, end)
    if at + size > end:
        raise ValueError("it ends too early")
    return record[at : at + size], at + size
