"""One subscription that this broker serves: its dispatcher, and who sits where."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from logboom.nodes.log.replica import Replica
from logboom.nodes.replication.leading import Leadership
from logboom.nodes.subscriptions.dispatch_events import Delivery, DispatchEffects, Settings
from logboom.nodes.subscriptions.dispatch_keys import KeysDispatcher
from logboom.nodes.subscriptions.dispatcher import Dispatcher
from logboom.nodes.subscriptions.offset_set import OffsetSet
from logboom.wire.actor import Inbound
from logboom.wire.subscription_messages import ConsumerState, SubscriptionState


class Held(NamedTuple):
    """A Receive that waits."""

    address: Inbound
    number: int
    deadline: float


class Seat:
    """One attached consumer, as its messages know it."""

    __slots__ = ("active", "heard", "held", "number", "session")

    def __init__(self, session: int, now: float) -> None:
        self.session = session
        self.number = 0
        """Of the last Receive that was taken."""
        self.held: Held | None = None
        self.heard = now
        self.active = True
        """It is not one that waits for another's end (exclusive, failover)."""


class Served:
    """One subscription of one queue, in one leadership."""

    def __init__(
        self,
        name: str,
        replica: Replica,
        leading: Leadership,
        settings: Settings,
        dispatcher: Dispatcher,
    ) -> None:
        self.name = name
        self.replica = replica
        self.leading = leading
        self.settings = settings
        self.dispatcher = dispatcher
        self.seats: dict[str, Seat] = {}
        self.acked = OffsetSet()
        """To be written down with the next delta."""
        self.counts: dict[int, int] = {}
        """The same: offset → deliveries that came to nothing."""

    @property
    def stale(self) -> bool:
        """Whether another leadership has begun, or none is here."""
        return self.replica.leading is not self.leading

    @property
    def changed(self) -> bool:
        """Whether there is anything to be written down."""
        return bool(self.acked.count or self.counts)

    def take(self, effects: DispatchEffects) -> list[Delivery]:
        """Note what follows; what is to be sent."""
        for start, bits in effects.done:
            self.acked.add_bits(start, bits)
        self.counts.update(effects.counts)
        for name, active in effects.active:
            if name in self.seats:
                self.seats[name].active = active
        return effects.deliveries

    def deadline(self) -> float:
        """When it wants a turn."""
        when = self.dispatcher.deadline()
        session = self.settings.session_ms / 1000
        for seat in self.seats.values():
            when = min(when, seat.heard + session)
            if seat.held is not None:
                when = min(when, seat.held.deadline)
        return when

    def state(self, now: float) -> SubscriptionState:
        """What is told of it."""
        dispatcher = self.dispatcher
        keys = dispatcher if isinstance(dispatcher, KeysDispatcher) else None
        consumers_of = dispatcher.consumers.items()
        ranges = {name: list(each.ranges or ()) for name, each in consumers_of}
        if keys is not None:
            ranges = keys.table.ranges()
        consumers = [
            ConsumerState(
                name,
                consumer.priority,
                consumer.permits.left,
                consumer.permits.left_bytes,
                consumer.held.count,
                self.seats[name].active,
                int((now - self.seats[name].heard) * 1000),
                ranges.get(name, []),
            )
            for name, consumer in sorted(dispatcher.consumers.items())
        ]
        acks, end = dispatcher.acks, self.replica.readable.offset
        return SubscriptionState(
            self.name,
            acks.floor,
            sum(1 for _ in acks.spans()),
            acks.unacked(end),
            end,
            self.settings.kind if consumers else "",
            dispatcher.unacked,
            dispatcher.waiting(),
            consumers,
            keys.table.uncovered() if keys is not None and consumers else [],
            sorted(keys.draining().items())[:100] if keys is not None else [],
            sorted(dispatcher.counts.items())[:100],
            list(islice(acks.spans(), 100)),
            self.settings if consumers else None,
        )
