"""The reader of a compacted topic below the horizon: whole batches, and their surviving messages.

They come from the copies below the log's start, and from the log after it.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from logboom.nodes.log.keys import LAST_SIDE, Position, log_key
from logboom.nodes.log.storage import Storage
from logboom.nodes.replica.compaction_rows import CompactionRows
from logboom.nodes.replica.compaction_update import copy_at
from logboom.nodes.replica.entry_reader import entries, find_batch_start
from logboom.nodes.replica.offset_set import offsets_of
from logboom.nodes.replica.replica import Replica
from logboom.wire.batch import peek, validate_batch
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.head import BatchHead


class CompactedBatches(NamedTuple):
    """Batches with surviving messages, and where to continue."""

    batches: list[bytes]
    bits: list[bytes]
    """For each batch its survivors, as in `Pulled`: the lowest bit of the first byte is the first
    message; empty means all of them."""
    next_offset: int
    messages: int
    """Survivors in all batches."""


def read_survivors(
    replica: Replica,
    storage: Storage,
    offset: int,
    stop: int,
    limit: Position,
    max_bytes: int,
    most: int,
    *,
    split: bool = False,
) -> CompactedBatches:
    """Read batches with survivors from `offset` to before `stop`, which is at most the horizon.

    At least one batch is returned if there is one. Messages of a batch beyond the horizon count as
    survivors.

    Args:
        limit: position up to which the log may be read.
        most: number of survivors after which reading ends (0: no limit).
        split: return exactly `most` survivors, and continue within a batch.

    Raises:
        DamagedEntry: an entry of the log cannot be read.
        DataDamaged: a row of the compaction, or a copy, cannot be read.
    """
    rows = CompactionRows(storage, replica.key)
    batches: list[bytes] = []
    shown: list[bytes] = []
    size = messages = 0
    at, edge = offset, min(stop, replica.compaction.horizon(replica.start))
    while at < edge:
        found = rows.following(at, edge)
        if found is None:
            at = edge
            break
        held = batch_over(replica, rows, found, limit)
        if held is None or (batches and size + len(held[0]) > max_bytes):
            at = found
            break
        batch, head = held
        bits = _bits(rows, head, found, edge)
        at = head.next_offset
        if split and messages + bits.bit_count() > most:
            bits = _lowest(bits, most - messages)
            at = head.base_offset + bits.bit_length()
        batches.append(batch)
        whole = bits == (1 << head.count) - 1
        shown.append(b"" if whole else bits.to_bytes(-(-head.count // 8), "little"))
        size += len(batch)
        messages += bits.bit_count()
        if size >= max_bytes or 0 < most <= messages:
            break
    return CompactedBatches(batches, shown, at, messages)


def batch_over(
    replica: Replica, rows: CompactionRows, offset: int, limit: Position
) -> tuple[bytes, BatchHead] | None:
    """Find the batch that contains a survivor; None if the store does not show it yet."""
    if offset < replica.start:
        found = rows.copy_over(offset)
        if found is not None:
            return copy_at(rows, found[0])
        # Retention removed it from the log in this very turn, and neither is visible yet.
        return _leaving(rows, offset)
    begin = find_batch_start(replica, rows.storage, offset)
    for entry, after in entries(replica, rows.storage, begin, limit):
        if after.offset > offset:
            return entry, peek(entry)
    return None


def _leaving(rows: CompactionRows, offset: int) -> tuple[bytes, BatchHead]:
    """Find a batch below the log's start that is still in the store."""
    first, last = log_key(*rows.ids, 0), log_key(*rows.ids, offset, LAST_SIDE)
    row = next(rows.storage.scan("log", first, last, reverse=True), None)
    if row is not None:
        try:
            head = validate_batch(row[1])
        except DamagedBatch as error:
            raise DataDamaged(error.text) from None
        if head.base_offset <= offset < head.next_offset:
            return row[1], head
    raise DataDamaged(f"no copy holds offset {offset}, which compaction keeps")


def _bits(rows: CompactionRows, head: BatchHead, first: int, edge: int) -> int:
    """Return the survivors of a batch from `first` on, and everything beyond the horizon."""
    base = head.base_offset
    bits = rows.bits(first, min(head.next_offset, edge)) << (first - base)
    if head.next_offset > edge:
        bits |= ((1 << (head.next_offset - edge)) - 1) << (edge - base)
    return bits


def _lowest(bits: int, most: int) -> int:
    """Return the lowest `count` set bits."""
    return sum(1 << place for place in islice(offsets_of(bits), most))
