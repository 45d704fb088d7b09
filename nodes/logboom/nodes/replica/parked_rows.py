"""The rows of family `parked`: which batches of a queue wait, and until when.

Behind (topic id, queue):

| key                             | value                                                          |
|---------------------------------|----------------------------------------------------------------|
| `c`                             | how many are parked u64, the bytes of their entries u64, how   |
|                                 | many recalls are remembered u64                                |
| `d`, due i64, offset u64, side u32 | nothing: what waits for a time, in the order of these times |
| `p`, offset u64, side u32       | due i64, bytes u32, where it was parked first (offset u64,     |
|                                 | side u32), of what waits for a decision also whose (see        |
|                                 | `decision_rows`): all that is parked in the order of the log    |
| `m`, offset u64, side u32       | offset u64, side u32: parked first there, it now waits here    |
| `r`, offset u64, side u32       | nothing: parked first there, it was recalled                   |

What waits for a decision has the rows of `decision_rows` besides, and no `d`. The batch itself stays
in the log, at its position: retention keeps what is parked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from logboom.nodes.log.keys import Position, queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica.decision_rows import (
    DecisionWait,
    Ids,
    pack_waits,
    put_waiting,
    remove_waiting,
    unpack_waits,
)
from logboom.wire.errors import DataDamaged

_COUNTS: Final = struct.Struct(">QQQ")
_DUE: Final = struct.Struct(">QQI")
_PLACE: Final = struct.Struct(">QI")
_ROW: Final = struct.Struct(">QIQI")
_PREFIX: Final = 9
"""Bytes of topic id, queue and letter."""


class ParkedRow(NamedTuple):
    """A parked batch."""

    due_ms: int
    size: int
    """Size of its entry in the log."""
    first: Position
    """Position at which it was first parked, by which it is recalled."""
    waits: DecisionWait | None = None
    """The decision that it waits for. None if it waits for its due time."""


class ParkedCounts(NamedTuple):
    """Figures of a queue's parked batches."""

    parked: int = 0
    size: int = 0
    """Bytes of the parked entries."""
    recalled: int = 0
    """Number of recalls that are remembered."""


def first_due(ids: Ids) -> bytes:
    """Return the key at which the due times begin."""
    return queue_key(*ids, b"d")


def last_due(ids: Ids) -> bytes:
    """Return the key after all due times."""
    return queue_key(*ids, b"e")


def due_key(ids: Ids, due_ms: int, at: Position) -> bytes:
    """Return the key of a parked batch in the order of due times."""
    return queue_key(*ids, b"d" + _DUE.pack(due_ms, *at))


def read_due(key: bytes) -> tuple[int, Position]:
    """Return the due time and position of a key made by `due_key`."""
    due_ms, offset, side = _DUE.unpack_from(key, _PREFIX)
    return due_ms, Position(offset, side)


def delayed_from(storage: Storage, ids: Ids, due_ms: int) -> Iterator[tuple[Position, ParkedRow]]:
    """Yield the batches that are due at or after a time, in the order of their due times.

    Raises:
        DataDamaged: the store cannot be read.
    """
    for key, _ in storage.scan("parked", due_key(ids, due_ms, Position(0)), last_due(ids)):
        _, at = read_due(key)
        row = find_row(storage, ids, at)
        if row is not None:
            yield at, row


def _place_key(ids: Ids, letter: bytes, at: Position) -> bytes:
    return queue_key(*ids, letter + _PLACE.pack(*at))


def counts(storage: Storage, ids: Ids) -> ParkedCounts:
    """Read the figures of a queue.

    Raises:
        DataDamaged: the store cannot be read.
    """
    stored = storage.get("parked", queue_key(*ids, b"c"))
    if stored is None:
        return ParkedCounts()
    if len(stored) != _COUNTS.size:
        raise DataDamaged(f"the count of parked batches has {len(stored)} bytes")
    return ParkedCounts(*_COUNTS.unpack(stored))


def put_counts(writes: WriteSet, ids: Ids, numbers: ParkedCounts) -> None:
    """Stage the figures of a queue."""
    writes.put("parked", queue_key(*ids, b"c"), _COUNTS.pack(*numbers))


