"""The rows of family `compact`: the results of one queue's compaction.

After (topic id, queue):

| key           | value, after a crc32c over key and value                                     |
|---------------|------------------------------------------------------------------------------|
| `c`           | the checkpoint: reach u64, offset of the next copy to fetch i64 (-1: none)    |
| `k`, the key  | offset u64 of the latest message with this key, whole bytes and no hash       |
| `b`, block u64 | survivors among 8,192 offsets, as `ack_set` packs a block                    |
| `n`, offset u64 | of a copy that begins there: messages u32, survivors when it was written u32 |
| `m`, offset u64 | the copy itself: a batch, with checksums of its own and no other            |
| `t`, time u64 (ms), offset u64 | empty: since then the copy that begins there has tombstones  |

A *survivor* is a message that no later message with its key has superseded. Copies hold survivors
that the log no longer holds. A row whose checksum is wrong is not used: everything is derived
again.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from logboom.nodes.log.keys import queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica.ack_set import decode_block, encode_block
from logboom.nodes.replica.offset_set import BLOCK, BLOCK_BITS, pieces
from logboom.wire.errors import DataDamaged
from logboom.wire.validation import crc32c

_OFFSET: Final = struct.Struct(">Q")
_CHECKPOINT: Final = struct.Struct(">Qq")
_COPY: Final = struct.Struct(">II")
_CRC: Final = struct.Struct(">I")
_LAST: Final = (1 << 64) - 1

Ids = tuple[int, int]
"""(topic id, queue)."""


class CopyInfo(NamedTuple):
    """The message counts of a copy."""

    messages: int
    """Messages, whether they survive or not."""
    live: int
    """Survivors when it was written."""


class CompactionCheckpoint(NamedTuple):
    """The progress of a queue's compaction."""

    reach: int
    """Everything before this offset is compacted."""
    lacks: int | None
    """Copies from this offset up to the log's start have yet to be fetched; None: none."""


def offset_key(ids: Ids, letter: bytes, offset: int) -> bytes:
    """Build the key of a row by an offset, or by the number of a block."""
    return queue_key(*ids, letter + _OFFSET.pack(min(offset, _LAST)))


def offset_of(key: bytes) -> int:
    """Return the offset, or the number of the block, at the end of a key."""
    return int(_OFFSET.unpack(key[-_OFFSET.size :])[0])


def _sealed(key: bytes, value: bytes) -> bytes:
    return _CRC.pack(crc32c(key + value)) + value


def _opened(key: bytes, stored: bytes, size: int = -1) -> bytes:
    """Return the value of a row.

    Raises:
        DataDamaged: its checksum is wrong, or it has not `size` bytes.
    """
    value = stored[_CRC.size :]
    held = len(stored) > _CRC.size and _CRC.unpack_from(stored)[0] == crc32c(key + value)
    if not held or size not in (-1, len(value)):
        raise DataDamaged("a row of a queue's compaction does not hold: it is made anew")
    return value


def checkpoint(storage: Storage, ids: Ids) -> CompactionCheckpoint | None:
    """Return the checkpoint of the compaction; None if there is none.

    Raises:
        DataDamaged: it cannot be read.
    """
    key = queue_key(*ids, b"c")
    stored = storage.get("compact", key)
    if stored is None:
        return None
    reach, lacks = _CHECKPOINT.unpack(_opened(key, stored, _CHECKPOINT.size))
    return CompactionCheckpoint(reach, None if lacks < 0 else lacks)


def put_checkpoint(writes: WriteSet, ids: Ids, at: CompactionCheckpoint) -> None:
    """Stage the checkpoint."""
    key = queue_key(*ids, b"c")
    value = _CHECKPOINT.pack(at.reach, -1 if at.lacks is None else at.lacks)
    writes.put("compact", key, _sealed(key, value))


