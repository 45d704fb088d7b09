"""The consumer of a subscription, to which the brokers deliver messages."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Final

from logboom.client.aio.bridge import drive, run, run_in_thread
from logboom.client.aio.reader import Reader
from logboom.client.argument_checks import check_seconds
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.results import Message
from logboom.client.retry_publisher import RetryPublisher
from logboom.client.subscriptions.reader_pair import ReaderPair, find_topics
from logboom.client.subscriptions.subscriber_state import (
    CloseSubscriber,
    FlushSubscriber,
    OpenSubscriber,
    SubscriberOptions,
    SubscriberState,
)
from logboom.wire.errors import GroupError

CLOSE_S: Final = 5.0
"""Seconds for which `close` waits until acknowledgements are confirmed."""


class SubscriptionConsumer(Reader):
    """A consumer of a subscription; `Client.subscribe` creates it. One task reads at a time;
    `ack` and `nack` may be called by any.

    A message whose acknowledgement is confirmed is never delivered again, to any consumer. Others are
    delivered again after `nack`, after the subscription's `ack_timeout_s`, or when this consumer is
    gone.
    """

    _made_by = "client.subscribe()"

    def __init__(self, io: IoThread, options: SubscriberOptions, timeout_s: float) -> None:
        super().__init__(io, timeout_s)
        self._options = options
        self._sink = RetryPublisher(io, timeout_s)
        self._readers = ReaderPair(options, self._subscriber, io.submit, self._sink)
        # A consumer that is no longer referenced must not keep its messages.
        self._abandoned = weakref.finalize(self, _leave, io, self._readers.subscribers)
        self._abandoned.atexit = False

    def _subscriber(self, options: SubscriberOptions) -> SubscriberState:
        return SubscriberState(options, self._event.set, threading.RLock())

    async def _open(self) -> None:
        create = self._io.create_topics
        flow = find_topics(self._options, wall_ms(), self._timeout_s, create=create)
        await drive(self._io, flow)
        for subscriber in self._readers.subscribers:
            await run(self._io, OpenSubscriber(subscriber, self._timeout_s))

    # Reading.

    def _take(self, limit: int) -> list[Message]:
        return self._readers.take(limit)

    def _expect(self) -> bool:
        self._readers.want()
        return self._readers.waiting

    # Settling.

    def ack(self, given: Message | Iterable[Message]) -> None:
        """Acknowledge a message, or several. The brokers learn of it within milliseconds. Once they
        have confirmed it, which `flush` waits for, they never deliver these messages again, to any
        consumer.

        Raises:
            InvalidRequest: a message was not delivered to this consumer, or is settled already.
        """
        self._check()
        self._readers.ack(given)

    def ack_cumulative(self, message: Message) -> None:
        """Acknowledge a message and all before it in its queue (exclusive and failover).

        Raises:
            InvalidRequest: it was not delivered to this consumer, or the subscription is shared.
        """
        self._check()
        self._readers.ack_cumulative(message)

    def nack(
        self, given: Message | Iterable[Message], delay_s: float = 60.0, *, cause: str = ""
    ) -> None:
        """Return messages to the broker, which delivers them again in `delay_s` seconds, to this
        consumer or another. In an exclusive or failover subscription, all later messages of the
        queue wait, and are delivered again, too.

        Raises:
            InvalidRequest: a message was not delivered to this consumer, or is settled already; or
                the delay is invalid.
        """
        self._check()
        self._readers.nack(given, delay_s, cause)

    def retry(
        self, given: Message | Iterable[Message], delay_s: float | None = None, *, cause: str = ""
    ) -> None:
        """Send messages to the subscription's retry topic, from which they are delivered again in
        `delay_s` seconds (None: 10 s after the first attempt, and longer each time). Unlike after
        `nack`, the delay survives the failure of a broker, and does not block other messages of the
        same key. After `max_attempts` messages become dead letters. The originals are acknowledged
        once the copies are safe.

        Raises:
            InvalidRequest: the subscription has no `max_attempts`; or as `nack`.
        """
        self._check()
        self._readers.retry(given, delay_s, cause)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the brokers have answered to all acknowledgements.

        Raises:
            GroupError: ACK_REFUSED, since the last flush some were refused, because the messages
                were not this consumer's any more; its field `refused` says which. They are
                delivered again, to whoever has them now; all others are confirmed.
            TimedOut: not all were answered; messages without confirmation are delivered again.
        """
        await self.open()
        wanted = self._timeout_s if timeout_s is None else timeout_s
        check_seconds(wanted, "timeout_s", endless=True)
        refusal: GroupError | None = None
        for subscriber in self._readers.subscribers:
            try:
                await run(self._io, FlushSubscriber(subscriber, wanted))
            except GroupError as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def pause(self) -> None:
        """Accept no messages beyond those in flight until `resume`."""
        self._check()
        self._readers.pause(paused=True)

    def resume(self) -> None:
        """Accept messages again."""
        self._check()
        self._readers.pause(paused=False)

    @property
    def name(self) -> str:
        """The name of this consumer in its subscription."""
        return self._options.consumer

    @property
    def active(self) -> dict[int, bool]:
        """Queue → True if this consumer is the active one, as far as it knows. In a shared or
        key_shared subscription every consumer is active."""
        places = self._readers.subscribers[0].places
        return {queue: place.active for queue, place in places.items()}

    @property
    def throttled_ms(self) -> int:
        """Milliseconds for which requests of this consumer have waited in all, because its user is
        over a quota. It grows with each answer."""
        return sum(each.throttled_ms for each in self._readers.subscribers)

    # The end.

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Wait up to `timeout_s` until acknowledgements are confirmed, and detach. Messages that
        are not acknowledged are delivered to others at once. A second call does nothing."""
        check_seconds(timeout_s, "timeout_s", endless=True)
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._io.running:
            # Copies in flight are waited for, because their originals are acknowledged after them.
            await run_in_thread(self._sink.close)
            for subscriber in self._readers.subscribers:
                await run(self._io, CloseSubscriber(subscriber, timeout_s))

    def abandon(self) -> None:
        """Leave the subscription without waiting."""
        self._abandoned()


def _leave(io: IoThread, subscribers: list[SubscriberState]) -> None:
    """Detach a consumer that is no longer referenced; do nothing if it is detached."""
    if io.running:
        for subscriber in subscribers:
            io.submit(CloseSubscriber(subscriber, 0.0))
