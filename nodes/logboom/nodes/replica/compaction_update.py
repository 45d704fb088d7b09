"""The changes of one turn to a queue's compaction: gathered, visible to later reads, staged once."""

from __future__ import annotations

from typing import Final

from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica import compaction_rows
from logboom.nodes.replica.compaction_rows import CompactionRows, CopyInfo, Ids
from logboom.nodes.replica.offset_set import BLOCK, BLOCK_BITS, offsets_of, pieces
from logboom.wire.batch import BatchHead, encode_batch, open_batch, stamp, validate_batch
from logboom.wire.compression import Codec
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.head import Attribute

MOST_THINNED: Final = 8
"""Copies that one turn rewrites at most; others shrink when they lose their next survivor."""


class CompactionUpdate(CompactionRows):
    """The rows of one queue with this turn's changes in them; `stage` writes the changes."""

    def __init__(self, storage: Storage, ids: Ids) -> None:
        super().__init__(storage, ids)
        self._changed: set[int] = set()
        """Blocks."""
        self._latest: dict[bytes, int | None] = {}
        self._copies: dict[int, tuple[CopyInfo, bytes]] = {}
        """New copies, by their first offsets."""
        self._thinner: set[int] = set()
        """First offsets of copies that lost survivors."""

    def latest(self, key: bytes) -> int | None:
        """See `CompactionRows.latest`."""
        return self._latest[key] if key in self._latest else super().latest(key)

    def copy_over(self, offset: int) -> tuple[int, CopyInfo] | None:
        """See `CompactionRows.copy_over`."""
        for base, (copy, _) in self._copies.items():
            if base <= offset < base + copy.messages:
                return base, copy
        return super().copy_over(offset)

    def set_bits(self, start: int, bits: int, count: int) -> None:
        """Mark `start` + n as a survivor, for each bit n of `count`."""
        shift = 0
        for number, at, length in pieces(start, start + count):
            part = bits >> shift & ((1 << length) - 1)
            shift += length
            if part:
                self.blocks[number] = self.block(number) | part << at
                self._changed.add(number)

    def clear(self, offset: int, log_start: int) -> None:
        """Note that a message no longer survives."""
        number = offset >> BLOCK_BITS
        self.blocks[number] = self.block(number) & ~(1 << (offset & (BLOCK - 1)))
        self._changed.add(number)
        if offset < log_start:
            found = self.copy_over(offset)
            if found is not None:
                self._thinner.add(found[0])

    def enter(self, key: bytes, offset: int, log_start: int) -> bool:
        """Enter a message that supersedes an earlier one with its key; False if a later is known."""
        known = self.latest(key)
        if known is not None:
            if known >= offset:
                return known == offset
            self.clear(known, log_start)
        self._latest[key] = offset
        return True

    def forget(self, key: bytes) -> None:
        """Forget a key without any message left."""
        self._latest[key] = None

    def copy(self, base: int, head: BatchHead, batch: bytes) -> None:
        """Keep the survivors of a batch after its removal from the log."""
        live = self.bits(base, base + head.count)
        if live:
            copy = CopyInfo(head.count, live.bit_count())
            self._copies[base] = (copy, thinned(batch, head, live))
            self._thinner.discard(base)

    def stage(self, writes: WriteSet) -> None:
        """Stage all changes.

        Raises:
            DataDamaged: a copy cannot be read.
        """
        room = MOST_THINNED
        for base in self._thinner:
            room -= self._thin(base, writes, may_write=room > 0)
        for number in self._changed:
            compaction_rows.put_block(writes, self.ids, number, self.blocks[number])
        for key, offset in self._latest.items():
            compaction_rows.put_latest(writes, self.ids, key, offset)
        for base, (copy, batch) in self._copies.items():
            compaction_rows.put_copy(writes, self.ids, base, copy, batch)

    def _thin(self, base: int, writes: WriteSet, *, may_write: bool) -> bool:
        """Drop a copy without survivors, or rewrite it once it has lost half; True if rewritten."""
        found = self.copy_over(base)
        if found is None:
            return False
        copy = found[1]
        live = self.bits(base, base + copy.messages)
        left = live.bit_count()
        if not left:
            self._copies.pop(base, None)
            compaction_rows.drop_copy(writes, self.ids, base)
            return False
        if left * 2 > copy.live or not may_write:
            return False
        fresh = self._copies.get(base)
        batch, head = copy_at(self, base) if fresh is None else (fresh[1], validate_batch(fresh[1]))
        self._copies[base] = (CopyInfo(copy.messages, left), thinned(batch, head, live))
        return True


def copy_at(found: CompactionRows, base: int) -> tuple[bytes, BatchHead]:
    """Return the copy that begins at `base`, checked.

    Raises:
        DataDamaged: it is missing or damaged.
    """
    batch = found.copied(base)
    if batch is None:
        raise DataDamaged(f"the copy of what compaction keeps at offset {base} is missing")
    return batch, check_copy(base, batch)


def check_copy(base: int, batch: bytes) -> BatchHead:
    """Check the copy that begins at `base`, and return its head.

    Raises:
        DataDamaged: it is damaged.
    """
    try:
        head = validate_batch(batch)
    except DamagedBatch as error:
        raise DataDamaged(error.text) from None
    if head.base_offset != base or head.is_control:
        raise DataDamaged(f"the copy of what compaction keeps at offset {base} is another batch")
    return head


def thinned(batch: bytes, head: BatchHead, live: int) -> bytes:
    """Return a batch without the bodies of superseded messages, if these are at least half of it.

    Each message keeps its place and therefore its offset. Superseded ones are empty, and readers of
    the copy are told which these are.
    """
    if live.bit_count() * 2 > head.count:
        return batch
    try:
        whole = open_batch(batch, head)
        values: list[bytes | None] = [None] * head.count
        keys: list[bytes | None] = [None] * head.count
        tags: list[str | None] = [None] * head.count
        headers: list[dict[str, bytes] | None] = [None] * head.count
        times = [head.first_timestamp_ms] * head.count
        for place in offsets_of(live):
            values[place], keys[place] = whole.value(place), whole.key(place)
            tags[place], headers[place] = whole.tag(place), whole.headers(place)
            times[place] = whole.timestamp_ms(place)
    except DamagedBatch:
        # Stored as its producer sent it, with a malformed body.
        return batch
    made = encode_batch(
        values,
        keys,
        tags if head.has(Attribute.TAGS) else None,
        headers if head.has(Attribute.HEADERS) else None,
        times if head.has(Attribute.TIMESTAMPS) else head.first_timestamp_ms,
        now_ms=head.first_timestamp_ms,
        # Empty messages cost next to nothing when compressed.
        codec="lz4" if head.codec is Codec.NONE else head.codec.name.lower(),
    )
    return stamp(made, head.base_offset, head.leader_epoch, head.append_time_ms)
