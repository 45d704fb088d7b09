"""The pass of compaction over a queue: each message supersedes the previous one with its key.

The pass follows the HW, a bounded number of messages per call, and writes its checkpoint together
with its changes. It stops before a release that is still incomplete. Messages without a key
survive, because nothing supersedes them. Tombstones survive too, because readers that have seen
their key have to see them.
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.log.keys import Position
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica.compaction_rows import offset_key, offset_of
from logboom.nodes.replica.compaction_state import OpenedBatch
from logboom.nodes.replica.compaction_update import CompactionUpdate, copy_at
from logboom.nodes.replica.entry_reader import entries, find_batch_start
from logboom.nodes.replica.offset_set import offsets_of
from logboom.nodes.replica.replica import Replica
from logboom.wire.batch import peek
from logboom.wire.columns import Columns
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.head import KIND_AT, Attribute, BatchHead

ENTRY_COST: Final = 4
"""Minimum number of messages for which an entry counts."""
BLOCK_COST: Final = 12
"""Number of messages for which each block counts in which something is superseded."""
KEY_UNIT_BITS: Final = 12
"""A key counts as another message for each 4 KiB."""


def advance_pass(replica: Replica, storage: Storage, writes: WriteSet, units: int) -> int:
    """Process about `units` messages, and return the actual cost; 0 if there is nothing to do.

    Raises:
        DamagedEntry: an entry of the log cannot be read.
        DataDamaged: a row of the compaction cannot be read.
    """
    compaction = replica.compaction
    changes = CompactionUpdate(storage, compaction.ids)
    if compaction.reach < replica.start:
        spent = _again(replica, changes, units)
    else:
        spent = _onward(replica, changes, units)
    if spent:
        changes.stage(writes)
        compaction.stage(writes)
    return spent


def limit_of(replica: Replica) -> Position:
    """Return the position up to which the pass may go now."""
    return min(replica.readable, replica.written)


def _onward(replica: Replica, changes: CompactionUpdate, units: int) -> int:
    """Continue the pass through the log."""
    compaction, limit = replica.compaction, limit_of(replica)
    if compaction.at is None:
        if compaction.reach >= limit.offset:
            return 0
        compaction.at = find_batch_start(replica, changes.storage, compaction.reach)
    spent = 0
    for entry, after in entries(replica, changes.storage, compaction.at, limit):
        cost, done = ENTRY_COST, True
        if not entry[KIND_AT]:
            cost, done = _take(replica, changes, entry, units - spent)
        spent += max(cost, ENTRY_COST)
        if done:
            compaction.at, compaction.reach = after, after.offset
        if spent >= units:
            break
    return spent


def _take(
    replica: Replica, changes: CompactionUpdate, entry: bytes, units: int
) -> tuple[int, bool]:
    """Process a batch as far as the units allow; return the cost, and whether it is done."""
    compaction, head = replica.compaction, peek(entry)
    first = compaction.reach - head.base_offset
    if not head.has(Attribute.KEYS):
        rest = head.count - first
        changes.set_bits(compaction.reach, (1 << rest) - 1, rest)
        return 0, True
    try:
        spent, columns = _opened(replica, head, entry, units)
    except DamagedBatch:
        # Stored as its producer sent it, with a malformed body: nobody can read it, and nothing
        # survives.
        return 0, True
    if columns is None:
        return spent, False
    spent, stop = _enter_some(replica, changes, columns, first, spent, max(1, units))
    if stop == head.count:
        compaction.opened = None
        return spent, True
    compaction.reach = head.base_offset + stop
    return spent, False


def _opened(
    replica: Replica, head: BatchHead, batch: bytes, units: int
) -> tuple[int, Columns | None]:
    """Open a batch once for all its steps; return the cost, and its columns once it is open.

    Raises:
        DamagedBatch: the body is malformed.
    """
    opened = replica.compaction.opened
    if opened is None or opened.base != head.base_offset:
        opened = replica.compaction.opened = OpenedBatch(head, batch)
    try:
        # A body that is open at last leaves the rest of the units to its messages.
        return opened.open(units), opened.columns
    except DamagedBatch:
        replica.compaction.opened = None
        raise


def _enter_some(
    replica: Replica,
    changes: CompactionUpdate,
    columns: Columns,
    first: int,
    spent: int,
    units: int,
) -> tuple[int, int]:
    """Enter messages of a batch from `first` on; return the cost, and where the next step begins."""
    compaction = replica.compaction
    start = columns.base_offset + first
    # Of what is superseded below, there are copies.
    kept = max(replica.start, compaction.kept)
    survivors, place = 0, 0
    latest: dict[bytes, int] = {}
    while spent < units and first + place < columns.count:
        key = columns.key(first + place)
        before = changes.touched
        spent += 1
        if key is None:
            survivors |= 1 << place
        else:
            survivors &= ~(1 << latest.get(key, place))
            latest[key] = place
            if changes.enter(key, start + place, kept):
                survivors |= 1 << place
            spent += (len(key) >> KEY_UNIT_BITS) + BLOCK_COST * (changes.touched - before)
        place += 1
    changes.set_bits(start, survivors, place)
    return spent, first + place


def _again(replica: Replica, changes: CompactionUpdate, units: int) -> int:
    """Continue the pass through the copies, when everything is derived again."""
    compaction, start = replica.compaction, replica.start
    held = changes.copy_over(compaction.reach)
    if held is None:
        following = _next_copy(changes, compaction.reach, start)
        held = None if following is None else changes.copy_over(following)
    if held is None:
        compaction.reach, compaction.at = start, None
        return ENTRY_COST
    base, opened = held[0], compaction.opened
    if opened is None or opened.base != base or opened.columns is None:
        batch, head = copy_at(changes, base)
        try:
            spent, columns = _opened(replica, head, batch, units)
        except DamagedBatch as error:
            raise DataDamaged(error.text) from None
        if columns is None:
            return spent
    else:
        spent, columns = ENTRY_COST, opened.columns
    done = base + columns.count
    first = max(0, compaction.reach - base)
    live = changes.bits(base + first, done)
    for offset in offsets_of(live, base + first):
        if spent >= units and offset > compaction.reach:
            done = offset
            break
        key = columns.key(offset - base)
        if key is None or not changes.enter(key, offset, start):
            changes.clear(offset, start)
        spent += 1 if key is None else 1 + (len(key) >> KEY_UNIT_BITS)
    else:
        compaction.opened = None
    compaction.reach = done
    return spent


def _next_copy(changes: CompactionUpdate, offset: int, log_start: int) -> int | None:
    """Find where the first copy at or after an offset begins."""
    first = offset_key(changes.ids, b"n", offset)
    last = offset_key(changes.ids, b"n", log_start)
    return next((offset_of(key) for key, _ in changes.storage.scan("compact", first, last)), None)
