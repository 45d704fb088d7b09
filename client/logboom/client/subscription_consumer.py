# Generated from aio/subscription_consumer.py by client/generate_blocking.py: do not edit, run `make generate`.
"""The consumer of a subscription: the broker decides what it gets."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Final

from logboom.client.bridge import drive, run, run_in_thread
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.reader import Reader
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

CLOSE_S: Final = 5.0
"""Seconds that `close` waits for its acknowledgements to be confirmed."""


class SubscriptionConsumer(Reader):
    """Reads what its subscription gives it; made by `Client.subscribe`. One thread reads at a time;
    `ack` and `nack` may be called by any.

    What is acknowledged never comes again, whoever consumes; what is not comes again after `nack`,
    after the subscription's `ack_timeout_s`, or when this consumer is gone.
    """

    _made_by = "client.subscribe()"

    def __init__(
        self, io: IoThread, options: SubscriberOptions, timeout_s: float, *, create_topics: bool
    ) -> None:
        super().__init__(io, timeout_s)
        self._create_topics = create_topics
        self._options = options
        self._sink = RetryPublisher(io, timeout_s)
        self._readers = ReaderPair(options, self._subscriber, io.submit, self._sink)
        # A consumer that nobody holds any longer must not keep what it has.
        self._abandoned = weakref.finalize(self, _leave, io, self._readers.subscribers)
        self._abandoned.atexit = False

    def _subscriber(self, options: SubscriberOptions) -> SubscriberState:
        return SubscriberState(options, self._event.set, threading.RLock())

    def _open(self) -> None:
        create = self._create_topics
        flow = find_topics(self._options, wall_ms(), self._timeout_s, create=create)
        drive(self._io, flow)
        for subscriber in self._readers.subscribers:
            run(self._io, OpenSubscriber(subscriber, self._timeout_s))

    # Reading.

    def _take(self, limit: int) -> list[Message]:
        return self._readers.take(limit)

    def _expect(self) -> bool:
        self._readers.want()
        return self._readers.waiting

    # Settling.

    def ack(self, given: Message | Iterable[Message]) -> None:
        """Done with a message, or several: they never come again, to anybody. Told to the brokers
        within some milliseconds; `flush` waits for it.

        Raises:
            InvalidRequest: one was not delivered to this consumer, or is settled already.
        """
        self._check()
        self._readers.ack(given)

    def ack_cumulative(self, message: Message) -> None:
        """Done with a message and all before it in its queue (exclusive and failover).

        Raises:
            InvalidRequest: it was not delivered to this consumer; or the subscription is shared.
        """
        self._check()
        self._readers.ack_cumulative(message)

    def nack(
        self, given: Message | Iterable[Message], delay_s: float = 60.0, *, cause: str = ""
    ) -> None:
        """Messages are to come again, in `delay_s` seconds, to this consumer or another. Of an
        exclusive or failover subscription, all that follow in the queue wait and come again too.

        Raises:
            InvalidRequest: one was not delivered to this consumer, or is settled; or such a delay.
        """
        self._check()
        self._readers.nack(given, delay_s, cause)

    def retry(
        self, given: Message | Iterable[Message], delay_s: float | None = None, *, cause: str = ""
    ) -> None:
        """Messages are to come again by way of the subscription's retry topic, in `delay_s` seconds
        (None: 10 s after the first attempt, and longer each time): their time outlasts whatever
        happens to brokers, and holds up no other message of their keys. After `max_attempts` they
        become dead letters. They are acknowledged once the copies are safe.

        Raises:
            InvalidRequest: the subscription has no `max_attempts`; or as `nack`.
        """
        self._check()
        self._readers.retry(given, delay_s, cause)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the brokers have confirmed all that was acknowledged.

        Raises:
            TimedOut: they did not; what is not confirmed comes again.
        """
        self.open()
        wanted = self._timeout_s if timeout_s is None else timeout_s
        for subscriber in self._readers.subscribers:
            run(self._io, FlushSubscriber(subscriber, wanted))

    def pause(self) -> None:
        """Take no more than what is on its way already, until `resume`."""
        self._check()
        self._readers.pause(paused=True)

    def resume(self) -> None:
        """Take messages again."""
        self._check()
        self._readers.pause(paused=False)

    @property
    def name(self) -> str:
        """This consumer's name in its subscription."""
        return self._options.consumer

    @property
    def active(self) -> dict[int, bool]:
        """Queue → whether this consumer is the one that gets its messages, as last heard (of
        exclusive and failover; of the others always)."""
        places = self._readers.subscribers[0].places
        return {queue: place.active for queue, place in places.items()}

    # The end.

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Wait up to `timeout_s` for acknowledgements to be confirmed, and go: what is not
        acknowledged is delivered to others at once. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._io.running:
            # Copies on their way are waited for: what they are copies of is acknowledged then.
            run_in_thread(self._sink.close)
            for subscriber in self._readers.subscribers:
                run(self._io, CloseSubscriber(subscriber, timeout_s))

    def abandon(self) -> None:
        """Leave the subscription without waiting."""
        self._abandoned()


def _leave(io: IoThread, subscribers: list[SubscriberState]) -> None:
    """Let a consumer go that nobody holds any longer; nothing if it has gone."""
    if io.running:
        for subscriber in subscribers:
            io.submit(CloseSubscriber(subscriber, 0.0))
