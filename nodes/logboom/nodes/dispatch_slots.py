"""Whose a key's slot is, as a table; and the slots of a batch's messages."""

from __future__ import annotations

from logboom.nodes.dispatch_consumers import Consumer
from logboom.nodes.dispatch_events import Entry, Hashing
from logboom.nodes.key_ranges import RING, AutoSplit, ConsistentHash, Range, Sticky
from logboom.wire.batch import open_batch
from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import SLOTS, murmur3, slot_of

_SCALE = RING // SLOTS
"""Hashes of a ring for each slot: a slot as a whole is one consumer's."""


class SlotTable:
    """Slots and their owners, by the hashing of a subscription."""

    def __init__(self, hashing: Hashing) -> None:
        """
        Raises:
            InvalidRequest: no such hashing.
        """
        self._ranges: AutoSplit[Consumer] | Sticky[Consumer] | ConsistentHash[Consumer]
        if hashing == "auto_split":
            self._ranges = AutoSplit()
        elif hashing == "sticky":
            self._ranges = Sticky()
        elif hashing == "consistent":
            self._ranges = ConsistentHash()
        else:
            raise InvalidRequest(f"no hashing is called {hashing!r}")
        self.owners: list[Consumer | None] = [None] * SLOTS
        """By slot."""

    def add(self, consumer: Consumer) -> None:
        """A consumer comes.

        Raises:
            InvalidRequest: its ranges cannot be; nothing has changed.
        """
        self._ranges.add(consumer, consumer.ranges)
        self._fill()

    def remove(self, consumer: Consumer) -> None:
        """A consumer goes."""
        self._ranges.remove(consumer)
        self._fill()

    def ranges(self) -> dict[str, list[Range]]:
        """The slots of each consumer, by name."""
        table = {}
        for consumer, ranges in self._ranges.ranges().items():
            if isinstance(self._ranges, ConsistentHash):
                ranges = [(-(-first // _SCALE), last // _SCALE) for first, last in ranges]
            table[consumer.name] = [(a, min(b, SLOTS - 1)) for a, b in ranges if a <= b]
        return table

    def uncovered(self) -> list[Range]:
        """Slots of nobody, though there are consumers."""
        return self._ranges.uncovered() if isinstance(self._ranges, Sticky) else []

    def _fill(self) -> None:
        owners: list[Consumer | None] = [None] * SLOTS
        scaled = isinstance(self._ranges, ConsistentHash)
        for consumer, ranges in self._ranges.ranges().items():
            for first, last in ranges:
                low, high = (-(-first // _SCALE), last // _SCALE) if scaled else (first, last)
                high = min(high, SLOTS - 1)
                if low <= high:
                    owners[low : high + 1] = [consumer] * (high + 1 - low)
        self.owners = owners


def slots_of(entry: Entry) -> list[int]:
    """The slot of each message of a batch. Messages without a key have no order to keep: those of
    one batch share a slot that its offset gives.

    Raises:
        DamagedBatch: the body does not hold together.
    """
    keys = open_batch(entry.frame, entry.head).keys()
    known: dict[bytes | None, int] = {None: murmur3(b"%d" % entry.base) % SLOTS}
    for key in set(keys):
        if key is not None:
            known[key] = slot_of(key)
    return [known[key] for key in keys]
