"""Requests of consumers and operators about subscriptions, served by the leader of their queue."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Final, Protocol

import msgspec

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.parking.release_scheduler import is_certain
from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.leader_lookup import QueueRequest
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replica.request_errors import (
    catching_up,
    check_restored,
    check_topic,
    not_leader,
)
from logboom.nodes.requests.long_requests import LongRequests, Parts
from logboom.nodes.subscriptions.active_subscription import (
    ActiveSubscription,
    ConsumerSession,
    HeldReceive,
    check_settings,
)
from logboom.nodes.subscriptions.dispatch_events import (
    AttachConsumer,
    GrantPermits,
    SubscriptionConfig,
)
from logboom.nodes.subscriptions.subscription_service import SubscriptionService, unknown_consumer
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.access.access_rules import resource_of_subscription
from logboom.wire.actor import note
from logboom.wire.errors import (
    GroupError,
    InvalidRequest,
    LogboomError,
    NotEnoughReplicas,
    Refused,
    Unavailable,
    UnknownResource,
)
from logboom.wire.messages import Ok
from logboom.wire.names import unknown_subscription_text
from logboom.wire.stats import Statistics
from logboom.wire.subscription_messages import (
    NAME_LENGTH,
    AlterSubscription,
    DescribeSubscriptions,
    Detach,
    Receive,
    Subscribe,
    Subscribed,
    SubscriptionsDescribed,
    SubscriptionState,
)

MIN_SESSION_MS: Final = 1_000
MAX_SESSION_MS: Final = 3_600_000
MOST_LISTED: Final = 100
"""Messages that were delivered in vain, and acknowledged spans, in the state of a subscription."""
ALL_LISTED: Final = 5_000
"""The same of all subscriptions that are described at once."""
STATE_UNITS: Final = 60
"""Units of work (`LongRequests`) of a state, besides those for what it is made of."""
RIGHT_UNITS: Final = 40
"""Units of a decision whether a subscription is shown."""
PART_COUNTS: Final = 2_000
"""Messages that were delivered in vain that one part looks at."""
WAITING_BYTES: Final = 64 * 1024
"""What a request about all subscriptions of a queue takes of memory while it is carried out."""
MOST_CONSUMERS: Final = 1_000
"""Consumers of one subscription in one queue, since some events look at all of them."""
MOST_SUBSCRIPTIONS: Final = 10_000
"""Subscriptions of one queue: each costs memory in every replica until somebody ends it."""
MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""A peer that has not taken this many bytes, for all consumers of its connection, is slow."""

OffsetAt = Callable[[str, int, int, int, Hashable, BrokerTurn], tuple[int, int]]
"""(topic, queue, topic id, message time in ms, user or connection, turn) → offset, and the time
there; raises LogboomError."""


class SubscriptionRequest(QueueRequest, Protocol):
    """The fields that all requests about subscriptions have."""

    subscription: str


class ConsumerRequest(SubscriptionRequest, Protocol):
    """The fields that identify an attached consumer."""

    consumer: str
    session: int


class SubscriptionLookup:
    """Finds the subscription that a request names."""

    def __init__(
        self,
        context: BrokerContext,
        service: SubscriptionService,
        refusal: Callable[[Replica], LogboomError],
    ) -> None:
        """Create a lookup; `refusal` makes the error for a damaged queue."""
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._service = service
        self._refusal = refusal

    def led(self, message: QueueRequest) -> tuple[Replica, Leadership]:
        """Return the replica of a queue that this broker leads.

        It has applied everything written by earlier leaders.

        Raises:
            LogboomError: this broker does not lead the queue, or has not applied it yet.
        """
        replica = self._queues.by_name.get((message.topic, message.queue))
        leading = replica.leading if replica is not None else None
        if replica is None or leading is None:
            raise not_leader(self._routes, message.topic, message.queue, self._me, message.topic_id)
        check_topic(replica, message.topic_id)
        check_restored(replica)
        if replica.damage is not None:
            raise Unavailable(self._refusal(replica).text)
        if replica.applied < leading.election_end:
            raise catching_up(replica)
        return replica, leading

    def find_session(
        self, user: str, message: ConsumerRequest, turn: BrokerTurn
    ) -> tuple[ActiveSubscription, ConsumerSession]:
        """Return the subscription and the session of an attached consumer.

        Raises:
            LogboomError: the consumer is not attached in this session by this user, or not here.
        """
        replica, _ = self.led(message)
        served = self._service.served.get((replica.key, message.subscription))
        consumer_session = served.sessions.get(message.consumer) if served is not None else None
        if (
            served is None
            or served.stale
            or consumer_session is None
            or not consumer_session.is_of(user, message.session)
        ):
            raise unknown_consumer(message.consumer)
        consumer_session.heard = turn.mono
        return served, consumer_session

    def resume(
        self,
        replica: Replica,
        leading: Leadership,
        name: str,
        settings: SubscriptionConfig,
        turn: BrokerTurn,
    ) -> ActiveSubscription:
        """Serve a subscription of which this leadership has only the cursor.

        Raises:
            Unavailable: the cursor is not complete here yet.
        """
        acks, counts = self.known(replica, name)
        return self._service.serve(replica, leading, name, settings, acks, counts, turn.mono)

    def known(self, replica: Replica, name: str) -> tuple[AckSet, dict[int, int]]:
        """Return the acknowledged messages of a subscription, and its numbers of failed deliveries.

        Raises:
            Unavailable: its cursor is not complete here yet.
        """
        served = self._service.served.get((replica.key, name))
        if served is not None:
            return served.dispatcher.acks.copy(), dict(served.dispatcher.counts)
        if replica.cursors.behind:
            raise Unavailable(
                "the cursor of this subscription is not complete here yet: try again", "BUSY"
            )
        cursor = replica.cursors.cursors[name]
        return cursor.acks.copy(), cursor.counts


