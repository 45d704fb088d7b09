"""Settlements of consumers: acknowledged messages, and messages given back.

The spans of one request may be far apart, or have delays of their own, and then cost much more than
its bytes say. So a request is carried out in parts. What a turn spends on parts is bounded, for each
user and in all; what is left of a request waits for the next turn, and users take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.offset_set import Span
from logboom.nodes.requests.held_shares import HeldShares, Share
from logboom.nodes.subscriptions.dispatch_events import Ack, AckCumulative, DispatchEvent, Nack
from logboom.nodes.subscriptions.subscription_handler import SubscriptionLookup, check_replicas
from logboom.nodes.subscriptions.subscription_service import SubscriptionService
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.subscription_messages import Settled, SettleMessages

MAX_DELAY_MS: Final = 40 * 86_400_000
LONGEST_SPAN: Final = 1 << 20
"""Offsets that one span may cover."""
MOST_SETTLED: Final = 1 << 24
"""Offsets that the acknowledged spans of one request may cover together, and those given back."""
PART_SPANS: Final = 128
"""Spans of one part …"""
PART_OFFSETS: Final = 4_096
"""… and offsets that they cover."""
PEER_UNITS: Final = 8_000
"""Units of work (`Dispatcher.worked`) of one user, or of one connection on a listener without keys,
after which a turn begins no further part for it: some two milliseconds."""
TURN_UNITS: Final = 2 * PEER_UNITS
"""The same of all users."""
READ_UNITS: Final = 2
"""Units that each span has cost when it is read and checked."""
SPAN_BYTES: Final = 128
"""What a span of a request that waits takes of memory."""


class SettlementQueue(Service):
    """The settlements of all consumers, and those that are not finished."""

    def __init__(
        self, context: BrokerContext, access: SubscriptionLookup, service: SubscriptionService
    ) -> None:
        self._access = access
        self._service = service
        self._shares = HeldShares(context.acceptor.peer)
        self._waiting: dict[Hashable, deque[_Settlement]] = {}
        """Unfinished settlements by user or connection, in the order of their turns."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of settlements."""
        return {SettleMessages: self.settle}

    def settle(self, peer: PeerSession, message: SettleMessages, turn: BrokerTurn) -> None:
        """Begin to acknowledge messages and to take them back; answer once that is replicated."""
        whose = peer.user or peer.address
        try:
            served, _ = self._access.find_session(peer.user, message, turn)
            check_replicas(served.leading)
            count = len(message.acked) + len(message.again)
            read = min(READ_UNITS * count, PEER_UNITS)
            turn.settled[whose] = turn.settled.get(whose, 0) + read
            _check(message)
            settlement = _Settlement(peer, message)
            waiting = self._waiting.get(whose)
            if waiting is None and self._advance(settlement, whose, turn):
                return
            settlement.share = self._shares.share_of(peer.address, SPAN_BYTES * count)
            if waiting is not None:
                self._shares.check(settlement.share)
            self._shares.add(settlement.share)
            self._waiting.setdefault(whose, deque()).append(settlement)
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)

    def step(self, turn: BrokerTurn) -> None:
        """Continue with what is not finished.

        The first in line gets one part even of a turn whose room is spent on reading new requests.
        """
        due = True
        for whose in list(self._waiting):
            if not (due or _has_room(whose, turn)):
                continue
            waiting = self._waiting.pop(whose)
            while waiting and self._advance(waiting[0], whose, turn, due=due):
                self._shares.remove(waiting.popleft().share)
                due = False
            due = False
            if waiting:
                self._waiting[whose] = waiting

    def deadline(self) -> float:
        """Return minus infinity while something is not finished."""
        return float("-inf") if self._waiting else float("inf")

    def _advance(
        self, settlement: _Settlement, whose: Hashable, turn: BrokerTurn, *, due: bool = False
    ) -> bool:
        """Carry out parts while the turn has room, and one that is `due` in any case.

        Return whether the request is answered.
        """
        address, message = settlement.address, settlement.message
        try:
            served, _ = self._access.find_session(settlement.user, message, turn)
            while settlement.part is not None:
                if not (due or _has_room(whose, turn)):
                    return False
                due = False
                settlement.refuse(self._service.tell(served, settlement.part, turn))
                turn.settled[whose] = turn.settled.get(whose, 0) + served.dispatcher.worked
                settlement.part = next(settlement.parts, None)
            told = Settled(message.id, settlement.refused)
            self._service.answers.add(served.replica, served.leading, address, told)
        except LogboomError as error:
            turn.refuse(address, message.id, error)
        return True


