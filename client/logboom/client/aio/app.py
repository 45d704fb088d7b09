"""`logboom.client.app`, awaited: subscribers may be coroutine functions.

app = App("127.0.0.1:7711")

@app.subscriber("orders", group="billing")
async def charge(order: Order) -> None: …

asyncio.run(app.run())
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from logboom.client.aio.client import Client, connect
from logboom.client.aio.producer import Producer, Sent
from logboom.client.aio.push_consumer import PushConsumer
from logboom.client.app import AGAIN_S, LOOK_S
from logboom.client.subscribers import Subscribers
from logboom.client.typed_values import Codec, encode_value
from logboom.wire.errors import InvalidRequest, RetryableError

LOG = logging.getLogger("logboom.client")
F = TypeVar("F", bound=Callable[..., Any])


class App:
    """Subscribers, and the client that they run on; as `logboom.client.app.App`."""

    def __init__(self, endpoints: str | Sequence[str] = "", **options: Any) -> None:
        """`endpoints` and `options` are those of `connect`; "" if `start` gets a client."""
        self._endpoints = endpoints
        self._options = options
        self.subscribers = Subscribers()
        """All that was declared."""
        self._client: Client | None = None
        self._own = False
        self._producer: Producer | None = None
        self._consumers: list[PushConsumer] = []
        self._stopping: asyncio.Event | None = None

    def subscriber(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        codec: Codec = "json",
        **options: Any,
    ) -> Callable[[F], F]:
        """Decorate a function, async or not: it is called with each message of these topics.

        `codec` and `options` as in `logboom.client.app`; `threads` are tasks.

        Raises:
            InvalidRequest: nothing is known for one of its parameters.
        """

        def declare(function: F) -> F:
            self.subscribers.add(function, topics, group, codec, options)
            return function

        return declare

    def publish(self, topic: str, value: object, *, codec: Codec = "json", **options: Any) -> Sent:
        """Send a typed value; the awaitable gives its SendResult.

        Raises:
            InvalidRequest: the app does not run, or the codec cannot write the value.
        """
        if self._producer is None:
            self._producer = self.client.producer()
        return self._producer.send(topic, encode_value(value, codec), **options)

    @property
    def client(self) -> Client:
        """The client that the app runs on.

        Raises:
            InvalidRequest: it does not run.
        """
        if self._client is None:
            raise InvalidRequest("the app does not run: await start() first, or run()")
        return self._client

    @property
    def consumers(self) -> list[PushConsumer]:
        """One per subscriber, in the order of their declaration."""
        return list(self._consumers)

    async def start(self, client: Client | None = None, **defaults: Any) -> None:
        """Connect (unless there is a `client`, which stays its owner's), and join all groups.

        Raises:
            InvalidRequest: it runs already. And what `connect` and `push_consumer` raise.
        """
        self._stopping = asyncio.Event()
        await self._begin(client, defaults)

    async def _begin(self, client: Client | None, defaults: dict[str, Any]) -> None:
        if self._client is not None:
            raise InvalidRequest("the app runs already: close it first")
        self._own = client is None
        if client is None:
            client = await connect(self._endpoints, **self._options)
        self._client = client
        try:
            for each in self.subscribers.all:
                consumer = client.push_consumer(
                    each.topics,
                    group=each.group,
                    listener=each.async_listener,
                    **{**defaults, **each.options},
                )
                self._consumers.append(consumer)
                await consumer.open()
        # Raised again: whatever ends the start, Ctrl-C too, must not leave consumers running.
        except BaseException:
            await self._hang_up()
            raise

    async def run(self) -> None:
        """Start, and go on until Ctrl-C or SIGTERM (or `stop`); then leave all groups in good order.

        A cluster that does not answer (yet) is waited for.

        Raises:
            LogboomError: what else `start` raises, or why a group does not take its member any more.
        """
        loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self.stop)
        try:
            await self._begin_in_time(self._stopping)
            while not self._stopping.is_set():
                self.check()
                try:
                    await asyncio.wait_for(self._stopping.wait(), LOOK_S)
                except TimeoutError:
                    continue
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
            await self.close()

    async def _begin_in_time(self, stopping: asyncio.Event) -> None:
        """Begin once the cluster is up."""
        stopped = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                begun = asyncio.create_task(self._begin(None, {}))
                try:
                    await asyncio.wait((begun, stopped), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    begun.cancel()  # nothing, if it has ended
                    await asyncio.wait((begun,))
                error = None if begun.cancelled() else begun.exception()
                if error is None:
                    return
                if not isinstance(error, RetryableError):
                    raise error
                LOG.warning("the app waits for its cluster: %s", error)
                await asyncio.wait((stopped,), timeout=AGAIN_S)
        finally:
            stopped.cancel()

    def stop(self) -> None:
        """Let `run` end; from its loop, a handler's too."""
        if self._stopping is not None:
            self._stopping.set()

    def check(self) -> None:
        """
        Raises:
            LogboomError: why a group does not take its member any more.
        """
        for consumer in self._consumers:
            if consumer.error is not None:
                raise consumer.error

    async def close(self) -> None:
        """Leave all groups once running handlers ended, and hang up. A second call does nothing."""
        self.stop()
        await self._hang_up()

    async def _hang_up(self) -> None:
        client, self._client = self._client, None
        for consumer in self._consumers:
            await consumer.close()
        self._consumers.clear()
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()
        if client is not None and self._own:
            await client.close()

    async def __aenter__(self) -> Self:
        if self._client is None:
            await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
