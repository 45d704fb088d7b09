"""The cursors of one queue's subscriptions, derived from committed entries alike everywhere (Q12).

An append only notes a CURSOR_DELTA entry. `apply` applies committed entries to memory and to the
rows of family `cursor`, in the same write as the position that it has reached. Deltas are
idempotent, because after damage the same entries are fetched again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from logboom.nodes.log.keys import Position, queue_end, queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica import cursor_rows as rows
from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.offset_set import BLOCK, BLOCK_BITS, blocks_of
from logboom.wire.batch import control_body
from logboom.wire.cursor_deltas import CursorDelta, decode_deltas, pack_counts, pack_spans
from logboom.wire.head import BatchHead, ControlKind


class Cursor:
    """One subscription: its acknowledgements and its counts of failed deliveries."""

    __slots__ = ("acks", "blocks", "name", "number", "whole_at")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.acks = AckSet()
        self.blocks: dict[int, dict[int, int]] = {}
        """Block → offset → failed deliveries of messages that are not acknowledged."""
        self.whole_at = 0
        """Offset of the last entry that contained the whole cursor."""

    @property
    def counts(self) -> dict[int, int]:
        """Offset → failed deliveries."""
        return {offset: n for block in self.blocks.values() for offset, n in block.items()}

    def whole(self) -> CursorDelta:
        """Return the whole cursor as one delta."""
        return whole_delta(self.name, self.acks, self.counts)

    def take(self, delta: CursorDelta) -> Iterable[int]:
        """Apply a delta, and return the blocks of its acknowledgements."""
        if delta.floor > self.acks.floor:
            self.acks.raise_to(delta.floor)
            self.forget(lambda offset: offset < delta.floor)
        acked = blocks_of(delta.spans())
        for block, bits in acked.items():
            self.acks.add_bits(block << BLOCK_BITS, bits)
            known = self.blocks.get(block, {})
            for offset in [each for each in known if bits >> (each & (BLOCK - 1)) & 1]:
                del known[offset]
        for offset, count in delta.counted():
            if offset not in self.acks:
                self.blocks.setdefault(offset >> BLOCK_BITS, {})[offset] = count
        return acked

    def forget(self, gone: Callable[[int], bool]) -> None:
        """Drop the counts of acknowledged offsets."""
        kept = {
            number: {offset: n for offset, n in block.items() if not gone(offset)}
            for number, block in self.blocks.items()
        }
        self.blocks = {number: block for number, block in kept.items() if block}


def whole_delta(name: str, acks: AckSet, counts: dict[int, int]) -> CursorDelta:
    """Build the delta that contains a whole cursor."""
    spans = pack_spans(acks.spans(), acks.floor)
    return CursorDelta(name, "whole", acks.floor, spans, pack_counts(counts))


class _CursorEntry(NamedTuple):
    at: Position
    deltas: list[CursorDelta]


class QueueCursors:
    """All subscriptions of one queue."""

    def __init__(self, topic_id: int, queue: int) -> None:
        self.ids = (topic_id, queue)
        self.cursors: dict[str, Cursor] = {}
        self._next_number = 0
        self._noted: deque[_CursorEntry] = deque()

    def load(self, storage: Storage) -> None:
        """Load what the store holds.

        Raises:
            DataDamaged: the store cannot be read.
        """
        for number, row in rows.heads(storage, self.ids):
            cursor = Cursor(row.name, number)
            cursor.acks = AckSet(row.floor)
            cursor.whole_at = row.whole_at
            for block, bits in rows.blocks(storage, self.ids, number):
                cursor.acks.above.add_bits(block << BLOCK_BITS, bits)
            cursor.acks.above.discard(0, row.floor)
            for offset, count in rows.counts(storage, self.ids, number).items():
                if offset not in cursor.acks:
                    cursor.blocks.setdefault(offset >> BLOCK_BITS, {})[offset] = count
            self.cursors[row.name] = cursor
            self._next_number = max(self._next_number, number + 1)

    @property
    def behind(self) -> bool:
        """True if noted entries wait to be applied."""
        return bool(self._noted)

    # ── from the log ────────────────────────────────────────────────────────────────────────────

    def note(self, head: BatchHead, entry: bytes, at: Position) -> None:
        """Note an entry appended at `at`; calls are in log order.

        Raises:
            DamagedBatch: its body is malformed.
        """
        if head.is_control and head.kind == ControlKind.CURSOR_DELTA:
            self._noted.append(_CursorEntry(at, decode_deltas(control_body(entry, head))))

    def apply(self, reach: Position, writes: WriteSet) -> bool:
        """Apply the noted entries below `reach`, and stage the rows; return True if there were any."""
        changes: dict[str, _CursorChange] = {}
        applied = False
        while self._noted and self._noted[0].at < reach:
            note = self._noted.popleft()
            applied = True
            for delta in note.deltas:
                self._apply_one(delta, note.at.offset, changes, writes)
        for name, change in changes.items():
            cursor = self.cursors.get(name)
            if cursor is not None:
                self._stage(cursor, change, writes)
        return applied

    def _apply_one(
        self, delta: CursorDelta, offset: int, changes: dict[str, _CursorChange], writes: WriteSet
    ) -> None:
        name = delta.subscription
        cursor = self.cursors.get(name)
        if delta.change == "ended":
            if cursor is not None:
                self._remove(cursor, writes)
                changes.pop(name, None)
            return
        if cursor is None:
            if delta.change == "acked":
                return  # Its subscription had ended before.
            cursor = self.cursors[name] = Cursor(name, self._next_number)
            self._next_number += 1
        change = changes.setdefault(name, _CursorChange(cursor.acks.floor))
        if delta.change == "whole":
            rows.remove_blocks(writes, self.ids, cursor.number)
            cursor.acks, cursor.whole_at = AckSet(delta.floor), offset
            cursor.blocks = {}
            change.before = delta.floor
            change.blocks.clear()
            change.counted.clear()
        change.blocks.update(cursor.take(delta))
        change.counted.update(offset >> BLOCK_BITS for offset, _ in delta.counted())

    def _stage(self, cursor: Cursor, change: _CursorChange, writes: WriteSet) -> None:
        acks, ids, number = cursor.acks, self.ids, cursor.number
        low = acks.floor >> BLOCK_BITS
        if low > change.before >> BLOCK_BITS:
            rows.remove_blocks_below(writes, ids, number, change.before >> BLOCK_BITS, low)
        for block in change.blocks:
            if block >= low:
                rows.put_block(writes, ids, number, block, acks.above.blocks.get(block, 0))
        for block in change.counted | change.blocks:
            if block >= low:
                rows.put_counts(writes, ids, number, block, cursor.blocks.get(block, {}))
        rows.put_head(writes, ids, number, rows.CursorRow(cursor.name, acks.floor, cursor.whole_at))

    def _remove(self, cursor: Cursor, writes: WriteSet) -> None:
        rows.remove_blocks(writes, self.ids, cursor.number)
        rows.remove_head(writes, self.ids, cursor.number)
        del self.cursors[cursor.name]

    def rewrite(self, writes: WriteSet) -> None:
        """Stage all rows again."""
        writes.delete_range("cursor", queue_key(*self.ids), queue_end(*self.ids))
        for cursor in self.cursors.values():
            change = _CursorChange(cursor.acks.floor)
            change.blocks = set(cursor.acks.above.blocks)
            change.counted = set(cursor.blocks)
            self._stage(cursor, change, writes)

    # ── the log changes ─────────────────────────────────────────────────────────────────────────

    def cut(self, end: Position, writes: WriteSet, *, below_hw: bool) -> None:
        """Follow a truncation of the log to `end`.

        Only an unclean election or damage truncates below the HW. Acknowledgements of lost messages
        are then lost too; otherwise other messages that get these offsets would count as
        acknowledged.
        """
        while self._noted and self._noted[-1].at >= end:
            self._noted.pop()
        if not below_hw or not self.cursors:
            return
        for cursor in self.cursors.values():
            cursor.acks.cut(end.offset)
            cursor.forget(lambda offset: offset >= end.offset)
            cursor.whole_at = min(cursor.whole_at, end.offset)
        self.rewrite(writes)

    def reset(self, writes: WriteSet) -> None:
        """Forget everything: the log starts again, and its entries restore the cursors."""
        writes.delete_range("cursor", queue_key(*self.ids), queue_end(*self.ids))
        self.cursors.clear()
        self._noted.clear()

    def limit(self, applied: Position) -> int:
        """Return the offset that retention must not pass: the log contains every cursor from there."""
        oldest = (cursor.whole_at for cursor in self.cursors.values())
        return min(applied.offset, min(oldest, default=applied.offset))


class _CursorChange:
    """The changes of one subscription in an apply."""

    __slots__ = ("before", "blocks", "counted")

    def __init__(self, floor: int) -> None:
        self.before = floor
        """The floor before the changes."""
        self.blocks: set[int] = set()
        self.counted: set[int] = set()