class CompactionRows:
    """The stored rows of one queue. Blocks read are cached, so create an instance for each turn."""

    def __init__(self, storage: Storage, ids: Ids) -> None:
        self.storage = storage
        self.ids = ids
        self.blocks: dict[int, int] = {}
        """Number of a block → its survivors."""

    def block(self, number: int) -> int:
        """Return the survivors of a block as bits; the lowest is its first offset.

        Raises:
            DataDamaged: the row cannot be read.
        """
        known = self.blocks.get(number)
        if known is None:
            key = offset_key(self.ids, b"b", number)
            stored = self.storage.get("compact", key)
            known = 0 if stored is None else block_bits(key, stored)
            self.blocks[number] = known
        return known

    def bits(self, start: int, stop: int) -> int:
        """Return the survivors from `start` to before `stop`: bit n is `start` + n.

        Raises:
            DataDamaged: a row cannot be read.
        """
        found = shift = 0
        for number, at, length in pieces(start, stop):
            found |= (self.block(number) >> at & ((1 << length) - 1)) << shift
            shift += length
        return found

    def following(self, offset: int, stop: int) -> int | None:
        """Find the first survivor from `offset` to before `stop`.

        Raises:
            DataDamaged: a row cannot be read.
        """
        number = offset >> BLOCK_BITS
        rest = self.block(number) >> (offset & (BLOCK - 1))
        if not rest:
            first = offset_key(self.ids, b"b", number + 1)
            last = offset_key(self.ids, b"b", (stop >> BLOCK_BITS) + 1)
            row = next(self.storage.scan("compact", first, last), None)
            if row is None:
                return None
            number = offset_of(row[0])
            offset = number << BLOCK_BITS
            rest = self.blocks[number] = block_bits(*row)
        found = offset + (rest & -rest).bit_length() - 1
        return found if found < stop else None

    def latest(self, key: bytes) -> int | None:
        """Find the offset of the latest message with a key.

        Raises:
            DataDamaged: the row cannot be read.
        """
        place = queue_key(*self.ids, b"k" + key)
        stored = self.storage.get("compact", place)
        if stored is None:
            return None
        return int(_OFFSET.unpack(_opened(place, stored, _OFFSET.size))[0])

    def copy_over(self, offset: int) -> tuple[int, CopyInfo] | None:
        """Find the copy that contains an offset: its start and its counts; None if there is none.

        Raises:
            DataDamaged: the row cannot be read.
        """
        first = offset_key(self.ids, b"n", 0)
        last = offset_key(self.ids, b"n", offset) + b"\0"
        row = next(self.storage.scan("compact", first, last, reverse=True), None)
        if row is None:
            return None
        base, copy = offset_of(row[0]), CopyInfo(*_COPY.unpack(_opened(*row, _COPY.size)))
        return (base, copy) if offset < base + copy.messages else None

    def copied(self, base: int) -> bytes | None:
        """Return the copy that begins at `base`, unchecked.

        Raises:
            DataDamaged: the store cannot read it.
        """
        return self.storage.get("compact", offset_key(self.ids, b"m", base))


def put_tombstones(writes: WriteSet, ids: Ids, since_ms: int, base: int) -> None:
    """Stage that a copy has tombstones, which are kept for a while from a time on."""
    writes.put("compact", tombstones_key(ids, since_ms, base), b"")


def tombstones_key(ids: Ids, since_ms: int, base: int = 0) -> bytes:
    """Build the key of the row of a copy with tombstones; its value is empty."""
    at = _OFFSET.pack(min(max(0, since_ms), _LAST))
    return queue_key(*ids, b"t" + at + _OFFSET.pack(base))


def block_bits(key: bytes, stored: bytes) -> int:
    """Decode the survivors of a block from its row.

    Raises:
        DataDamaged: its checksum is wrong.
    """
    try:
        return decode_block(_opened(key, stored))
    except ValueError as error:
        raise DataDamaged(str(error)) from None


def put_latest(writes: WriteSet, ids: Ids, key: bytes, offset: int | None) -> None:
    """Stage the offset of the latest message with a key; None if there is none."""
    place = queue_key(*ids, b"k" + key)
    if offset is None:
        writes.delete("compact", place)
    else:
        writes.put("compact", place, _sealed(place, _OFFSET.pack(offset)))


def put_block(writes: WriteSet, ids: Ids, number: int, bits: int) -> None:
    """Stage the survivors of a block; without any there is no row."""
    key = offset_key(ids, b"b", number)
    if bits:
        writes.put("compact", key, _sealed(key, encode_block(bits)))
    else:
        writes.delete("compact", key)


def put_copy(writes: WriteSet, ids: Ids, base: int, copy: CopyInfo, batch: bytes) -> None:
    """Stage a copy."""
    key = offset_key(ids, b"n", base)
    writes.put("compact", key, _sealed(key, _COPY.pack(*copy)))
    writes.put("compact", offset_key(ids, b"m", base), batch)


def drop_copy(writes: WriteSet, ids: Ids, base: int) -> None:
    """Stage the removal of a copy."""
    writes.delete("compact", offset_key(ids, b"n", base))
    writes.delete("compact", offset_key(ids, b"m", base))


def drop_copies(writes: WriteSet, ids: Ids, start: int, stop: int) -> None:
    """Stage the removal of all copies that begin from `start` to before `stop`.

    There are some if they were made before a restart, and all in them was superseded after it.
    """
    for letter in (b"m", b"n"):
        writes.delete_range(
            "compact", offset_key(ids, letter, start), offset_key(ids, letter, stop)
        )
