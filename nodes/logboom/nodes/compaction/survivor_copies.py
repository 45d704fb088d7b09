"""Copies of survivors, made before retention removes them from the log.

They are also sent to replicas whose log begins after these messages. A message without a key is kept
as long as the log contains it: it is not copied. A tombstone is copied, and removed from the copy
`delete_retention_ms` later; its key is forgotten then. So a reader that is not further behind the
log's start than that misses none. Each replica does so by its own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from logboom.nodes.compaction.compacted_reader import batch_over, read_survivors
from logboom.nodes.log.keys import queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica.compaction_rows import (
    drop_copies,
    offset_key,
    offset_of,
    put_tombstones,
    tombstones_key,
)
from logboom.nodes.replica.compaction_state import OpenedBatch
from logboom.nodes.replica.compaction_update import (
    COPY_BYTES,
    CompactionUpdate,
    check_copy,
    copy_at,
    is_small,
    part_end,
)
from logboom.nodes.replica.offset_set import offsets_of
from logboom.nodes.replica.replica import Replica
from logboom.wire.batch import open_batch, validate_batch
from logboom.wire.columns import Columns
from logboom.wire.errors import DamagedBatch
from logboom.wire.frames import Frame
from logboom.wire.head import Attribute, BatchHead

TURN_UNITS: Final = 512
"""Approximate number of messages that one turn copies or forgets, at some 10 µs each."""
SMALL_COST: Final = 16
"""What a small batch costs, which is copied as it is, …"""
COST_BITS: Final = 10
"""… beside one for each KiB."""
PAGE_BYTES: Final = 1024 * 1024
"""Approximate bytes of copies in one answer to a follower; at least one copy."""
PAGE_MESSAGES: Final = 256
"""Maximum number of survivors in one answer."""
COPIES: Final = 8
"""Copies from which one call removes tombstones, at most."""


def copy_survivors(
    replica: Replica, storage: Storage, writes: WriteSet, until: int, now_ms: int, units: int
) -> int:
    """Stage copies of survivors from `CompactionState.kept` to before `until`, and raise it.

    Return the cost, in messages, which is about `units`; less if nothing is left to do now.

    Raises:
        DamagedEntry, DataDamaged: as `read_survivors`.
        DamagedBatch: a batch is malformed.
    """
    compaction, ids = replica.compaction, replica.key
    changes = CompactionUpdate(storage, ids)
    keeps = compaction.keeps_tombstones_ms > 0
    # Compacted messages are below the HW, and therefore readable.
    limit = min(replica.hw, replica.written)
    at, spent = max(compaction.kept, replica.start), 0
    while at < until and spent < units:
        opened = compaction.copying
        if opened is None or at < opened.base:
            found = changes.following(at, until)
            if found is None:
                drop_copies(writes, ids, at, until)
                at = until
                break
            held = batch_over(replica, changes, found, limit)
            if held is None:
                break
            batch, head = held[0], validate_batch(held[0])
            base = head.base_offset
            if head.next_offset > until:
                break  # The pass is in the middle of it, or it is not to be removed.
            if at < base:
                drop_copies(writes, ids, at, base)
            if not head.has(Attribute.KEYS):
                changes.clear_all(base, head.count)
                spent += SMALL_COST
                at = head.next_offset
                continue
            if is_small(head):
                spent += SMALL_COST + (head.count >> 1) + (len(batch) >> COST_BITS)
                if _forget_mortal(changes, batch, head, keeps=keeps):
                    put_tombstones(writes, ids, now_ms, base)
                changes.copy(base, head, batch)
                at = head.next_offset
                continue
            opened = compaction.copying = OpenedBatch(head, batch)
            spent += len(batch) >> COST_BITS
            # Parts begin where they began before a restart.
            at = base
        try:
            spent += opened.open(units - spent)
        except DamagedBatch:
            compaction.copying = None
            raise
        columns = opened.columns
        if columns is None:
            break
        first = at - opened.base
        stop, size = part_end(columns, first)
        if spent and size > COPY_BYTES:
            break  # It takes a turn of its own.
        if _forget_some(changes, columns, first, stop, keeps=keeps):
            put_tombstones(writes, ids, now_ms, at)
        changes.copy_part(columns, first, stop)
        spent += stop - first + (size >> COST_BITS)
        at = opened.base + stop
        if stop == columns.count:
            compaction.copying = None
    compaction.kept = at
    if spent:
        changes.stage(writes)
        compaction.stage(writes)
    return spent


def _forget_mortal(
    changes: CompactionUpdate, batch: bytes, head: BatchHead, *, keeps: bool
) -> bool:
    """Remove messages that are not kept longer than the log contains them.

    Args:
        keeps: whether tombstones are kept for a while; True is returned if there are any.
    """
    if not head.has(Attribute.NULL_KEYS | Attribute.NULL_VALUES):
        return False
    return _forget_some(changes, open_batch(batch, head), 0, head.count, keeps=keeps)


def _forget_some(
    changes: CompactionUpdate, columns: Columns, first: int, stop: int, *, keeps: bool
) -> bool:
    """Do so with the messages from `first` to before `stop` of a batch."""
    kept = False
    base = columns.base_offset
    for offset in offsets_of(changes.bits(base + first, base + stop), base + first):
        key = columns.key(offset - base)
        if key is None:
            changes.clear(offset, 0)
        elif columns.value(offset - base) is None:
            kept = keeps
            if not keeps:
                changes.clear(offset, 0)
                changes.forget(key)
    return kept


def forget_tombstones(replica: Replica, storage: Storage, writes: WriteSet, now_ms: int) -> bool:
    """Stage the removal of tombstones whose time is over, from some copies; True if there were any.

    Raises:
        DataDamaged: a copy or a row cannot be read.
    """
    ids, compaction = replica.key, replica.compaction
    due_ms = now_ms - compaction.keeps_tombstones_ms
    changes = CompactionUpdate(storage, ids)
    first, last = tombstones_key(ids, 0), tombstones_key(ids, due_ms + 1)
    found = (
        [key for key, _ in islice(storage.scan("compact", first, last), COPIES)]
        if due_ms >= 0
        else []
    )
    # Of a batch that is being copied, the log still contains these too.
    copied = max(replica.start, compaction.kept)
    spent = 0
    for row in found:
        spent += _forget_in_copy(changes, offset_of(row), copied)
        writes.delete("compact", row)
        if spent >= TURN_UNITS // 2:
            break
    # The clock was ahead when these were copied: their time begins now.
    first, last = tombstones_key(ids, now_ms + 1), queue_key(*ids, b"u")
    ahead = [key for key, _ in islice(storage.scan("compact", first, last), COPIES)]
    for row in ahead:
        put_tombstones(writes, ids, now_ms, offset_of(row))
        writes.delete("compact", row)
    if found:
        changes.stage(writes)
        compaction.stage(writes)
    return bool(found)


def _forget_in_copy(changes: CompactionUpdate, base: int, copied: int) -> int:
    """Remove the tombstones of a copy, unless they or the copy were superseded before.

    Return how many messages were looked at.
    """
    if changes.copied(base) is None:
        return 1
    batch, head = copy_at(changes, base)
    columns = open_batch(batch, head)
    for offset in offsets_of(changes.bits(base, head.next_offset), base):
        key = columns.key(offset - base)
        if key is not None and columns.value(offset - base) is None:
            changes.clear(offset, copied)
            if changes.latest(key) == offset:
                changes.forget(key)
    return head.count


def check_copies(replica: Replica, storage: Storage, offset: int, room: int) -> tuple[int, int]:
    """Check copies from an offset on, about `room` bytes of them.

    Return the bytes read and where to continue; -1 if these were the last.

    Raises:
        DataDamaged: a copy cannot be read or is damaged.
    """
    ids, spent = replica.key, 0
    first, last = offset_key(ids, b"m", offset), queue_key(*ids, b"n")
    for key, batch in storage.scan("compact", first, last):
        base = offset_of(key)
        check_copy(base, batch)
        spent += len(batch)
        if spent >= room:
            return spent, base + 1
    return spent, -1


class CopyPage(NamedTuple):
    """Copies for a follower, from the requested offset on."""

    frames: list[bytes]
    bits: list[bytes]
    """As in `CompactedBatches`."""
    next_offset: int


def read_copy_page(
    replica: Replica, storage: Storage, span: tuple[int, int], room: int
) -> CopyPage | None:
    """Read the survivors from span[0] to before span[1], the start of the follower's log.

    None means that this replica has not compacted that far itself, or still gets copies itself.

    Raises:
        DamagedEntry, DataDamaged: as `read_survivors`.
    """
    offset, stop = span
    if not replica.compaction.on:
        return CopyPage([], [], stop)
    if replica.compaction.lacks is not None or stop > replica.compaction.horizon(replica.start):
        return None
    limit = min(replica.hw, replica.written)
    most = min(room, PAGE_BYTES)
    found = read_survivors(replica, storage, offset, stop, limit, most, PAGE_MESSAGES, split=True)
    if found.next_offset <= offset:
        return None
    return CopyPage(found.batches, found.bits, min(stop, found.next_offset))


def stage_copy_page(
    replica: Replica,
    storage: Storage,
    writes: WriteSet,
    frames: Sequence[Frame],
    bits: Sequence[bytes],
    next_offset: int,
    now_ms: int,
) -> None:
    """Stage a page of the leader's copies, except keys of which this replica has later messages.

    Raises:
        DamagedBatch: a copy is damaged, or the page is not the one that was requested.
        DataDamaged: a row here cannot be read.
    """
    compaction, start = replica.compaction, replica.start
    lacks = compaction.lacks
    if lacks is None or next_offset <= lacks or len(frames) != len(bits):
        raise DamagedBatch("a page of copies that was not asked for: ask again")
    changes = CompactionUpdate(storage, replica.key)
    for frame, shown in zip(frames, bits, strict=True):
        batch = bytes(frame)
        head = validate_batch(batch)
        live = int.from_bytes(shown, "little") if shown else (1 << head.count) - 1
        if head.is_control or live >> head.count:
            raise DamagedBatch("a page of copies does not hold together: ask again")
        if _take_one(changes, batch, head, live, start, keeps=compaction.keeps_tombstones_ms > 0):
            put_tombstones(writes, replica.key, now_ms, head.base_offset)
    compaction.lacks = next_offset if next_offset < start else None
    changes.stage(writes)
    compaction.stage(writes)


def _take_one(
    changes: CompactionUpdate,
    batch: bytes,
    head: BatchHead,
    live: int,
    log_start: int,
    *,
    keeps: bool,
) -> bool:
    """Take in a copy; True if tombstones of it are kept for a while."""
    base, columns = head.base_offset, open_batch(batch, head)
    kept = False
    for offset in offsets_of(live, base):
        if offset >= log_start:
            break
        key = columns.key(offset - base)
        if key is None:
            continue
        # A tombstone supersedes earlier messages, whether it is itself kept or not.
        if changes.enter(key, offset, log_start):
            ends = columns.value(offset - base) is None
            if ends and not keeps:
                changes.forget(key)
            else:
                changes.set_bits(offset, 1, 1)
                kept |= ends
    if is_small(head):
        changes.copy(base, head, batch)
        return kept
    # Earlier versions made copies of any size.
    first = 0
    while first < head.count:
        stop, _ = part_end(columns, first)
        if live >> first & ((1 << (stop - first)) - 1):
            changes.copy_part(columns, first, stop)
        first = stop
    return kept
