"""The scrubber: it continuously reads and checks every entry of every replica from disk.

Data that nobody reads may rot unnoticed until it is the last copy. A background pass goes through
all logs in the order of their keys, in small steps and at a limited rate, and delays no
acknowledgement. Its position is written down now and then, so that a restart does not begin again.
Damage that it finds is handled like damage found by a reader (Q14).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from contextlib import closing
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.compaction.survivor_copies import check_copies
from logboom.nodes.log.keys import (
    EPOCHS,
    RECORD,
    Position,
    log_key,
    position_of,
    queue_key,
    queue_of,
)
from logboom.nodes.log.log_state import decode_epochs, decode_record
from logboom.nodes.replica.entry_reader import DamagedEntry, find_batch_start, read_stored_entries
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.turn import BrokerTurn, Figures, Service
from logboom.wire.errors import DataDamaged

TURN_BYTES: Final = 256 * 1024
"""Approximate bytes that one turn reads; at least one entry."""
ENTRY_COST: Final = 4 * 1024
"""Minimum bytes for which an entry counts, because small entries cost time and not bytes."""
NOTE_EVERY: Final = 64 * 1024 * 1024
"""Bytes between two writes of the checkpoint."""
CHECKPOINT: Final = b"scrub"
"""Key in the family `index`; its value is the log key to continue from. (No queue's keys begin like
this, because topic ids are small numbers.)"""
_BEGIN: Final = log_key(0, 0, 0)


class Scrubber(Service):
    """Passes over all replicas, one after another."""

    def __init__(
        self, context: BrokerContext, found: Callable[[Replica, DamagedEntry], None]
    ) -> None:
        """Begin the first pass; `found` is called with damage."""
        self._queues = context.queues
        self._settings = context.settings
        self._stats = context.stats
        self._found = found
        self._read_at = float("-inf")
        """When the last piece was read."""
        self._spent = 0
        """What it cost, in bytes."""
        self._waits = False
        """True from the end of a pass to the begin of the next."""
        self._begun = float("-inf")
        """When this pass began."""
        self._order: list[QueueKey] = []
        """The queues that remain in this pass, last first."""
        self._at: Position | None = None
        """Position in the last of them; None if it has not begun with it."""
        self._copy = 0
        """Compaction's copies come first: the position in those; -1 when they are done."""
        self._cuts = -1
        """The replica's count of truncations when the scrub left it: a truncation moves where
        entries begin."""
        self._unnoted = 0
        self._resumed = False
        self._passed_at: float | None = None
        """When a pass ended last; before, when this process first looked whether one is due."""

    def figures(self, now: float) -> Figures:
        """Return for how long no pass has ended."""
        if self._passed_at is None:
            self._passed_at = now
        return {"scrub_age_seconds": now - self._passed_at}

    def deadline(self) -> float:
        """Return when `check` is due next."""
        rate = self._settings.scrub_bytes_per_s
        if not rate:
            return float("inf")
        # Reckoned anew each time: the settings may change meanwhile.
        due = self._read_at + self._spent / rate
        return max(due, self._begun + self._settings.scrub_every_s) if self._waits else due

    def check(self, turn: BrokerTurn) -> None:
        """Check a small piece, if it is time."""
        if self._passed_at is None:
            self._passed_at = turn.mono
        if turn.mono < self.deadline():
            return
        if not self._order:
            self._begin(turn)
        spent = 0
        while self._order and spent < TURN_BYTES:
            replica = self._queues.replicas.get(self._order[-1])
            if replica is None or replica.damage is not None:
                self._next()
                spent += ENTRY_COST
                continue
            spent += self._check(replica, turn)
        self._stats.count("scrubbed_bytes", spent)
        self._note(spent, turn)
        self._read_at, self._spent, self._waits = turn.mono, spent, not self._order
        if not self._order:
            self._stats.count("scrub_passes")
            self._passed_at = turn.mono

    def _begin(self, turn: BrokerTurn) -> None:
        """Begin a pass; the first one of a process continues where the last process was."""
        self._begun = turn.mono
        self._order = sorted(self._queues.replicas, reverse=True)
        self._at, self._copy = None, 0
        if self._resumed:
            return
        self._resumed = True
        try:
            key = self._queues.storage.get("index", CHECKPOINT)
        except DataDamaged:
            key = None
        if key is None or len(key) != len(_BEGIN):
            return
        behind = bisect_left(self._order, _backwards(queue_of(key)), key=_backwards)
        del self._order[behind + 1 :]
        if self._order and self._order[-1] == queue_of(key):
            self._at = position_of(key)
        elif behind < len(self._order):
            # That queue is gone: continue with the one after it, which precedes it in this list.
            del self._order[behind:]

    def _next(self) -> None:
        self._order.pop()
        self._at, self._copy = None, 0

    def _check(self, replica: Replica, turn: BrokerTurn) -> int:
        """Check one piece of a log, and return its cost."""
        storage = self._queues.storage
        spent = ENTRY_COST
        try:
            if replica.compaction.on and self._copy >= 0:
                read, self._copy = check_copies(replica, storage, self._copy, TURN_BYTES)
                return spent + read
            if self._at is None:
                self._check_state(replica, turn)
            at = self._place(replica)
            stored = read_stored_entries(replica, storage, at, replica.written, all_checks=True)
            with closing(stored) as entries:
                for entry, after in entries:
                    at = after
                    spent += max(len(entry), ENTRY_COST)
                    if spent >= TURN_BYTES:
                        break
        except DataDamaged as error:
            self._stats.count("scrub_finds")
            place = Position(replica.start)
            damage = error if isinstance(error, DamagedEntry) else DamagedEntry(error.text, place)
            self._found(replica, damage)
            self._next()
            return spent
        self._at, self._cuts = at, replica.cuts
        if at >= replica.written:
            self._next()
        return spent

    def _place(self, replica: Replica) -> Position:
        """Return where to continue: a position at which an entry begins."""
        at = self._at
        if at is None or at.offset < replica.start:
            return Position(replica.start)
        if at >= replica.written:
            return replica.written
        if self._cuts == replica.cuts:
            return at
        return find_batch_start(replica, self._queues.storage, at.offset)

    def _check_state(self, replica: Replica, turn: BrokerTurn) -> None:
        """Check the rows of `state`, and write unreadable ones again from memory."""
        get = self._queues.storage.get
        try:
            record = get("state", queue_key(*replica.key, RECORD))
            if record is not None:
                decode_record(record)
            decode_epochs(get("state", queue_key(*replica.key, EPOCHS)) or b"")
        except DataDamaged:
            self._stats.count("scrub_finds")
            replica.write_all(turn.writes)

    def _note(self, spent: int, turn: BrokerTurn) -> None:
        self._unnoted += spent
        if self._unnoted < NOTE_EVERY:
            return
        self._unnoted = 0
        key = _BEGIN
        if self._order:
            replica = self._queues.replicas.get(self._order[-1])
            start = replica.start if replica is not None else 0
            key = log_key(*self._order[-1], *(self._at or Position(start)))
        turn.writes.put("index", CHECKPOINT, key)


def _backwards(key: QueueKey) -> QueueKey:
    """Return the sort key that puts the last queue first."""
    return -key[0], -key[1]
