"""Key-shared: the messages of a key go to one consumer at a time, in their order.

Keys are told apart by their slot (65,536 of them); `key_ranges` says whose a slot is. A slot that
moves while its old owner holds messages of it is *draining*: what follows waits until all of these
are acknowledged or came back. What waits is counted (`look_ahead`), so that one consumer that is
stuck does not stop the others before that much of its own has piled up. Messages of slots that
nobody's sticky range covers wait uncounted, as bits: they hold nobody up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logboom.nodes.ack_set import AckSet
from logboom.nodes.dispatch_consumers import Consumer
from logboom.nodes.dispatch_events import Entry, Settings, Source
from logboom.nodes.dispatch_shelf import Shelf
from logboom.nodes.dispatch_slots import SlotTable, slots_of
from logboom.nodes.dispatcher import READ_BATCHES, READ_BYTES, Dispatcher
from logboom.nodes.entry_filter import EntryFilter
from logboom.nodes.offset_set import OffsetSet, offsets_of
from logboom.nodes.permits import DispatchRate
from logboom.wire.errors import DamagedBatch

READ_ON: Final = 20_000
"""Messages that one event reads ahead at most; then the next turn goes on."""


class KeysDispatcher(Dispatcher):
    """Any number of consumers, each with its slots."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        acks: AckSet,
        counts: dict[int, int] | None = None,
        entry_filter: EntryFilter | None = None,
        rates: Sequence[DispatchRate] = (),
    ) -> None:
        super().__init__(settings, source, acks, counts, entry_filter, rates)
        self.table = SlotTable(settings.hashing)
        self.uncovered = OffsetSet()
        """Messages of slots that are nobody's."""
        self.blocked_attempts = 0
        """How often a message had to wait for its slot."""
        self._rescan = OffsetSet()
        """Uncovered before ranges moved: to be read again, before anything behind is sent."""
        self._shelf = Shelf()
        self._slots: dict[int, int] = {}
        """Offset → slot, of all that waits, is postponed, or is held."""
        self._holder: dict[int, Consumer] = {}
        """Slot → who holds messages of it."""
        self._held_of: dict[int, int] = {}
        """Slot → how many."""
        self._lines: dict[Consumer, OffsetSet] = {}
        """What waits for a consumer's permits."""
        self._blocked: dict[int, set[int]] = {}
        """Slot → what waits for the slot to be drained, or for what is postponed before it."""
        self._later: dict[int, int] = {}
        """Slot → how many of its messages are postponed."""
        self._freed: list[int] = []
        """Slots of which nothing is held, or postponed, any more, since the last sending."""
        self._waiting_count = 0
        self._reading: tuple[int, list[int]] = (0, [])
        """Base and slots of the batch that is being judged."""
        self._more = False
        """There is more to read for who is ready."""

    # ── consumers ───────────────────────────────────────────────────────────────────────────────

    def _attached(self, consumer: Consumer) -> None:
        self.table.add(consumer)
        self._lines[consumer] = OffsetSet()
        self._deal_anew([])

    def _detached(self, consumer: Consumer) -> None:
        self.table.remove(consumer)
        self._deal_anew(list(offsets_of(self._lines.pop(consumer))))

    def _deal_anew(self, waiting: list[int]) -> None:
        """Slots moved: everything that waits is dealt out anew, in its order."""
        for line in self._lines.values():
            waiting += offsets_of(line)
            line.clear()
        for offsets in self._blocked.values():
            waiting += offsets
        self._blocked.clear()
        self._waiting_count = 0
        for start, stop in self.uncovered.spans():
            self._rescan.add(start, stop)
        self.uncovered.clear()
        for offset in sorted(waiting):
            self._deal(offset, self._slots[offset])

    # ── dealing out ─────────────────────────────────────────────────────────────────────────────

    def _deal(self, offset: int, slot: int) -> None:
        """Put a message where it waits."""
        owner = self.table.owners[slot]
        if owner is None:
            self._slots.pop(offset, None)
            self.uncovered.add(offset, offset + 1)
            return
        self._slots[offset] = slot
        self._waiting_count += 1
        if self._must_wait(slot, owner):
            self._blocked.setdefault(slot, set()).add(offset)
            self.blocked_attempts += 1
        else:
            self._lines[owner].add(offset, offset + 1)

    def _must_wait(self, slot: int, owner: Consumer) -> bool:
        blocked = slot in self._blocked or slot in self._later
        return blocked or self._holder.get(slot, owner) is not owner

    def _deal_batch(self, base: int, bits: int, slots: list[int]) -> None:
        """The same for messages of a batch that was just read."""
        owners = self.table.owners
        chosen: dict[Consumer, int] = {}
        kept, later, blocked, holder = self._slots, self._later, self._blocked, self._holder
        for place in offsets_of(bits):
            slot = slots[place]
            owner = owners[slot]
            if (
                owner is None
                or slot in blocked
                or slot in later
                or holder.get(slot, owner) is not owner
            ):
                self._deal(base + place, slot)
            else:
                kept[base + place] = slot
                chosen[owner] = chosen.get(owner, 0) | 1 << place
        for owner, places in chosen.items():
            self._lines[owner].add_bits(base, places)
            self._waiting_count += places.bit_count()

    def _settle(self) -> None:
        """Slots that were freed: what waited for them is dealt out."""
        freed, self._freed = self._freed, []
        for slot in freed:
            if slot in self._later or slot not in self._blocked:
                continue
            owner = self.table.owners[slot]
            if self._holder.get(slot, owner) is not owner:
                continue
            offsets = self._blocked.pop(slot)
            self._waiting_count -= len(offsets)
            for offset in sorted(offsets):
                self._deal(offset, slot)

    # ── what is held, and comes back ────────────────────────────────────────────────────────────

    def _done(self, consumer: Consumer, base: int, bits: int) -> None:
        slots, held_of = self._slots, self._held_of
        for offset in offsets_of(bits, base):
            slot = slots[offset]
            left = held_of[slot] - 1
            if left:
                held_of[slot] = left
            else:
                del held_of[slot], self._holder[slot]
                if slot in self._blocked:
                    self._freed.append(slot)

    def _acked(self, start: int, bits: int) -> None:
        super()._acked(start, bits)
        for offset in offsets_of(bits, start):
            self._slots.pop(offset, None)

    def _again(self, base: int, bits: int) -> None:
        for offset in offsets_of(bits, base):
            self._deal(offset, self._slots[offset])

    def _postpone(self, start: int, stop: int, delay_s: float) -> None:
        super()._postpone(start, stop, delay_s)
        base, fresh = self._reading
        for offset in range(start, stop):
            slot = self._slots.get(offset)
            if slot is None:
                slot = self._slots[offset] = fresh[offset - base]
            self._later[slot] = self._later.get(slot, 0) + 1

    def _due(self, start: int, bits: int) -> None:
        for offset in offsets_of(bits, start):
            self._no_longer_later(self._slots[offset])
        super()._due(start, bits)

    def _no_longer_later(self, slot: int) -> None:
        self._later[slot] -= 1
        if not self._later[slot]:
            del self._later[slot]
            self._freed.append(slot)

    def _forget_below(self, offset: int) -> None:
        for gone in [each for each in self._slots if each < offset]:
            slot = self._slots.pop(gone)
            if gone in self.postponed:
                self._no_longer_later(slot)
                continue
            for line in self._lines.values():
                self._waiting_count -= line.discard(gone, gone + 1)
            blocked = self._blocked.get(slot, set())
            if gone in blocked:
                blocked.discard(gone)
                self._waiting_count -= 1
                if not blocked:
                    del self._blocked[slot]
        self.uncovered.discard(self.acks.floor, offset)
        self._rescan.discard(self.acks.floor, offset)

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def waiting(self) -> int:
        """Messages that were read and wait for permits, or for their slot."""
        return self._waiting_count

    def draining(self) -> dict[int, int]:
        """Slot → messages that its old owner still holds, of slots that others wait for."""
        return {
            slot: self._held_of[slot]
            for slot, holder in self._holder.items()
            if self.table.owners[slot] is not holder and slot in self._blocked
        }

    def deadline(self) -> float:
        """When `Tick` is wanted next."""
        return self._now if self._more else super().deadline()

    def _pump(self) -> None:
        self._settle()
        left = READ_ON
        self._more = False
        while True:
            hungry = False
            for consumer in list(self.consumers.values()):
                if self.may_take(consumer) and not self._serve(consumer):
                    hungry = True
            if not hungry or min(self._room()) <= 0:
                return
            if left <= 0:
                self._more = True
                return
            read = self._read_on()
            if not read:
                return
            left -= read

    def _serve(self, consumer: Consumer) -> bool:
        """Send what a consumer may take of what waits for it; False: nothing does."""
        budget = self._budget(consumer)
        if budget is None:
            return True
        messages, size, batches = budget
        line, behind = self._lines[consumer], self._rescan.first()
        chosen: list[tuple[Entry, int]] = []
        while messages > 0 and size > 0 and len(chosen) < batches:
            first = line.first()
            if first is None or (behind is not None and first >= behind):
                break
            entry = self._shelf.holding(first, self.source)
            if entry is None:
                break
            stop = entry.next if behind is None else min(entry.next, behind)
            bits = self._take(consumer, entry.base, line.bits(entry.base, stop))
            if bits:
                chosen.append((entry, bits))
                messages -= bits.bit_count()
                size -= entry.size
        if chosen:
            self._send(consumer, chosen)
        return bool(chosen)

    def _take(self, consumer: Consumer, base: int, bits: int) -> int:
        """Take messages out of a line to send them; which of them may be sent."""
        self._lines[consumer].discard_bits(base, bits)
        self._waiting_count -= bits.bit_count()
        slots, held_of, holder = self._slots, self._held_of, self._holder
        later, blocked = self._later, self._blocked
        for offset in offsets_of(bits, base):
            slot = slots[offset]
            if slot in later or slot in blocked:
                # Something before it was postponed meanwhile.
                bits &= ~(1 << (offset - base))
                self._deal(offset, slot)
            else:
                holder[slot] = consumer
                held_of[slot] = held_of.get(slot, 0) + 1
        return bits

    def _read_on(self) -> int:
        """Read and deal out some more; how many messages were read, 0: none can be now."""
        first = self._rescan.first()
        if first is not None:
            entry = self._shelf.holding(first, self.source)
            if entry is None:
                return 0
            wanted = self._rescan.bits(entry.base, entry.next)
            self._rescan.discard_bits(entry.base, wanted)
            self._deal_entry(entry, wanted)
            return entry.head.count
        room = self.settings.look_ahead - self._waiting_count
        if room <= 0 or self.read_at >= self.end:
            return 0
        entries = self.source.read(self.read_at, min(room, READ_ON), READ_BYTES, READ_BATCHES)
        read = 0
        for entry in entries:
            self._deal_entry(entry, -1)
            self.read_at = max(self.read_at, entry.next)
            read += max(1, entry.head.count)
        return read

    def _deal_entry(self, entry: Entry, only: int) -> None:
        """Judge a batch and deal out its messages (of `only` these bits)."""
        slots = [] if entry.head.is_control else self._slots_of(entry)
        self._reading = entry.base, slots
        bits = self._judge(entry, only, opened=True)
        if bits:
            self._shelf.put(entry)
            self._deal_batch(entry.base, bits, slots)

    @staticmethod
    def _slots_of(entry: Entry) -> list[int]:
        try:
            return slots_of(entry)
        except DamagedBatch:
            return []  # the filter says so, and nothing of it is dealt out
