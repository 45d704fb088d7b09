"""What consumers of subscriptions ask the leader of a queue (`wire.subscription_messages`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from logboom.nodes.log.replica import Replica
from logboom.nodes.parked.release import is_certain
from logboom.nodes.replication.leading import Leadership
from logboom.nodes.requests.refusals import catching_up
from logboom.nodes.stats import Statistics
from logboom.nodes.subscriptions.access import Access, Asked, check_replicas, no_subscription
from logboom.nodes.subscriptions.ack_set import AckSet
from logboom.nodes.subscriptions.desk import Desk, unknown_consumer
from logboom.nodes.subscriptions.dispatch_events import (
    Ack,
    AckCumulative,
    Attach,
    Grant,
    Nack,
    Settings,
)
from logboom.nodes.subscriptions.dispatchers import check_settings
from logboom.nodes.subscriptions.seats import Held, Seat, Served
from logboom.nodes.turn import Turn
from logboom.wire.actor import Inbound
from logboom.wire.errors import (
    GroupError,
    InvalidRequest,
    LogboomError,
)
from logboom.wire.messages import Done
from logboom.wire.subscription_messages import (
    NAME_LENGTH,
    Detach,
    Receive,
    Settled,
    SettleMessages,
    Subscribe,
    Subscribed,
)

LEAST_SESSION_MS: Final = 1_000
LONGEST_SESSION_MS: Final = 3_600_000
LONGEST_DELAY_MS: Final = 40 * 86_400_000
UNTAKEN_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a peer has not taken, for all consumers of its connection, from which on it is slow."""

OffsetAt = Callable[[str, int, int, int, Turn], int]
"""(topic, queue, topic id, message time in ms, turn) → offset; raises LogboomError."""


class _FromConsumer(Asked, Protocol):
    """What a consumer that is attached says of itself."""

    consumer: str
    session: int


