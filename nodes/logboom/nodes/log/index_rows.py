"""The rows of family `index`: their layouts, and the lookups that read only rows.

After (topic id, queue):

| key                 | value                                                                        |
|---------------------|------------------------------------------------------------------------------|
| `c`                 | the checkpoint: next offset u64, and i64 for older releases                  |
| `b`, first offset   | a block: next offset u64, bytes u64, append time i64, then for each batch    |
|                     | with keys its base offset u64 and key summary u64                            |
| `m`, level u8,      | times of a run of blocks, one (level 0) or RUN_BLOCKS (level 1): next offset |
| first offset        | u64, greatest timestamp in it i64                                            |
| `t`, timestamp      | of older releases: next offset of the last block when this was the greatest  |
|                     | timestamp so far                                                             |

Each run has a greatest timestamp of its own, so a message whose time is wrong concerns the lookups
of its own block only. `t` rows are no longer written: one message from the future ended them for
good. Those that are there stay true: all before their offset is older than the row's time or as old.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from logboom.nodes.log.keys import log_key, queue_end, queue_key
from logboom.nodes.log.storage import Storage, WriteSet

LOWEST_MS: Final = -(1 << 63)
"""Before every timestamp."""
HIGHEST_MS: Final = (1 << 63) - 1
"""The latest possible timestamp; a lookup of a later time is valid and finds nothing."""
LOOKUP_BLOCKS: Final = 128
"""Blocks that one call of `candidates` reads; it then returns its edge as a candidate to continue
from."""
RUN_BLOCKS: Final = 256
"""Blocks of a run of level 1."""

_CHECKPOINT: Final = struct.Struct(">Qq")
_BLOCK: Final = struct.Struct(">QQq")
_ROW: Final = struct.Struct(">QQ")
_TIMES: Final = struct.Struct(">Qq")
_OFFSET: Final = struct.Struct(">Q")


class IndexBlock(NamedTuple):
    """A block's summary of the entries that it covers, control entries included."""

    next_offset: int
    size: int
    """Bytes."""
    append_time_ms: int
    """Append time of its last entry, which is the latest."""


def _time(timestamp_ms: int) -> bytes:
    """Encode a signed time so that bytes sort as times do."""
    return _OFFSET.pack(min(timestamp_ms, HIGHEST_MS) - LOWEST_MS)


def _block_key(topic_id: int, queue: int, offset: int) -> bytes:
    return queue_key(topic_id, queue, b"b" + _OFFSET.pack(offset))


def block_at(storage: Storage, topic_id: int, queue: int, offset: int) -> IndexBlock | None:
    """Return the block that begins exactly at `offset`."""
    stored = storage.get("index", _block_key(topic_id, queue, offset))
    return None if stored is None else IndexBlock(*_BLOCK.unpack_from(stored))


class TimedRun(NamedTuple):
    """The times of a block, or of RUN_BLOCKS blocks in a row."""

    next_offset: int
    greatest_ms: int
    """No message in it is later; messages that were removed since may have been."""


def put_block(
    writes: WriteSet,
    topic_id: int,
    queue: int,
    first_offset: int,
    block: IndexBlock,
    keyed: Iterable[tuple[int, int]],
    greatest_ms: int,
) -> None:
    """Stage a block with its times and the checkpoint after it.

    Args:
        keyed: (base offset, key summary) of its batches with keys, in order.
        greatest_ms: greatest message time of this block.
    """
    rows = b"".join(_ROW.pack(*row) for row in keyed)
    writes.put("index", _block_key(topic_id, queue, first_offset), _BLOCK.pack(*block) + rows)
    put_run(writes, topic_id, queue, 0, first_offset, TimedRun(block.next_offset, greatest_ms))
    put_checkpoint(writes, topic_id, queue, block.next_offset)


def _run_key(topic_id: int, queue: int, level: int, offset: int) -> bytes:
    return queue_key(topic_id, queue, b"m" + bytes([level]) + _OFFSET.pack(offset))


def put_run(
    writes: WriteSet, topic_id: int, queue: int, level: int, first_offset: int, run: TimedRun
) -> None:
    """Stage the times of a run of blocks."""
    writes.put("index", _run_key(topic_id, queue, level, first_offset), _TIMES.pack(*run))


def run_at(storage: Storage, topic_id: int, queue: int, level: int, offset: int) -> TimedRun | None:
    """Return the run of a level that begins exactly at `offset`."""
    stored = storage.get("index", _run_key(topic_id, queue, level, offset))
    return None if stored is None else TimedRun(*_TIMES.unpack(stored))


def skip_older(
    storage: Storage, topic_id: int, queue: int, timestamp_ms: int, offset: int, most: int
) -> tuple[int, int]:
    """Pass at most so many runs from `offset` on that are older than a time.

    Return where that ends, and how many were passed. If it is fewer, what begins there may reach
    the time or is in no run.
    """
    for passed in range(most):
        for level in (1, 0):
            run = run_at(storage, topic_id, queue, level, offset)
            if run is not None and run.greatest_ms < timestamp_ms:
                offset = run.next_offset
                break
        else:
            return offset, passed
    return offset, most


