"""The messages of a key-shared subscription that were read and wait for a consumer.

A message that was read is either in the backlog of its slot's owner, or *blocked* by its slot. A
slot blocks messages while it is *draining* (its old owner still holds messages of it), and while an
earlier message of it is postponed. Messages of slots without an owner are kept as bits only.
Batches are split by the owners of their slots at once. Single messages are examined only if a slot
of theirs is blocked, draining or postponed.

When slots move, what waits is dealt out again, and what is held is counted by its slots; when a slot is
free again, what it has blocked is dealt out. These may be many messages, so `move` does it step by
step, and until it is done nothing is sent.

The slots of messages that were read and are not acknowledged are kept batch by batch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from logboom.nodes.replica.offset_set import OffsetSet, bits_of, offsets_of
from logboom.nodes.subscriptions.attached_consumer import AttachedConsumer
from logboom.nodes.subscriptions.dispatch_events import Hashing
from logboom.nodes.subscriptions.slot_table import Slots, SlotTable

MOVED_AT_ONCE: Final = 2_048
"""Offsets of one step of `move`, …"""
STEP_UNITS: Final = 30
"""… and units of work that it costs (`wire.filters.ScanBudget`) besides one for each message."""
UNBLOCKED_UNITS: Final = 2
"""Units of each message that was blocked."""
SPARSE: Final = 8
"""If fewer than one in this many messages of a batch remain, only their slots are kept."""


class KeySharedBacklog:
    """The messages of one dispatcher that were read and wait."""

    def __init__(self, hashing: Hashing) -> None:
        """Create a backlog.

        Raises:
            InvalidRequest: the hashing is unknown.
        """
        self.table = SlotTable(hashing)
        self.live = SlotIndex()
        """Slots of all messages that wait, are postponed, or are held."""
        self.by_owner: dict[AttachedConsumer, OffsetSet] = {}
        """Messages that wait for a consumer's permits."""
        self.blocked: dict[int, set[int]] = {}
        """Offsets that wait for their slot to be drained, or for an earlier postponed message, by
        slot."""
        self.later: Counter[int] = Counter()
        """Number of postponed messages, by slot."""
        self.draining: Counter[int] = Counter()
        """Number of messages that the old owner holds, by slot."""
        self.uncovered = OffsetSet()
        """Messages of slots without an owner."""
        self._unseen: dict[AttachedConsumer, OffsetSet] = {}
        """Since slots have moved: what consumers held then and is not counted as draining yet. What
        they have settled since is among it."""
        self._undealt: list[OffsetSet] = []
        """Messages that are to be dealt out again …"""
        self._unblocked: list[set[int]] = []
        """… and those among them that were blocked."""
        self._dealt = 0
        """Messages that wait for permits or are blocked."""
        self.blocked_attempts = 0
        """How often a message had to wait for its slot."""
        self._freed: list[int] = []
        """Slots that became free since the last call of `settle`."""

    @property
    def waiting(self) -> int:
        """Messages that wait for permits, are blocked, or are to be dealt out again."""
        return self._dealt + sum(map(len, self._undealt)) + sum(map(len, self._unblocked))

    @property
    def moving(self) -> bool:
        """True if there is something for `move`."""
        return bool(self._unseen or self._undealt or self._unblocked)

    # ── dealing out ─────────────────────────────────────────────────────────────────────────────

    def deal(self, start: int, bits: int) -> None:
        """Put live messages where they wait; bit 0 is the offset `start`."""
        if self.moving:
            self._waiting_to_be_dealt().add_bits(start, bits)
        else:
            self._deal(start, bits)

    def _waiting_to_be_dealt(self) -> OffsetSet:
        """Return a set to which such messages can be added."""
        if not self._undealt:
            self._undealt.append(OffsetSet())
        return self._undealt[-1]

    def _deal(self, start: int, bits: int) -> None:
        for batch, own in self.live.find_batches(start, bits):
            self._deal_batch(batch, own)

    @property
    def hindered(self) -> bool:
        """True if any slot is held up, so that single messages are examined."""
        return bool(self.blocked or self.later or self.draining)

    def _deal_batch(self, batch: SlotBatch, bits: int) -> None:
        if self.hindered:
            bits ^= self._hold_back(batch, bits)
        for owner, part in self.table.split(batch.slots, bits):
            if owner is None:
                self.uncovered.add_bits(batch.base, part)
                self.live.discard(batch.base, part)
            else:
                self.by_owner[owner].add_bits(batch.base, part)
                self._dealt += part.bit_count()

    def _hold_back(self, batch: SlotBatch, bits: int) -> int:
        """Block the messages that must wait for their slot, and return them."""
        owners, slots, base = self.table.owners, batch.slots, batch.base
        places = []
        for place in offsets_of(bits):
            slot = slots[place]
            hindered = slot in self.blocked or slot in self.later or slot in self.draining
            if hindered and owners[slot] is not None:
                self.blocked.setdefault(slot, set()).add(base + place)
                places.append(place)
        self._dealt += len(places)
        self.blocked_attempts += len(places)
        return bits_of(places)

    def take(self, consumer: AttachedConsumer, base: int, bits: int) -> int:
        """Take messages of a batch to send them, and return those that may be sent."""
        self.by_owner[consumer].discard_bits(base, bits)
        self._dealt -= bits.bit_count()
        if not (self.later or self.blocked):
            return bits
        # An earlier message was postponed in the meantime.
        kept = 0
        for batch, own in self.live.find_batches(base, bits):
            kept |= self._hold_back(batch, own) << (batch.base - base)
        return bits ^ kept

    def settle(self) -> None:
        """Begin to deal out the messages that waited for slots that became free."""
        freed, self._freed = self._freed, []
        for slot in freed:
            if slot not in self.later and slot not in self.draining and slot in self.blocked:
                self._unblock(slot)

    def _unblock(self, slot: int) -> None:
        offsets = self.blocked.pop(slot)
        self._dealt -= len(offsets)
        self._unblocked.append(offsets)

    # ── slots that are held up ──────────────────────────────────────────────────────────────────

    def returned(self, consumer: AttachedConsumer, start: int, bits: int) -> None:
        """Follow messages that a consumer no longer holds."""
        if consumer in self._unseen:
            # These are not counted, and will not be.
            unseen = self._unseen[consumer].bits(start, start + bits.bit_length()) & bits
            self._unseen[consumer].discard_bits(start, unseen)
            bits ^= unseen
        if not self.draining:
            return
        for slot in self.live.slots(start, bits):
            if slot in self.draining:
                self._less(self.draining, slot)

    def postponed(self, start: int, bits: int) -> None:
        """Follow messages that are postponed, so that later ones of their slots wait."""
        self.later.update(self.live.slots(start, bits))

    def due(self, start: int, bits: int) -> None:
        """Follow messages that are no longer postponed."""
        for slot in self.live.slots(start, bits):
            self._less(self.later, slot)

    def _less(self, counter: Counter[int], slot: int) -> None:
        counter[slot] -= 1
        if not counter[slot]:
            del counter[slot]
            if slot in self.blocked:
                self._freed.append(slot)

    # ── consumers, and the log's start ──────────────────────────────────────────────────────────

    def add(self, consumer: AttachedConsumer, others: Iterable[AttachedConsumer]) -> OffsetSet:
        """Add a consumer, and return the messages without an owner, which must be read again.

        `move` has to be called next.

        Raises:
            InvalidRequest: its ranges are invalid, and nothing has changed.
        """
        self.table.add(consumer)
        self.by_owner[consumer] = OffsetSet()
        return self._moved(others, [])

    def remove(self, consumer: AttachedConsumer, others: Iterable[AttachedConsumer]) -> OffsetSet:
        """Remove a consumer that holds nothing, and return the messages without an owner.

        `move` has to be called next.
        """
        self.table.remove(consumer)
        return self._moved(others, [self.by_owner.pop(consumer)])

    def _moved(self, holders: Iterable[AttachedConsumer], waiting: list[OffsetSet]) -> OffsetSet:
        """Begin to deal out all waiting messages again, since slots have moved."""
        self.draining.clear()
        self._unseen = {each: each.held.copy() for each in holders if each.held.count}
        self._unblocked += self.blocked.values()
        self.blocked = {}
        self._undealt += [*waiting, *self.by_owner.values()]
        self.by_owner = {owner: OffsetSet() for owner in self.by_owner}
        self._dealt = 0
        uncovered, self.uncovered = self.uncovered, OffsetSet()
        return uncovered

    def move(self, units: int) -> int:
        """Go on with what slots that have moved or are free make necessary; return the units it has cost.

        It is over if this is less than `units`.
        """
        spent = 0
        owners = self.table.owners
        while self._unseen and spent < units:
            consumer, unseen = self._unseen.popitem()
            while unseen.count and spent < units:
                start, bits = unseen.take_some(MOVED_AT_ONCE)
                spent += STEP_UNITS + bits.bit_count()
                held = Counter(self.live.slots(start, bits))
                self.draining.update({s: n for s, n in held.items() if owners[s] is not consumer})
            if unseen.count:
                self._unseen[consumer] = unseen
        while self._unblocked and spent < units:
            blocked = self._unblocked[-1]
            part = [blocked.pop() for _ in range(min(len(blocked), MOVED_AT_ONCE))]
            if not blocked:
                self._unblocked.pop()
            spent += UNBLOCKED_UNITS * (1 + len(part))
            self._waiting_to_be_dealt().add_each(part)
        while not (self._unseen or self._unblocked) and self._undealt and spent < units:
            if not self._undealt[-1].count:
                self._undealt.pop()
                continue
            start, bits = self._undealt[-1].take_some(MOVED_AT_ONCE)
            spent += STEP_UNITS + bits.bit_count()
            self._deal(start, bits)
        return spent

    def forget_below(self, start: int, stop: int) -> None:
        """Forget the messages from `start` to before `stop`.

        Those that were held or postponed have been reported before.
        """
        for offsets in self.by_owner.values():
            self._dealt -= offsets.discard(start, stop)
        for offsets in self._undealt:
            offsets.discard(start, stop)
        unblocked = [{each for each in offsets if each >= stop} for offsets in self._unblocked]
        self._unblocked = [offsets for offsets in unblocked if offsets]
        for slot, blocked in list(self.blocked.items()):
            left = {offset for offset in blocked if offset >= stop}
            self._dealt -= len(blocked) - len(left)
            if left:
                self.blocked[slot] = left
            else:
                del self.blocked[slot]
        self.uncovered.discard(start, stop)
        self.live.forget_below(stop)


