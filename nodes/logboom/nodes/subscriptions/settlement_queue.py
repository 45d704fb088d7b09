"""Settlements of consumers: acknowledged messages, and messages given back.

The spans of one request may be far apart, or have delays of their own, and then cost much more than
its bytes say. So a request is carried out in parts (`LongRequests`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from logboom.nodes.replica.offset_set import Span
from logboom.nodes.requests.long_requests import LongRequests, Parts, count_read
from logboom.nodes.subscriptions.dispatch_events import Ack, AckCumulative, DispatchEvent, Nack
from logboom.nodes.subscriptions.subscription_handler import SubscriptionLookup, check_replicas
from logboom.nodes.subscriptions.subscription_service import SubscriptionService
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
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
READ_UNITS: Final = 2
"""Units that each span has cost when it is read and checked."""
SPAN_BYTES: Final = 128
"""What a span of a request that waits takes of memory."""


class SettlementQueue(Service):
    """The settlements of all consumers."""

    def __init__(
        self, access: SubscriptionLookup, service: SubscriptionService, requests: LongRequests
    ) -> None:
        self._access = access
        self._service = service
        self._requests = requests

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of settlements."""
        return {SettleMessages: self.settle}

    def settle(self, peer: PeerSession, message: SettleMessages, turn: BrokerTurn) -> None:
        """Begin to acknowledge messages and to take them back; answer once that is replicated."""
        count = len(message.acked) + len(message.again)
        try:
            served, _ = self._access.find_session(peer.user, message, turn)
            check_replicas(served.leading)
            count_read(peer, READ_UNITS * count, turn)
            _check(message)
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)
            return
        parts = self._parts(peer.address, peer.user, message)
        self._requests.serve(peer, message, parts, SPAN_BYTES * count, turn)

    def _parts(self, address: PeerAddress, user: str, message: SettleMessages) -> Parts:
        """Carry out a request.

        Raises:
            LogboomError: the consumer is not attached any more.
        """
        refused: list[Span] = []
        turn = yield 0
        for event in _events(message):
            served, _ = self._access.find_session(user, message, turn)
            for start, stop in self._service.tell(served, event, turn):
                # Spans that were cut are joined.
                begin = refused.pop()[0] if refused and refused[-1][1] == start else start
                refused.append((begin, stop))
            turn = yield served.dispatcher.worked
        served, _ = self._access.find_session(user, message, turn)
        told = Settled(message.id, refused)
        self._service.answers.add(served.replica, served.leading, address, told)


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


def _events(message: SettleMessages) -> Iterator[DispatchEvent]:
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
