"""What one turn changes of a queue's compaction: gathered, seen by what follows, staged once."""

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
"""Copies that one turn writes anew at most; the others shrink when they lose the next survivor."""


class CompactionUpdate(CompactionRows):
    """The rows of one queue with the changes of this turn in them; `stage` writes these down."""

    def __init__(self, storage: Storage, ids: Ids) -> None:
        super().__init__(storage, ids)
        self._changed: set[int] = set()
        """Blocks."""
        self._latest: dict[bytes, int | None] = {}
        self._copies: dict[int, tuple[CopyInfo, bytes]] = {}
        """Copies that are new, by where they begin."""
        self._thinner: set[int] = set()
        """Where copies begin that lost survivors."""

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
        """`start` + n survives, for each bit n of `count`."""
        shift = 0
        for number, at, length in pieces(start, start + count):
            part = bits >> shift & ((1 << length) - 1)
            shift += length
            if part:
                self.blocks[number] = self.block(number) | part << at
                self._changed.add(number)

    def clear(self, offset: int, log_start: int) -> None:
        """A message survives no longer."""
        number = offset >> BLOCK_BITS
        self.blocks[number] = self.block(number) & ~(1 << (offset & (BLOCK - 1)))
        self._changed.add(number)
        if offset < log_start:
            found = self.copy_over(offset)
            if found is not None:
                self._thinner.add(found[0])

    def enter(self, key: bytes, offset: int, log_start: int) -> bool:
        """A message with this key: it supersedes an earlier one. False: a later one is known."""
        known = self.latest(key)
        if known is not None:
            if known >= offset:
                return known == offset
            self.clear(known, log_start)
        self._latest[key] = offset
        return True

    def forget(self, key: bytes) -> None:
        """No message with this key is left to be known."""
        self._latest[key] = None

    def copy(self, base: int, head: BatchHead, batch: bytes) -> None:
        """Keep the survivors of a batch beyond its time in the log."""
        live = self.bits(base, base + head.count)
        if live:
            copy = CopyInfo(head.count, live.bit_count())
            self._copies[base] = (copy, thinned(batch, head, live))
            self._thinner.discard(base)

    def stage(self, writes: WriteSet) -> None:
        """Stage all that changed.

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
        """A copy lost survivors: it goes with the last, and shrinks when it has lost half. Whether
        it was written anew."""
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
    """The copy that begins at `base`, checked.

    Raises:
        DataDamaged: it is missing, or does not hold.
    """
    batch = found.copied(base)
    if batch is None:
        raise DataDamaged(f"the copy of what compaction keeps at offset {base} is missing")
    return batch, check_copy(base, batch)


def check_copy(base: int, batch: bytes) -> BatchHead:
    """The head of the copy that begins at `base`.

    Raises:
        DataDamaged: it does not hold.
    """
    try:
        head = validate_batch(batch)
    except DamagedBatch as error:
        raise DataDamaged(error.text) from None
    if head.base_offset != base or head.is_control:
        raise DataDamaged(f"the copy of what compaction keeps at offset {base} is another batch")
    return head


def thinned(batch: bytes, head: BatchHead, live: int) -> bytes:
    """The batch without the bodies of what does not survive, once that is at least half of it.

    Each message keeps its place and so its offset; those that are gone are empty, and whoever
    reads the copy is told which these are.
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
        # Stored as its producer sent it, with a body that does not hold together.
        return batch
    made = encode_batch(
        values,
        keys,
        tags if head.has(Attribute.TAGS) else None,
        headers if head.has(Attribute.HEADERS) else None,
        times if head.has(Attribute.TIMESTAMPS) else head.first_timestamp_ms,
        now_ms=head.first_timestamp_ms,
        # What is empty costs next to nothing once it is compressed.
        codec="lz4" if head.codec is Codec.NONE else head.codec.name.lower(),
    )
    return stamp(made, head.base_offset, head.leader_epoch, head.append_time_ms)
