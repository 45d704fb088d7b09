"""How far a number of bytes goes in a queue: for readers that bound what they read by its size."""

from __future__ import annotations

from typing import Final

from logboom.nodes.log.index_rows import block_at
from logboom.nodes.log.keys import Position
from logboom.nodes.log.storage import Storage
from logboom.nodes.replica.entry_reader import entries, find_batch_start
from logboom.nodes.replica.replica import Replica
from logboom.wire.head import KIND_AT

LOOKUP_BYTES: Final = 2 * 1024 * 1024
"""Bytes of the log that one question may read; the answer is then that far."""
LOOKUP_ENTRIES: Final = 1_000
"""Entries of the log that one question may read."""
LOOKUP_BLOCKS: Final = 512
"""Blocks of the index that one question may pass, at about 1 MiB each."""
UNKNOWN: Final = (-1, 0)


def offset_ahead(
    replica: Replica, storage: Storage, offset: int, max_bytes: int
) -> tuple[int, int]:
    """Return the offset that about `max_bytes` bytes of batches lead to from `offset`, and the bytes.

    Whole blocks of the index are passed by their size, which includes control entries; of the last
    one each batch is looked at. At least one message is passed, if there is one. A batch that does
    not fit is divided as if its messages were equally large. `UNKNOWN` if the log does not hold the
    offset.

    Raises:
        DataDamaged: an entry, or a row of the index, cannot be read.
    """
    limit = replica.readable
    if offset >= limit.offset:
        return limit.offset, 0
    if offset < replica.start:
        return UNKNOWN
    at = find_batch_start(replica, storage, offset)
    size = read = seen = passed = 0
    while at < limit and passed < LOOKUP_BLOCKS:
        block = None if at.side else block_at(storage, *replica.key, at.offset)
        if (
            block is not None
            and at.offset >= offset
            and block.next_offset <= limit.offset
            and size + block.size <= max_bytes
        ):
            at, size, passed = Position(block.next_offset, 0), size + block.size, passed + 1
            continue
        begin = at
        for entry, after in entries(replica, storage, at, limit):
            read, seen = read + len(entry), seen + 1
            if not entry[KIND_AT]:
                first, count = max(at.offset, offset), after.offset - at.offset
                length = len(entry) * (after.offset - first) // count
                if size + length > max_bytes:
                    fits = max(0, max_bytes - size) * count // len(entry)
                    stop = max(first + fits, offset + 1)
                    return stop, size + len(entry) * (stop - first) // count
                size += length
            at = after
            if read >= LOOKUP_BYTES or seen >= LOOKUP_ENTRIES:
                return (at.offset, size) if at.offset > offset else UNKNOWN
            if not at.side and block_at(storage, *replica.key, at.offset) is not None:
                break
        if at == begin:
            break  # The store does not show the entries there yet.
    if at.offset <= offset:
        return UNKNOWN
    return at.offset, size
