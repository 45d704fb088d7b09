"""The base of an app: declaring, starting and closing its subscribers."""

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
    """Subscriber functions, and the client that they run on."""

    def __init__(
        self, endpoints: str | Sequence[str] = "", *, tracing: bool = False, **options: Any
    ) -> None:
        """Create an app.

        Args:
            endpoints: those of `connect`; "" if `start` is given a client.
            tracing: that of all subscribers, and of `publish`.
            options: those of `connect`.
        """
        self._endpoints = endpoints
        self._tracing = tracing
        self._options = options
        self.subscribers = Subscribers()
        """All declared functions."""
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
        """Declare a function that is called with each message of these topics; use it as a
        decorator.

        Args:
            codec: the encoding of values, "json" or "msgpack".
            options: options of `Client.push_consumer`: threads, orderly, batch, tags, filter …

        Raises:
            InvalidRequest: the function has an unsupported parameter, or is a coroutine function
                and this app does not take those.
        """

        def declare(function: F) -> F:
            self._check_subscriber(self.subscribers.add(function, topics, group, codec, options))
            return function

        return declare

    def publish(
        self, topic: str, value: object, *, codec: Codec = "json", **options: Any
    ) -> SendFuture:
        """Send a typed value. `options` are those of `Producer.send`: key, tag, headers …

        Raises:
            InvalidRequest: the app does not run, or the codec cannot encode the value.
        """
        if self._producer is None:
            self._producer = self.client.producer(tracing=self._tracing)
        return self._producer.send(topic, encode_value(value, codec), **options)

    @property
    def client(self) -> Client:
        """The client that the app runs on.

        Raises:
            InvalidRequest: the app does not run.
        """
        if self._client is None:
            raise InvalidRequest("the app does not run: begin with start() or run()")
        return self._client

    @property
    def consumers(self) -> list[PushConsumer]:
        """The consumers, one for each declared function, in the order of declaration."""
        return list(self._consumers)

    async def start(self, client: Client | None = None, **defaults: Any) -> None:
        """Connect and join all groups.

        Args:
            client: the client to use; the caller keeps it open, and closes it. None: connect.
            defaults: options for subscribers that do not set them.

        Raises:
            InvalidRequest: the app runs already.
            LogboomError: `connect` or `push_consumer` failed.
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
                    **{"tracing": self._tracing, **defaults, **each.options},
                )
                self._consumers.append(consumer)
                await consumer.open()
        # Whatever ends the start, Ctrl-C too, must not leave consumers running. It is raised again.
        except BaseException:
            await self._hang_up()
            raise

    def check(self) -> None:
        """Check that all members are still in their groups.

        Raises:
            LogboomError: the reason why a group has expelled its member.
        """
        for consumer in self._consumers:
            if consumer.error is not None:
                raise consumer.error

    async def close(self) -> None:
        """Wait for running handlers, leave all groups and disconnect. A second call does
        nothing."""
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

    # Each client has its own of these.

    @abstractmethod
    def stop(self) -> None:
        """End `run`."""

    @abstractmethod
    def _prepare(self) -> None:
        """Reset the mark that the app was stopped."""

    @abstractmethod
    def _check_subscriber(self, declared: SubscriberFunction) -> None:
        """Check that this app can call a function."""

    @abstractmethod
    def _listener(self, subscriber: SubscriberFunction) -> Callable[..., Any]:
        """Return the listener for the push consumer."""