def check_replicas(leading: Leadership) -> None:
    """Check that enough replicas are in sync to commit a write.

    Raises:
        NotEnoughReplicas: the ISR is smaller than min_in_sync.
    """
    if not leading.enough_in_sync:
        raise NotEnoughReplicas(
            f"{len(leading.isr)} of {leading.required} copies are in sync: start the brokers that "
            "are down, or lower the topic's min_in_sync",
            isr=list(leading.isr),
        )


def no_subscription(topic: str, name: str) -> UnknownResource:
    """UNKNOWN_SUBSCRIPTION."""
    text = unknown_subscription_text(resource_of_subscription(topic, name))
    return UnknownResource(text, "UNKNOWN_SUBSCRIPTION")


class SubscriptionHandler(Service):
    """Serves the requests of consumers."""

    def __init__(
        self,
        access: SubscriptionLookup,
        service: SubscriptionService,
        stats: Statistics,
        offset_at: OffsetAt,
    ) -> None:
        self._access = access
        self._service = service
        self._stats = stats
        self._offset_at = offset_at

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of what consumers ask."""
        return {
            Subscribe: self.subscribe,
            Receive: self.receive,
            Detach: self.detach,
        }

    # ── consumers ───────────────────────────────────────────────────────────────────────────────

    def subscribe(self, peer: PeerSession, message: Subscribe, turn: BrokerTurn) -> None:
        """Attach a consumer, and answer once its subscription is replicated."""
        address = peer.address
        try:
            replica, leading = self._access.led(message)
            _check_subscribe(message)
            self._contest(peer, replica, message, turn)
            served = self._found(peer, replica, leading, message, turn)
            name, session = message.consumer, message.session
            old = served.sessions.get(name)
            if old is None and len(served.sessions) >= MOST_CONSUMERS:
                raise _crowded(served.name)
            if old is not None:
                if session <= old.session:
                    raise unknown_consumer(name)
                self._service.detach(served, name, turn, unknown_consumer(name))
            consumer = ConsumerSession(
                session, turn.mono, message.owner, settled=message.again, user=peer.user
            )
            self._service.attach(served, name, consumer)
            ranges = None if message.ranges is None else tuple(message.ranges)
            try:
                self._service.tell(
                    served, AttachConsumer(name, session, message.priority, ranges), turn
                )
            except LogboomError:
                self._service.drop_session(served, name)
                raise
            self._stats.count("subscribes")
            told = Subscribed(message.id, served.dispatcher.acks.floor)
            self._service.answers.add(replica, leading, address, told)
        except LogboomError as error:
            turn.refuse(address, message.id, error)

    def receive(self, peer: PeerSession, message: Receive, turn: BrokerTurn) -> None:
        """Take permits, and hold the request until there are messages."""
        address = peer.address
        try:
            served, consumer_session = self._access.find_session(peer.user, message, turn)
            # The hold ends well before the session does, and the consumer's next request keeps it
            # alive.
            longest = served.settings.session_ms // 2
            deadline = turn.mono + min(max(0, message.wait_ms), longest) / 1000
            if message.number == consumer_session.number and consumer_session.held is not None:
                # The request was repeated, since it was not answered. Its permits count once.
                consumer_session.held = HeldReceive(address, message.id, deadline)
                self._service.plan(served)
                return
            if message.number != consumer_session.number + 1:
                # The consumer has lost a delivery. It must attach again, and receives the messages
                # again.
                lost = unknown_consumer(message.consumer)
                self._service.detach(served, message.consumer, turn, lost)
                raise lost
            self._service.send_nothing(served, message.consumer, turn)
            consumer_session.settled = True
            consumer_session.number, consumer_session.held = (
                message.number,
                HeldReceive(address, message.id, deadline),
            )
            blocked = turn.unsent_bytes.get(address, 0) >= MAX_UNSENT_BYTES
            who = (message.consumer, message.session)
            self._service.tell(
                served, GrantPermits(*who, message.messages, message.size, blocked), turn
            )
        except LogboomError as error:
            turn.refuse(address, message.id, error)

    def detach(self, peer: PeerSession, message: Detach, turn: BrokerTurn) -> None:
        """Detach a consumer."""
        address = peer.address
        try:
            served, _ = self._access.find_session(peer.user, message, turn)
            error = unknown_consumer(message.consumer)
            self._service.detach(served, message.consumer, turn, error)
        except GroupError:
            pass  # it is not attached, so there is nothing to do
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return
        turn.answer(address, Ok(message.id))

    # ── what they ask of ────────────────────────────────────────────────────────────────────────

    def _contest(
        self, peer: PeerSession, replica: Replica, message: Subscribe, turn: BrokerTurn
    ) -> None:
        """Detach another process of the consumer's name, or refuse this one.

        Raises:
            GroupError: INSTANCE_TAKEN.
        """
        name = message.consumer
        served = self._service.served.get((replica.key, message.subscription))
        held = served.sessions.get(name) if served is not None and not served.stale else None
        if served is None or held is None or not held.is_foreign_to(peer.user, message.owner):
            return
        turn.out.notes.append(
            note(
                "consumer_name_taken",
                topic=replica.topic,
                queue=replica.queue,
                subscription=served.name,
                consumer=name,
            )
        )
        error = _name_taken(served.name, name)
        if not held.yields_to(peer.user, message.owner, again=message.again):
            raise error
        self._service.detach(served, name, turn, error)

    def _found(
        self,
        peer: PeerSession,
        replica: Replica,
        leading: Leadership,
        message: Subscribe,
        turn: BrokerTurn,
    ) -> ActiveSubscription:
        """Return the subscription that a consumer names, and create it if it does not exist."""
        service, name, settings = self._service, message.subscription, message.config
        served = service.served.get((replica.key, name))
        if served is not None and not served.stale:
            if settings == served.settings:
                return served
            others = [each for each in served.sessions if each != message.consumer]
            if others:
                raise _mismatch(name, settings, served.settings)
            for each in list(served.sessions):
                service.detach(served, each, turn, unknown_consumer(each))
            old = served.dispatcher
            return service.serve(replica, leading, name, settings, old.acks, old.counts, turn.mono)
        if service.exists(replica, name):
            return self._access.resume(replica, leading, name, settings, turn)
        if not message.create:
            raise no_subscription(message.topic, name)
        if service.count(replica) >= MOST_SUBSCRIPTIONS:
            raise _too_many(replica)
        check_replicas(leading)
        if not is_certain(replica, leading):
            raise catching_up(replica)
        if message.start == "first":
            floor = replica.start
        elif message.start == "last":
            floor = replica.readable.offset
        else:
            where = (message.topic, message.queue, message.topic_id)
            floor, _ = self._offset_at(*where, message.start, peer.user or peer.address, turn)
        acks = AckSet(floor)
        served = service.serve(replica, leading, name, settings, acks, {}, turn.mono)
        service.begin(replica, name, acks, {}, turn)
        return served


def _crowded(subscription: str) -> Refused:
    text = f"{MOST_CONSUMERS} consumers are attached to subscription {subscription!r}"
    return Refused(f"{text}: close some, or give the topic another subscription", "CONSUMER_BUSY")


def _too_many(replica: Replica) -> Refused:
    text = f"{replica.topic}/{replica.queue} has {MOST_SUBSCRIPTIONS:,} subscriptions"
    return Refused(f"{text}: end those that nobody uses any more", "QUOTA_EXCEEDED")


def _name_taken(subscription: str, consumer: str) -> GroupError:
    text = f"another process is consumer {consumer!r} of subscription {subscription!r}"
    return GroupError(f"{text}: give each a name of its own, or end one", "INSTANCE_TAKEN")


def _check_subscribe(message: Subscribe) -> None:
    for what, name in (("subscription", message.subscription), ("consumer", message.consumer)):
        if not 1 <= len(name) <= NAME_LENGTH or not name.isprintable():
            text = f"a {what}'s name has 1 to {NAME_LENGTH} printable characters"
            raise InvalidRequest(text, "INVALID_NAME")
    check_settings(message.config)
    if not MIN_SESSION_MS <= message.config.session_ms <= MAX_SESSION_MS:
        text = f"session_ms must be from {MIN_SESSION_MS} to {MAX_SESSION_MS}"
        raise InvalidRequest(f"{text}, not {message.config.session_ms}")


def _mismatch(name: str, asked: SubscriptionConfig, there: SubscriptionConfig) -> GroupError:
    wanted, known = msgspec.structs.asdict(asked), msgspec.structs.asdict(there)
    different = sorted(key for key in wanted if wanted[key] != known[key])
    said = ", ".join(f"{key} {known[key]!r} and not {wanted[key]!r}" for key in different)
    text = f"subscription {name!r} is served with {said}: all its consumers must agree"
    return GroupError(text, "SUBSCRIPTION_MISMATCH", different=",".join(different))


class SubscriptionAdminHandler(Service):
    """Serves the requests of operators: to describe, move and end subscriptions."""

    def __init__(
        self,
        context: BrokerContext,
        access: SubscriptionLookup,
        service: SubscriptionService,
        requests: LongRequests,
    ) -> None:
        self._acceptor = context.acceptor
        self._requests = requests
        self._access = access
        self._service = service
        self._stats = context.stats

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of what operators ask."""
        return {AlterSubscription: self.alter, DescribeSubscriptions: self.describe}

    def alter(self, peer: PeerSession, message: AlterSubscription, turn: BrokerTurn) -> None:
        """End a subscription, or set its position."""
        try:
            replica, leading = self._access.led(message)
            name = message.subscription
            if not self._service.exists(replica, name):
                raise no_subscription(message.topic, name)
            served = self._service.served.get((replica.key, name))
            if served is not None and served.sessions and not message.force:
                busy = next(iter(served.sessions))
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
                self._service.close(served, unknown_consumer("of this subscription"), turn)
            if message.change == "end":
                self._service.end(replica, name, turn)
            else:
                acks.raise_to(max(replica.start, min(message.offset, replica.hw.offset)))
                counts = {offset: n for offset, n in counts.items() if offset not in acks}
                self._service.begin(replica, name, acks, counts, turn)
                self._service.serve(
                    replica, leading, name, SubscriptionConfig(), acks, counts, turn.mono
                )
            self._stats.count("subscription_changes")
            self._service.answers.add(replica, leading, peer.address, Ok(message.id))
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)

    def describe(self, peer: PeerSession, message: DescribeSubscriptions, turn: BrokerTurn) -> None:
        """Describe the subscriptions that the user may see, by name."""
        self._requests.serve(peer, message, self._described(peer, message), WAITING_BYTES, turn)

    def _described(self, peer: PeerSession, message: DescribeSubscriptions) -> Parts:
        """Answer with their states.

        Raises:
            LogboomError: this broker does not lead the queue, there is no such subscription, or its
                cursor is not complete here yet.
        """
        turn = yield 0
        replica, _ = self._access.led(message)
        names = self._service.names(replica)
        if message.subscription:
            if message.subscription not in names:
                raise no_subscription(message.topic, message.subscription)
            names = [message.subscription]
        sight = self._acceptor.authorizer.sight(peer)
        listed = min(MOST_LISTED, ALL_LISTED // max(1, len(names)))
        states: list[SubscriptionState] = []
        for name in names:
            if sight is not None and not sight.subscription(replica.topic, name):
                turn = yield RIGHT_UNITS
                continue
            replica, _ = self._access.led(message)
            if not self._service.exists(replica, name):
                continue
            served = self._service.served.get((replica.key, name))
            if served is not None:
                state, acks = served.state(turn.mono), served.dispatcher.acks
                counts: Mapping[int, int] = served.dispatcher.counts
            else:
                acks, counts = self._access.known(replica, name)
                acks.raise_to(replica.start)
                end = replica.readable.offset
                told = (acks.floor, acks.above.span_count(), acks.unacked(end), end)
                state = SubscriptionState(name, *told, "", 0, 0, [], [], [], [], [])
            acked = list(islice(acks.spans(), listed))
            keys = [offset for offset in counts if offset >= acks.floor]
            turn = yield (
                STATE_UNITS + 4 * len(state.consumers) + len(acks.above.blocks) + len(keys) // 4
            )
            first: list[int] = []
            for begin in range(0, len(keys), PART_COUNTS):
                first = sorted(first + keys[begin : begin + PART_COUNTS])[:listed]
                turn = yield PART_COUNTS // 2
            again = [(offset, counts[offset]) for offset in first if offset in counts]
            states.append(msgspec.structs.replace(state, again=again, acked=acked))
        turn.answer(peer.address, SubscriptionsDescribed(message.id, states))
