"""The rows of family `parked`: which batches of a queue wait, and until when.

Behind (topic id, queue):

| key                             | value                                                          |
|---------------------------------|----------------------------------------------------------------|
| `c`                             | how many are parked u64, how many recalls are remembered u64   |
| `d`, due i64, offset u64, side u32 | nothing: the parked batches in the order of their due times |
| `p`, offset u64, side u32       | due i64: the same in the order of the log                      |
| `r`, offset u64, side u32       | nothing: this one was recalled                                 |

The batch itself stays in the log, at its position: retention keeps what is parked.
"""

from __future__ import annotations

import struct
from typing import Final

from logboom.nodes.keys import Position, queue_key
from logboom.nodes.storage import Storage, WriteSet
from logboom.wire.errors import DataDamaged

_COUNTS: Final = struct.Struct(">QQ")
_DUE: Final = struct.Struct(">QQI")
_PLACE: Final = struct.Struct(">QI")
_TIME: Final = struct.Struct(">Q")
_PREFIX: Final = 9
"""Bytes of topic id, queue and letter."""

Ids = tuple[int, int]
"""(topic id, queue)."""


def first_due(ids: Ids) -> bytes:
    """The key at which the due times begin."""
    return queue_key(*ids, b"d")


def last_due(ids: Ids) -> bytes:
    """The key behind all due times."""
    return queue_key(*ids, b"e")


def due_key(ids: Ids, due_ms: int, at: Position) -> bytes:
    """The key of a parked batch in the order of due times."""
    return queue_key(*ids, b"d" + _DUE.pack(due_ms, *at))


def read_due(key: bytes) -> tuple[int, Position]:
    """(due time, position) of a key of `due_key`."""
    due_ms, offset, side = _DUE.unpack_from(key, _PREFIX)
    return due_ms, Position(offset, side)


def _place_key(ids: Ids, letter: bytes, at: Position) -> bytes:
    return queue_key(*ids, letter + _PLACE.pack(*at))


def counts(storage: Storage, ids: Ids) -> tuple[int, int]:
    """(parked, remembered recalls).

    Raises:
        DataDamaged: the store cannot be read.
    """
    stored = storage.get("parked", queue_key(*ids, b"c"))
    if stored is None:
        return 0, 0
    if len(stored) != _COUNTS.size:
        raise DataDamaged(f"the count of parked batches has {len(stored)} bytes")
    parked, recalled = _COUNTS.unpack(stored)
    return parked, recalled


def put_counts(writes: WriteSet, ids: Ids, parked: int, recalled: int) -> None:
    """Stage both counts."""
    writes.put("parked", queue_key(*ids, b"c"), _COUNTS.pack(parked, recalled))


def put(writes: WriteSet, ids: Ids, at: Position, due_ms: int) -> None:
    """Stage a parked batch."""
    writes.put("parked", due_key(ids, due_ms, at), b"")
    writes.put("parked", _place_key(ids, b"p", at), _TIME.pack(due_ms))


def remove(writes: WriteSet, ids: Ids, at: Position, due_ms: int) -> None:
    """Stage that a batch is parked no longer."""
    writes.delete("parked", due_key(ids, due_ms, at))
    writes.delete("parked", _place_key(ids, b"p", at))


def due_of(storage: Storage, ids: Ids, at: Position) -> int | None:
    """The due time of the batch that is parked at a position; None: none is.

    Raises:
        DataDamaged: the store cannot be read.
    """
    stored = storage.get("parked", _place_key(ids, b"p", at))
    if stored is None:
        return None
    due_ms: int = _TIME.unpack(stored)[0]
    return due_ms


def put_recalled(writes: WriteSet, ids: Ids, at: Position) -> None:
    """Stage that the batch parked at a position was recalled."""
    writes.put("parked", _place_key(ids, b"r", at), b"")


def was_recalled(storage: Storage, ids: Ids, at: Position) -> bool:
    """Whether the batch parked at a position was recalled, as long as that is remembered.

    Raises:
        DataDamaged: the store cannot be read.
    """
    return storage.get("parked", _place_key(ids, b"r", at)) is not None


def oldest(storage: Storage, ids: Ids) -> Position | None:
    """Where the oldest parked batch stands in the log.

    Raises:
        DataDamaged: the store cannot be read.
    """
    row = next(storage.scan("parked", queue_key(*ids, b"p"), queue_key(*ids, b"q")), None)
    return None if row is None else Position(*_PLACE.unpack_from(row[0], _PREFIX))


def placed_from(storage: Storage, ids: Ids, end: Position) -> list[tuple[Position, int]]:
    """(position, due time) of all that is parked at `end` and behind.

    Raises:
        DataDamaged: the store cannot be read.
    """
    rows = storage.scan("parked", _place_key(ids, b"p", end), queue_key(*ids, b"q"))
    return [
        (Position(*_PLACE.unpack_from(key, _PREFIX)), _TIME.unpack(stored)[0])
        for key, stored in rows
    ]


def recalled_from(storage: Storage, ids: Ids, end: Position) -> list[bytes]:
    """Keys of the recalls remembered of positions at `end` and behind."""
    first = _place_key(ids, b"r", end)
    return [key for key, _ in storage.scan("parked", first, queue_key(*ids, b"s"))]


def recalled_before(storage: Storage, ids: Ids, start: Position) -> list[bytes]:
    """Keys of the recalls remembered of positions before `start`."""
    first, end = queue_key(*ids, b"r"), _place_key(ids, b"r", start)
    return [key for key, _ in storage.scan("parked", first, end)]
