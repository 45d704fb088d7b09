"""The log of one queue at this broker: its ends, epochs and producers; append, truncation, reset.

It is the same for leader and follower. Writes are staged in the turn's write set together with the
queue's record (Q10). `end` is what was appended, `synced` what is on disk (Q1), and `hw` what every
in-sync replica is known to have on disk. Positions are (offset, side).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from logboom.nodes.log.body_references import BodyReferences
from logboom.nodes.log.epoch_table import EpochTable
from logboom.nodes.log.keys import Position, log_key, position_of, queue_end, queue_key
from logboom.nodes.log.log_state import LogState, forget_queue, put_epochs, put_record
from logboom.nodes.log.producer_windows import ProducerWindows
from logboom.nodes.log.recovery import after_entry
from logboom.nodes.log.tail_cache import Tail, TailCache, cut_tail
from logboom.nodes.replica.compaction_state import CompactionState
from logboom.nodes.replica.cursors import QueueCursors
from logboom.nodes.replica.parked_queue import ParkedQueue
from logboom.wire.base import UNDECODABLE
from logboom.wire.batch import (
    control_body,
    control_view,
    encode_control,
    peek,
    stamp,
    validate_batch,
)
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.head import Attribute, BatchHead, ControlKind
from logboom.wire.parking import encode_parked, parked_head
from logboom.wire.transactions import TransactionId

if TYPE_CHECKING:
    from logboom.nodes.log.index import QueueIndex
    from logboom.nodes.log.storage import Storage, WriteSet
    from logboom.nodes.replica.leadership import Leadership

WINDOWS: Final = b"w"
"""Suffix of the state key that holds the producer windows below the HW."""
SNAPSHOT_BYTES: Final = 4 * 1024 * 1024
"""Bytes appended between two writes of the producer windows, which an opening has to read again."""

QueueKey: TypeAlias = tuple[int, int]
"""(topic id, queue)."""


class ReplicaSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state that a replica whose log starts at a position needs of the log before it (Q9)."""

    offset: int
    side: int
    epochs: list[tuple[int, int, int]]
    windows: bytes


class AppendResult(NamedTuple):
    """The position of an appended batch."""

    base_offset: int
    after: Position
    append_time_ms: int


