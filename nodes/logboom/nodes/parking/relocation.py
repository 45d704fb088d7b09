"""Relocation of parked batches to the end of the log, which lets retention continue.

The log start never passes a parked batch. If one blocks retention, and at least half of the log is
not parked, the leader appends the oldest parked batches again. Each new entry names the position
that it replaces, and the position at which the batch was first parked, by which it is recalled. A
queue's log therefore holds at most twice the size of its parked batches, plus what its retention
keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position
from logboom.nodes.log.retention import RetentionPolicy
from logboom.nodes.parking.release_scheduler import is_certain, parked_entry
from logboom.nodes.replica import parked_rows
from logboom.nodes.replica.replica import Replica
from logboom.nodes.turn import BrokerTurn
from logboom.wire.batch import control_view, peek
from logboom.wire.head import ControlKind
from logboom.wire.parking import encode_parked, parked_body

BATCHES_AT_ONCE: Final = 256
BYTES_AT_ONCE: Final = 1024 * 1024
"""Bytes that one call relocates."""
GARBAGE: Final = 2
"""The log must be at least this many times as large as its parked batches before any is
relocated."""


class ParkedRelocator:
    """Relocates parked batches of the queues that this broker leads."""

    def __init__(self, context: BrokerContext, appended: Callable[[Replica], None]) -> None:
        """Create a relocator; `appended` is called when a queue's log grew."""
        self._queues = context.queues
        self._stats = context.stats
        self._appended = appended

    def relocate(self, replica: Replica, keep: RetentionPolicy, turn: BrokerTurn) -> bool:
        """Relocate some batches if the oldest one blocks retention.

        Return True if any relocation is in progress.

        Call this only where there are messages between the log start and the oldest parked batch.
        It also runs when the disk is full, since it frees space.

        Raises:
            Damaged: a parked batch cannot be read.
            DataDamaged: the store cannot be read.
        """
        leading, parked = replica.leading, replica.parked
        if leading is None or not parked.count:
            return False
        if leading.relocating:
            return True
        if parked.release is not None or leading.decided > parked.done:
            return False  # a decision names these positions, and removes the batches that it drops
        if replica.size < GARBAGE * parked.size or not is_certain(replica, leading):
            return False
        under_way = leading.releasing | leading.recalling
        carried = size = 0
        # One scan from the first row on. A relocated batch moves to the end, and its row with it.
        scan = parked_rows.placed_from(self._queues.storage, parked.ids, Position(0))
        for at, row in scan:
            if not carried and at.offset > replica.start:
                break
            if carried >= BATCHES_AT_ONCE or size >= BYTES_AT_ONCE:
                break
            entry = parked_entry(replica, self._queues, at)
            is_aged = at.offset < keep.aged_offset
            if not is_aged and not _expired(
                replica, peek(entry).append_time_ms, keep, turn.now.wall_ms
            ):
                break
            if at in under_way:
                continue
            self._relocate_one(replica, at, row, entry, turn)
            leading.relocating.add(at)
            carried += 1
            size += len(entry)
        return carried > 0

    def _relocate_one(
        self,
        replica: Replica,
        at: Position,
        row: parked_rows.ParkedRow,
        entry: bytes,
        turn: BrokerTurn,
    ) -> None:
        batch = parked_body(control_view(entry)).batch
        transaction = row.waits.transaction if row.waits is not None else None
        body = encode_parked(batch, row.due_ms, (row.first, at), transaction)
        wall_ms = turn.now.wall_ms
        replica.append_control(ControlKind.PARKED, body, wall_ms, turn.writes, self._queues.cache)
        self._queues.touch(replica)
        self._stats.count("carried_batches")
        self._appended(replica)


def _expired(replica: Replica, append_time_ms: int, keep: RetentionPolicy, wall_ms: int) -> bool:
    """True if retention would remove the entry if it were not parked."""
    if keep.max_age_ms is not None and append_time_ms < wall_ms - keep.max_age_ms:
        return True
    if keep.max_bytes is None:
        return False
    return replica.size - GARBAGE * replica.parked.size >= keep.max_bytes
