"""The state of a queue's log, stored in `state` beside it (Q10).

The `LogState` is written in the same WriteSet as every append, cut and retention, so that the log
and its state can never disagree. It is a fixed struct because it is packed at every append. The
epoch table (epoch → position of its first entry, Q4) changes rarely and has a record of its own,
written with the epoch's first entry and truncated with the log.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from logboom.nodes.log.keys import EPOCHS, RECORD, Position, queue_end, queue_key
from logboom.nodes.log.storage import FAMILIES, WriteSet
from logboom.wire.errors import DataDamaged

_RECORD: Final = struct.Struct(">BQQIqQIQIQ")
_VERSION: Final = 1
_EPOCH: Final = struct.Struct(">IQI")


class LogState(msgspec.Struct, frozen=True, gc=False):
    """The start, the ends and the size of a queue's log."""

    start: int = 0
    """Offset of the first message kept; all entries before (start, 0) are removed."""
    end: Position = Position(0, 0)
    """Position after the last entry."""
    append_time_ms: int = 0
    """Append time of the last entry; that of the next one is never smaller (Q10)."""
    hw: Position = Position(0, 0)
    """The high watermark as last known here; it is written along with appends, so possibly behind.
    """
    applied: Position = Position(0, 0)
    """Position up to which the derived families are applied (Q12)."""
    size: int = 0
    """Bytes of all entries from start to end, for retention."""

    def encode(self) -> bytes:
        """Encode the record."""
        return _RECORD.pack(
            _VERSION,
            self.start,
            *self.end,
            self.append_time_ms,
            *self.hw,
            *self.applied,
            self.size,
        )


def decode_record(stored: bytes) -> LogState:
    """Decode a record.

    Raises:
        DataDamaged: its length or version is wrong.
    """
    if len(stored) != _RECORD.size or stored[0] != _VERSION:
        raise DataDamaged(f"a queue's state record of {len(stored)} bytes cannot be read")
    _, start, end, end_side, time_ms, hw, hw_side, applied, applied_side, size = _RECORD.unpack(
        stored
    )
    return LogState(
        start,
        Position(end, end_side),
        time_ms,
        Position(hw, hw_side),
        Position(applied, applied_side),
        size,
    )


def put_record(writes: WriteSet, topic_id: int, queue: int, record: LogState) -> None:
    """Stage a queue's record."""
    writes.put("state", queue_key(topic_id, queue, RECORD), record.encode())


def encode_epochs(table: Sequence[tuple[int, Position]]) -> bytes:
    """Encode an epoch table, oldest first."""
    return b"".join(_EPOCH.pack(epoch, *start) for epoch, start in table)


def decode_epochs(stored: bytes) -> list[tuple[int, Position]]:
    """Decode an epoch table: (epoch, position of its first entry), oldest first.

    Raises:
        DataDamaged: its length does not fit.
    """
    if len(stored) % _EPOCH.size:
        raise DataDamaged(f"a queue's epoch table of {len(stored)} bytes cannot be read")
    return [(epoch, Position(offset, side)) for epoch, offset, side in _EPOCH.iter_unpack(stored)]


def put_epochs(
    writes: WriteSet, topic_id: int, queue: int, table: Sequence[tuple[int, Position]]
) -> None:
    """Stage a queue's epoch table."""
    writes.put("state", queue_key(topic_id, queue, EPOCHS), encode_epochs(table))


def forget_queue(writes: WriteSet, topic_id: int, queue: int) -> None:
    """Stage the removal of a queue from all families."""
    for family in FAMILIES:
        writes.delete_range(family, queue_key(topic_id, queue), queue_end(topic_id, queue))
