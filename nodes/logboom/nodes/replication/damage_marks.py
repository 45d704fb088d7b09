"""What a queue remembers of its own damage, so that a restart forgets none of it (Q14).

The name servers keep a damaged replica out of the ISR until it says that it is mended. A broker
that forgot over a restart what it had reported would never say so; and damage in the middle of a
log, which no opening reads, would be forgotten. So the mark is on disk before the report leaves,
says "mending" in the same write as the cut, and goes once the name servers know that all is whole.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from logboom.nodes.log.keys import Position, queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.wire.errors import DataDamaged

DAMAGE: Final = b"d"
"""Suffix of the state key."""
_MARK: Final = struct.Struct(">BQI")


class DamageMark(NamedTuple):
    """What was found, and how far its mending had come."""

    mending: bool
    """It was cut and is being fetched again."""
    at: Position
    """Where the log is damaged, or was cut."""


def read_mark(storage: Storage, key: tuple[int, int]) -> DamageMark | None:
    """A queue's mark, or None.

    Raises:
        DataDamaged: it cannot be read.
    """
    stored = storage.get("state", queue_key(*key, DAMAGE))
    if stored is None:
        return None
    if len(stored) != _MARK.size:
        raise DataDamaged("the note of its damage cannot be read")
    mending, offset, side = _MARK.unpack(stored)
    return DamageMark(bool(mending), Position(offset, side))


def put_mark(writes: WriteSet, key: tuple[int, int], mark: DamageMark) -> None:
    """Stage a queue's mark."""
    writes.put("state", queue_key(*key, DAMAGE), _MARK.pack(mark.mending, *mark.at))


def drop_mark(writes: WriteSet, key: tuple[int, int]) -> None:
    """Stage the end of a queue's mark."""
    writes.delete("state", queue_key(*key, DAMAGE))
