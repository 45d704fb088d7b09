"""The rows of family `cursor`: the acknowledgements of each subscription of a queue.

After (topic id, queue):

| key                            | value                                                         |
|--------------------------------|---------------------------------------------------------------|
| `s`, number u32                | msgpack of `CursorRow`                                        |
| `a`, number u32, block u64     | acknowledged in a block of 8,192 offsets (`ack_set`)          |
| `n`, number u32, block u64     | msgpack: offset in the block → failed deliveries              |

A number stands for a subscription's name in this queue and is never reused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from logboom.nodes.log.keys import queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica.ack_set import decode_block, encode_block
from logboom.nodes.replica.offset_set import BLOCK, BLOCK_BITS
from logboom.wire.base import UNDECODABLE
from logboom.wire.errors import DataDamaged

_NUMBER: Final = struct.Struct(">I")
_BLOCK: Final = struct.Struct(">IQ")
_PREFIX: Final = 9
"""Bytes of topic id, queue and letter."""

Ids = tuple[int, int]
"""(topic id, queue)."""


class CursorRow(Struct, frozen=True, array_like=True):
    """The head of one subscription."""

    name: str
    floor: int
    """Everything below is acknowledged."""
    whole_at: int
    """Offset of the last entry that contained the whole cursor; retention keeps the log from here
    on."""


_row: Final = msgspec.msgpack.Decoder(CursorRow).decode
_counts: Final = msgspec.msgpack.Decoder(dict[int, int]).decode


def put_head(writes: WriteSet, ids: Ids, number: int, row: CursorRow) -> None:
    """Stage a subscription's head."""
    writes.put("cursor", queue_key(*ids, b"s" + _NUMBER.pack(number)), msgspec.msgpack.encode(row))


def put_block(writes: WriteSet, ids: Ids, number: int, block: int, bits: int) -> None:
    """Stage one block of acknowledgements; an empty one is removed."""
    key = queue_key(*ids, b"a" + _BLOCK.pack(number, block))
    if bits:
        writes.put("cursor", key, encode_block(bits))
    else:
        writes.delete("cursor", key)


def put_counts(writes: WriteSet, ids: Ids, number: int, block: int, counts: dict[int, int]) -> None:
    """Stage the counts of one block, by offset; an empty one is removed."""
    key = queue_key(*ids, b"n" + _BLOCK.pack(number, block))
    if counts:
        within = {offset & (BLOCK - 1): count for offset, count in counts.items()}
        writes.put("cursor", key, msgspec.msgpack.encode(within))
    else:
        writes.delete("cursor", key)


def remove_blocks(writes: WriteSet, ids: Ids, number: int) -> None:
    """Stage the removal of all blocks of a subscription."""
    for letter in (b"a", b"n"):
        low = queue_key(*ids, letter + _BLOCK.pack(number, 0))
        high = queue_key(*ids, letter + _BLOCK.pack(number + 1, 0))
        writes.delete_range("cursor", low, high)


def remove_blocks_below(writes: WriteSet, ids: Ids, number: int, before: int, block: int) -> None:
    """Stage the removal of blocks from `before` on that are completely below `block`."""
    for letter in (b"a", b"n"):
        low = queue_key(*ids, letter + _BLOCK.pack(number, before))
        high = queue_key(*ids, letter + _BLOCK.pack(number, block))
        writes.delete_range("cursor", low, high)


def remove_head(writes: WriteSet, ids: Ids, number: int) -> None:
    """Stage the removal of a subscription's head."""
    writes.delete("cursor", queue_key(*ids, b"s" + _NUMBER.pack(number)))


def heads(storage: Storage, ids: Ids) -> Iterator[tuple[int, CursorRow]]:
    """Yield (number, head) of all subscriptions.

    Raises:
        DataDamaged: the store cannot be read.
    """
    for key, value in storage.scan("cursor", queue_key(*ids, b"s"), queue_key(*ids, b"t")):
        try:
            yield _NUMBER.unpack_from(key, _PREFIX)[0], _row(value)
        except (*UNDECODABLE, struct.error) as error:
            raise DataDamaged(f"a subscription's row cannot be read: {error}") from None


def blocks(storage: Storage, ids: Ids, number: int) -> Iterator[tuple[int, int]]:
    """Yield (block, bits) of a subscription.

    Raises:
        DataDamaged: the store cannot be read.
    """
    for block, value in _blocks(storage, ids, b"a", number):
        try:
            yield block, decode_block(value)
        except ValueError as error:
            raise DataDamaged(str(error)) from None


def counts(storage: Storage, ids: Ids, number: int) -> dict[int, int]:
    """Return offset → failed deliveries.

    Raises:
        DataDamaged: the store cannot be read.
    """
    found = {}
    for block, value in _blocks(storage, ids, b"n", number):
        try:
            for within, count in _counts(value).items():
                found[(block << BLOCK_BITS) + within] = count
        except UNDECODABLE as error:
            raise DataDamaged(f"counts of redeliveries cannot be read: {error}") from None
    return found


def _blocks(storage: Storage, ids: Ids, letter: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    low = queue_key(*ids, letter + _BLOCK.pack(number, 0))
    high = queue_key(*ids, letter + _BLOCK.pack(number + 1, 0))
    for key, value in storage.scan("cursor", low, high):
        yield _BLOCK.unpack_from(key, _PREFIX)[1], value
