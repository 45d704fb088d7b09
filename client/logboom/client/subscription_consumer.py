"""The consumer of a subscription for threads: the broker decides what it gets."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

from logboom.client.admin import wall_ms
from logboom.client.consumer import LOOK_AGAIN_S
from logboom.client.io_thread import IoThread
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
from logboom.wire.errors import ClientClosed, InvalidRequest, LogboomError

CLOSE_S: Final = 5.0
"""Seconds that `close` waits for its acknowledgements to be confirmed."""


class SubscriptionConsumer:
    """Reads what its subscription gives it; made by `Client.subscribe`. One thread reads at a time;
    `ack` and `nack` may be called by any.

    What is acknowledged never comes again, whoever consumes; what is not comes again after `nack`,
    after the subscription's `ack_timeout_s`, or when this consumer is gone.
    """

    def __init__(
        self, io: IoThread, options: SubscriberOptions, timeout_s: float, *, create_topics: bool
    ) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._event = threading.Event()
        self._options = options
        self._sink = RetryPublisher(io, timeout_s)
        self._readers = ReaderPair(options, self._subscriber, io.submit, self._sink)
        self._read_lock = threading.RLock()
        self._closed = False
        # One that nobody holds any more must not keep what it has.
        weakref.finalize(self, abandon, io, self._readers.subscribers).atexit = False
        io.drive(find_topics(options, wall_ms(), timeout_s, create=create_topics))
        try:
            for subscriber in self._readers.subscribers:
                io.run(OpenSubscriber(subscriber, timeout_s))
        except LogboomError:
            abandon(io, self._readers.subscribers)
            raise

    def _subscriber(self, options: SubscriberOptions) -> SubscriberState:
        return SubscriberState(options, self._event.set, threading.RLock())

    # Reading.

    def __iter__(self) -> Iterator[Message]:
        """Every message, waiting for the next when there is none; ends when closed."""
        while not self._closed:
            self._io.check()
            taken = self._readers.take(1)
            if taken:
                yield taken[0]
            else:
                self._wait(LOOK_AGAIN_S)

    def poll(self, max_messages: int = 1_000, timeout_s: float = 1.0) -> list[Message]:
        """Up to `max_messages` messages: what is here, else the first to come in `timeout_s`."""
        if max_messages < 1:
            raise InvalidRequest(f"max_messages is 1 or more, not {max_messages}")
        with self._read_lock:
            deadline = time.monotonic() + timeout_s
            while True:
                self._check()
                taken = self._readers.take(max_messages)
                left = deadline - time.monotonic()
                if taken or left <= 0:
                    return taken
                self._wait(min(left, LOOK_AGAIN_S))

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
        self._check()
        wanted = self._timeout_s if timeout_s is None else timeout_s
        for subscriber in self._readers.subscribers:
            self._io.run(FlushSubscriber(subscriber, wanted))

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
            self._sink.close()
            for subscriber in self._readers.subscribers:
                self._io.run(CloseSubscriber(subscriber, timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self) -> None:
        self._io.check()
        if self._closed:
            raise ClientClosed("this consumer is closed: make another with client.subscribe()")

    def _wait(self, timeout_s: float) -> None:
        self._event.clear()
        self._readers.want()
        if not self._readers.waiting:
            self._event.wait(timeout_s)


def abandon(io: IoThread, subscribers: list[SubscriberState]) -> None:
    """Let a consumer go that nobody holds any more; nothing if it has gone."""
    if io.running:
        for subscriber in subscribers:
            io.submit(CloseSubscriber(subscriber, 0.0))
