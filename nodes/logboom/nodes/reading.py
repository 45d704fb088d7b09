"""Read whole entries of a queue: from memory at its tail, from the store behind it.

What comes from the store is checked, checksum and contiguity, before it goes anywhere: a damaged
entry is never served (Q14). What lies in memory was checked when it came.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from logboom.nodes.keys import LAST_SIDE, Position, log_key, position_of
from logboom.nodes.opening import after_entry
from logboom.nodes.replica import Replica
from logboom.nodes.storage import Storage
from logboom.wire.batch import check, peek
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.frames import Frame
from logboom.wire.hashing import tag_mask

SCAN_BYTES: Final = 4 * 1024 * 1024
"""Bytes of entries that one pull passes over without a match before it answers."""


class Damaged(DataDamaged):
    """An entry that cannot be served; `position` is where it stands or should stand."""

    def __init__(self, text: str, position: Position) -> None:
        super().__init__(text)
        self.position = position


class Found(NamedTuple):
    """What a pull gets."""

    batches: list[Frame]
    next_offset: int
    messages: int


def entries(
    replica: Replica, storage: Storage, begin: Position, limit: Position
) -> Iterator[tuple[bytes, Position]]:
    """(entry, position behind it) from the one that begins at `begin`, while behind ≤ `limit`.

    `limit` is the HW or the end: a position where an entry ends. Ends early where the store does
    not yet show what was staged; ask again next turn.

    Raises:
        Damaged: an entry is missing or does not hold.
    """
    tail = replica.tail
    held = tail.get(begin)
    if held is None:
        begin = yield from stored(replica, storage, begin, min(limit, replica.written))
        if begin != replica.written:
            return
        held = tail.get(begin)
    while held is not None:
        entry, after = held
        if after > limit:
            return
        yield entry, after
        held = tail.get(after)


def stored(
    replica: Replica, storage: Storage, begin: Position, limit: Position
) -> Generator[tuple[bytes, Position], None, Position]:
    """The same from the store alone, up to what it shows; returns where it came to."""
    at = begin
    first, last = log_key(*replica.key, *begin), log_key(*replica.key, *limit)
    try:
        for key, entry in storage.scan("log", first, last):
            head = check(entry)
            if position_of(key) != at or head.base_offset != at.offset:
                raise Damaged(f"an entry is missing at offset {at.offset}", at)
            after = after_entry(at, head)
            if after > limit:
                return at
            yield entry, after
            at = after
    except DamagedBatch as error:
        raise Damaged(error.text, at) from None
    except Damaged:
        raise
    except DataDamaged as error:
        raise Damaged(error.text, at) from None
    if at < limit:
        raise Damaged(f"entries are missing from offset {at.offset}", at)
    return at


def covering(replica: Replica, storage: Storage, offset: int) -> Position:
    """Where the batch that holds `offset` begins; `offset` lies below the HW.

    Raises:
        Damaged: there is none.
    """
    whole = Position(offset, 0)
    if whole in replica.tail:
        return whole
    first = log_key(*replica.key, replica.start)
    last = log_key(*replica.key, offset, LAST_SIDE)
    try:
        for key, entry in storage.scan("log", first, last, reverse=True):
            position = position_of(key)
            if after_entry(position, peek(entry)).offset > offset or position.offset == offset:
                return position
            break
    except (DataDamaged, DamagedBatch):
        return _gallop(replica, storage, offset)
    return _gallop(replica, storage, offset)


def _gallop(replica: Replica, storage: Storage, offset: int) -> Position:
    """The same where the entry itself cannot be read: from an entry before it that can, forward.

    Raises:
        Damaged: there is none; its position is where the whole part of the log ends.
    """
    start = Position(replica.start)
    reach = 1
    while True:
        low = max(start, Position(offset - reach))
        begin = start if low == start else _first_from(replica, storage, low, offset)
        if begin is not None:
            at = begin
            for _, after in stored(replica, storage, begin, replica.written):
                if after.offset > offset:
                    return at
                at = after
            raise Damaged(f"no batch holds offset {offset}", at)
        reach *= 2


def _first_from(replica: Replica, storage: Storage, low: Position, offset: int) -> Position | None:
    """Where the first entry at or behind `low` begins, if it can be read and lies before
    `offset`."""
    first, last = log_key(*replica.key, *low), log_key(*replica.key, offset)
    try:
        return next((position_of(key) for key, _ in storage.scan("log", first, last)), None)
    except DataDamaged:
        return None


def collect(
    replica: Replica,
    storage: Storage,
    offset: int,
    max_bytes: int,
    max_messages: int,
    tags: Sequence[str] | None,
) -> Found:
    """Whole batches from the one that holds `offset` up to the HW; at least one, if any matches.

    `offset` lies from the log's start to below the HW. Control entries are left out, and batches
    that cannot hold any of `tags`.

    Raises:
        Damaged: the first batch cannot be served.
    """
    masks = None if tags is None else [tag_mask(tag) for tag in tags]
    batches: list[Frame] = []
    size = passed = messages = 0
    at = covering(replica, storage, offset)
    try:
        for entry, after in entries(replica, storage, at, replica.hw):
            if after.offset != at.offset:
                if masks is None or _may_match(entry, masks):
                    if batches and size + len(entry) > max_bytes:
                        break
                    batches.append(entry)
                    size += len(entry)
                    messages += after.offset - max(at.offset, offset)
                else:
                    passed += len(entry)
            at = after
            if size >= max_bytes or passed > SCAN_BYTES or 0 < max_messages <= messages:
                break
    except Damaged:
        if not batches:
            raise
    return Found(batches, max(at.offset, offset), messages)


def _may_match(entry: bytes, masks: list[int]) -> bool:
    # The tag summary of the head (wire.batch), without reading all of it.
    summary = int.from_bytes(entry[72:80], "little")
    return any(summary & mask == mask for mask in masks)