def _has_room(whose: Hashable, turn: BrokerTurn) -> bool:
    """True if a turn may begin another part for a user or connection."""
    spent = turn.settled
    return spent.get(whose, 0) < PEER_UNITS and sum(spent.values()) < TURN_UNITS


class _Settlement:
    """A request, and what is left of it."""

    __slots__ = ("address", "message", "part", "parts", "refused", "share", "user")

    def __init__(self, peer: PeerSession, message: SettleMessages) -> None:
        self.address = peer.address
        self.user = peer.user
        self.message = message
        self.parts = _parts(message)
        self.part = next(self.parts, None)
        """The next part; None once all are carried out."""
        self.refused: list[Span] = []
        self.share = Share((), 0)

    def refuse(self, spans: Iterable[Span]) -> None:
        """Add refused spans, and join those that were cut."""
        refused = self.refused
        for start, stop in spans:
            if refused and refused[-1][1] == start:
                start = refused.pop()[0]
            refused.append((start, stop))


def _check(message: SettleMessages) -> None:
    """Check the numbers of a request.

    Raises:
        InvalidRequest: a span or a delay is invalid, or the spans are too long.
    """
    _check_spans(message.acked)
    if message.again:
        _check_spans([(start, stop) for start, stop, _ in message.again])
        delays = [delay_ms for _, _, delay_ms in message.again]
        if min(delays) < 0 or max(delays) > MAX_DELAY_MS:
            delay_ms = next(each for each in delays if not 0 <= each <= MAX_DELAY_MS)
            raise InvalidRequest(f"a delay of {delay_ms} ms: give 0 to {MAX_DELAY_MS}")


def _check_spans(spans: Sequence[Span]) -> None:
    """Check spans in one pass: there may be thousands.

    Raises:
        InvalidRequest: one is invalid, or they are too long.
    """
    together = 0
    for start, stop in spans:
        length = stop - start
        if start < 0 or length < 1 or length > LONGEST_SPAN:
            text = f"{start} to {stop} is not a span of at most {LONGEST_SPAN} offsets"
            raise InvalidRequest(text)
        together += length
    if together > MOST_SETTLED:
        text = f"spans of {together} offsets together; at most {MOST_SETTLED} are accepted"
        raise InvalidRequest(f"{text}: settle them in several requests", "TOO_LARGE")


def _parts(message: SettleMessages) -> Iterator[DispatchEvent]:
    """Yield the events of a request, each of which costs little."""
    who = (message.consumer, message.session)
    for spans in _cut(message.acked):
        yield Ack(*who, spans)
    if message.up_to >= 0:
        yield AckCumulative(*who, message.up_to)
    returned: dict[int, list[Span]] = {}
    for start, stop, delay_ms in message.again:
        returned.setdefault(delay_ms, []).append((start, stop))
    before: Nack | None = None
    for delay_ms, given_back in returned.items():
        for spans in _cut(given_back):
            if before is not None:
                yield before
            before = Nack(*who, spans, delay_ms / 1000, more=True)
    if before is not None:
        yield before._replace(more=False)


def _cut(spans: Iterable[Span]) -> Iterator[tuple[Span, ...]]:
    """Yield spans in parts."""
    part: list[Span] = []
    room = PART_OFFSETS
    for start, stop in spans:
        while stop - start >= room:
            yield (*part, (start, start + room))
            start += room
            part, room = [], PART_OFFSETS
        if start < stop:
            part.append((start, stop))
            room -= stop - start
        if len(part) == PART_SPANS:
            yield tuple(part)
            part, room = [], PART_OFFSETS
    if part:
        yield tuple(part)
