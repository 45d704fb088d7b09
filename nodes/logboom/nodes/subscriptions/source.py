"""Where the dispatchers of a queue read: its log below the HW (`dispatch_events.Source`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from logboom.nodes.disk.opening import after_entry
from logboom.nodes.disk.storage import Storage
from logboom.nodes.log.keys import LAST_SIDE, Position, log_key, position_of
from logboom.nodes.log.reading import Damaged, covering, entries
from logboom.nodes.log.replica import Replica
from logboom.nodes.subscriptions.dispatch_events import Entry
from logboom.wire.batch import peek
from logboom.wire.errors import DamagedBatch, DataDamaged

CONTROLS: Final = 64
"""Control entries in a row after which a reading ends: the next one begins behind them."""


class LogSource:
    """The log of one queue that this broker leads."""

    def __init__(
        self, replica: Replica, storage: Storage, on_damage: Callable[[Replica, Damaged], None]
    ) -> None:
        self._replica = replica
        self._storage = storage
        self._on_damage = on_damage

    def read(self, offset: int, messages: int, size: int, batches: int) -> Sequence[Entry]:
        """As `dispatch_events.Source.read` says."""
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
        except Damaged as error:
            if not found:
                self._on_damage(replica, error)
        return found

    def _position(self, offset: int) -> Position:
        """Where the batch that holds an offset begins.

        Before it may stand very many control entries, which are not walked over.
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
            pass  # `covering` finds its way past what cannot be read, or says where it begins
        return covering(replica, self._storage, offset)
