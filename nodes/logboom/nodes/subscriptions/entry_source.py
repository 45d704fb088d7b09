"""The entries that dispatchers read: a queue's log below the HW, and a cache of recent batches."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from logboom.nodes.log.keys import LAST_SIDE, Position, log_key, position_of
from logboom.nodes.log.recovery import after_entry
from logboom.nodes.log.storage import Storage
from logboom.nodes.replica.entry_reader import DamagedEntry, entries, find_batch_start
from logboom.nodes.replica.replica import Replica
from logboom.nodes.subscriptions.dispatch_events import Entry, EntrySource
from logboom.nodes.subscriptions.slot_reader import SlotReader
from logboom.wire.batch import peek
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.filters import ScanBudget

CONTROLS: Final = 64
"""Consecutive control entries after which a read ends. The next one starts after them."""
MAX_CACHE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of batches that are kept."""


class LogEntrySource:
    """The log of one queue that this broker leads."""

    def __init__(
        self,
        replica: Replica,
        storage: Storage,
        on_damage: Callable[[Replica, DamagedEntry], None],
        slot_reader: SlotReader | None = None,
    ) -> None:
        self.queue = replica.queue
        self._replica = replica
        self._storage = storage
        self._on_damage = on_damage
        self._slot_reader = SlotReader() if slot_reader is None else slot_reader

    def slots(self, entry: Entry, budget: ScanBudget) -> Sequence[int] | None:
        """Return the slots of a batch as `EntrySource.slots` requires."""
        return self._slot_reader.read(self._replica.key, entry, budget)

    def read(self, offset: int, messages: int, size: int, batches: int) -> Sequence[Entry]:
        """Read entries as `EntrySource.read` requires."""
        replica = self._replica
        offset = max(offset, replica.start)
        found: list[Entry] = []
        if offset >= replica.readable.offset or replica.damage is not None:
            return found
        controls, most = 0, batches
        try:
            at = self._position(offset)
            for frame, _ in entries(replica, self._storage, at, replica.readable):
                head = peek(frame)
                if head.is_control:
                    controls += 1
                    if controls > CONTROLS and batches < most:
                        break
                elif batches < most and size < len(frame):
                    break
                found.append(Entry(head, frame))
                if head.count:
                    batches -= 1
                    messages -= head.count
                    size -= len(frame)
                    controls = 0
                    if batches <= 0 or messages <= 0:
                        break
        except DamagedEntry as error:
            if not found:
                self._on_damage(replica, error)
        return found

    def _position(self, offset: int) -> Position:
        """Return the position of the batch that holds an offset.

        There may be very many control entries before it, which are not read.
        """
        replica, whole = self._replica, Position(offset)
        held = replica.tail.get(whole)
        if held is not None and held[1].offset > offset:
            return whole
        first = log_key(*replica.key, replica.start)
        last = log_key(*replica.key, offset, LAST_SIDE)
        try:
            for key, entry in self._storage.scan("log", first, last, reverse=True):
                at = position_of(key)
                if after_entry(at, peek(entry)).offset > offset:
                    return at
                break
        except (DamagedBatch, DataDamaged):
            pass  # `find_batch_start` skips damaged entries, or reports where the damage begins
        return find_batch_start(replica, self._storage, offset)


class EntryCache:
    """Recent batches by their offsets, each of which goes to several consumers.

    The oldest are evicted first.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._bases: list[int] = []
        self._order: deque[int] = deque()
        self._size = 0

    def put(self, entry: Entry) -> None:
        """Keep a batch."""
        if entry.base in self._entries:
            return
        self._entries[entry.base] = entry
        if self._bases and entry.base < self._bases[-1]:
            insort(self._bases, entry.base)
        else:
            self._bases.append(entry.base)
        self._order.append(entry.base)
        self._size += entry.size
        while self._size > MAX_CACHE_BYTES and len(self._order) > 1:
            self._drop(self._order.popleft())

    def _drop(self, base: int) -> None:
        self._size -= self._entries.pop(base).size
        del self._bases[bisect_right(self._bases, base) - 1]

    def find(self, offset: int) -> Entry | None:
        """Return the batch that holds an offset; None if it is not kept."""
        at = bisect_right(self._bases, offset) - 1
        entry = self._entries[self._bases[at]] if at >= 0 else None
        return entry if entry is not None and offset < entry.next else None

    def holding(self, offset: int, source: EntrySource) -> Entry | None:
        """Return the batch that holds an offset, reading it if necessary.

        None if it cannot be read now.
        """
        kept = self.find(offset)
        if kept is not None:
            return kept
        read = source.read(offset, 1, 1, 1)
        for entry in read:
            if entry.base <= offset < entry.next:
                self.put(entry)
                return entry
        return None

    def clear(self) -> None:
        """Keep nothing, since the log may have changed."""
        self._entries.clear()
        self._bases.clear()
        self._order.clear()
        self._size = 0