def put_parked(writes: WriteSet, ids: Ids, at: Position, row: ParkedRow) -> None:
    """Stage a parked batch."""
    packed = _ROW.pack(row.due_ms, row.size, *row.first)
    if row.waits is None:
        writes.put("parked", due_key(ids, row.due_ms, at), b"")
    else:
        put_waiting(writes, ids, at, row.due_ms, row.waits)
        packed += pack_waits(row.waits)
    writes.put("parked", _place_key(ids, b"p", at), packed)
    if row.first != at:
        writes.put("parked", _place_key(ids, b"m", row.first), _PLACE.pack(*at))


def remove(writes: WriteSet, ids: Ids, at: Position, row: ParkedRow) -> None:
    """Stage the end of the parking at a position."""
    if row.waits is None:
        writes.delete("parked", due_key(ids, row.due_ms, at))
    else:
        remove_waiting(writes, ids, at, row.due_ms, row.waits)
    writes.delete("parked", _place_key(ids, b"p", at))
    if row.first != at:
        writes.delete("parked", _place_key(ids, b"m", row.first))


def find_row(storage: Storage, ids: Ids, at: Position) -> ParkedRow | None:
    """Return the batch that is parked at a position, or None.

    Raises:
        DataDamaged: the store cannot be read.
    """
    stored = storage.get("parked", _place_key(ids, b"p", at))
    return None if stored is None else _row(stored)


def _row(stored: bytes) -> ParkedRow:
    due_ms, size, offset, side = _ROW.unpack_from(stored)
    whose = stored[_ROW.size :]
    waits = unpack_waits(whose) if whose else None
    return ParkedRow(due_ms, size, Position(offset, side), waits)


def place_of(storage: Storage, ids: Ids, first: Position) -> Position | None:
    """Return the current position of the batch that was first parked at a position, or None.

    Raises:
        DataDamaged: the store cannot be read.
    """
    if storage.get("parked", _place_key(ids, b"p", first)) is not None:
        return first
    stored = storage.get("parked", _place_key(ids, b"m", first))
    return None if stored is None else Position(*_PLACE.unpack(stored))


def put_recalled(writes: WriteSet, ids: Ids, at: Position) -> None:
    """Stage that the batch first parked at a position was recalled."""
    writes.put("parked", _place_key(ids, b"r", at), b"")


def was_recalled(storage: Storage, ids: Ids, at: Position) -> bool:
    """True if the batch first parked at a position was recalled, as long as this is remembered.

    Raises:
        DataDamaged: the store cannot be read.
    """
    return storage.get("parked", _place_key(ids, b"r", at)) is not None


def oldest_parked(storage: Storage, ids: Ids) -> Position | None:
    """Return the position of the oldest parked batch in the log, or None.

    Raises:
        DataDamaged: the store cannot be read.
    """
    row = next(storage.scan("parked", queue_key(*ids, b"p"), queue_key(*ids, b"q")), None)
    return None if row is None else Position(*_PLACE.unpack_from(row[0], _PREFIX))


def placed_from(
    storage: Storage, ids: Ids, first: Position
) -> Iterator[tuple[Position, ParkedRow]]:
    """Yield the batches parked at or after a position, in the order of the log.

    Raises:
        DataDamaged: the store cannot be read.
    """
    rows = storage.scan("parked", _place_key(ids, b"p", first), queue_key(*ids, b"q"))
    for key, stored in rows:
        yield Position(*_PLACE.unpack_from(key, _PREFIX)), _row(stored)


def recalled_from(storage: Storage, ids: Ids, end: Position) -> list[bytes]:
    """Return the keys of the remembered recalls of positions at or after `end`."""
    first = _place_key(ids, b"r", end)
    return [key for key, _ in storage.scan("parked", first, queue_key(*ids, b"s"))]


def recalled_before(storage: Storage, ids: Ids, start: Position) -> list[bytes]:
    """Return the keys of the remembered recalls of positions before `start`."""
    first, end = queue_key(*ids, b"r"), _place_key(ids, b"r", start)
    return [key for key, _ in storage.scan("parked", first, end)]
