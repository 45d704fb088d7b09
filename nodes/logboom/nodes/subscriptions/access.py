"""How the leader of a queue finds what is asked of its subscriptions, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from logboom.nodes.log.queues import Queues
from logboom.nodes.log.replica import Replica
from logboom.nodes.replication.leading import Leadership
from logboom.nodes.requests.refusals import catching_up, check_topic, not_leader
from logboom.nodes.subscriptions.ack_set import AckSet
from logboom.nodes.subscriptions.desk import Desk
from logboom.nodes.subscriptions.dispatch_events import Settings
from logboom.nodes.subscriptions.seats import Served
from logboom.nodes.turn import Turn
from logboom.wire.errors import LogboomError, NotEnoughReplicas, Unavailable, UnknownResource
from logboom.wire.routes import Routes


class Asked(Protocol):
    """What all requests have."""

    topic: str
    queue: int
    subscription: str
    topic_id: int


class Access:
    """The way to the subscriptions that this broker serves."""

    def __init__(
        self,
        me: str,
        queues: Queues,
        routes: Routes,
        desk: Desk,
        refusal: Callable[[Replica], LogboomError],
    ) -> None:
        """`refusal`: what is told of a damaged queue."""
        self._me = me
        self._queues = queues
        self._routes = routes
        self._desk = desk
        self._refusal = refusal

    def led(self, message: Asked) -> tuple[Replica, Leadership]:
        """The queue, if this broker leads it and knows all that earlier leaders wrote down.

        Raises:
            LogboomError: it does not.
        """
        replica = self._queues.by_name.get((message.topic, message.queue))
        leading = replica.leading if replica is not None else None
        if replica is None or leading is None:
            raise not_leader(self._routes, message.topic, message.queue, self._me, message.topic_id)
        check_topic(replica, message.topic_id)
        if replica.damage is not None:
            raise Unavailable(self._refusal(replica).text)
        if replica.applied < leading.election_end:
            raise catching_up(replica)
        return replica, leading

    def resume(
        self, replica: Replica, leading: Leadership, name: str, settings: Settings, turn: Turn
    ) -> Served:
        """Serve a subscription of which this leadership has only the cursor.

        Raises:
            Unavailable: the cursor is not whole here yet.
        """
        acks, counts = self.known(replica, name)
        return self._desk.serve(replica, leading, name, settings, acks, counts, turn.mono)

    def known(self, replica: Replica, name: str) -> tuple[AckSet, dict[int, int]]:
        """What is acknowledged of a subscription that exists, and what came to nothing.

        Raises:
            Unavailable: its cursor is not whole here yet.
        """
        served = self._desk.served.get((replica.key, name))
        if served is not None:
            return served.dispatcher.acks.copy(), dict(served.dispatcher.counts)
        if replica.cursors.behind:
            raise Unavailable("this subscription's cursor is on its way: ask again", "BUSY")
        cursor = replica.cursors.cursors[name]
        return cursor.acks.copy(), cursor.counts


def check_replicas(leading: Leadership) -> None:
    """
    Raises:
        NotEnoughReplicas: what is written down now could not be made safe.
    """
    if not leading.enough_in_sync:
        raise NotEnoughReplicas(
            f"{len(leading.isr)} of {leading.required} copies are in sync: start the brokers that "
            "are down, or lower the topic's min_in_sync",
            isr=list(leading.isr),
        )


def no_subscription(topic: str, name: str) -> UnknownResource:
    """UNKNOWN_SUBSCRIPTION."""
    text = f"topic {topic!r} has no subscription {name!r} in this queue: subscribe to make it"
    return UnknownResource(text, "UNKNOWN_SUBSCRIPTION")
