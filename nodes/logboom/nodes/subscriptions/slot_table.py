"""A table of the owners of key slots, and the slots of a batch's messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, compress, islice
from operator import is_not, itemgetter
from typing import Final, TypeAlias

from logboom.nodes.replica.offset_set import bits_of, offsets_of
from logboom.nodes.subscriptions.attached_consumer import AttachedConsumer
from logboom.nodes.subscriptions.dispatch_events import Entry, Hashing
from logboom.nodes.subscriptions.key_ranges import (
    RING,
    AutoSplitSelector,
    Change,
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
_BYTES: Final = [bytes([code]) for code in range(_OTHERS + 1)]
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
        self.selector: (
            AutoSplitSelector[AttachedConsumer]
            | StickySelector[AttachedConsumer]
            | ConsistentHashSelector[AttachedConsumer]
        )
        self._scale: Callable[[Range], Range] | None = None
        """Turns a range into slots; the last may be before the first. None if it is slots."""
        if hashing == "auto_split":
            self.selector, self._scale = AutoSplitSelector(), _within
        elif hashing == "sticky":
            self.selector = StickySelector()
        elif hashing == "consistent":
            self.selector, self._scale = ConsistentHashSelector(), _scaled
        else:
            raise InvalidRequest(f"unknown hashing {hashing!r}")
        self.owners: list[AttachedConsumer | None] = [None] * SLOTS
        """By slot."""
        self._owner_codes = bytearray(SLOTS)
        """One byte per slot that stands for its owner; 0 if there is none."""
        self._owner_of_code: list[AttachedConsumer | None] = [None] * _OTHERS
        self._codes: dict[AttachedConsumer, int] = {}

    def add(self, consumer: AttachedConsumer) -> None:
        """Add a consumer.

        Raises:
            InvalidRequest: its ranges are invalid, and nothing has changed.
        """
        changes = self.selector.add(consumer, consumer.ranges)
        code = _OTHERS
        if len(self._codes) < _OTHERS - 1:
            code = self._owner_of_code.index(None, 1)
            self._owner_of_code[code] = consumer
            self._codes[consumer] = code
        self._change(changes)

    def remove(self, consumer: AttachedConsumer) -> None:
        """Remove a consumer."""
        self._change(self.selector.remove(consumer))
        code = self._codes.pop(consumer, 0)
        self._owner_of_code[code] = None

    def _change(self, changes: Sequence[Change[AttachedConsumer]]) -> None:
        owners, codes = self.owners, self._owner_codes
        for owner, ranges in changes:
            code = _BYTES[0 if owner is None else self._codes.get(owner, _OTHERS)]
            for first, last in ranges if self._scale is None else map(self._scale, ranges):
                count = last + 1 - first
                owners[first : last + 1] = [owner] * count
                codes[first : last + 1] = code * count

    def ranges(self, most: int = SLOTS) -> dict[str, list[Range]]:
        """Return the slots of each consumer, by name: `most` ranges, those of the lowest slots."""
        table: dict[str, list[Range]] = {}
        owners = self.owners
        # A range ends where the next slot has another owner.
        ends = compress(range(SLOTS), map(is_not, owners, islice(owners, 1, None)))
        first = 0
        for last in islice(chain(ends, (SLOTS - 1,)), most):
            if (owner := owners[last]) is not None:
                table.setdefault(owner.name, []).append((first, last))
            first = last + 1
        return table

    def uncovered(self, most: int = SLOTS) -> list[Range]:
        """Return the slots without an owner, if there are any consumers: the first `most` ranges."""
        return self.selector.uncovered(most) if isinstance(self.selector, StickySelector) else []

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


def _within(each: Range) -> Range:
    return each[0], min(each[1], SLOTS - 1)


def _scaled(each: Range) -> Range:
    return -(-each[0] // _SCALE), each[1] // _SCALE


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
