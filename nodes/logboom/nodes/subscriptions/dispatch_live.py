"""The slots of messages that were read for delivery and are not settled, kept batch by batch."""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from logboom.nodes.subscriptions.dispatch_slots import Slots
from logboom.nodes.subscriptions.offset_set import offsets_of

SPARSE: Final = 8
"""Messages of a batch for each one that is left, from which on only the slots of these are kept."""


class LiveBatch:
    """One batch, and which of its messages are live."""

    __slots__ = ("base", "bits", "count", "slots")

    def __init__(self, base: int, slots: Sequence[int]) -> None:
        self.base = base
        self.count = len(slots)
        self.slots: Slots = array("H", slots)
        self.bits = 0

    def of(self, bits: int) -> Iterator[int]:
        """The slots of these messages, in their order."""
        return map(self.slots.__getitem__, offsets_of(bits))

    def drop(self, bits: int) -> bool:
        """These are live no longer; False: none is any more."""
        self.bits &= ~bits
        if self.bits.bit_count() * SPARSE < len(self.slots):
            self.slots = {place: self.slots[place] for place in offsets_of(self.bits)}
        return bool(self.bits)


class LiveSlots:
    """Slots by offset. A batch is forgotten with its last message."""

    def __init__(self) -> None:
        self._batches: dict[int, LiveBatch] = {}
        self._bases: list[int] = []

    def put(self, base: int, slots: Sequence[int], bits: int) -> LiveBatch:
        """These messages of a batch are live, too."""
        batch = self._batches.get(base)
        if batch is None or isinstance(batch.slots, Mapping):
            kept = 0 if batch is None else batch.bits
            if batch is None:
                self._insert(base)
            batch = self._batches[base] = LiveBatch(base, slots)
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

    def within(self, start: int, bits: int) -> Iterator[tuple[LiveBatch, int]]:
        """The batches of offsets (bit 0 is `start`), and which of their messages these are; what
        is not live is left out."""
        stop = start + bits.bit_length()
        for base in self._touched(start, stop):
            batch = self._batches[base]
            asked = bits >> (base - start) if base >= start else bits << (start - base)
            asked &= batch.bits
            if asked:
                yield batch, asked

    def slots(self, start: int, bits: int) -> Iterator[int]:
        """The slots of offsets that are live, in their order."""
        return chain.from_iterable(batch.of(asked) for batch, asked in self.within(start, bits))

    def discard(self, start: int, bits: int) -> None:
        """These are live no longer."""
        for batch, asked in self.within(start, bits):
            if not batch.drop(asked):
                del self._batches[batch.base]
                del self._bases[bisect_right(self._bases, batch.base) - 1]

    def forget_below(self, offset: int) -> None:
        """All below are gone."""
        for base in self._touched(0, offset):
            batch = self._batches[base]
            self.discard(base, (1 << min(batch.count, offset - base)) - 1)

    def _touched(self, start: int, stop: int) -> list[int]:
        """Bases of the batches that may reach into a span."""
        first = max(0, bisect_right(self._bases, start) - 1)
        return self._bases[first : bisect_right(self._bases, stop - 1)]
