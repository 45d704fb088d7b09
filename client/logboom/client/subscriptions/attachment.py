"""One queue of a subscription's consumer in the core, and its requests to the leader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logboom.client.core_context import Timer
from logboom.client.subscriptions.subscribed_queue import SubscribedQueue
from logboom.client.subscriptions.subscriber_state import SubscriberState
from logboom.wire.session_table import RequestHandle
from logboom.wire.subscription_messages import (
    Detach,
    Receive,
    SettleMessages,
    Span,
    Start,
    Subscribe,
)

LONGEST_SPAN: Final = 1 << 20
"""Offsets that one span of an acknowledgement may cover; leaders refuse longer ones."""


class Attachment:
    """The attachment of one consumer to one queue."""

    def __init__(
        self, subscriber: SubscriberState, place: SubscribedQueue, topic_id: int, start: Start
    ) -> None:
        self.subscriber = subscriber
        self.place = place
        self.topic_id = topic_id
        self.start = start
        """Start of the subscription in this queue, if the leader does not know it yet."""
        self.valid_from = 0
        """Epoch of the queue's last loss that is known here (see docs/SAFETY.md, Q15)."""
        self.known: bool | None = None
        """Whether the queue knows the subscription; None while it was not asked."""
        self.creates = False
        """True if the subscription is created if the leader does not know it."""
        self.open = False
        self.closed = False
        self.session = 0
        self.number = 0
        self.endpoint = ""
        self.attempts = 0
        self.asking: RequestHandle | None = None
        self.receiving: dict[int, RequestHandle] = {}
        self.settling: RequestHandle | None = None
        self.pause: Timer | None = None

    def cancel(self) -> None:
        """Cancel all requests."""
        self.open = False
        for ticket in (self.asking, self.settling, *self.receiving.values()):
            if ticket is not None:
                ticket.cancel()
        self.asking = self.settling = None
        self.receiving.clear()
        if self.pause is not None:
            self.pause.cancel()
            self.pause = None

    # Requests to the leader.

    def subscribe(self, timeout_ms: int, *, again: bool) -> Subscribe:
        """Return the request that attaches in the new session.

        It is `again` if the consumer was attached to all queues before.
        """
        options = self.subscriber.options
        return Subscribe(
            0,
            timeout_ms,
            *self._who,
            options.config,
            options.priority,
            None if options.ranges is None else list(options.ranges),
            self.start,
            self.creates,
            self.topic_id,
            self.subscriber.owner,
            again,
        )

    def receive(self, messages: int, size: int, wait_ms: int, timeout_ms: int) -> Receive:
        """Return the request that gives permits and waits for messages."""
        who, topic_id = self._who, self.topic_id
        return Receive(0, timeout_ms, *who, self.number, messages, size, wait_ms, topic_id)

    def settle(
        self, acked: list[Span], up_to: int, back: list[tuple[int, int, int]], timeout_ms: int
    ) -> SettleMessages:
        """Return the request that acknowledges messages and gives others back, as `runs_of`."""
        return SettleMessages(0, timeout_ms, *self._who, acked, up_to, back, self.topic_id)

    def detach(self, timeout_ms: int) -> Detach:
        """Return the request that detaches."""
        return Detach(0, timeout_ms, *self._who, self.topic_id)

    @property
    def _who(self) -> tuple[str, int, str, str, int]:
        options = self.subscriber.options
        queue = self.place.queue
        return options.topic, queue, options.subscription, options.consumer, self.session


def spans_of(offsets: Iterable[int]) -> list[Span]:
    """Convert offsets to spans that a leader accepts, lowest first."""
    found: list[Span] = []
    start = stop = -1
    for offset in sorted(offsets):
        if offset == stop and stop - start < LONGEST_SPAN:
            stop += 1
        elif offset >= stop:
            if stop > start:
                found.append((start, stop))
            start, stop = offset, offset + 1
    if stop > start:
        found.append((start, stop))
    return found


def runs_of(again: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Join messages to give back, as (offset, delay in ms), to runs of one delay, in their order."""
    found: list[tuple[int, int, int]] = []
    start = stop = delay_ms = -1
    for offset, wanted_ms in again:
        if offset == stop and wanted_ms == delay_ms and stop - start < LONGEST_SPAN:
            stop += 1
            continue
        if stop > start:
            found.append((start, stop, delay_ms))
        start, stop, delay_ms = offset, offset + 1, wanted_ms
    if stop > start:
        found.append((start, stop, delay_ms))
    return found
