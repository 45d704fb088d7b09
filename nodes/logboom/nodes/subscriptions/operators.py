"""What operators ask of subscriptions: to see them, move them, and end them."""

from __future__ import annotations

from logboom.nodes.log.replica import Replica
from logboom.nodes.replication.leading import Leadership
from logboom.nodes.stats import Statistics
from logboom.nodes.subscriptions.access import Access, check_replicas, no_subscription
from logboom.nodes.subscriptions.ack_set import AckSet
from logboom.nodes.subscriptions.desk import Desk, unknown_consumer
from logboom.nodes.subscriptions.dispatch_events import Settings
from logboom.nodes.turn import Turn
from logboom.wire.actor import Inbound
from logboom.wire.errors import InvalidRequest, LogboomError, Refused
from logboom.wire.messages import Done
from logboom.wire.subscription_messages import (
    AlterSubscription,
    DescribeSubscriptions,
    SubscriptionsDescribed,
    SubscriptionState,
)


class Operators:
    """Takes their requests."""

    def __init__(self, access: Access, desk: Desk, stats: Statistics) -> None:
        self._access = access
        self._desk = desk
        self._stats = stats

    def alter(self, address: Inbound, message: AlterSubscription, turn: Turn) -> None:
        """End a subscription, or set where it goes on."""
        try:
            replica, leading = self._access.led(message)
            name = message.subscription
            if not self._desk.exists(replica, name):
                raise no_subscription(message.topic, name)
            served = self._desk.served.get((replica.key, name))
            if served is not None and served.seats and not message.force:
                busy = next(iter(served.seats))
                text = f"consumer {busy!r} is attached to subscription {name!r}"
                raise Refused(f"{text}: close it, or use force", "CONSUMER_BUSY", consumer=busy)
            if message.offset < 0:
                raise InvalidRequest(f"an offset is 0 or more, not {message.offset}")
            check_replicas(leading)
            acks = AckSet(0)
            counts: dict[int, int] = {}
            if message.change == "skip":
                acks, counts = self._access.known(replica, name)
            if served is not None:
                self._desk.close(served, unknown_consumer("of this subscription"), turn)
            if message.change == "end":
                self._desk.end(replica, name, turn)
            else:
                acks.raise_to(max(replica.start, min(message.offset, replica.hw.offset)))
                counts = {offset: n for offset, n in counts.items() if offset not in acks}
                self._desk.begin(replica, name, acks, counts, turn)
                self._desk.serve(replica, leading, name, Settings(), acks, counts, turn.mono)
            self._stats.count("subscription_changes")
            self._desk.answers.add(replica, leading, address, Done(message.id))
        except LogboomError as error:
            turn.refuse(address, message.id, error)

    def describe(self, address: Inbound, message: DescribeSubscriptions, turn: Turn) -> None:
        """What there is, by name."""
        try:
            replica, leading = self._access.led(message)
            names = self._desk.names(replica)
            if message.subscription:
                if message.subscription not in names:
                    raise no_subscription(message.topic, message.subscription)
                names = [message.subscription]
            states = [self._state(replica, leading, name, turn) for name in names]
            turn.answer(address, SubscriptionsDescribed(message.id, states))
        except LogboomError as error:
            turn.refuse(address, message.id, error)

    def _state(
        self, replica: Replica, leading: Leadership, name: str, turn: Turn
    ) -> SubscriptionState:
        served = self._desk.served.get((replica.key, name))
        if served is None:
            served = self._access.resume(replica, leading, name, Settings(), turn)
        return served.state(turn.mono)