def next_block(storage: Storage, topic_id: int, queue: int, offset: int) -> int | None:
    """Return where the first block behind `offset` begins."""
    first = _block_key(topic_id, queue, offset + 1)
    row = next(storage.scan("index", first, queue_key(topic_id, queue, b"c")), None)
    return None if row is None else int(_OFFSET.unpack(row[0][-8:])[0])


def put_checkpoint(writes: WriteSet, topic_id: int, queue: int, next_offset: int) -> None:
    """Stage the end of the indexed entries."""
    # An older release reads the second as the greatest time so far: so it skips nothing wrongly.
    checkpoint = _CHECKPOINT.pack(next_offset, HIGHEST_MS)
    writes.put("index", queue_key(topic_id, queue, b"c"), checkpoint)


def checkpoint(storage: Storage, topic_id: int, queue: int) -> int:
    """Return the next offset of the pass; 0 before the first block."""
    stored = storage.get("index", queue_key(topic_id, queue, b"c"))
    return 0 if stored is None else int(_CHECKPOINT.unpack(stored)[0])


def behind_older(storage: Storage, topic_id: int, queue: int, timestamp_ms: int) -> int:
    """Return an offset before which every message is older than `timestamp_ms`, by `t` rows."""
    first = queue_key(topic_id, queue, b"t")
    rows = storage.scan("index", first, first + _time(timestamp_ms), reverse=True)
    row = next(rows, None)
    return 0 if row is None else int(_OFFSET.unpack(row[1])[0])


def matching(rows: Iterable[tuple[int, int]], mask: int, before: int) -> Iterator[int]:
    """Yield base offsets below `before` of rows whose key summary contains the bit of `mask`."""
    return (base for base, summary in rows if summary & mask and base < before)


def candidates(
    storage: Storage, topic_id: int, queue: int, mask: int, before: int, log_start: int
) -> Iterator[int]:
    """Yield base offsets, newest first, of batches that may hold a key of the summary bit.

    After LOOKUP_BLOCKS blocks the edge of the search is returned as a candidate too. The caller
    compares the keys in any case, and continues below it.
    """
    first, end = queue_key(topic_id, queue, b"b"), _block_key(topic_id, queue, max(0, before))
    scan = storage.scan("index", first, end, reverse=True)
    for blocks, (key, stored) in enumerate(scan, 1):
        rows: list[tuple[int, int]] = list(_ROW.iter_unpack(stored[_BLOCK.size :]))
        yield from matching(reversed(rows), mask, before)
        edge = _OFFSET.unpack(key[-8:])[0]
        if edge <= log_start:
            return
        if blocks == LOOKUP_BLOCKS:
            yield edge
            return


def trim(storage: Storage, writes: WriteSet, topic_id: int, queue: int, log_start: int) -> None:
    """Stage the removal of rows that cover only entries before the log's start.

    A block that extends beyond the start is reduced to the rest, so that a block begins at the
    start and retention can remove it as a whole too. Call this before the entries are removed.
    """
    first, end = queue_key(topic_id, queue, b"b"), _block_key(topic_id, queue, log_start)
    last = next(storage.scan("index", first, end, reverse=True), None)
    if last is not None:
        key, stored = last
        block = IndexBlock(*_BLOCK.unpack_from(stored))
        if block.next_offset > log_start:
            gone = _size(storage, topic_id, queue, _OFFSET.unpack(key[-8:])[0], log_start)
            if gone is None:
                end = key
            else:
                left = _BLOCK.pack(*block._replace(size=block.size - gone))
                for base, summary in _ROW.iter_unpack(stored[_BLOCK.size :]):
                    if base >= log_start:
                        left += _ROW.pack(base, summary)
                writes.put("index", end, left)
                times = run_at(storage, topic_id, queue, 0, _OFFSET.unpack(key[-8:])[0])
                if times is not None:
                    put_run(writes, topic_id, queue, 0, log_start, times)
    writes.delete_range("index", first, end)
    for level in (0, 1):
        runs = (_run_key(topic_id, queue, level, at) for at in (0, log_start))
        writes.delete_range("index", *runs)
    first, end = queue_key(topic_id, queue, b"t"), queue_key(topic_id, queue, b"u")
    rows = storage.scan("index", first, end)
    kept = next((key for key, at in rows if _OFFSET.unpack(at)[0] > log_start), end)
    if kept != first:
        writes.delete_range("index", first, kept)


def _size(storage: Storage, topic_id: int, queue: int, first: int, end: int) -> int | None:
    """Return the bytes of a log's entries between two offsets, or None if the first one is gone.

    That happens if an older version removed a block's oldest entries without reducing the block.
    """
    begin = log_key(topic_id, queue, first)
    size = 0
    whole = False
    for key, entry in storage.scan("log", begin, log_key(topic_id, queue, end)):
        whole = whole or key == begin
        if not whole:
            return None
        size += len(entry)
    return size if whole else None


def forget(writes: WriteSet, topic_id: int, queue: int) -> None:
    """Stage the removal of a queue's whole index."""
    writes.delete_range("index", queue_key(topic_id, queue), queue_end(topic_id, queue))
