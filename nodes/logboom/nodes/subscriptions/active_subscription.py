"""One subscription that this broker serves: its dispatcher, and its attached consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.offset_set import OffsetSet
from logboom.nodes.replica.replica import Replica
from logboom.nodes.subscriptions.attached_consumer import DispatchRateLimiter
from logboom.nodes.subscriptions.dispatch_events import (
    KINDS,
    Delivery,
    DispatchEffects,
    EntrySource,
    SubscriptionConfig,
)
from logboom.nodes.subscriptions.dispatcher import Dispatcher
from logboom.nodes.subscriptions.entry_filter import EntryFilter
from logboom.nodes.subscriptions.key_shared_dispatcher import KeySharedDispatcher
from logboom.nodes.subscriptions.shared_dispatcher import SharedDispatcher
from logboom.nodes.subscriptions.single_active_dispatcher import SingleActiveDispatcher
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import InvalidRequest
from logboom.wire.subscription_messages import MAX_HELD, ConsumerState, SubscriptionState

MOST_RANGES: Final = 1_000
"""Ranges of slots in a state: those of the lowest slots, …"""
MOST_HOLES: Final = 100
"""… ranges without an owner, …"""
MOST_DRAINING: Final = 100
"""… and slots that drain."""


class HeldReceive(NamedTuple):
    """A RECEIVE that waits for messages."""

    address: PeerAddress
    number: int
    deadline: float


class ConsumerSession:
    """One attached consumer, as its requests describe it."""

    __slots__ = ("active", "heard", "held", "number", "owner", "session", "settled", "user")

    def __init__(
        self,
        session: int,
        now: float,
        owner: int = 0,
        *,
        settled: bool = False,
        user: str = "",
    ) -> None:
        self.session = session
        self.owner = owner
        self.user = user
        """Who has attached it; "" on an open listener."""
        self.settled = settled
        """True once the consumer is attached to all queues, as it has asked for messages here."""
        self.number = 0
        """Number of the last RECEIVE that was accepted."""
        self.held: HeldReceive | None = None
        self.heard = now
        self.active = True
        """False while the consumer waits for another to end (exclusive, failover)."""

    def is_of(self, user: str, session: int) -> bool:
        """True if a request of this user and session is one of this consumer (A6)."""
        return session == self.session and user == self.user

    def is_foreign_to(self, user: str, owner: int) -> bool:
        """True if another process goes by the consumer's name, or another user (A6)."""
        return user != self.user or (owner != self.owner and 0 not in (owner, self.owner))

    def yields_to(self, user: str, owner: int, *, again: bool) -> bool:
        """True if another owner, which was attached to all queues before or not, takes the name.

        Another user never takes it, since what it says of itself proves nothing.
        An owner that has all queues keeps the name from one that has not. Otherwise all leaders
        decide alike, for the later one, so that one of them gets all queues.
        """
        if user != self.user:
            return False
        return again if again != self.settled else owner > self.owner


