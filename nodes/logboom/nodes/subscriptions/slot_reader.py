"""The slots of batches' messages, hashed in slices and shared by all subscriptions of a broker.

A large batch takes longer to open and to hash than a turn may last. So one of them at a time is
worked on, for as many units as each event has; whoever needs the slots of another one works on that
one first. Then no more than one is open, however many subscriptions there are, and none waits for a
subscription that has gone.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Hashable, Sequence
from typing import Final

from logboom.nodes.subscriptions.dispatch_events import Entry
from logboom.nodes.subscriptions.slot_table import keyless_slot, slots_of
from logboom.wire.columns import Columns, open_steps
from logboom.wire.compression import STEP_BYTES
from logboom.wire.errors import DamagedBatch
from logboom.wire.filters import ScanBudget
from logboom.wire.hashing import slots_for

PIECE: Final = 2_048
"""Messages that are dealt out at once, …"""
HASHED: Final = 256
"""… and hashed at once, since keys may be long."""
SMALL_BYTES: Final = 256 * 1024
"""Bytes up to which a batch of one piece is opened at once."""
KEPT: Final = 1 << 23
"""Messages of large batches whose slots are kept, two bytes each, …"""
LEAST_KEPT: Final = 4 * PIECE
"""… as which a batch counts at least."""
_ENTRY: Final = 20
_STEP: Final = 20_000
"""Units of the bytes of a whole step: what an event may cost."""
_KEY: Final = 4
"""Units of hashing a key, beside one for each 128 bytes."""


class SlotReader:
    """The slots of batches, as far as they are known."""

    def __init__(self) -> None:
        self._reading: _Reading | None = None
        self._kept: dict[tuple[Hashable, int, int], array[int]] = {}
        """Slots of large batches, the latest used last."""
        self._count = 0
        """Messages that these count as."""

    def read(self, queue: Hashable, entry: Entry, budget: ScanBudget) -> Sequence[int] | None:
        """Return the slot of each message of a batch; None if the budget is used up before.

        Raises:
            DamagedBatch: the body is damaged.
        """
        head = entry.head
        if head.count <= PIECE and head.plain_length <= SMALL_BYTES:
            budget.left -= _ENTRY + _KEY * head.count + (head.plain_length >> 7)
            return slots_of(entry)
        key = (queue, entry.base, head.crc)
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found
            return found
        while not budget.spent:
            if self._reading is None:
                self._reading = _Reading(key, entry)
            reading = self._reading
            try:
                if not reading.advance(budget):
                    break
            except DamagedBatch:
                self._reading = None
                if reading.key == key:
                    raise
                continue  # Its own subscription will find that.
            self._reading = None
            self._keep(reading.key, reading.slots)
            if reading.key == key:
                return reading.slots
        return None

    def _keep(self, key: tuple[Hashable, int, int], slots: array[int]) -> None:
        self._kept[key] = slots
        self._count += max(LEAST_KEPT, len(slots))
        while self._count > KEPT:
            gone = self._kept.pop(next(iter(self._kept)))
            self._count -= max(LEAST_KEPT, len(gone))


class _Reading:
    """A large batch, and the slots of its first messages."""

    def __init__(self, key: tuple[Hashable, int, int], entry: Entry) -> None:
        head = entry.head
        self.key: Final = key
        self.slots = array("H")
        self._keyless = keyless_slot(entry)
        opened = min(head.plain_length, STEP_BYTES) * _STEP // STEP_BYTES
        self._step_cost = _ENTRY + (head.count >> 3) + opened
        self._steps: Generator[None, None, Columns] = open_steps(head, entry.frame)
        self._columns: Columns | None = None

    def advance(self, budget: ScanBudget) -> bool:
        """Continue as far as the budget allows; return True once all slots are known.

        Raises:
            DamagedBatch: the body is damaged.
        """
        while self._columns is None:
            if budget.spent:
                return False
            budget.left -= self._step_cost
            try:
                next(self._steps)
            except StopIteration as ended:
                self._columns = ended.value
        columns = self._columns
        while len(self.slots) < columns.count:
            if budget.spent:
                return False
            first = len(self.slots)
            keys = columns.slice(first, first + HASHED).keys()
            self.slots.extend(slots_for(keys, self._keyless))
            size = sum(len(key) for key in keys if key is not None)
            budget.left -= _KEY * len(keys) + (size >> 7)
        return True
