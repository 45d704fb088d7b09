"""Compaction at work: passes over queues of compacted topics, and copies before retention.

The pass stays behind the HW on purpose: a few messages per turn, so many per second, off the path
of any ack. What its rows say wrongly is made anew from the log and the copies; a copy that cannot
be read is damage of the replica like any other (Q14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.compaction import compaction_pass
from logboom.nodes.compaction import survivor_copies as compact_copies
from logboom.nodes.compaction.compaction_pass import limit_of
from logboom.nodes.log.keys import Position
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.turn import BrokerTurn, Figures, Service
from logboom.wire.errors import DataDamaged

TURN_UNITS: Final = 256
"""Messages that one turn takes in, about: some 20 µs each."""
PASS_INTERVAL_S: Final = 0.1
"""Seconds between two passes over a queue that keeps up: the more comes at once, the less it costs."""


class Compactor(Service):
    """All queues of this broker whose topics are compacted."""

    def __init__(
        self,
        context: BrokerContext,
        found: Callable[[Replica, DamagedEntry], None],
        lacking: Callable[[Replica], None],
    ) -> None:
        """`found` is told of damage, `lacking` of a queue whose copies have to be fetched."""
        self._queues = context.queues
        self._routes = context.routes
        self._rate = context.config.compaction_messages_per_s
        self._stats = context.stats
        self._found = found
        self._lacking = lacking
        self._due: dict[QueueKey, Replica] = {}
        self._next_at = float("-inf")
        self._turn: BrokerTurn | None = None
        """The last one that made copies."""
        self._copied = 0
        """Bytes of batches that it read for them."""
        for replica in self._queues:
            self.moved(replica)

    def moved(self, replica: Replica) -> None:
        """There may be more below the HW of a queue."""
        if replica.compaction.on:
            self._due[replica.key] = replica

    def hw_moved(self, replica: Replica, _turn: BrokerTurn) -> None:
        """There is more below the HW of a queue."""
        self.moved(replica)

    def deadline(self) -> float:
        """When `advance` is wanted next."""
        return self._next_at if self._due else float("inf")

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Follow what changed topics say of their compaction."""
        self.configure(topics, turn)

    def figures(self, now: float) -> Figures:
        """Return how many queues have yet to fetch copies."""
        return {"copies_lacking": sum(each.compaction.lacks is not None for each in self._queues)}

    def configure(self, names: Iterable[str], turn: BrokerTurn) -> None:
        """Topics of these names changed, or who leads them."""
        for name in names:
            topic = self._routes.topics.get(name)
            for replica in self._queues.held(name) if topic is not None else ():
                if topic is not None and replica.topic_id == topic.id:
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
        elif compaction.on and leads:
            compaction.settle(turn.writes)
        self.moved(replica)

    def advance(self, turn: BrokerTurn) -> None:
        """Go on a little, if it is time."""
        if turn.mono < self._next_at or not self._due:
            return
        left = TURN_UNITS
        for key in list(self._due):
            if left <= 0:
                break
            replica = self._due.pop(key)
            if self._queues.replicas.get(key) is not replica or replica.damage is not None:
                continue
            if not replica.compaction.may_stage(turn.writes):
                self._due[key] = replica
                continue
            if replica.leading is not None and replica.compaction.lacks is not None:
                # What it holds is the queue now.
                replica.compaction.settle(turn.writes)
                self._due[key] = replica
                continue
            left -= self._advance(replica, left, turn)
            if replica.compaction.on and replica.compaction.reach < limit_of(replica).offset:
                self._due[key] = replica
        spent = TURN_UNITS - left
        self._stats.count("compacted_messages", spent)
        self._next_at = turn.mono + (spent / self._rate if self._due else PASS_INTERVAL_S)

    def _advance(self, replica: Replica, units: int, turn: BrokerTurn) -> int:
        try:
            return compaction_pass.advance_pass(replica, self._queues.storage, turn.writes, units)
        except DataDamaged as error:
            self.broken(replica, error, turn)
            return units

    def broken(self, replica: Replica, error: DataDamaged, turn: BrokerTurn) -> None:
        """The log, a row or a copy of a queue could not be read."""
        if isinstance(error, DamagedEntry):
            self._found(replica, error)
            return
        compaction = replica.compaction
        if not compaction.may_stage(turn.writes):
            return  # it is being changed in this turn: whoever looks next finds it again
        self._stats.count("compaction_rebuilds")
        try:
            # While the copies are gone through there is nothing else that could be at fault.
            if compaction.reach < replica.start:
                raise error
            compaction.rebuild(turn.writes, self._queues.storage, replica.start)
        except DataDamaged as again:
            self._found(replica, DamagedEntry(again.text, Position(replica.start)))
            return
        self.moved(replica)

    def make_room(self, replica: Replica, until: int, turn: BrokerTurn) -> int:
        """Up to where retention may remove now, of what it would remove before `until`.

        Raises:
            DataDamaged: see `broken`.
        """
        compaction = replica.compaction
        if not compaction.on:
            waits = replica.leader_compacts and replica.leading is None
            return replica.start if waits else until
        until = min(until, compaction.reach)
        lacking = compaction.lacks is not None and replica.leading is None
        if lacking or until <= replica.start:
            return replica.start
        if self._turn is not turn:
            self._turn, self._copied = turn, 0
        if self._copied >= compact_copies.WINDOW_BYTES:
            return replica.start
        room, size = compact_copies.window(replica, self._queues.storage, until)
        self._copied += size
        return room

    def keep(self, replica: Replica, until: int, turn: BrokerTurn) -> bool:
        """Copy what survives before `until`, which retention is about to remove; whether it may.

        Raises:
            DataDamaged: see `broken`.
        """
        compaction = replica.compaction
        if not compaction.on:
            return True
        storage = self._queues.storage
        return compaction.may_stage(turn.writes) and compact_copies.stage_survivors(
            replica, storage, turn.writes, until
        )
