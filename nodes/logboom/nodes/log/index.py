"""The time and key index of a queue, built in a later pass over committed entries.

The index never delays an acknowledgement. An append only notes a few numbers in memory; later calls
of `advance` turn committed entries into blocks, a bounded number per call, and write the checkpoint
of the pass together with them (Q12). Committed entries that do not fill a block yet stay in memory,
and are read from the log again after a crash. Because it covers only committed entries, the index
is never truncated with the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Final, NamedTuple

from logboom.nodes.log import index_rows
from logboom.nodes.log.index_rows import RUN_BLOCKS
from logboom.nodes.log.keys import Position, log_key, position_of
from logboom.nodes.log.recovery import after_entry
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.wire.batch import BatchHead, validate_batch
from logboom.wire.columns import message_times
from logboom.wire.errors import DamagedBatch, Unavailable
from logboom.wire.head import Attribute

BLOCK_ENTRIES: Final = 256
BLOCK_BYTES: Final = 1024 * 1024
"""A block ends after the batch that reaches one of these."""
READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the log that one `advance` may read while it catches up."""
LOOKUP_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the log that one lookup may read: a few milliseconds."""
STEP_BYTES: Final = 4096
"""Bytes of which an entry, or a row of the index, costs at least as much."""
LOOKUPS: Final = 1024
"""Lookups that were broken off, and whose progress is remembered."""
CONTROLS: Final = 64
"""Control entries in a row after which a lookup jumps to the batch that follows them."""
_TIMES_AT_ONCE: Final = 256
"""Message times of a batch that are compared by their greatest."""
_NOTED: Final = 65_536
"""Entries remembered above the HW; further ones are read from the log when they are due."""


class _UnindexedEntry(NamedTuple):
    """The data of one entry that the index needs."""

    start: Position
    end: Position
    size: int
    append_time_ms: int
    max_timestamp_ms: int
    key_summary: int


def _note(position: Position, head: BatchHead) -> _UnindexedEntry:
    return _UnindexedEntry(
        position,
        after_entry(position, head),
        head.length,
        head.append_time_ms,
        head.max_timestamp_ms if head.count else index_rows.LOWEST_MS,
        head.key_summary,
    )


class QueueIndex:
    """The index of one queue."""

    def __init__(
        self, storage: Storage, topic_id: int, queue: int, log_start: int, *, resumes: bool = True
    ) -> None:
        """Resume the pass at its checkpoint, or at the log's start.

        Args:
            resumes: False for a queue that begins anew, whatever the store still holds of it.
        """
        self._storage = storage
        self._ids = (topic_id, queue)
        at = index_rows.checkpoint(storage, *self._ids) if resumes else 0
        self._noted: deque[_UnindexedEntry] = deque()
        self._begin(max(at, log_start))
        self._begin_run(self._block_start)
        self._passed: dict[int, int] = {}
        """Time → an offset before which all is older, where a lookup of it was broken off."""

    def _begin(self, offset: int) -> None:
        self._open: list[_UnindexedEntry] = []
        """Committed entries that do not fill a block yet."""
        self._open_bytes = 0
        self._block_start = offset
        self.reach = Position(offset, 0)
        """Everything before this position is in blocks or in the open one."""

    def _begin_run(self, offset: int) -> None:
        """Begin a run of blocks; a restart begins a new one, and leaves the blocks before single."""
        self._run_start = offset
        self._run_blocks = 0
        self._run_greatest_ms = index_rows.LOWEST_MS

    def note(self, position: Position, head: BatchHead) -> None:
        """Note an entry appended at `position`; calls are in log order."""
        if len(self._noted) < _NOTED:
            self._noted.append(_note(position, head))

    def cut(self, end: Position) -> None:
        """Follow a truncation of the log to `end`, which is not below the HW."""
        while self._noted and self._noted[-1].start >= end:
            self._noted.pop()

    def reset(self, writes: WriteSet, log_start: int) -> None:
        """Forget everything: the log starts again at `log_start`, or was truncated below its HW."""
        index_rows.forget(writes, *self._ids)
        self._noted.clear()
        self._passed.clear()
        self._begin(log_start)
        self._begin_run(log_start)

    def advance(self, writes: WriteSet, hw: Position, max_blocks: int = 4) -> bool:
        """Index entries below `hw`, staging up to `max_blocks` blocks; True if more are due.

        It is cheap when nothing is due. Staged writes become visible with the turn's other writes.
        """
        read = blocks = 0
        while self.reach < hw:
            while self._noted and self._noted[0].start < self.reach:
                self._noted.popleft()
            if not self._noted or self._noted[0].start != self.reach:
                if read:
                    return True
                read = self._read_back(hw)
                if not read:
                    return False
            while self._noted and self._noted[0].end <= hw and self._noted[0].start == self.reach:
                blocks += self._take(writes, self._noted.popleft())
                if blocks == max_blocks:
                    return self.reach < hw
            if self._noted and self._noted[0].start == self.reach:
                return False  # The HW is within this entry.
        return False

    def _read_back(self, hw: Position) -> int:
        """Read entries from the log that are not in memory, and note them; return the bytes read."""
        size = 0
        again: list[_UnindexedEntry] = []
        first = log_key(*self._ids, *self.reach)
        for key, entry in self._storage.scan("log", first, log_key(*self._ids, *hw)):
            position = position_of(key)
            if position != (again[-1].end if again else self.reach):
                break
            again.append(_note(position, validate_batch(entry)))
            size += len(entry)
            if size >= READ_BYTES or (self._noted and again[-1].end >= self._noted[0].start):
                break
        self._noted.extendleft(reversed(again))
        return size

    def _take(self, writes: WriteSet, note: _UnindexedEntry) -> int:
        """Index one committed entry; return 1 if it filled a block."""
        if self._open and note.end.side and self._open[-1].end.side:
            # One note stands for control entries in a row, which may be a million parked batches.
            last = self._open[-1]
            note_of_all = note._replace(start=last.start, size=last.size + note.size)
            self._open[-1] = note_of_all
        else:
            self._open.append(note)
        self._open_bytes += note.size
        self.reach = note.end
        full = self._open_bytes >= BLOCK_BYTES or len(self._open) >= BLOCK_ENTRIES
        # A block ends after a batch: at the same offset, control entries come before the batch.
        if not full or note.end.side:
            return 0
        greatest_ms = max(n.max_timestamp_ms for n in self._open)
        block = index_rows.IndexBlock(note.end.offset, self._open_bytes, note.append_time_ms)
        keyed = [(n.start.offset, n.key_summary) for n in self._open if n.key_summary]
        index_rows.put_block(writes, *self._ids, self._block_start, block, keyed, greatest_ms)
        self._begin(note.end.offset)
        self._run_blocks += 1
        self._run_greatest_ms = max(self._run_greatest_ms, greatest_ms)
        if self._run_blocks == RUN_BLOCKS:
            run = index_rows.TimedRun(note.end.offset, self._run_greatest_ms)
            index_rows.put_run(writes, *self._ids, 1, self._run_start, run)
            self._begin_run(note.end.offset)
        return 1

    def trim(self, writes: WriteSet, log_start: int) -> None:
        """Follow retention, which moved the log's start (`retention.stage_removal` calls this)."""
        index_rows.trim(self._storage, writes, *self._ids, log_start)
        if log_start > self._block_start:
            kept = [note for note in self._open if note.start.offset >= log_start]
            self._begin(log_start)
            self._begin_run(log_start)
            index_rows.put_checkpoint(writes, *self._ids, log_start)
            self._noted.extendleft(reversed(kept))

    def offset_for_time(
        self,
        timestamp_ms: int,
        log_start: int,
        hw: Position,
        writes: WriteSet | None = None,
        opens: Callable[[int], None] = lambda _: None,
    ) -> tuple[int, int]:
        """Find the first message at or after a message time; return its offset and timestamp.

        It is the first such message of the first batch whose greatest timestamp is at or after that
        time. The result is (HW, -1) if there is none.

        Args:
            timestamp_ms: the message time.
            log_start: offset from which to look.
            hw: the HW, at which the search ends.
            writes: gets the times of blocks of older releases, where they had to be read.
            opens: is called with the bytes that are read or opened.

        Raises:
            Unavailable: BUSY, because there is too much to read; a lookup of the same time goes on
                where this one ended.
        """
        at = max(
            log_start,
            index_rows.behind_older(self._storage, *self._ids, timestamp_ms),
            self._passed.pop(timestamp_ms, 0),
        )
        left = LOOKUP_BYTES
        while at < hw.offset:
            most = max(1, left // STEP_BYTES)
            at, passed = index_rows.skip_older(self._storage, *self._ids, timestamp_ms, at, most)
            read = passed * STEP_BYTES
            found = None
            if passed < most:
                found, at, more = self._read_block(timestamp_ms, at, hw, left - read, writes, opens)
                read += more
            left -= read
            opens(read)
            if found is not None:
                return found
            if at < hw.offset and left < STEP_BYTES:
                while len(self._passed) >= LOOKUPS:
                    del self._passed[next(iter(self._passed))]
                self._passed[timestamp_ms] = at
                text = f"all before {at} is older, and there is more to read"
                raise Unavailable(f"{text}: ask again in a moment", "BUSY")
        return hw.offset, -1

    def _read_block(
        self,
        timestamp_ms: int,
        at: int,
        hw: Position,
        left: int,
        writes: WriteSet | None,
        opens: Callable[[int], None],
    ) -> tuple[tuple[int, int] | None, int, int]:
        """Search from `at` to the end of its block, or of `left` bytes.

        Returns:
            What was found, the offset before which all else is older, and the bytes that were read.
        """
        block = index_rows.block_at(self._storage, *self._ids, at)
        behind = index_rows.next_block(self._storage, *self._ids, at) if block is None else None
        end = hw.offset if behind is None else behind
        if block is not None:
            end = block.next_offset
        read = 0
        greatest_ms = index_rows.LOWEST_MS
        last = min(log_key(*self._ids, end), log_key(*self._ids, *hw))
        for _, entry, head in self._entries(log_key(*self._ids, at), last):
            read += max(STEP_BYTES, len(entry))
            if head.count:
                if not head.is_control and head.max_timestamp_ms >= timestamp_ms:
                    opens(head.plain_length)
                    return _first_at(entry, head, timestamp_ms), at, read
                greatest_ms = max(greatest_ms, head.max_timestamp_ms)
                if read > left:
                    return None, head.base_offset + head.count, read
        if block is not None and writes is not None and end <= hw.offset:
            # Of an older release; or its latest messages have been removed.
            run = index_rows.TimedRun(end, greatest_ms)
            index_rows.put_run(writes, *self._ids, 0, at, run)
        return None, end, read

    def _entries(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes, BatchHead]]:
        """Yield (key, entry, head) between two keys, skipping through long runs of control entries."""
        while True:
            controls = 0
            jump = b""
            for key, entry in self._storage.scan("log", first, end):
                head = validate_batch(entry)
                yield key, entry, head
                controls = 0 if head.count else controls + 1
                if controls == CONTROLS:
                    # At an offset, the batch comes last.
                    last = min(end, log_key(*self._ids, head.base_offset + 1))
                    jump = next(self._storage.scan("log", key, last, reverse=True))[0]
                    if jump > key:
                        break
            else:
                return
            first = jump

    def find_key(
        self, key_hash: int, before: int, limit: int, log_start: int
    ) -> tuple[list[int], int]:
        """Find the base offsets of batches that may hold a key of this hash (`hashing.murmur3`).

        They are returned newest first, with the offset up to which the index reaches; the caller
        scans the log from there.
        """
        mask = 1 << ((key_hash & 0xFFFF) >> 10)
        newest = ((note.start.offset, note.key_summary) for note in reversed(self._open))
        found = chain(
            index_rows.matching(newest, mask, before),
            index_rows.candidates(
                self._storage, *self._ids, mask, min(before, self._block_start), log_start
            ),
        )
        kept = [offset for offset in islice(found, max(0, limit)) if offset >= log_start]
        return kept, self.reach.offset


def _first_at(entry: bytes, head: BatchHead, timestamp_ms: int) -> tuple[int, int]:
    """Find the first message of a batch at or after a time that its greatest timestamp reaches."""
    if head.has(Attribute.TIMESTAMPS):
        # Readers refuse a batch whose body does not hold together; here it is as good as any.
        with suppress(DamagedBatch):
            times = message_times(head, entry)
            for start in range(0, head.count, _TIMES_AT_ONCE):
                part = times[start : start + _TIMES_AT_ONCE]
                if max(part) >= timestamp_ms:
                    place = next(at for at, time_ms in enumerate(part) if time_ms >= timestamp_ms)
                    return head.base_offset + start + place, part[place]
    return head.base_offset, head.first_timestamp_ms