class Replica:
    """One queue's log and the state derived from it."""

    def __init__(
        self,
        topic_id: int,
        queue: int,
        record: LogState,
        epochs: EpochTable,
        index: QueueIndex,
    ) -> None:
        """Open a log as the store holds it; all of it counts as on disk."""
        self.topic_id = topic_id
        self.queue = queue
        self.key: QueueKey = (topic_id, queue)
        self.topic = ""
        """Name of the topic, once metadata has arrived."""
        self.start = record.start
        """Offset of the first message kept."""
        self.end = record.end
        self.written = record.end
        """End of the entries that reads of the store can see."""
        self.synced = record.end
        self.hw = min(max(record.hw, Position(record.start)), record.end)
        self.append_time_ms = record.append_time_ms
        self.applied = record.applied
        self.size = record.size
        """Bytes of all entries kept."""
        self.appended_bytes = 0
        """Bytes appended since this process has opened the log."""
        self.sent_bytes = 0
        """Bytes of it sent to consumers."""
        self.epochs = epochs
        self.index = index
        self.windows = ProducerWindows()
        self.parked = ParkedQueue(topic_id, queue)
        self.cursors = QueueCursors(topic_id, queue)
        self.borrowing = BodyReferences(topic_id, queue)
        self.compaction = CompactionState(topic_id, queue)
        self.tail: Tail = {}
        self.cuts = 0
        """Grows with every truncation: a sync of earlier writes says nothing about the log after
        it."""
        self.restoring = ""
        """The backup that is being restored into the topic, as far as this broker knows; "" if none
        is. Until it ends, the log holds nothing but the backup's entries."""
        self.role: Literal["none", "leader", "follower"] = "none"
        self.leader: str | None = None
        """The leader, as far as this broker may act on it."""
        self.leader_epoch = -1
        self.leading: Leadership | None = None
        self.leader_start = record.start
        """Start of the leader's log, up to which a follower may delete."""
        self.leader_compacts = False
        """True if the leader compacts the queue: then nothing is deleted before this replica does
        too."""
        self.leader_hw: Position | None = None
        """The leader's HW that this follower heard last in this epoch."""
        self.damage: str | None = None
        """What is wrong with this copy, or None (Q14)."""
        self.damaged_at: Position | None = None
        self._epochs_changed = False
        self._windows_written = record.end
        self._since_windows = 0
        self._windows_bytes = 0
        """Size of what was written of the producer windows."""
        self._expiries: deque[tuple[Position, list[int]]] = deque()

    # ── opening ─────────────────────────────────────────────────────────────────────────────────

    def load_derived(self, storage: Storage) -> None:
        """Rebuild the derived state from its stored part and the entries after it.

        That is the producer windows, and the notes of entries not yet applied that park, release,
        recall or acknowledge. A damaged entry ends the reading, and the replica is damaged from
        there on.

        Raises:
            DataDamaged: the store cannot be read.
        """
        begin = Position(self.start)
        stored = storage.get("state", queue_key(*self.key, WINDOWS))
        if stored is not None:
            snapshot = _decode_snapshot(stored)
            place = Position(snapshot.offset, snapshot.side)
            self.windows.load(snapshot.windows, min(place, self.hw))
            self._windows_bytes = len(stored)
            begin = max(begin, place)
        self._windows_written = begin
        self.parked.load(storage)
        self.cursors.load(storage)
        self.compaction.load(storage, self.start)
        first = log_key(*self.key, *min(begin, max(self.applied, Position(self.start))))
        last = queue_end(*self.key)
        for key, entry in storage.scan("log", first, last):
            at = position_of(key)
            try:
                # A window that believes a flipped bit rejects a good batch or accepts one twice.
                head = validate_batch(entry)
            except DamagedBatch as error:
                self.damage, self.damaged_at = error.text, at
                break
            if at >= self.applied:
                self.parked.note(head, entry, at)
                self.cursors.note(head, entry, at)
            if at >= begin:
                self._since_windows += len(entry)
                self._note_producer(head, entry, at)
        self._apply_expiries()

    # ── appending ───────────────────────────────────────────────────────────────────────────────

    def append_batch(
        self,
        batch: bytes | memoryview,
        head: BatchHead,
        wall_ms: int,
        writes: WriteSet,
        cache: TailCache,
    ) -> AppendResult:
        """Stamp a checked batch and append it, as the leader."""
        offset = self.end.offset
        # Append time never goes back within a queue, whatever the clock does (Q10).
        time_ms = max(wall_ms, self.append_time_ms)
        entry = stamp(batch, offset, self.leader_epoch, time_ms)
        after = Position(offset + head.count, 0)
        self._append(entry, peek(entry), after, writes, cache)
        return AppendResult(offset, after, time_ms)

    def append_parked(
        self,
        batch: bytes | memoryview,
        due_ms: int,
        wall_ms: int,
        writes: WriteSet,
        cache: TailCache,
        transaction: TransactionId | None = None,
    ) -> AppendResult:
        """Append a batch that waits for a time or a decision, as the leader; it takes no offset.

        With a decision to wait for, `due_ms` does not matter. The batch has been checked.

        Raises:
            InvalidRequest: TOO_LARGE.
        """
        if transaction is not None:
            due_ms = max(wall_ms, self.append_time_ms)
        body = encode_parked(batch, due_ms, transaction=transaction)
        after = self.append_control(ControlKind.PARKED, body, wall_ms, writes, cache)
        return AppendResult(after.offset, after, self.append_time_ms)

    def append_control(
        self, kind: ControlKind, body: bytes, wall_ms: int, writes: WriteSet, cache: TailCache
    ) -> Position:
        """Append a control entry, as the leader; it takes no offset. Return the position after it."""
        time_ms = max(wall_ms, self.append_time_ms)
        entry = stamp(encode_control(kind, body), self.end.offset, self.leader_epoch, time_ms)
        after = Position(self.end.offset, self.end.side + 1)
        self._append(entry, peek(entry), after, writes, cache)
        return after

    def append_entry(self, entry: bytes, writes: WriteSet, cache: TailCache) -> None:
        """Append a leader's entry, as a follower; it must continue this log exactly (Q5).

        Raises:
            DamagedBatch: a checksum is wrong, or the entry does not fit the end.
        """
        head = validate_batch(entry)
        if (
            head.base_offset != self.end.offset
            or not self.epochs.last <= head.leader_epoch <= self.leader_epoch
            or head.append_time_ms < self.append_time_ms
        ):
            raise DamagedBatch(
                f"entry at offset {head.base_offset} epoch {head.leader_epoch} does not continue "
                f"the log at {self.end.offset} epoch {self.epochs.last}: fetch it again"
            )
        self._append(entry, head, after_entry(self.end, head), writes, cache)

    def _append(
        self,
        entry: bytes,
        head: BatchHead,
        after: Position,
        writes: WriteSet,
        cache: TailCache,
    ) -> None:
        position = self.end
        self._note_producer(head, entry, position)
        self.parked.note(head, entry, position)
        self.cursors.note(head, entry, position)
        self.borrowing.stage(entry, head, position, self.tail, writes)
        if self.epochs.begin(head.leader_epoch, position):
            self._epochs_changed = True
        cache.add(self.tail, position, entry, after)
        self.index.note(position, head)
        self.end = after
        self.append_time_ms = head.append_time_ms
        self.size += len(entry)
        self.appended_bytes += len(entry)
        self._since_windows += len(entry)

    # ── the record ──────────────────────────────────────────────────────────────────────────────

    def stage_record(self, writes: WriteSet, windows_every: int = SNAPSHOT_BYTES) -> None:
        """Write this turn's changes to the record, in the same write set as the entries (Q10).

        The producer windows are written too, once `windows_every` bytes and no fewer than they have
        were appended, or when retention removes batches from which they could be rebuilt.
        """
        put_record(writes, *self.key, self.record())
        if self._epochs_changed:
            put_epochs(writes, *self.key, self.epochs.entries)
            self._epochs_changed = False
        every = max(windows_every, self._windows_bytes)
        due = self._since_windows >= every or self.start > self._windows_written.offset
        if due and self.hw > self._windows_written:
            self.stage_windows(writes)

    def write_all(self, writes: WriteSet) -> None:
        """Write everything that `state` holds of the log again, because the disk has lost it."""
        put_record(writes, *self.key, self.record())
        put_epochs(writes, *self.key, self.epochs.entries)
        self.stage_windows(writes)

    def record(self) -> LogState:
        """Return the log's state as it is stored."""
        return LogState(self.start, self.end, self.append_time_ms, self.hw, self.applied, self.size)

    def stage_windows(self, writes: WriteSet) -> None:
        """Stage the producer windows as of the HW, which no truncation undoes."""
        snapshot = self.snapshot()
        writes.put("state", queue_key(*self.key, WINDOWS), snapshot)
        self._windows_written = self.hw
        self._windows_bytes = len(snapshot)
        self._since_windows = 0

    def snapshot(self, at: Position | None = None) -> bytes:
        """Encode the epochs before `at` (the HW) and the windows below the HW.

        A replica that starts at the log's start gets windows that are ahead of it, up to the HW.
        Batches that it then appends below are skipped as known, and none of them is ever truncated.
        """
        place = self.hw if at is None else at
        epochs = [(e, *start) for e, start in self.epochs.entries if start < place]
        windows = self.windows.encode(self.hw)
        return msgspec.msgpack.encode(ReplicaSnapshot(place.offset, place.side, epochs, windows))

    # ── the high watermark ──────────────────────────────────────────────────────────────────────

    @property
    def may_append(self) -> bool:
        """True if this broker leads the queue and may append entries of its own."""
        leads = self.leading is not None and self.leading.enough_in_sync
        return leads and self.damage is None and not self.restoring

    @property
    def readable(self) -> Position:
        """How far readers see: the HW, or the start of a release that is committed only in part."""
        return self.parked.readable(self.hw)

    def knows(self, place: Position) -> bool:
        """Return True if `readable` is final up to `place`.

        That needs the HW to have come there, and the releases below to be applied.
        """
        known = self.applied if self.parked.releases else self.hw
        return known >= place

    def raise_hw(self, hw: Position) -> bool:
        """Advance the HW to `hw`, at most to the end; True if it moved. It never goes back."""
        hw = min(hw, self.end)
        if hw <= self.hw:
            return False
        self.hw = hw
        if self._expiries:
            self._apply_expiries()
        return True

    # ── cutting ─────────────────────────────────────────────────────────────────────────────────

    def truncate_to_leader(
        self, epoch: int, leader_end: Position, writes: WriteSet, storage: Storage
    ) -> Position:
        """Truncate the log to match the leader's CUT, and return the new log end.

        An empty log that still differs, in what came before its start, is reset, and requests
        entries as one that never held any. That needs a leader without all committed entries, which
        only an unclean election makes.

        Raises:
            DataDamaged: the store cannot be read.
        """
        place = self.cut_place(epoch, leader_end, storage)
        if place < self.end:
            self.cut(place, writes, storage)
        else:
            self.wipe(writes)
        return self.end

    def cut_place(self, epoch: int, leader_end: Position, storage: Storage) -> Position:
        """Return where a leader's CUT truncates: the smaller end of the epochs ≤ `epoch` (Q4).

        The leader's end may be inside one of our entries, which is then removed too.

        Raises:
            DataDamaged: the store cannot be read.
        """
        own = self.epochs.floor(epoch, self.end)
        if own is None:
            return Position(self.start)
        place = min(own[1], leader_end)
        if place >= self.end:
            return self.end
        return max(Position(self.start), self._boundary(place, storage))

    def _boundary(self, place: Position, storage: Storage) -> Position:
        """Return the greatest position ≤ `place` at which one of our entries begins."""
        if place in self.tail:
            return place
        low = log_key(*self.key, self.start, 0)
        # Keys are 20 bytes: one more byte makes the bound include the entry at `place`.
        high = log_key(*self.key, *place) + b"\0"
        for key, _ in storage.scan("log", low, high, reverse=True):
            return Position(int.from_bytes(key[8:16], "big"), int.from_bytes(key[16:], "big"))
        return Position(self.start)

    def cut(self, end: Position, writes: WriteSet, storage: Storage) -> None:
        """Remove everything after `end`, at which an entry must begin.

        Raises:
            DataDamaged: the store cannot be read.
            DamagedBatch: the entry before `end` is damaged too.
        """
        size = self._size_before(end, storage)
        # The removed entries may have come from a leader whose clock was ahead.
        self.append_time_ms = self._time_before(end, storage)
        self.size = size
        writes.delete_range("log", log_key(*self.key, *end), queue_end(*self.key))
        self.cuts += 1
        self.end = end
        self.written = min(self.written, end)
        self.synced = min(self.synced, end)
        if end < self.hw:
            # Only an unclean election or damage truncates below the HW.
            self.hw = end
            self.index.reset(writes, self.start)
            self.parked.cut(end, writes, storage, below_hw=True)
            self.cursors.cut(end, writes, below_hw=True)
        else:
            self.index.cut(end)
            self.parked.cut(end, writes, storage, below_hw=False)
            self.cursors.cut(end, writes, below_hw=False)
        self.compaction.cut(end, writes, storage, self.start)
        self.applied = min(self.applied, end)
        self.borrowing.cut()
        cut_tail(self.tail, end)
        self.windows.cut(end)
        while self._expiries and self._expiries[-1][0] >= end:
            self._expiries.pop()
        if self.epochs.cut(end):
            self._epochs_changed = True
        if self._windows_written > end:
            self.stage_windows(writes)

    def _size_before(self, end: Position, storage: Storage) -> int:
        """Sum the bytes of all entries before `end`.

        It reads the entries to be removed or, if these are damaged, those that stay.
        """
        at = log_key(*self.key, *end)
        try:
            cut = sum(len(entry) for _, entry in storage.scan("log", at, queue_end(*self.key)))
        except DataDamaged:
            first = log_key(*self.key, self.start)
            return sum(len(entry) for _, entry in storage.scan("log", first, at))
        return max(0, self.size - cut)

    def _time_before(self, end: Position, storage: Storage) -> int:
        """Return the append time of the last entry that begins before `end`; 0 if there is none."""
        for entry, after in self.tail.values():
            if after == end:
                return peek(entry).append_time_ms
        # Checked: a time that is too late would reject everything that the leader sends from here
        # on.
        low, high = log_key(*self.key, self.start), log_key(*self.key, *end)
        for _, entry in storage.scan("log", low, high, reverse=True):
            return validate_batch(entry).append_time_ms
        return 0

    def wipe(self, writes: WriteSet) -> None:
        """Remove all entries: nothing of a damaged log can be trusted, nor can its epochs."""
        snapshot = ReplicaSnapshot(self.start, 0, [], ProducerWindows().encode(Position(0)))
        self.reset(msgspec.msgpack.encode(snapshot), writes)

    def reset(self, snapshot: bytes, writes: WriteSet) -> None:
        """Start again, empty, at the position that a leader's RESET names.

        Raises:
            DataDamaged: the snapshot cannot be decoded.
        """
        taken = _decode_snapshot(snapshot)
        at = Position(taken.offset, taken.side)
        self.windows.load(taken.windows, at)
        writes.delete_range("log", queue_key(*self.key), queue_end(*self.key))
        self.cuts += 1
        self.start = at.offset
        self.end = self.written = self.synced = self.hw = at
        self.applied = at
        self.append_time_ms = 0
        self.size = 0
        self.tail.clear()
        self._expiries.clear()
        self.epochs = EpochTable((e, Position(offset, side)) for e, offset, side in taken.epochs)
        self._epochs_changed = True
        self.index.reset(writes, self.start)
        self.parked.reset(writes)
        self.cursors.reset(writes)
        self.borrowing.reset(writes)
        self.compaction.reset(writes, self.start)
        self.stage_windows(writes)

    def drop(self, writes: WriteSet) -> None:
        """Remove everything that the store holds of this queue."""
        forget_queue(writes, *self.key)
        self.tail.clear()

    def trimmed(self, start: int, size: int) -> None:
        """Note that retention staged the removal of all before `start`; `size` bytes are left."""
        self.start = start
        self.size = size
        for position in [position for position in self.tail if position.offset < start]:
            del self.tail[position]
        if self.epochs.prune(Position(start)):
            self._epochs_changed = True

    # ── producers ───────────────────────────────────────────────────────────────────────────────

    def _note_producer(self, head: BatchHead, entry: bytes, at: Position) -> None:
        """Note the producer of an entry.

        A released batch was counted when it was parked: its sequence is an old one.
        """
        if not head.is_control:
            if head.producer_id >= 0 and not head.has(Attribute.RELEASED):
                self.windows.add(head, at, head.append_time_ms, self.hw)
        elif head.kind == ControlKind.PARKED:
            inner = parked_head(control_view(entry))
            if inner is not None and inner.producer_id >= 0:
                self.windows.add(inner, at, head.append_time_ms, self.hw, parked=True)
        elif head.kind == ControlKind.PRODUCER_EXPIRY:
            body = control_body(entry, head)
            self._expiries.append((at, msgspec.msgpack.decode(body, type=list[int])))

    def _apply_expiries(self) -> None:
        """Forget idle producers only once the entry that expires them is committed (Q12)."""
        while self._expiries and self._expiries[0][0] < self.hw:
            at, producer_ids = self._expiries.popleft()
            self.windows.expire(producer_ids, at)


def _decode_snapshot(stored: bytes) -> ReplicaSnapshot:
    try:
        return msgspec.msgpack.decode(stored, type=ReplicaSnapshot)
    except UNDECODABLE as error:
        raise DataDamaged(f"a queue's snapshot cannot be read: {error}") from None


__all__ = ["SNAPSHOT_BYTES", "AppendResult", "QueueKey", "Replica", "ReplicaSnapshot"]
