"""Key-shared subscriptions: the messages of a key go to one consumer at a time, in their order.

Keys are distinguished by their slot, of which there are 65,536, and `key_ranges` assigns the slots.
A slot that moves while its old owner holds messages of it is *draining*: later messages wait until
all of these are acknowledged or returned. Waiting messages are counted (`look_ahead`), so a stuck
consumer stops the others only after that many of its own messages have accumulated. Messages of
slots that no sticky range covers wait uncounted, as bits, and hold nobody up. All of this is in
`key_shared_backlog`; this module reads and sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Final

from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.offset_set import OffsetSet
from logboom.nodes.subscriptions.attached_consumer import AttachedConsumer, DispatchRateLimiter
from logboom.nodes.subscriptions.dispatch_events import Entry, EntrySource, SubscriptionConfig
from logboom.nodes.subscriptions.dispatcher import READ_BATCHES, READ_BYTES, Dispatcher
from logboom.nodes.subscriptions.entry_filter import EntryFilter
from logboom.nodes.subscriptions.entry_source import EntryCache
from logboom.nodes.subscriptions.key_shared_backlog import KeySharedBacklog
from logboom.nodes.subscriptions.slot_reader import PIECE
from logboom.nodes.subscriptions.slot_table import SlotTable
from logboom.wire.errors import DamagedBatch
from logboom.wire.hashing import SLOTS

READ_ON: Final = 20_000
"""Messages that one event may read ahead. The next turn continues."""
HINDERED_UNITS: Final = 6
"""Units of dealing a message out while slots are held up (otherwise two), …"""
OWNER_UNITS: Final = 8
"""… and of each consumer that a piece of a batch may go to."""
RANGE_UNITS: Final = 5
"""Units of each range that a consumer that comes or goes has named, …"""
RING_UNITS: Final = 1_500
"""… of its points on a ring, …"""
RING_CONSUMER_UNITS: Final = 10
"""… and of the points of each consumer there."""


class KeySharedDispatcher(Dispatcher):
    """Delivers the messages of a key to one consumer at a time; each consumer has its slots."""

    def __init__(
        self,
        settings: SubscriptionConfig,
        source: EntrySource,
        acks: AckSet,
        counts: dict[int, int] | None = None,
        entry_filter: EntryFilter | None = None,
        rates: Sequence[DispatchRateLimiter] = (),
    ) -> None:
        super().__init__(settings, source, acks, counts, entry_filter, rates)
        self.backlog = KeySharedBacklog(settings.hashing)
        self._rescan = OffsetSet()
        """Messages without an owner before ranges moved. They are read again before any later ones
        are sent."""
        self._entry_cache = EntryCache()

    @property
    def table(self) -> SlotTable:
        """The owners of all slots."""
        return self.backlog.table

    @property
    def scans(self) -> bool:
        """True: it needs the key of each message."""
        return True

    @property
    def uncovered(self) -> OffsetSet:
        """Messages of slots without an owner."""
        return self.backlog.uncovered

    # ── consumers ───────────────────────────────────────────────────────────────────────────────

    def _attached(self, consumer: AttachedConsumer) -> None:
        self.worked += self._table_units(consumer)
        self._read_again(self.backlog.add(consumer, self.consumers.values()))

    def _detached(self, consumer: AttachedConsumer) -> None:
        self.worked += self._table_units(consumer)
        self._read_again(self.backlog.remove(consumer, self.consumers.values()))

    def _table_units(self, consumer: AttachedConsumer) -> int:
        """Return the units of giving a consumer its slots, or taking them away."""
        if self.settings.hashing == "consistent":
            return RING_UNITS + RING_CONSUMER_UNITS * len(self.consumers)
        return RANGE_UNITS * len(consumer.ranges or ())

    def _read_again(self, uncovered: OffsetSet) -> None:
        if not self._rescan.count:
            self._rescan = uncovered
            return
        for start, bits in uncovered.shifted():
            self._rescan.add_bits(start, bits)

    # ── what is held, and comes back ────────────────────────────────────────────────────────────

    def _done(self, consumer: AttachedConsumer, base: int, bits: int) -> None:
        self.backlog.returned(consumer, base, bits)

    def _acked(self, start: int, bits: int) -> None:
        super()._acked(start, bits)
        self.backlog.live.discard(start, bits)

    def _redeliver(self, base: int, bits: int) -> None:
        self.backlog.deal(base, bits)

    def _postpone(self, start: int, bits: int, delay_s: float) -> None:
        super()._postpone(start, bits, delay_s)
        self.backlog.postponed(start, bits)

    def _due(self, start: int, bits: int) -> None:
        self.backlog.due(start, bits)
        super()._due(start, bits)

    def _forget_below(self, offset: int) -> None:
        floor = self.acks.floor
        self.backlog.due(floor, self.postponed.bits(floor, offset))
        self.backlog.forget_below(floor, offset)
        self._rescan.discard(floor, offset)

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def waiting(self) -> int:
        """Return the number of messages that were read and wait for permits or for their slot."""
        return self.backlog.waiting + sum(offsets.count for offsets in self.returning)

    def draining(self, most: int = SLOTS) -> list[tuple[int, int]]:
        """Return the first `most` slots that others wait for, and how many messages old owners still hold."""
        draining, blocked = self.backlog.draining, self.backlog.blocked
        slots = nsmallest(most, draining.keys() & blocked.keys())
        return [(slot, draining[slot]) for slot in slots]

    def _prepare(self) -> bool:
        if not super()._prepare():
            return False
        self.backlog.settle()
        if self.backlog.moving:
            self.worked += self.backlog.move(self._most - self.worked)
        self._more |= self.backlog.moving
        return not self.backlog.moving

    def _pump(self) -> None:
        left = READ_ON
        while True:
            hungry = 0
            for consumer in list(self.consumers.values()):
                if self.may_take(consumer) and not self._serve(consumer):
                    hungry += consumer.permits.left
            if not hungry or min(self._room()) <= 0:
                return
            if left <= 0:
                self._more = True
                return
            read = self._read_on(min(hungry, left))
            if not read or self._more:
                return
            left -= read

    def _serve(self, consumer: AttachedConsumer) -> bool:
        """Send a consumer what it may take of its waiting messages.

        Return False if there are none.
        """
        budget = self._budget(consumer)
        if budget is None:
            return True
        messages, size, batches = budget
        waiting, behind = self.backlog.by_owner[consumer], self._rescan.first()
        chosen: list[tuple[Entry, int]] = []
        while messages > 0 and size > 0 and len(chosen) < batches:
            first = waiting.first()
            if first is None or (behind is not None and first >= behind):
                break
            entry = self._entry_cache.holding(first, self.source)
            if entry is None:
                break
            stop = entry.next if behind is None else min(entry.next, behind)
            bits = self.backlog.take(consumer, entry.base, waiting.bits(entry.base, stop))
            if bits:
                chosen.append((entry, bits))
                messages -= bits.bit_count()
                size -= entry.size
        if chosen:
            self._send(consumer, chosen)
        return bool(chosen)

    def _read_on(self, wanted: int) -> int:
        """Read and deal out more messages, for consumers that want `wanted` of them.

        Return how many were read.
        """
        first = self._rescan.first()
        if first is not None:
            entry = self._entry_cache.holding(first, self.source)
            if entry is None:
                return 0
            again = self._rescan.bits(entry.base, entry.next)
            if not self._deal_entry(entry, again):
                return 0
            self._rescan.discard_bits(entry.base, again)
            return entry.head.count
        room = min(wanted, self.settings.look_ahead - self.backlog.waiting)
        if room <= 0 or self.read_at >= self.end:
            return 0
        # A batch that the last event has begun with is not read again.
        begun = self._entry_cache.find(self.read_at)
        entries: Sequence[Entry] = (
            self.source.read(self.read_at, room, READ_BYTES, READ_BATCHES)
            if begun is None
            else [begun]
        )
        read = 0
        for entry in entries:
            if not self._deal_entry(entry, -1 << max(0, self.read_at - entry.base)):
                self._entry_cache.put(entry)
                break
            self.read_at = max(self.read_at, entry.next)
            read += max(1, entry.head.count)
        return read

    def _deal_entry(self, entry: Entry, only: int) -> bool:
        """Filter a batch and deal out its messages (of `only` these bits), a piece at a time.

        Return False if the rest is not decided, since this event has done enough.
        """
        count, base, budget = entry.head.count, entry.base, self._filter.budget
        if not count:
            return self._judge(entry, only) is not None
        if budget.spent:
            self._more = True
            return False
        try:
            slots = self.source.slots(entry, budget)
        except DamagedBatch:
            return self._judge(entry, only, damaged=True) is not None
        for first in range(0, count, PIECE):
            stop = min(count, first + PIECE)
            meant = (only >> first) & ((1 << (stop - first)) - 1)
            if not meant:
                continue
            if slots is None or budget.spent:
                self._more = True
                return False
            if not self._deal_piece(entry, first, slots[first:stop], meant):
                return False
            self._rescan.discard_bits(base + first, meant)
            self.read_at = max(self.read_at, base + stop)
        return True

    def _deal_piece(self, entry: Entry, first: int, slots: Sequence[int], meant: int) -> bool:
        """Do so with the messages from `first` on that have these slots; bit 0 is the first."""
        backlog, start = self.backlog, entry.base + first
        live = backlog.live
        live.put(start, slots, meant)
        judged = self._judge(entry, meant << first)
        if judged is None:
            live.discard(start, meant)
            return False
        bits = judged >> first
        live.discard(start, meant & ~(bits | self.postponed.bits(start, start + len(slots))))
        if bits:
            self._entry_cache.put(entry)
            each = HINDERED_UNITS if backlog.hindered else 2
            self._filter.budget.left -= each * len(slots) + OWNER_UNITS * len(self.consumers)
            backlog.deal(start, bits)
        return True
