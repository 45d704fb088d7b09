"""The recovery of a broker's queues from its store at start (Q10, Q13, Q14).

Each queue's record names the end of its log. The tail of the log is read and checked against the
record: checksums, contiguity, epochs and times. If they disagree, the queue is damaged: its replica
first leaves the ISR and then fetches the log again. Recovery repairs and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from logboom.nodes.log.keys import (
    EPOCHS,
    RECORD,
    Position,
    log_key,
    position_of,
    queue_end,
    queue_key,
    queue_of,
)
from logboom.nodes.log.log_state import LogState, decode_epochs, decode_record
from logboom.nodes.log.storage import FAMILIES, Family, Storage
from logboom.wire.batch import BatchHead, peek, validate_batch
from logboom.wire.errors import DamagedBatch, DataDamaged

TAIL_ENTRIES: Final = 8
TAIL_BYTES: Final = 1024 * 1024
"""The tail that is read and checked: up to this many entries or bytes, but at least one entry."""
_KEYS_END: Final = b"\xff" * 21


class RecoveredQueue(msgspec.Struct, frozen=True):
    """One queue as found in the store."""

    topic_id: int
    queue: int
    record: LogState
    epochs: list[tuple[int, Position]]
    """(epoch, position of its first entry), oldest first (Q4)."""
    damage: str | None
    """What is wrong, or None. With damage, `record` is only as good as could be read."""


def open_queues(storage: Storage) -> list[RecoveredQueue]:
    """Open every queue that is in any family, ordered by topic id and queue."""
    found = sorted({each for family in FAMILIES for each in _queues(storage, family)})
    return [open_queue(storage, topic_id, queue) for topic_id, queue in found]


def _queues(storage: Storage, family: Family) -> Iterator[tuple[int, int]]:
    """Yield the queues of a family, with one seek for each."""
    start = b""
    while True:
        key = next((key for key, _ in storage.scan(family, start, _KEYS_END)), None)
        if key is None:
            return
        if len(key) < len(queue_key(0, 0)):
            # The broker's own row, of no queue.
            start = key + b"\0"
            continue
        yield queue_of(key)
        start = queue_end(*queue_of(key))


def open_queue(storage: Storage, topic_id: int, queue: int) -> RecoveredQueue:
    """Open one queue: its record and epoch table, checked against the tail of its log."""
    record, epochs, damage = LogState(), list[tuple[int, Position]](), None
    try:
        stored = storage.get("state", queue_key(topic_id, queue, RECORD))
        if stored is None:
            raise DataDamaged("its state record is missing")
        record = decode_record(stored)
        epochs = decode_epochs(storage.get("state", queue_key(topic_id, queue, EPOCHS)) or b"")
        check_log(storage, topic_id, queue, record, epochs)
    except (DataDamaged, DamagedBatch) as error:
        damage = error.text
    return RecoveredQueue(topic_id, queue, record, epochs, damage)


def check_log(
    storage: Storage,
    topic_id: int,
    queue: int,
    record: LogState,
    epochs: list[tuple[int, Position]],
) -> None:
    """Compare the first entry and the tail of a log with its record and epoch table.

    Raises:
        DataDamaged: an entry is missing, the end moved back, or times or epochs do not fit.
        DamagedBatch: an entry's checksum is wrong.
    """
    start, end = Position(record.start, 0), record.end
    if end < start:
        raise DataDamaged(f"the end {end} lies before the start {record.start}")
    after = end
    last: BatchHead | None = None
    for key, entry, head in _tail(storage, topic_id, queue, start):
        position = position_of(key)
        if after_entry(position, head) != after:
            reached = after_entry(position, head)
            raise DataDamaged(f"its log ends or breaks at {_text(reached)}, not {_text(after)}")
        validate_batch(entry)
        if head.base_offset != position.offset:
            raise DataDamaged(f"the entry at {_text(position)} says offset {head.base_offset}")
        if last is None:
            last = head
        elif head.append_time_ms > last.append_time_ms:
            raise DataDamaged(f"append time goes back behind {_text(position)}")
        after = position
    if last is None:
        if end != start:
            raise DataDamaged(f"its log is empty, but should end at {_text(end)}")
        return
    if last.append_time_ms > record.append_time_ms:
        raise DataDamaged("its last append time is later than its state record says")
    if not epochs or epochs[-1][0] < last.leader_epoch:
        raise DataDamaged(f"its epoch table lacks epoch {last.leader_epoch}")
    if after != start:
        _check_first(storage, topic_id, queue, start)


def _tail(
    storage: Storage, topic_id: int, queue: int, start: Position
) -> Iterator[tuple[bytes, bytes, BatchHead]]:
    """Yield the last entries, newest first."""
    size = 0
    first = log_key(topic_id, queue, *start)
    scan = storage.scan("log", first, queue_end(topic_id, queue), reverse=True)
    for entries, (key, entry) in enumerate(scan, 1):
        yield key, entry, peek(entry)
        size += len(entry)
        if entries >= TAIL_ENTRIES or size >= TAIL_BYTES:
            return


def _check_first(storage: Storage, topic_id: int, queue: int, start: Position) -> None:
    first = storage.get("log", log_key(topic_id, queue, *start))
    if first is None:
        raise DataDamaged(f"its first entry, at {_text(start)}, is missing")
    validate_batch(first)


def after_entry(position: Position, head: BatchHead) -> Position:
    """Return the position after the entry that begins at `position`."""
    if head.count:
        return Position(position.offset + head.count, 0)
    return Position(position.offset, position.side + 1)


def _text(position: Position) -> str:
    return f"{position.offset}.{position.side}" if position.side else str(position.offset)
