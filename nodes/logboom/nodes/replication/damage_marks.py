"""The marks of damaged queues on disk, so that a restart does not forget damage (Q14).

The name servers keep a damaged replica out of the ISR until it reports that it is repaired. A
broker that forgot its report in a restart would never do so, and it would also forget damage in the
middle of a log, which no opening reads. The mark is therefore on disk before the report is sent. It
is set to "mending" in the same write as the truncation, and removed once the name servers know that
the replica is intact.
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
    """The damage of a replica, and the progress of its repair."""

    mending: bool
    """The log was truncated and is being fetched again."""
    at: Position
    """Position at which the log is damaged, or was truncated."""


def read_mark(storage: Storage, key: tuple[int, int]) -> DamageMark | None:
    """Return a queue's mark, or None.

    Raises:
        DataDamaged: it cannot be decoded.
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
    """Stage the removal of a queue's mark."""
    writes.delete("state", queue_key(*key, DAMAGE))
