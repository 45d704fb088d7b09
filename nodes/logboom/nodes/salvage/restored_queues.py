"""Leadership of queues that were restored into this broker's store while it was stopped.

For the name servers such a queue was lost with its old store, so they give it no leader. As long as
this lasts, and no other replica has the queue, the broker asks to lead it with what it holds. The
operator who ran the recovery has decided this.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.replica import QueueKey
from logboom.nodes.salvage.recovery_marks import drop_recovered, is_recovered
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.actor import note
from logboom.wire.commands import CommandResult, ElectLeader
from logboom.wire.errors import DataDamaged

RETRY_DELAY_S: Final = 1.0
"""Seconds before a refused request is repeated."""


class RestoredQueues(Service):
    """Restored queues that have no leader yet."""

    def __init__(self, context: BrokerContext) -> None:
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._registration = context.registration
        self._proposals = context.proposals
        self._waiting: dict[QueueKey, float] = {}
        """Queues without a leader, and when to ask for them; infinity while a request is in flight.
        """
        for replica in self._queues:
            try:
                if is_recovered(context.storage, replica.key):
                    self._waiting[replica.key] = 0.0
            except DataDamaged:
                # Its replica is damaged then, and reports that.
                continue

    def __len__(self) -> int:
        return len(self._waiting)

    def deadline(self) -> float:
        """Return when `step` is due next."""
        return min(self._waiting.values(), default=float("inf"))

    def step(self, turn: BrokerTurn) -> None:
        """Ask for queues that may be led; forget those that have a leader or were deleted."""
        if not self._waiting:
            return
        known = self._registration.registered and self._routes.version >= self._registration.version
        for key, ask_at in list(self._waiting.items()):
            if turn.mono < ask_at:
                continue
            replica = self._queues.replicas.get(key)
            if replica is None:
                del self._waiting[key]
                continue
            self._waiting[key] = turn.mono + RETRY_DELAY_S
            topic = self._routes.topics.get(replica.topic)
            if not known or topic is None or topic.id != replica.topic_id:
                continue
            view = topic.queues[replica.queue]
            if view.leader is not None:
                del self._waiting[key]
                drop_recovered(turn.writes, key)
                turn.out.notes.append(
                    note(
                        "queue_recovered",
                        topic=topic.name,
                        queue=replica.queue,
                        leader=view.leader,
                    )
                )
            elif list(view.isr) == [self._me] and not view.eligible:
                command = ElectLeader(topic.name, replica.queue, self._me, turn.now.wall_ms)
                self._waiting[key] = float("inf")
                self._proposals.propose(command, partial(self._decided, key), turn)

    def _decided(self, key: QueueKey, _result: CommandResult, turn: BrokerTurn) -> None:
        # The metadata shows the outcome; a refused request is repeated.
        if key in self._waiting:
            self._waiting[key] = turn.mono + RETRY_DELAY_S

    def fenced(self, turn: BrokerTurn) -> None:
        """Forget requests in flight."""
        self._waiting = dict.fromkeys(self._waiting, 0.0)
