"""A table of the owners of key slots, and the slots of a batch's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

from logboom.nodes.replica.offset_set import bits_of, offsets_of
from logboom.nodes.subscriptions.attached_consumer import AttachedConsumer
from logboom.nodes.subscriptions.dispatch_events import Entry, Hashing
from logboom.nodes.subscriptions.key_ranges import (
    RING,
    AutoSplitSelector,
    ConsistentHashSelector,
    Range,
    StickySelector,
)
from logboom.wire.batch import open_batch
from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import SLOTS, murmur3, slots_for

_SCALE = RING // SLOTS
"""Hashes of a ring per slot, since a whole slot belongs to one consumer."""
_OTHERS: Final = 255
"""Code of consumers beyond the number of codes."""
_ZEROS: Final = b"0" * 256
_FEW: Final = 16
"""Up to this number, messages are examined one by one."""

Slots: TypeAlias = Sequence[int] | Mapping[int, int]
"""Index in the batch → slot, at least for the live messages."""


class SlotTable:
    """The slots and their owners, by the hashing of a subscription."""

    def __init__(self, hashing: Hashing) -> None:
        """Create a table.

        Raises:
            InvalidRequest: the hashing is unknown.
        """
        self._ranges: (
            AutoSplitSelector[AttachedConsumer]
            | StickySelector[AttachedConsumer]
            | ConsistentHashSelector[AttachedConsumer]
        )
        if hashing == "auto_split":
            self._ranges = AutoSplitSelector()
        elif hashing == "sticky":
            self._ranges = StickySelector()
        elif hashing == "consistent":
            self._ranges = ConsistentHashSelector()
        else:
            raise InvalidRequest(f"unknown hashing {hashing!r}")
        self.owners: list[AttachedConsumer | None] = [None] * SLOTS
        """By slot."""
        self._owner_codes = bytes(SLOTS)
        """One byte per slot that stands for its owner; 0 if there is none."""
        self._owner_of_code: list[AttachedConsumer | None] = [None]

    def add(self, consumer: AttachedConsumer) -> None:
        """Add a consumer.

        Raises:
            InvalidRequest: its ranges are invalid, and nothing has changed.
        """
        self._ranges.add(consumer, consumer.ranges)
        self._fill()

    def remove(self, consumer: AttachedConsumer) -> None:
        """Remove a consumer."""
        self._ranges.remove(consumer)
        self._fill()

    def ranges(self) -> dict[str, list[Range]]:
        """Return the slots of each consumer, by name."""
        table = {}
        for consumer, ranges in self._ranges.ranges().items():
            if isinstance(self._ranges, ConsistentHashSelector):
                ranges = [(-(-first // _SCALE), last // _SCALE) for first, last in ranges]
            table[consumer.name] = [(a, min(b, SLOTS - 1)) for a, b in ranges if a <= b]
        return table

    def uncovered(self) -> list[Range]:
        """Return the slots without an owner, if there are any consumers."""
        return self._ranges.uncovered() if isinstance(self._ranges, StickySelector) else []

    def _fill(self) -> None:
        owners: list[AttachedConsumer | None] = [None] * SLOTS
        scaled = isinstance(self._ranges, ConsistentHashSelector)
        for consumer, ranges in self._ranges.ranges().items():
            for first, last in ranges:
                low, high = (-(-first // _SCALE), last // _SCALE) if scaled else (first, last)
                high = min(high, SLOTS - 1)
                if low <= high:
                    owners[low : high + 1] = [consumer] * (high + 1 - low)
        self.owners = owners
        self._owner_of_code = [None, *self._ranges.ranges()]
        letters = {owner: min(n, _OTHERS) for n, owner in enumerate(self._owner_of_code)}
        self._owner_codes = bytes(map(letters.__getitem__, owners))

    def split(self, slots: Slots, bits: int) -> Iterator[tuple[AttachedConsumer | None, int]]:
        """Yield the messages of a batch by the owners of their slots.

        A large batch costs some 50 ns per message: each becomes one byte, and the bytes of one
        owner are turned into bits at once.
        """
        if bits.bit_count() <= _FEW or isinstance(slots, Mapping):
            yield from self._split_singly(slots, bits)
            return
        low = (bits & -bits).bit_length() - 1
        among = slots[low : bits.bit_length()]
        letters = bytes(itemgetter(*among)(self._owner_codes))[::-1]
        for letter in set(letters):
            digits = _ZEROS[:letter] + b"1" + _ZEROS[letter + 1 :]
            part = int(letters.translate(digits), 2) << low & bits
            if letter == _OTHERS:
                yield from self._split_singly(slots, part)
            elif part:
                yield self._owner_of_code[letter], part

    def _split_singly(
        self, slots: Slots, bits: int
    ) -> Iterator[tuple[AttachedConsumer | None, int]]:
        places: dict[AttachedConsumer | None, list[int]] = {}
        for place in offsets_of(bits):
            places.setdefault(self.owners[slots[place]], []).append(place)
        for owner, found in places.items():
            yield owner, bits_of(found)


def slots_of(entry: Entry) -> list[int]:
    """Return the slot of each message of a batch.

    Messages without a key have no order to keep. Those of one batch share a slot, which its offset
    determines.

    Raises:
        DamagedBatch: the body is damaged.
    """
    return slots_for(open_batch(entry.frame, entry.head).keys(), keyless_slot(entry))


def keyless_slot(entry: Entry) -> int:
    """Return the slot of the messages of a batch that have no key."""
    return murmur3(b"%d" % entry.base) % SLOTS
