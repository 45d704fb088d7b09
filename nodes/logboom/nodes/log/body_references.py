"""How `log` stores a released batch close behind the parked entry that it comes from: without its body.

Both hold the same body, so the released one *borrows* it: what is stored is its two heads and the
place that it was parked at, 108 bytes, and every read of the store puts the whole entry together
again. Nobody above the store sees a difference, and each replica decides for itself: nothing of
this travels. The checksum of the entry covers the borrowed body as any other.

The lender stays as long as its entry does. Before retention removes it, who still borrows from it
is written out whole; so that this is little, only what lies within `REACH` borrows. Who borrows
from whom stands in `state`: queue, `b`, lender (offset u64, side u32) → borrower (the same).
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
"""Bytes of a queue's log between a lender and who borrows from it: retention writes out at most as
much in one step."""
SHORTEST: Final = 1024
"""Bytes of a body that is worth a second read."""
STORED: Final = HEAD_LENGTH + RELEASED_FROM.size
"""Bytes of an entry that borrows, as it is stored. No whole entry of its kind is so short."""

_PLACE: Final = struct.Struct(">QI")
_ATTRIBUTES: Final = struct.Struct("<H")
_LENGTH: Final = struct.Struct("<I")
_LENGTH_AT: Final = 88
_QUEUE_BYTES: Final = len(queue_key(0, 0))


# ── as it is stored ─────────────────────────────────────────────────────────────────────────────


def referenced_key(key: bytes, stored: bytes) -> bytes | None:
    """The key of the entry that a stored value of family `log` borrows its body from; None: it is
    whole. Whatever the bytes: a damaged one fails its checksum later."""
    if len(stored) != STORED:
        return None
    (attributes,) = _ATTRIBUTES.unpack_from(stored, CRC_START)
    if not attributes & Attribute.RELEASED or attributes & Attribute.CONTROL:
        return None
    offset, side = RELEASED_FROM.unpack_from(stored, HEAD_LENGTH)
    return key[:_QUEUE_BYTES] + _PLACE.pack(offset, side)


def resolve_body(stored: bytes, lender: bytes | None) -> bytes:
    """The entry, with the body that stands last in its lender. What does not fit stays as it is:
    too short for its head, so that every check refuses it."""
    (length,) = _LENGTH.unpack_from(stored, _LENGTH_AT)
    if lender is None or not 0 < length <= len(lender) - HEAD_LENGTH:
        return stored
    return b"".join((stored[:HEAD_LENGTH], memoryview(lender)[-length:], stored[HEAD_LENGTH:]))


# ── a queue's borrowers ─────────────────────────────────────────────────────────────────────────


class BodyReferences:
    """Who may lend in one queue, and who borrows."""

    __slots__ = ("_appended", "_ids", "_lenders")

    def __init__(self, topic_id: int, queue: int) -> None:
        self._ids = (topic_id, queue)
        self._appended = 0
        """Bytes appended since this process opened the queue."""
        self._lenders: dict[Position, int] = {}
        """Where batches were parked lately, oldest first, and `_appended` behind each."""

    def stage(
        self, entry: bytes, head: BatchHead, at: Position, tail: Tail, writes: WriteSet
    ) -> None:
        """Stage an entry that is appended at `at`, whole or without its body."""
        self._appended += len(entry)
        if head.kind == ControlKind.PARKED:
            self._lenders[at] = self._appended
        key, lender = log_key(*self._ids, *at), self._lender(entry, head, tail)
        if lender is None:
            writes.put("log", key, entry)
            return
        writes.put("log", key, entry[:HEAD_LENGTH] + entry[-RELEASED_FROM.size :])
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
        # What a leader releases is what was parked; compared, since a copy would be lost else.
        body = memoryview(entry)[HEAD_LENGTH : HEAD_LENGTH + head.stored_length]
        return lender if tail[lender][0].endswith(body) else None

    def _row(self, lender: Position) -> bytes:
        return queue_key(*self._ids, b"b" + _PLACE.pack(*lender))

    def trim(self, start: Position, writes: WriteSet, storage: Storage) -> None:
        """Retention removes all before `start`: stage whole what stays and borrows from there.

        What is damaged stays so, and is found by whoever reads it next. What was appended in this
        turn borrows from nothing that goes: its parking is not applied, and holds retention up.

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
        """The log was cut: what comes again behind is stored whole, should a lender be damaged.

        Rows of what is cut may stay: at their place stands nothing, or another entry.
        """
        self._lenders.clear()

    def reset(self, writes: WriteSet) -> None:
        """The log begins anew, empty."""
        self._lenders.clear()
        writes.delete_range("state", self._row(Position(0)), queue_key(*self._ids, b"c"))
