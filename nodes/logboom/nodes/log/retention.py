"""Retention: the removal of a queue's oldest committed entries, by append time and by size.

Whole index blocks are removed at once, so that a queue of any rate can be kept short without
reading it back; the rest is removed batch by batch. The log's new start is staged in the same write
as the removal (Q10). Each call does a bounded amount of work; call again while it returns
something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from logboom.nodes.log import index as queue_index
from logboom.nodes.log.index_rows import block_at, checkpoint
from logboom.nodes.log.keys import Position, log_key, queue_key
from logboom.nodes.log.log_state import LogState, put_record
from logboom.nodes.log.recovery import after_entry
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.wire.batch import validate_batch

STEPS: Final = 256
"""Blocks or batches that one call removes at most."""


class RetentionPolicy(NamedTuple):
    """A topic's retention; None: no limit."""

    max_age_ms: int | None
    """Counted from the append."""
    max_bytes: int | None
    """Per queue; at least as much is always kept."""
    aged_offset: int = 0
    """Everything before it is older than `max_age_ms`, even if its append time lies in the future."""


SIGHTINGS: Final = 32
"""Ends of a log that are remembered for its age."""


class KnownAge:
    """The age of a log whose append times lie in the future, by when its ends were seen.

    Append times never go back (Q10), so a clock that was ahead for a moment gives all that follows
    times of the future. The monotonic clock tells how old that is at least. A restart forgets it.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()

    def see(self, hw: int, max_age_ms: int, now: float) -> int:
        """Note that everything below the HW is there; return the offset before which all is too old.

        Args:
            hw: offset of the HW.
            max_age_ms: the greatest age.
            now: monotonic seconds.
        """
        seen, age_s = self._seen, max_age_ms / 1000
        while seen and seen[-1][0] > hw:  # an unclean election cut the log
            seen.pop()
        if not seen or now - seen[-1][1] >= age_s / SIGHTINGS:
            seen.append((hw, now))
        while len(seen) > 1 and now - seen[1][1] > age_s:
            seen.popleft()
        return seen[0][0] if now - seen[0][1] > age_s else 0


class _RemovableRun(NamedTuple):
    """A run of entries that is removed as a whole."""

    next_offset: int
    size: int
    append_time_ms: int


def plan_removal(
    storage: Storage,
    topic_id: int,
    queue: int,
    record: LogState,
    *,
    keep: RetentionPolicy,
    limit: int,
    wall_ms: int,
    uncertain: int = 0,
) -> LogState | None:
    """Return the queue's record without what has expired; None if nothing has.

    Args:
        record: the current one, appends of this turn included.
        limit: offset at which removal stops whatever its age: the HW, or the oldest parked batch.
        wall_ms: milliseconds since 1970.
        uncertain: bytes above the HW, which may still be truncated and do not count as kept.
    """
    start, size = record.start, record.size - uncertain
    for _ in range(STEPS):
        if start >= limit:
            break
        expired = partial(_expired, size=size, keep=keep, wall_ms=wall_ms)
        piece = _block(storage, topic_id, queue, start, limit)
        if piece is None or not expired(piece):
            piece = _batch(storage, topic_id, queue, start, limit, expired)
        if piece is None:
            break
        start, size = piece.next_offset, size - piece.size
    if start == record.start:
        return None
    return msgspec.structs.replace(record, start=start, size=max(0, size + uncertain))


def stage_removal(
    writes: WriteSet, topic_id: int, queue: int, record: LogState, index: queue_index.QueueIndex
) -> None:
    """Stage the removal of everything before the start of `record`, and the record."""
    start = record.start
    writes.delete_range("log", queue_key(topic_id, queue), log_key(topic_id, queue, start))
    index.trim(writes, start)
    put_record(writes, topic_id, queue, record)


def _expired(piece: _RemovableRun, size: int, keep: RetentionPolicy, wall_ms: int) -> bool:
    if 0 < piece.next_offset <= keep.aged_offset:
        return True
    if keep.max_age_ms is not None and piece.append_time_ms < wall_ms - keep.max_age_ms:
        return True
    return keep.max_bytes is not None and size - piece.size >= keep.max_bytes


def _block(
    storage: Storage, topic_id: int, queue: int, start: int, limit: int
) -> _RemovableRun | None:
    """Return the index block that begins at the log's start, if it is completely below `limit`."""
    block = block_at(storage, topic_id, queue, start)
    return _RemovableRun(*block) if block is not None and block.next_offset <= limit else None


def _batch(
    storage: Storage,
    topic_id: int,
    queue: int,
    start: int,
    limit: int,
    expired: Callable[[_RemovableRun], bool],
) -> _RemovableRun | None:
    """Return the first batch with the control entries before it, if it has expired.

    It must be completely below `limit`. If the control entries alone fill an index block, it waits
    for that block, which ends with the batch. It never waits for a longer block: that may reach
    beyond `limit`, or not be full for as long as the queue is idle.
    """
    size = 0
    at = Position(start, 0)
    first, end = log_key(topic_id, queue, start), log_key(topic_id, queue, limit)
    for _, entry in storage.scan("log", first, end):
        if size >= queue_index.BLOCK_BYTES and _has_block(storage, topic_id, queue, start):
            return None
        # Checked, because a flipped bit in the time would remove the batch too early.
        head = validate_batch(entry)
        at = after_entry(at, head)
        size += len(entry)
        piece = _RemovableRun(at.offset, size, head.append_time_ms)
        if not expired(piece):
            # Nor has what follows, which is younger and may be a whole transaction.
            return None
        if head.count:
            return piece if at.offset <= limit else None
    return None


def _has_block(storage: Storage, topic_id: int, queue: int, start: int) -> bool:
    """Return True if a block begins at the log's start, or will once the index has caught up.

    Older versions did not reduce a block to the rest of its entries; then none does.
    """
    reached = checkpoint(storage, topic_id, queue)
    return start >= reached or block_at(storage, topic_id, queue, start) is not None
