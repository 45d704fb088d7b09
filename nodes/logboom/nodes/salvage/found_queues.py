"""The queues found in the files of stores: every intact entry, with the position of its value.

An entry is accepted if its checksums are right and the offset under which it is stored is its own.
Where two entries have one position or overlap, that of the later leader counts, because the other
one was truncated. Entries that retention removed may still be in the files; the queue's record
names the start of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from logboom.nodes.log.body_references import referenced_key, resolve_body
from logboom.nodes.log.keys import RECORD, Position, log_key, position_of, queue_key, queue_of
from logboom.nodes.log.log_state import LogState, decode_record
from logboom.nodes.log.recovery import after_entry
from logboom.nodes.replica.compaction_rows import CopyInfo, block_bits, offset_key, offset_of
from logboom.nodes.replica.compaction_update import check_copy
from logboom.nodes.replica.offset_set import pieces
from logboom.nodes.replica.replica import QueueKey
from logboom.nodes.salvage.recovery_marks import RECOVERED, UNDER_WAY
from logboom.nodes.salvage.store_rows import StoreRow
from logboom.wire.batch import validate_batch
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.head import ControlKind

_LOG_KEY: Final = len(log_key(0, 0, 0))
_STATE_KEY: Final = len(queue_key(0, 0, RECORD))
_LETTER_AT: Final = len(queue_key(0, 0))
_COMPACT_KEY: Final = len(offset_key((0, 0), b"m", 0))
_STORE_ID: Final = b"store id"

Value: TypeAlias = "tuple[int, int, int] | bytes"
"""The position of a value (file, position, size), or the value itself."""


class FoundEntry(NamedTuple):
    """One intact entry."""

    value: Value
    """As it is stored: it may borrow its body."""
    after: Position
    epoch: int
    time_ms: int
    size: int
    """Bytes of the complete entry."""
    kind: int


class FoundQueue:
    """The findings of one queue."""

    def __init__(self) -> None:
        self.entries: dict[Position, FoundEntry] = {}
        self.record: LogState | None = None
        """The newest readable record."""
        self.copies: dict[int, tuple[Value, int, int]] = {}
        """Copies that compaction kept beyond the log: first offset → value, bytes, messages."""
        self.survivors: dict[int, int] = {}
        """The surviving messages, as bits: number of a block → those of its offsets."""
        self.under_way = False
        """True if an earlier recovery of the queue did not finish."""
        self._newest: dict[bytes, int] = {}

    def take(self, letter: bytes, sequence: int, value: bytes) -> None:
        """Take a row of family `state`, unless a newer one was seen."""
        if sequence < self._newest.get(letter, -1):
            return
        if letter == RECORD:
            try:
                self.record = decode_record(value)
            except DataDamaged:
                return
        else:
            self.under_way = value == UNDER_WAY
        self._newest[letter] = sequence

    def take_survivors(self, key: bytes, sequence: int, value: bytes) -> None:
        """Take a block of survivors, unless a newer one was seen."""
        if sequence < self._newest.get(key, -1):
            return
        with suppress(DataDamaged):
            self.survivors[offset_of(key)] = block_bits(key, value)
            self._newest[key] = sequence

    def take_copy(self, base: int, value: Value, batch: bytes) -> None:
        """Take a copy; of several, the one that left out least is kept."""
        known = self.copies.get(base)
        if known is not None and known[1] >= len(batch):
            return
        with suppress(DataDamaged):
            self.copies[base] = (value, len(batch), check_copy(base, batch).count)

    def surviving(self, first: int, stop: int) -> int:
        """Return the survivors from `first` to before `stop`, as bits."""
        found = shift = 0
        for number, at, length in pieces(first, stop):
            found |= (self.survivors.get(number, 0) >> at & ((1 << length) - 1)) << shift
            shift += length
        return found

    def copies_before(self, start: int) -> list[tuple[int, CopyInfo, Value]]:
        """Return the copies of surviving messages before the log's start."""
        found = []
        for base, (value, _, messages) in sorted(self.copies.items()):
            if base + messages <= start and (live := self.surviving(base, base + messages)):
                found.append((base, CopyInfo(messages, live.bit_count()), value))
        return found

    def beyond(self, start: int) -> tuple[int, int]:
        """Count the messages that compaction kept from before the log's start: found, and lost."""
        here = sum(copy.live for _, copy, _ in self.copies_before(start))
        return here, self.surviving(0, start).bit_count() - here