class ActiveSubscription:
    """One subscription of one queue, in one leadership."""

    def __init__(
        self,
        name: str,
        replica: Replica,
        leading: Leadership,
        settings: SubscriptionConfig,
        dispatcher: Dispatcher,
    ) -> None:
        self.name = name
        self.replica = replica
        self.leading = leading
        self.settings = settings
        self.dispatcher = dispatcher
        self.sessions: dict[str, ConsumerSession] = {}
        self.acked = OffsetSet()
        """Acknowledged offsets that the next delta will contain."""
        self.counts: dict[int, int] = {}
        """Counts of failed deliveries by offset, for the same delta."""

    @property
    def stale(self) -> bool:
        """True if this leadership is over."""
        return self.replica.leading is not self.leading

    @property
    def changed(self) -> bool:
        """True if there is something for the next delta."""
        return bool(self.acked.count or self.counts)

    def take(self, effects: DispatchEffects) -> list[Delivery]:
        """Note the effects of an event, and return the deliveries to send."""
        for start, bits in effects.done:
            self.acked.add_bits(start, bits)
        self.counts.update(effects.counts)
        for name, active in effects.active:
            if name in self.sessions:
                self.sessions[name].active = active
        return effects.deliveries

    def deadline(self) -> float:
        """Return when it wants a turn: at once, if this leadership is over."""
        if self.stale:
            return float("-inf")
        when = self.dispatcher.deadline()
        session = self.settings.session_ms / 1000
        for consumer_session in self.sessions.values():
            when = min(when, consumer_session.heard + session)
            if consumer_session.held is not None:
                when = min(when, consumer_session.held.deadline)
        return when

    def state(self, now: float) -> SubscriptionState:
        """Return the state that operators see, without lists of messages."""
        dispatcher = self.dispatcher
        keys = dispatcher if isinstance(dispatcher, KeySharedDispatcher) else None
        consumers_of = dispatcher.consumers.items()
        ranges = {name: list(each.ranges or ()) for name, each in consumers_of}
        if keys is not None:
            ranges = keys.table.ranges(MOST_RANGES)
        consumers = [
            ConsumerState(
                name,
                consumer.priority,
                consumer.permits.left,
                consumer.permits.left_bytes,
                consumer.held.count,
                self.sessions[name].active,
                int((now - self.sessions[name].heard) * 1000),
                ranges.get(name, []),
            )
            for name, consumer in sorted(dispatcher.consumers.items())
        ]
        acks, end = dispatcher.acks, self.replica.readable.offset
        return SubscriptionState(
            self.name,
            acks.floor,
            acks.above.span_count(),
            acks.unacked(end),
            end,
            self.settings.kind if consumers else "",
            dispatcher.unacked,
            dispatcher.waiting(),
            consumers,
            keys.table.uncovered(MOST_HOLES) if keys is not None and consumers else [],
            keys.draining(MOST_DRAINING) if keys is not None else [],
            [],
            [],
            self.settings if consumers else None,
        )


def make_dispatcher(
    settings: SubscriptionConfig,
    source: EntrySource,
    acks: AckSet,
    counts: dict[int, int] | None = None,
    entry_filter: EntryFilter | None = None,
    rates: Sequence[DispatchRateLimiter] = (),
) -> Dispatcher:
    """Return the dispatcher for a subscription's settings.

    Raises:
        InvalidRequest: an unknown type, or an invalid setting.
    """
    check_settings(settings)
    given = (settings, source, acks, counts, entry_filter, rates)
    if settings.kind == "shared":
        return SharedDispatcher(*given)
    if settings.kind == "key_shared":
        return KeySharedDispatcher(*given)
    return SingleActiveDispatcher(*given)


def check_settings(settings: SubscriptionConfig) -> None:
    """Check the settings of a subscription.

    Raises:
        InvalidRequest: a setting is invalid.
    """
    if settings.kind not in KINDS:
        text = f"no subscription type is called {settings.kind!r}: there are {', '.join(KINDS)}"
        raise InvalidRequest(text)
    for name in ("most_unacked", "most_unacked_all", "look_ahead"):
        if not 1 <= getattr(settings, name) <= MAX_HELD:
            text = f"{name} is from 1 to {MAX_HELD:,} messages, not {getattr(settings, name)}"
            raise InvalidRequest(text)
    if settings.max_attempts < 0:
        raise InvalidRequest(f"max_attempts is 0 (never) or more, not {settings.max_attempts}")
    if settings.max_attempts and settings.kind in ("exclusive", "failover"):
        text = "max_attempts is for shared and key_shared"
        raise InvalidRequest(f"{text}: {settings.kind} keeps the order, so nothing may be left out")
    for name in ("ack_timeout_s", "failover_delay_s"):
        if not 0 <= getattr(settings, name) < 1e9:
            raise InvalidRequest(f"{name} is 0 or more seconds, not {getattr(settings, name)!r}")
