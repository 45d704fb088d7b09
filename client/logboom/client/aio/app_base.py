"""What the apps of both clients share: subscribers that are declared, begun and ended."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from logboom.client.aio.client import Client, connect
from logboom.client.aio.futures import SendFuture
from logboom.client.aio.producer import Producer
from logboom.client.aio.push_consumer import PushConsumer
from logboom.client.aio.resource import Scope
from logboom.client.subscribers import SubscriberFunction, Subscribers
from logboom.client.typed_values import Codec, encode_value
from logboom.wire.errors import InvalidRequest

F = TypeVar("F", bound=Callable[..., Any])


class AppBase(Scope):
    """Subscribers, and the client that they run on."""

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

    def subscriber(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        codec: Codec = "json",
        **options: Any,
    ) -> Callable[[F], F]:
        """Decorate a function: it is called with each message of these topics.

        Args:
            codec: how values are written: "json" or "msgpack".
            options: those of `Client.push_consumer`: threads, orderly, batch, tags, filter, start …

        Raises:
            InvalidRequest: a parameter of the function cannot be served; or the app is not for
                functions of its kind (`async def`).
        """

        def declare(function: F) -> F:
            self._check_subscriber(self.subscribers.add(function, topics, group, codec, options))
            return function

        return declare

    def publish(
        self, topic: str, value: object, *, codec: Codec = "json", **options: Any
    ) -> SendFuture:
        """Send a typed value, as `Producer.send`; `options` are its: key, tag, headers …

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
            raise InvalidRequest("the app does not run: begin with start() or run()")
        return self._client

    @property
    def consumers(self) -> list[PushConsumer]:
        """One per subscriber, in the order of their declaration."""
        return list(self._consumers)

    async def start(self, client: Client | None = None, **defaults: Any) -> None:
        """Connect (unless there is a `client`, which stays its owner's), and join all groups.

        `defaults` are options for subscribers that do not have them.

        Raises:
            InvalidRequest: it runs already. And what `connect` and `push_consumer` raise.
        """
        self._prepare()
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
                    listener=self._listener(each),
                    **{**defaults, **each.options},
                )
                self._consumers.append(consumer)
                await consumer.open()
        # Raised again: whatever ends the start, Ctrl-C too, must not leave consumers running.
        except BaseException:
            await self._hang_up()
            raise

    def check(self) -> None:
        """Check that every group still takes its member.

        Raises:
            LogboomError: why a group does not.
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

    async def _enter(self) -> None:
        if self._client is None:
            await self.start()

    async def _leave(self, error: BaseException | None) -> None:
        await self.close()

    # What each client has of its own.

    @abstractmethod
    def stop(self) -> None:
        """Let `run` end."""

    @abstractmethod
    def _prepare(self) -> None:
        """Forget that it was stopped before."""

    @abstractmethod
    def _check_subscriber(self, declared: SubscriberFunction) -> None:
        """Check that a function can be called here."""

    @abstractmethod
    def _listener(self, subscriber: SubscriberFunction) -> Callable[..., Any]:
        """What the push consumer calls."""