class FoundQueues:
    """All findings, file by file."""

    def __init__(self, read: Callable[[Value], bytes]) -> None:
        """Begin without findings; `read` fetches a value from the files."""
        self.queues: dict[QueueKey, FoundQueue] = {}
        self.store_ids: set[str] = set()
        self.torn = False
        """True if a journal or a write-ahead log is not readable in full: queues may have been
        longer than found."""
        self._read = read
        self._borrowers: list[tuple[bytes, Value]] = []

    def take(self, file: int, rows: Iterable[StoreRow | None], content: bytes) -> None:
        """Take the rows of one file, with this content."""
        for row in rows:
            if row is None:
                self.torn = True
                continue
            stands = row.at >= 0
            value = content[row.at : row.at + row.size] if stands else row.value
            if len(row.key) == _LOG_KEY:
                self._take_entry(row.key, (file, row.at, row.size) if stands else value, value)
            elif len(row.key) == _STATE_KEY and row.key[-1:] in (RECORD, RECOVERED):
                find = self.queues.setdefault(queue_of(row.key), FoundQueue())
                find.take(row.key[-1:], row.sequence, value)
            elif len(row.key) == _COMPACT_KEY and row.key[_LETTER_AT] in b"bm":
                self._take_compacted(row, (file, row.at, row.size) if stands else value, value)
            elif row.key == _STORE_ID:
                self.store_ids.add(value.decode("ascii", "replace"))

    def settle(self) -> None:
        """Resolve borrowed bodies, after all files were read."""
        borrowers, self._borrowers = self._borrowers, []
        for key, value in borrowers:
            self._take_entry(key, value, self.entry(key, value))

    def entry(self, key: bytes, value: Value) -> bytes:
        """Return an entry as it was appended."""
        stored = self._read(value)
        lender = referenced_key(key, stored)
        if lender is None:
            return stored
        found = self.queues.get(queue_of(key))
        held = None if found is None else found.entries.get(position_of(lender))
        return resolve_body(stored, None if held is None else self._read(held.value))

    def _take_compacted(self, row: StoreRow, value: Value, content: bytes) -> None:
        find = self.queues.get(queue_of(row.key), FoundQueue())
        if row.key[_LETTER_AT] == ord("b"):
            find.take_survivors(row.key, row.sequence, content)
        else:
            find.take_copy(offset_of(row.key), value, content)
        if find.survivors or find.copies:
            self.queues.setdefault(queue_of(row.key), find)

    def _take_entry(self, key: bytes, value: Value, entry: bytes) -> None:
        try:
            head = validate_batch(entry)
        except DamagedBatch:
            if referenced_key(key, entry) is not None:
                self._borrowers.append((key, value))
            return
        at = position_of(key)
        if head.base_offset != at.offset:
            return
        find = self.queues.setdefault(queue_of(key), FoundQueue())
        held = FoundEntry(
            value,
            after_entry(at, head),
            head.leader_epoch,
            head.append_time_ms,
            len(entry),
            head.kind,
        )
        known = find.entries.get(at)
        if known is None or (known.epoch, known.time_ms) < (held.epoch, held.time_ms):
            find.entries[at] = held


class OffsetGap(NamedTuple):
    """Offsets whose messages are lost: from `first` to before `end`."""

    first: int
    end: int


class EntryChain(NamedTuple):
    """One queue's log, as far as it can be reassembled."""

    start: int
    """Offset of its first message."""
    end: Position
    entries: list[tuple[Position, FoundEntry]]
    gaps: list[OffsetGap]
    """Gaps in the log, and the known losses before its start."""
    controls: int
    """Lost control entries, as far as is known."""

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return sum(held.size for _, held in self.entries)

    @property
    def messages(self) -> int:
        """The number of messages found."""
        return sum(
            held.after.offset - at.offset
            for at, held in self.entries
            if held.kind == ControlKind.MESSAGES
        )

    @property
    def lost(self) -> int:
        """The number of messages lost."""
        return sum(gap.end - gap.first for gap in self.gaps)


def find_chain(find: FoundQueue) -> EntryChain:
    """Reassemble a queue's log, and list its gaps."""
    record = find.record
    begin = 0 if record is None else record.start
    kept: list[tuple[Position, FoundEntry]] = []
    for at in sorted(find.entries):
        held = find.entries[at]
        if at.offset < begin:
            continue
        while kept and kept[-1][1].after > at and kept[-1][1].epoch < held.epoch:
            kept.pop()
        if kept and (kept[-1][1].after > at or kept[-1][1].epoch > held.epoch):
            continue
        kept.append((at, held))
    end = Position(begin) if record is None else record.end
    if not kept:
        gaps = [OffsetGap(begin, end.offset)] if end.offset > begin else []
        return EntryChain(end.offset, Position(end.offset), [], gaps, end.side)
    first = kept[0][0].offset
    gaps, controls = [], kept[0][0].side
    if record is not None and first > begin:
        gaps.append(OffsetGap(begin, first))
    at = kept[0][0]
    for place, held in kept:
        if place.offset > at.offset:
            gaps.append(OffsetGap(at.offset, place.offset))
            at = Position(place.offset)
        controls += place.side - at.side
        at = held.after
    if end > at:
        if end.offset > at.offset:
            gaps.append(OffsetGap(at.offset, end.offset))
            at = Position(end.offset)
        controls += end.side - at.side
        at = end
    return EntryChain(first, at, kept, _joined(gaps), controls)


def _joined(gaps: list[OffsetGap]) -> list[OffsetGap]:
    """Join gaps that touch each other."""
    found: list[OffsetGap] = []
    for gap in gaps:
        if found and found[-1].end == gap.first:
            found[-1] = OffsetGap(found[-1].first, gap.end)
        else:
            found.append(gap)
    return found
