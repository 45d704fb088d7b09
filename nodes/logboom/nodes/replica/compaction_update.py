"""The changes of one turn to a queue's compaction: gathered, visible to later reads, staged once."""

from __future__ import annotations

from typing import Final

from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica import compaction_rows
from logboom.nodes.replica.compaction_rows import CompactionRows, CopyInfo, Ids
from logboom.nodes.replica.offset_set import BLOCK, BLOCK_BITS, offsets_of, pieces
from logboom.wire.batch import BatchHead, encode_batch, open_batch, stamp, validate_batch
from logboom.wire.columns import Columns
from logboom.wire.compression import Codec
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.head import Attribute

MOST_THINNED: Final = 2
"""Copies that one turn rewrites at most; others shrink when they lose their next survivor."""
COPY_MESSAGES: Final = 256
"""Messages of one copy, …"""
COPY_BYTES: Final = 256 * 1024
"""… and about its bytes, unless one message has more. Larger batches are copied in parts, since a copy
is made, rewritten and searched at once."""


class CompactionUpdate(CompactionRows):
    """The rows of one queue with this turn's changes in them; `stage` writes the changes."""

    def __init__(self, storage: Storage, ids: Ids) -> None:
        super().__init__(storage, ids)
        self._changed: set[int] = set()
        """Blocks."""
        self._latest: dict[bytes, int | None] = {}
        self._copies: dict[int, tuple[CopyInfo, bytes]] = {}
        """New copies, by their first offsets."""
        self._emptied: set[int] = set()
        """First offsets of copies that there must not be."""
        self._thinner: set[int] = set()
        """First offsets of copies that lost survivors."""

    @property
    def touched(self) -> int:
        """How many blocks have changed."""
        return len(self._changed)

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

    def clear_all(self, start: int, count: int) -> None:
        """Note that none of these messages, of which there is no copy, survives."""
        for number, at, length in pieces(start, start + count):
            self.blocks[number] = self.block(number) & ~(((1 << length) - 1) << at)
            self._changed.add(number)

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
        """Keep the survivors of a small batch after its removal from the log."""
        live = self.bits(base, base + head.count)
        self._put_copy(base, head.count, live, thinned(batch, head, live) if live else b"")

    def copy_part(self, columns: Columns, first: int, stop: int) -> None:
        """Keep the survivors among some messages of a large batch, as a copy of their own."""
        start = columns.base_offset + first
        live = self.bits(start, start + stop - first)
        self._put_copy(start, stop - first, live, _encoded(columns, first, stop, live))

    def _put_copy(self, base: int, count: int, live: int, batch: bytes) -> None:
        self._thinner.discard(base)
        self._copies.pop(base, None)
        # One without survivors may have been made before a restart, when it still had some.
        self._emptied.discard(base)
        if live:
            self._copies[base] = (CopyInfo(count, live.bit_count()), batch)
        else:
            self._emptied.add(base)

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
        for base in self._emptied:
            compaction_rows.drop_copy(writes, self.ids, base)
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
        return _encoded(open_batch(batch, head), 0, head.count, live)
    except DamagedBatch:
        # Stored as its producer sent it, with a malformed body.
        return batch


def is_small(head: BatchHead) -> bool:
    """Return True if a batch can be copied as a whole, and opened at once if it has to be."""
    if head.count == 1 and not head.has(Attribute.NULL_KEYS | Attribute.NULL_VALUES):
        return True
    return head.count <= COPY_MESSAGES and head.plain_length <= COPY_BYTES


def part_end(columns: Columns, first: int) -> tuple[int, int]:
    """Return where the part of a large batch ends that begins with message `first`, and its bytes."""
    found = columns.arrow_buffers()
    ends = [each.offsets.cast("i") for each in (found.value, found.key) if each is not None]
    begun = sum(each[first] for each in ends)
    size, stop = 0, min(columns.count, first + COPY_MESSAGES)
    for at in range(first, stop):
        size = sum(each[at + 1] for each in ends) - begun
        if size >= COPY_BYTES:
            return at + 1, size
    return stop, size


def _encoded(columns: Columns, first: int, stop: int, live: int) -> bytes:
    """Encode messages of a batch by themselves; those that are not in `live` are empty.

    Raises:
        DamagedBatch: the body is malformed.
    """
    head, count = columns.head, stop - first
    values: list[bytes | None] = [None] * count
    keys: list[bytes | None] = [None] * count
    tags: list[str | None] = [None] * count
    headers: list[dict[str, bytes] | None] = [None] * count
    times = [head.first_timestamp_ms] * count
    for place in offsets_of(live):
        at = first + place
        values[place], keys[place] = columns.value(at), columns.key(at)
        tags[place], headers[place] = columns.tag(at), columns.headers(at)
        times[place] = columns.timestamp_ms(at)
    size = sum(len(each) for column in (values, keys) for each in column if each is not None)
    made = encode_batch(
        values,
        keys,
        tags if head.has(Attribute.TAGS) else None,
        headers if head.has(Attribute.HEADERS) else None,
        times if head.has(Attribute.TIMESTAMPS) else head.first_timestamp_ms,
        now_ms=head.first_timestamp_ms,
        # Empty messages cost next to nothing when compressed. Large ones take long.
        codec="zstd" if head.codec is Codec.ZSTD and size <= 2 * COPY_BYTES else "lz4",
        lz4_speed=1 + 2 * size // COPY_BYTES,
    )
    return stamp(made, columns.base_offset + first, head.leader_epoch, head.append_time_ms)
