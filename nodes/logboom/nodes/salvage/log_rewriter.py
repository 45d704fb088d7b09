"""The rewriting of a queue's log from its remains: entries at their positions, and placeholders.

Lost messages become LOST entries, so that no offset is used twice and readers skip them. A lost
control entry becomes one without effect. If anything is lost, DECIDED entries are replaced in the
same way: part of what they release may be lost, and readers would wait for it for ever. The name
servers still know how each transaction ended, and batches that wait here for a decision ask them
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.log.log_state import LogState, forget_queue, put_epochs, put_record
from logboom.nodes.log.recovery import after_entry
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica.compaction_rows import (
    CompactionCheckpoint,
    CopyInfo,
    put_block,
    put_checkpoint,
    put_copy,
)
from logboom.nodes.replica.offset_set import BLOCK, BLOCK_BITS
from logboom.nodes.replica.replica import QueueKey
from logboom.nodes.salvage.found_queues import EntryChain, FoundEntry, FoundQueue, Value
from logboom.nodes.salvage.recovery_marks import put_recovered
from logboom.wire.batch import (
    MAX_COUNT,
    ControlKind,
    encode_control,
    encode_lost,
    peek,
    stamp,
    validate_batch,
)
from logboom.wire.errors import DamagedBatch, DataDamaged

WRITE_BYTES: Final = 4 * 1024 * 1024
_SAYS_NOTHING: Final = encode_control(ControlKind.PRODUCER_EXPIRY, b"\x90")


def rewrite_entries(
    chain: EntryChain, read: Callable[[Position, FoundEntry], bytes]
) -> Iterator[tuple[Position, bytes]]:
    """Yield (position, entry) of the whole log, without a hole.

    Raises:
        DataDamaged: an entry that was intact a moment ago no longer is.
    """
    incomplete = bool(chain.gaps or chain.controls)
    at = Position(chain.start)
    epoch = chain.entries[0][1].epoch if chain.entries else 0
    time_ms = chain.entries[0][1].time_ms if chain.entries else 0
    for place, held in chain.entries:
        yield from _filled(at, place, epoch, time_ms)
        epoch, time_ms = held.epoch, held.time_ms
        if incomplete and held.kind == ControlKind.DECIDED:
            yield place, stamp(_SAYS_NOTHING, place.offset, epoch, time_ms)
        else:
            yield place, _checked(read(place, held), place)
        at = held.after
    if chain.entries:
        yield from _filled(at, chain.end, epoch, time_ms)


def _filled(
    at: Position, until: Position, epoch: int, time_ms: int
) -> Iterator[tuple[Position, bytes]]:
    """Yield placeholders for everything from `at` to `until`."""
    while at.offset < until.offset:
        count = min(MAX_COUNT, until.offset - at.offset)
        yield at, stamp(encode_lost(count), at.offset, epoch, time_ms)
        at = Position(at.offset + count)
    while at.side < until.side:
        yield at, stamp(_SAYS_NOTHING, at.offset, epoch, time_ms)
        at = Position(at.offset, at.side + 1)


def _checked(entry: bytes, place: Position) -> bytes:
    try:
        validate_batch(entry)
    except DamagedBatch as error:
        text = f"the entry at offset {place.offset} can no longer be read ({error.text})"
        raise DataDamaged(
            f"{text}: the disk gets worse; copy the folder to another, then go on"
        ) from None
    return entry


class KeptCopies(NamedTuple):
    """The copies of messages before the log's start that compaction kept."""

    copies: Iterable[tuple[int, CopyInfo, bytes]]
    """First offset, message counts, batch."""
    survivors: Mapping[int, int]
    """Number of a block → its survivors, as bits."""


def find_kept_copies(find: FoundQueue, start: int, read: Callable[[Value], bytes]) -> KeptCopies:
    """Collect the copies found for a log that begins at `start`."""
    number, within = start >> BLOCK_BITS, start & (BLOCK - 1)
    survivors = {each: bits for each, bits in find.survivors.items() if each < number}
    if within and number in find.survivors:
        survivors[number] = find.survivors[number] & ((1 << within) - 1)
    copies = ((base, copy, read(value)) for base, copy, value in find.copies_before(start))
    return KeptCopies(copies, survivors)


def rewrite_log(
    key: QueueKey,
    chain: EntryChain,
    read: Callable[[Position, FoundEntry], bytes],
    kept: KeptCopies | None = None,
) -> Iterator[WriteSet]:
    """Yield the writes that restore a queue, in order.

    Each of them leaves a consistent log; only the last one marks it as complete. `kept` belongs to
    a compacted topic.

    Raises:
        DataDamaged: as `rewrite_entries`.
    """
    writes = WriteSet()
    forget_queue(writes, *key)
    put_recovered(writes, key, whole=False)
    start = Position(chain.start)
    at, epochs, time_ms, size = start, list[tuple[int, Position]](), 0, 0

    def stage() -> None:
        # Everything derived from the log is derived again, from its start on.
        put_record(writes, *key, LogState(start.offset, at, time_ms, at, start, size))
        put_epochs(writes, *key, epochs)

    for place, entry in rewrite_entries(chain, read):
        head = peek(entry)
        if not epochs or head.leader_epoch > epochs[-1][0]:
            epochs.append((head.leader_epoch, place))
        writes.put("log", log_key(*key, *place), entry)
        at, time_ms, size = after_entry(place, head), head.append_time_ms, size + len(entry)
        if writes.size >= WRITE_BYTES:
            stage()
            yield writes
            writes = WriteSet()
    stage()
    if kept is not None:
        for base, copy, batch in kept.copies:
            put_copy(writes, key, base, copy, batch)
            if writes.size >= WRITE_BYTES:
                yield writes
                writes = WriteSet()
        for number, bits in kept.survivors.items():
            put_block(writes, key, number, bits)
        # Everything is derived again, from the copies on.
        put_checkpoint(writes, key, CompactionCheckpoint(0, None))
    put_recovered(writes, key, whole=True)
    yield writes