class Subscriptions:
    """Takes the requests of consumers."""

    def __init__(self, access: Access, desk: Desk, stats: Statistics, offset_at: OffsetAt) -> None:
        self._access = access
        self._desk = desk
        self._stats = stats
        self._offset_at = offset_at

    # ── consumers ───────────────────────────────────────────────────────────────────────────────

    def subscribe(self, address: Inbound, message: Subscribe, turn: Turn) -> None:
        """Attach a consumer; answered once its subscription is replicated."""
        try:
            replica, leading = self._access.led(message)
            _check_subscribe(message)
            served = self._found(replica, leading, message, turn)
            name, session = message.consumer, message.session
            old = served.seats.get(name)
            if old is not None:
                if session <= old.session:
                    raise unknown_consumer(name)
                self._desk.detach(served, name, turn, unknown_consumer(name))
            served.seats[name] = Seat(session, turn.mono)
            ranges = None if message.ranges is None else tuple(message.ranges)
            try:
                self._desk.tell(served, Attach(name, session, message.priority, ranges), turn)
            except LogboomError:
                del served.seats[name]
                raise
            self._stats.count("subscribes")
            told = Subscribed(message.id, served.dispatcher.acks.floor)
            self._desk.answers.add(replica, leading, address, told)
        except LogboomError as error:
            turn.refuse(address, message.id, error)

    def receive(self, address: Inbound, message: Receive, turn: Turn) -> None:
        """Take permits, and hold the request until there is something."""
        try:
            served, seat = self._seated(message, turn)
            # Well before its session ends: whoever is alive asks again.
            longest = served.settings.session_ms // 2
            deadline = turn.mono + min(max(0, message.wait_ms), longest) / 1000
            if message.number == seat.number and seat.held is not None:
                # Sent again, as it was not answered: its permits count once.
                seat.held = Held(address, message.id, deadline)
                return
            if message.number != seat.number + 1:
                # What it should have received is lost: it begins anew, and gets it again.
                lost = unknown_consumer(message.consumer)
                self._desk.detach(served, message.consumer, turn, lost)
                raise lost
            self._desk.send_nothing(served, message.consumer, turn)
            seat.number, seat.held = message.number, Held(address, message.id, deadline)
            blocked = turn.untaken.get(address, 0) >= UNTAKEN_BYTES
            who = (message.consumer, message.session)
            self._desk.tell(served, Grant(*who, message.messages, message.size, blocked), turn)
        except LogboomError as error:
            turn.refuse(address, message.id, error)

    def settle(self, address: Inbound, message: SettleMessages, turn: Turn) -> None:
        """Acknowledge, or take back; answered once that is replicated."""
        try:
            served, _ = self._seated(message, turn)
            check_replicas(served.leading)
            who = (message.consumer, message.session)
            for _, _, delay_ms in message.again:
                if not 0 <= delay_ms <= LONGEST_DELAY_MS:
                    raise InvalidRequest(f"a delay of {delay_ms} ms: give 0 to {LONGEST_DELAY_MS}")
            refused = []
            if message.acked:
                refused += self._desk.tell(served, Ack(*who, tuple(message.acked)), turn)
            if message.up_to >= 0:
                refused += self._desk.tell(served, AckCumulative(*who, message.up_to), turn)
            for start, stop, delay_ms in message.again:
                again = Nack(*who, ((start, stop),), delay_ms / 1000)
                refused += self._desk.tell(served, again, turn)
            told = Settled(message.id, refused)
            self._desk.answers.add(served.replica, served.leading, address, told)
        except LogboomError as error:
            turn.refuse(address, message.id, error)

    def detach(self, address: Inbound, message: Detach, turn: Turn) -> None:
        """A consumer goes."""
        try:
            served, _ = self._seated(message, turn)
            error = unknown_consumer(message.consumer)
            self._desk.detach(served, message.consumer, turn, error)
        except GroupError:
            pass  # it is not attached: all is as it wishes
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return
        turn.answer(address, Done(message.id))

    # ── what they ask of ────────────────────────────────────────────────────────────────────────

    def _seated(self, message: _FromConsumer, turn: Turn) -> tuple[Served, Seat]:
        """The subscription and the seat of a consumer that is attached in this session.

        Raises:
            LogboomError: not this one, or not here.
        """
        replica, _ = self._access.led(message)
        served = self._desk.served.get((replica.key, message.subscription))
        seat = served.seats.get(message.consumer) if served is not None else None
        if served is None or served.stale or seat is None or seat.session != message.session:
            raise unknown_consumer(message.consumer)
        seat.heard = turn.mono
        return served, seat

    def _found(
        self, replica: Replica, leading: Leadership, message: Subscribe, turn: Turn
    ) -> Served:
        """The subscription that a consumer wants, with its settings; made if there is none."""
        desk, name, settings = self._desk, message.subscription, message.config
        served = desk.served.get((replica.key, name))
        if served is not None and not served.stale:
            if settings == served.settings:
                return served
            others = [each for each in served.seats if each != message.consumer]
            if others:
                raise _mismatch(name, settings, served.settings)
            for each in list(served.seats):
                desk.detach(served, each, turn, unknown_consumer(each))
            old = served.dispatcher
            return desk.serve(replica, leading, name, settings, old.acks, old.counts, turn.mono)
        if desk.exists(replica, name):
            return self._access.resume(replica, leading, name, settings, turn)
        if not message.create:
            raise no_subscription(message.topic, name)
        check_replicas(leading)
        if not is_certain(replica, leading):
            raise catching_up(replica)
        if message.start == "first":
            floor = replica.start
        elif message.start == "last":
            floor = replica.readable.offset
        else:
            where = (message.topic, message.queue, message.topic_id)
            floor = self._offset_at(*where, message.start, turn)
        acks = AckSet(floor)
        served = desk.serve(replica, leading, name, settings, acks, {}, turn.mono)
        desk.begin(replica, name, acks, {}, turn)
        return served


def _check_subscribe(message: Subscribe) -> None:
    for what, name in (("subscription", message.subscription), ("consumer", message.consumer)):
        if not 1 <= len(name) <= NAME_LENGTH or not name.isprintable():
            text = f"a {what}'s name has 1 to {NAME_LENGTH} printable characters"
            raise InvalidRequest(text, "INVALID_NAME")
    check_settings(message.config)
    if not LEAST_SESSION_MS <= message.config.session_ms <= LONGEST_SESSION_MS:
        text = f"session_ms is {LEAST_SESSION_MS} to {LONGEST_SESSION_MS}"
        raise InvalidRequest(f"{text}, not {message.config.session_ms}")


def _mismatch(name: str, asked: Settings, there: Settings) -> GroupError:
    wanted, known = msgspec.structs.asdict(asked), msgspec.structs.asdict(there)
    different = sorted(key for key in wanted if wanted[key] != known[key])
    said = ", ".join(f"{key} {known[key]!r} and not {wanted[key]!r}" for key in different)
    text = f"subscription {name!r} is served with {said}: all its consumers must agree"
    return GroupError(text, "SUBSCRIPTION_MISMATCH", different=",".join(different))
