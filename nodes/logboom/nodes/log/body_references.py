"""References from released batches to the bodies of the parked entries that they come from.

Both entries have the same body. If they are close to each other in the log, the released one
*borrows* it: `log` stores its two heads and the position at which it was parked, 108 bytes, and
every read of the store reassembles the entry. Layers above the store see no difference. Each
replica decides on its own whether it stores an entry so. The checksum of the entry covers the
borrowed body like any other.

A leader sends the same 108 bytes to a follower that says that it can rebuild the entry
(`shorten`).

The lender stays as long as its entry does. Before retention removes it, the entries that still
borrow from it are written out in full. To keep this small, only entries within `REACH` of each
other borrow. Family `state` records them: queue, `b`, lender (offset u64, side u32) → borrower (the
same).
"""

from __future__ import annotations

import struct
from typing import Final

from logboom.nodes.log.keys import Position, log_key, queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.log.tail_cache import Tail
from logboom.wire.batch import released_from
from logboom.wire.head import (
    CRC_START,
    HEAD_LENGTH,
    RELEASED_FROM,
    Attribute,
    BatchHead,
    ControlKind,
)

REACH: Final = 8 * 1024 * 1024
"""Maximum bytes of a queue's log between lender and borrower, and so the bytes that retention may
have to write out in one step."""
SHORTEST: Final = 1024
"""Minimum size of a body that is worth a second read."""
STORED: Final = HEAD_LENGTH + RELEASED_FROM.size
"""Size of a borrowing entry as it is stored or sent. No complete entry of its kind is as short."""

_PLACE: Final = struct.Struct(">QI")
_ATTRIBUTES: Final = struct.Struct("<H")
_LENGTH: Final = struct.Struct("<I")
_LENGTH_AT: Final = 88
_QUEUE_BYTES: Final = len(queue_key(0, 0))


# ── as it is stored or sent ─────────────────────────────────────────────────────────────────────


def shorten(entry: bytes, tail: Tail) -> bytes | None:
    """Return an entry without its body if that is the body of a parked entry in `tail`, else None."""
    (attributes,) = _ATTRIBUTES.unpack_from(entry, CRC_START)
    if not attributes & Attribute.RELEASED or len(entry) < SHORTEST:
        return None
    at = Position(*RELEASED_FROM.unpack_from(entry, len(entry) - RELEASED_FROM.size))
    return _without_body(entry) if at in tail else None


def _without_body(entry: bytes) -> bytes:
    return entry[:HEAD_LENGTH] + entry[-RELEASED_FROM.size :]


def lender_of(short: bytes) -> Position | None:
    """Return the position of the parked entry whose body a stored or sent entry borrows.

    None means that the entry is complete. Any bytes are accepted: a damaged entry fails its
    checksum later.
    """
    if len(short) != STORED:
        return None
    (attributes,) = _ATTRIBUTES.unpack_from(short, CRC_START)
    if not attributes & Attribute.RELEASED or attributes & Attribute.CONTROL:
        return None
    return Position(*RELEASED_FROM.unpack_from(short, HEAD_LENGTH))


def referenced_key(key: bytes, stored: bytes) -> bytes | None:
    """Return the key of the entry from which a stored value of `log` borrows its body."""
    lender = lender_of(stored)
    return None if lender is None else key[:_QUEUE_BYTES] + _PLACE.pack(*lender)


def resolve_body(stored: bytes, lender: bytes | None) -> bytes:
    """Return the complete entry, with the body that ends its lender.

    If the two do not fit, the value is returned as it is: too short for its head, so that every
    check rejects it.
    """
    (length,) = _LENGTH.unpack_from(stored, _LENGTH_AT)
    if lender is None or not 0 < length <= len(lender) - HEAD_LENGTH:
        return stored
    return b"".join((stored[:HEAD_LENGTH], memoryview(lender)[-length:], stored[HEAD_LENGTH:]))


# ── a queue's borrowers ─────────────────────────────────────────────────────────────────────────


class BodyReferences:
    """The lenders and borrowers of one queue."""

    __slots__ = ("_appended", "_ids", "_lenders")

    def __init__(self, topic_id: int, queue: int) -> None:
        self._ids = (topic_id, queue)
        self._appended = 0
        """Bytes appended since this process opened the queue."""
        self._lenders: dict[Position, int] = {}
        """Positions of recently parked batches, oldest first, and `_appended` after each."""

    def stage(
        self, entry: bytes, head: BatchHead, at: Position, tail: Tail, writes: WriteSet
    ) -> None:
        """Stage an entry that is appended at `at`, in full or without its body."""
        self._appended += len(entry)
        if head.kind == ControlKind.PARKED:
            self._lenders[at] = self._appended
        key, lender = log_key(*self._ids, *at), self._lender(entry, head, tail)
        if lender is None:
            writes.put("log", key, entry)
            return
        writes.put("log", key, _without_body(entry))
        writes.put("state", self._row(lender), _PLACE.pack(*at))

    def _lender(self, entry: bytes, head: BatchHead, tail: Tail) -> Position | None:
        if not head.has(Attribute.RELEASED) or head.stored_length < SHORTEST:
            return None
        while self._lenders:
            oldest = next(iter(self._lenders))
            if self._appended - self._lenders[oldest] <= REACH:
                break
            del self._lenders[oldest]
        place = released_from(entry, head)
        assert place is not None
        lender = Position(*place)
        if self._lenders.pop(lender, None) is None or lender not in tail:
            return None
        # A leader releases what was parked. The bodies are compared, because a copy would be lost
        # if they differed.
        body = memoryview(entry)[HEAD_LENGTH : HEAD_LENGTH + head.stored_length]
        return lender if tail[lender][0].endswith(body) else None

    def _row(self, lender: Position) -> bytes:
        return queue_key(*self._ids, b"b" + _PLACE.pack(*lender))

    def trim(self, start: Position, writes: WriteSet, storage: Storage) -> None:
        """Stage in full the entries that stay and borrow from entries before `start`.

        Retention calls it before it removes those. Damaged entries stay as they are, and are found
        by the next reader. Entries appended in this turn do not borrow from anything that is
        removed: their parking is not applied yet, and holds retention up.

        Raises:
            DataDamaged: the store cannot be read.
        """
        first, end = self._row(Position(0)), self._row(start)
        rows = [Position(*_PLACE.unpack(row)) for _, row in storage.scan("state", first, end)]
        for at in rows:
            key = log_key(*self._ids, *at)
            entry = storage.get("log", key) if at >= start else None
            if entry is not None:
                writes.put("log", key, entry)
        if rows:
            writes.delete_range("state", first, end)

    def cut(self) -> None:
        """Store what follows a cut in full, in case a lender is damaged.

        Rows of removed entries may stay: their position holds nothing, or another entry.
        """
        self._lenders.clear()

    def reset(self, writes: WriteSet) -> None:
        """Forget everything: the log starts again, empty."""
        self._lenders.clear()
        writes.delete_range("state", self._row(Position(0)), queue_key(*self._ids, b"c"))
