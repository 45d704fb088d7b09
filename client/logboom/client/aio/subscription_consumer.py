"""The consumer of a subscription for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self

from logboom.client.admin import wall_ms
from logboom.client.aio.bridge import call_in, drive, run
from logboom.client.consumer import LOOK_AGAIN_S
from logboom.client.io_thread import IoThread
from logboom.client.results import Message
from logboom.client.retry_publisher import RetryPublisher
from logboom.client.subscription_consumer import CLOSE_S
from logboom.client.subscriptions.reader_pair import ReaderPair, find_topics
from logboom.client.subscriptions.subscriber_state import (
    CloseSubscriber,
    FlushSubscriber,
    OpenSubscriber,
    SubscriberOptions,
    SubscriberState,
)
from logboom.wire.errors import ClientClosed, InvalidRequest


class SubscriptionConsumer:
    """Reads what its subscription gives it; made by `Client.subscribe`, for one event loop. One
    task reads at a time. The methods are those of `logboom.client.SubscriptionConsumer`."""

    def __init__(
        self, io: IoThread, options: SubscriberOptions, timeout_s: float, *, create_topics: bool
    ) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._create_topics = create_topics
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._options = options
        self._sink = RetryPublisher(io, timeout_s)
        self._readers = ReaderPair(options, self._subscriber, io.submit, self._sink)
        self._opened = False
        self._closed = False

    def _subscriber(self, options: SubscriberOptions) -> SubscriberState:
        return SubscriberState(
            options, lambda: call_in(self._loop, self._event.set), threading.RLock()
        )

    async def open(self) -> None:
        """Find the topic and attach; `async with` and the first read do it too.

        Raises:
            LogboomError: what `subscribe` raises.
        """
        self._check()
        if self._opened:
            return
        create = self._create_topics
        flow = find_topics(self._options, wall_ms(), self._timeout_s, create=create)
        await drive(self._io, flow)
        for subscriber in self._readers.subscribers:
            await run(self._io, OpenSubscriber(subscriber, self._timeout_s))
        self._opened = True

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Every message, waiting for the next when there is none; ends when closed."""
        await self.open()
        while not self._closed:
            self._io.check()
            taken = self._readers.take(1)
            if taken:
                yield taken[0]
            else:
                await self._wait(LOOK_AGAIN_S)

    async def poll(self, max_messages: int = 1_000, timeout_s: float = 1.0) -> list[Message]:
        """Up to `max_messages` messages: what is here, else the first to come in `timeout_s`."""
        if max_messages < 1:
            raise InvalidRequest(f"max_messages is 1 or more, not {max_messages}")
        await self.open()
        deadline = self._loop.time() + timeout_s
        while True:
            self._check()
            taken = self._readers.take(max_messages)
            left = deadline - self._loop.time()
            if taken or left <= 0:
                return taken
            await self._wait(min(left, LOOK_AGAIN_S))

    def ack(self, given: Message | Iterable[Message]) -> None:
        """Done with a message, or several: they never come again, to anybody."""
        self._check()
        self._readers.ack(given)

    def ack_cumulative(self, message: Message) -> None:
        """Done with a message and all before it in its queue (exclusive and failover)."""
        self._check()
        self._readers.ack_cumulative(message)

    def nack(
        self, given: Message | Iterable[Message], delay_s: float = 60.0, *, cause: str = ""
    ) -> None:
        """Messages are to come again, in `delay_s` seconds, to this consumer or another."""
        self._check()
        self._readers.nack(given, delay_s, cause)

    def retry(
        self, given: Message | Iterable[Message], delay_s: float | None = None, *, cause: str = ""
    ) -> None:
        """Messages are to come again by way of the subscription's retry topic."""
        self._check()
        self._readers.retry(given, delay_s, cause)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the brokers have confirmed all that was acknowledged.

        Raises:
            TimedOut: they did not; what is not confirmed comes again.
        """
        await self.open()
        wanted = self._timeout_s if timeout_s is None else timeout_s
        for subscriber in self._readers.subscribers:
            await run(self._io, FlushSubscriber(subscriber, wanted))

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
        """Queue → whether this consumer is the one that gets its messages, as last heard."""
        places = self._readers.subscribers[0].places
        return {queue: place.active for queue, place in places.items()}

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Wait up to `timeout_s` for acknowledgements to be confirmed, and go. A second call does
        nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._io.running:
            # Copies on their way are waited for: what they are copies of is acknowledged then.
            await asyncio.to_thread(self._sink.close)
            for subscriber in self._readers.subscribers:
                await run(self._io, CloseSubscriber(subscriber, timeout_s))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _check(self) -> None:
        self._io.check()
        if self._closed:
            raise ClientClosed("this consumer is closed: make another with client.subscribe()")

    async def _wait(self, timeout_s: float) -> None:
        self._event.clear()
        self._readers.want()
        if not self._readers.waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
