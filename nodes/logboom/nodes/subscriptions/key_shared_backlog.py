"""The messages of a key-shared subscription that were read and wait for a consumer.

A message that was read is either in the backlog of its slot's owner, or *blocked* by its slot. A
slot blocks messages while it is *draining* (its old owner still holds messages of it), and while an
earlier message of it is postponed. Messages of slots without an owner are kept as bits only.
Batches are split by the owners of their slots at once. Single messages are examined only if a slot
of theirs is blocked, draining or postponed.

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
        self.waiting = 0
        """Messages that wait for permits or are blocked."""
        self.blocked_attempts = 0
        """How often a message had to wait for its slot."""
        self._freed: list[int] = []
        """Slots that became free since the last call of `settle`."""

    # ── dealing out ─────────────────────────────────────────────────────────────────────────────

    def deal(self, start: int, bits: int) -> None:
        """Put live messages where they wait; bit 0 is the offset `start`."""
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
                self.waiting += part.bit_count()

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
        self.waiting += len(places)
        self.blocked_attempts += len(places)
        return bits_of(places)

    def take(self, consumer: AttachedConsumer, base: int, bits: int) -> int:
        """Take messages of a batch to send them, and return those that may be sent."""
        self.by_owner[consumer].discard_bits(base, bits)
        self.waiting -= bits.bit_count()
        if not (self.later or self.blocked):
            return bits
        # An earlier message was postponed in the meantime.
        kept = 0
        for batch, own in self.live.find_batches(base, bits):
            kept |= self._hold_back(batch, own) << (batch.base - base)
        return bits ^ kept

    def settle(self) -> None:
        """Deal out the messages that waited for slots that became free."""
        freed, self._freed = self._freed, []
        found = OffsetSet()
        for slot in freed:
            if slot not in self.later and slot not in self.draining:
                found.add_each(self.blocked.pop(slot, ()))
        self.waiting -= found.count
        self._deal_all(found)

    def _deal_all(self, offsets: OffsetSet) -> None:
        for start, bits in offsets.shifted():
            self.deal(start, bits)

    # ── slots that are held up ──────────────────────────────────────────────────────────────────

    def returned(self, start: int, bits: int) -> None:
        """Follow messages that a consumer no longer holds."""
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

        Raises:
            InvalidRequest: its ranges are invalid, and nothing has changed.
        """
        self.table.add(consumer)
        self.by_owner[consumer] = OffsetSet()
        return self._moved(others, [])

    def remove(self, consumer: AttachedConsumer, others: Iterable[AttachedConsumer]) -> OffsetSet:
        """Remove a consumer that holds nothing, and return the messages without an owner."""
        self.table.remove(consumer)
        return self._moved(others, [self.by_owner.pop(consumer)])

    def _moved(self, holders: Iterable[AttachedConsumer], waiting: list[OffsetSet]) -> OffsetSet:
        """Deal out all waiting messages again, in their order, since slots have moved."""
        self.draining.clear()
        for consumer in holders:
            self._drain(consumer)
        found = OffsetSet()
        for offsets in (*waiting, *self.by_owner.values()):
            for number, bits in offsets.shifted():
                found.add_bits(number, bits)
            offsets.clear()
        for blocked in self.blocked.values():
            found.add_each(blocked)
        self.blocked.clear()
        self.waiting = 0
        uncovered, self.uncovered = self.uncovered, OffsetSet()
        self._deal_all(found)
        return uncovered

    def _drain(self, consumer: AttachedConsumer) -> None:
        """Count the messages that a consumer holds of slots that it no longer owns."""
        held: Counter[int] = Counter()
        for start, bits in consumer.held.shifted():
            held.update(self.live.slots(start, bits))
        owners = self.table.owners
        self.draining.update({s: n for s, n in held.items() if owners[s] is not consumer})

    def forget_below(self, start: int, stop: int) -> None:
        """Forget the messages from `start` to before `stop`.

        Those that were held or postponed have been reported before.
        """
        for offsets in self.by_owner.values():
            self.waiting -= offsets.discard(start, stop)
        for slot, blocked in list(self.blocked.items()):
            left = {offset for offset in blocked if offset >= stop}
            self.waiting -= len(blocked) - len(left)
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