class SlotBatch:
    """One batch, and which of its messages are live."""

    __slots__ = ("base", "bits", "count", "slots")

    def __init__(self, base: int, slots: Sequence[int]) -> None:
        self.base = base
        self.count = len(slots)
        self.slots: Slots = array("H", slots)
        self.bits = 0

    def slots_of(self, bits: int) -> Iterator[int]:
        """Yield the slots of these messages, in their order."""
        return map(self.slots.__getitem__, offsets_of(bits))

    def drop(self, bits: int) -> bool:
        """Remove messages. Return False if none is left."""
        self.bits &= ~bits
        if self.bits.bit_count() * SPARSE < len(self.slots):
            self.slots = {place: self.slots[place] for place in offsets_of(self.bits)}
        return bool(self.bits)


class SlotIndex:
    """Slots by offset. A batch is forgotten with its last message."""

    def __init__(self) -> None:
        self._batches: dict[int, SlotBatch] = {}
        self._bases: list[int] = []

    def put(self, base: int, slots: Sequence[int], bits: int) -> SlotBatch:
        """Add live messages of a batch."""
        batch = self._batches.get(base)
        if batch is None or isinstance(batch.slots, Mapping):
            kept = 0 if batch is None else batch.bits
            if batch is None:
                self._insert(base)
            batch = self._batches[base] = SlotBatch(base, slots)
            batch.bits = kept
        batch.bits |= bits
        return batch

    def _insert(self, base: int) -> None:
        if self._bases and base < self._bases[-1]:
            insort(self._bases, base)
        else:
            self._bases.append(base)

    def __getitem__(self, offset: int) -> int:
        batch = self._batches[self._bases[bisect_right(self._bases, offset) - 1]]
        return batch.slots[offset - batch.base]

    def find_batches(self, start: int, bits: int) -> Iterator[tuple[SlotBatch, int]]:
        """Yield the batches of live offsets (bit 0 is `start`), and the bits of these messages."""
        stop = start + bits.bit_length()
        for base in self._touched(start, stop):
            batch = self._batches[base]
            asked = bits >> (base - start) if base >= start else bits << (start - base)
            asked &= batch.bits
            if asked:
                yield batch, asked

    def slots(self, start: int, bits: int) -> Iterator[int]:
        """Yield the slots of live offsets, in their order."""
        return chain.from_iterable(
            batch.slots_of(asked) for batch, asked in self.find_batches(start, bits)
        )

    def discard(self, start: int, bits: int) -> None:
        """Remove messages."""
        for batch, asked in self.find_batches(start, bits):
            if not batch.drop(asked):
                del self._batches[batch.base]
                del self._bases[bisect_right(self._bases, batch.base) - 1]

    def forget_below(self, offset: int) -> None:
        """Remove all messages below an offset."""
        for base in self._touched(0, offset):
            batch = self._batches[base]
            self.discard(base, (1 << min(batch.count, offset - base)) - 1)

    def _touched(self, start: int, stop: int) -> list[int]:
        """Return the base offsets of the batches that may overlap a span."""
        first = max(0, bisect_right(self._bases, start) - 1)
        return self._bases[first : bisect_right(self._bases, stop - 1)]
