"""The compactor: passes over queues of compacted topics, and copies before retention.

A pass deliberately lags behind the HW: it processes a few messages per turn, at a limited rate, and
delays no acknowledgement. Damaged rows are derived again from the log and the copies. A copy that
cannot be read is damage of the replica like any other (Q14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.compaction import compaction_pass
from logboom.nodes.compaction import survivor_copies as compact_copies
from logboom.nodes.compaction.compaction_pass import limit_of
from logboom.nodes.log.keys import Position
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.turn import LOOKED_PER_STEP, BrokerTurn, Figures, Service
from logboom.wire.errors import DataDamaged

TURN_UNITS: Final = 160
"""Approximate number of messages that one turn processes, at some 20 µs each, and twice that if copies
have to be found."""
PASS_INTERVAL_S: Final = 0.1
"""Seconds between two passes over a queue that is up to date: larger steps cost less."""
LEFT_S: Final = 1.0
"""Seconds after which a queue that was being copied is left for another one."""


class Compactor(Service):
    """The queues of this broker whose topics are compacted."""

    def __init__(
        self,
        context: BrokerContext,
        found: Callable[[Replica, DamagedEntry], None],
        lacking: Callable[[Replica], None],
    ) -> None:
        """Create the compactor, with nothing to do yet.

        Args:
            context: what all parts of the broker share.
            found: called with damage of the log.
            lacking: called with a queue whose copies have to be fetched.
        """
        self._queues = context.queues
        self._routes = context.routes
        self._settings = context.settings
        self._stats = context.stats
        self._found = found
        self._lacking = lacking
        self._due: dict[QueueKey, Replica] = {}
        self._worked_at = float("-inf")
        self._spent: int | None = None
        """Messages that the last turn processed; None if it left nothing to do."""
        self._turn: BrokerTurn | None = None
        """The last turn that made copies."""
        self._copied = 0
        """Messages that this turn has copied."""
        self._copier: Replica | None = None
        """The queue of which survivors were copied last, and …"""
        self._copied_at = float("-inf")
        """… when that was."""
        for replica in self._queues:
            self.moved(replica)

    def moved(self, replica: Replica) -> None:
        """Note that there may be more to compact in a queue."""
        if replica.compaction.on:
            self._due[replica.key] = replica

    def hw_moved(self, replica: Replica, _turn: BrokerTurn) -> None:
        """Note that more of a queue is committed."""
        self.moved(replica)

    def deadline(self) -> float:
        """Return when `advance` is due next."""
        return self._next_at() if self._due else float("inf")

    def _next_at(self) -> float:
        if self._spent is None:
            return self._worked_at + PASS_INTERVAL_S
        return self._worked_at + self._spent / self._settings.compaction_messages_per_s

    def figure_steps(self, now: float) -> Iterator[Figures]:
        """Yield, after some steps, how many queues have yet to fetch copies."""
        lacking = 0
        for number, replica in enumerate([*self._queues], 1):
            lacking += replica.compaction.lacks is not None
            if number % LOOKED_PER_STEP == 0:
                yield {}
        yield {"copies_lacking": lacking}

    def configure(self, names: Iterable[str], turn: BrokerTurn) -> None:
        """Follow changes of these topics, or of who leads them."""
        for name in names:
            topic = self._routes.topics.get(name)
            for replica in self._queues.held(name) if topic is not None else ():
                if topic is not None and replica.topic_id == topic.id:
                    replica.compaction.keeps_tombstones_ms = topic.config.delete_retention_ms
                    self._follow(replica, topic.config.compaction, turn)

    def _follow(self, replica: Replica, wanted: bool, turn: BrokerTurn) -> None:
        compaction, leads = replica.compaction, replica.leading is not None
        if wanted and not compaction.on:
            compaction.begin(turn.writes, replica.start, leads=leads)
            if compaction.lacks is not None:
                self._lacking(replica)
        elif compaction.on and not wanted:
            compaction.end(turn.writes)
            self._due.pop(replica.key, None)
        elif compaction.on and leads and not replica.restoring:
            compaction.settle(turn.writes)
        self.moved(replica)

    def advance(self, turn: BrokerTurn) -> None:
        """Continue for a bounded amount of work, if it is time."""
        if not self._due or turn.mono < self._next_at():
            return
        left = TURN_UNITS
        for key in list(self._due):
            if left <= 0:
                break
            replica = self._due.pop(key)
            if self._queues.replicas.get(key) is not replica or replica.damage is not None:
                continue
            if replica.restoring:
                continue  # It is noted again when the topic changes, which ends the restore.
            if not replica.compaction.may_stage(turn.writes):
                self._put_back(replica)
                continue
            if replica.leading is not None and replica.compaction.lacks is not None:
                # Its copies are the queue's now.
                replica.compaction.settle(turn.writes)
                self._due[key] = replica
                continue
            left -= self._advance(replica, left, turn)
            if replica.compaction.on and replica.compaction.reach < limit_of(replica).offset:
                self._put_back(replica)
        spent = TURN_UNITS - left
        self._stats.count("compacted_messages", spent)
        self._worked_at, self._spent = turn.mono, spent if self._due else None

    def _put_back(self, replica: Replica) -> None:
        """Continue with a queue later; first of all if a batch of it is open, so that few are."""
        if replica.compaction.opened is None:
            self._due[replica.key] = replica
        else:
            self._due = {replica.key: replica, **self._due}

    def _advance(self, replica: Replica, units: int, turn: BrokerTurn) -> int:
        try:
            return compaction_pass.advance_pass(replica, self._queues.storage, turn.writes, units)
        except DataDamaged as error:
            self.broken(replica, error, turn)
            return units

    def broken(self, replica: Replica, error: DataDamaged, turn: BrokerTurn) -> None:
        """Handle a log, a row or a copy of a queue that could not be read."""
        if isinstance(error, DamagedEntry):
            self._found(replica, error)
            return
        compaction = replica.compaction
        if not compaction.may_stage(turn.writes):
            return  # It is being changed in this turn; the next reader finds the damage again.
        self._stats.count("compaction_rebuilds")
        try:
            # During the pass through the copies, only a copy can be at fault.
            if compaction.reach < replica.start:
                raise error
            compaction.rebuild(turn.writes, self._queues.storage, replica.start)
        except DataDamaged as again:
            self._found(replica, DamagedEntry(again.text, Position(replica.start)))
            return
        self.moved(replica)

    def make_room(self, replica: Replica, until: int, turn: BrokerTurn) -> tuple[int, bool]:
        """Copy survivors that retention is about to remove, if it is to remove all before `until`.

        Return how far it may remove now, and whether to ask again in the next turn.

        Raises:
            DamagedBatch: a batch is malformed.
            DataDamaged: see `broken`.
        """
        compaction = replica.compaction
        if not compaction.on:
            waits = replica.leader_compacts and replica.leading is None
            return (replica.start if waits else until), False
        until = min(until, compaction.reach)
        lacking = compaction.lacks is not None and replica.leading is None
        if lacking or until <= replica.start:
            return replica.start, False
        before = compaction.kept
        if before < until and not self._may_copy(replica, turn):
            return max(replica.start, before), True
        if before < until:
            left = compact_copies.TURN_UNITS - self._copied
            self._copied += compact_copies.copy_survivors(
                replica, self._queues.storage, turn.writes, until, turn.now.wall_ms, left
            )
            self._copier, self._copied_at = replica, turn.mono
        kept = compaction.kept
        return max(replica.start, min(until, kept)), before < kept < until or (
            kept < until and compaction.copying is not None
        )

    def _may_copy(self, replica: Replica, turn: BrokerTurn) -> bool:
        """Return True if this turn has room for copies of a queue, and no other one's batch is open."""
        if self._turn is not turn:
            self._turn, self._copied = turn, 0
        last = self._copier
        if last is not None and last is not replica and last.compaction.copying is not None:
            if turn.mono < self._copied_at + LEFT_S:
                return False
            # It is not asked for any more, and begins with this batch again.
            last.compaction.copying = None
        if self._copied >= compact_copies.TURN_UNITS:
            return False
        return replica.compaction.may_stage(turn.writes)

    def forget_tombstones(self, replica: Replica, turn: BrokerTurn) -> bool:
        """Remove tombstones that were kept long enough after the log; True if there may be more.

        Raises:
            DataDamaged: see `broken`.
        """
        if not replica.compaction.on or not replica.compaction.may_stage(turn.writes):
            return False
        return compact_copies.forget_tombstones(
            replica, self._queues.storage, turn.writes, turn.now.wall_ms
        )
