"""Functions that are called with the messages of a group, declared where they stand.

    app = App("127.0.0.1:7711")

    @app.subscriber("orders", group="billing")
    def charge(order: Order) -> None: …

    app.run()          # until Ctrl-C or SIGTERM

`Order` is a msgspec struct, a dataclass or what else `logboom.client.typed_values` lists. A function that
raises gets the message again, as a listener of `push_consumer`, whose options a subscriber has. The
decorated function stays what it was: tests call it like any other. `logboom.deploy.testing` runs an
app against an embedded node.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

from logboom.client.client import Client, connect
from logboom.client.futures import SendFuture
from logboom.client.producer import Producer
from logboom.client.push_consumer import PushConsumer
from logboom.client.subscribers import SubscriberFunction, Subscribers
from logboom.client.typed_values import Codec, encode_value
from logboom.wire.errors import InvalidRequest, RetryableError

LOG = logging.getLogger("logboom.client")

F = TypeVar("F", bound=Callable[..., Any])
LOOK_S: Final = 0.5
"""How often a running app looks whether its members are still in their groups."""
AGAIN_S: Final = 1.0
"""Seconds between two tries of an app to begin."""


class _StoppedError(BaseException):
    """A signal came while the app was beginning."""


class App:
    """Subscribers, and the client that they run on. Declare first, then `run` or `start`."""

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
        self._stopping = threading.Event()
        self._beginning = False

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
            InvalidRequest: nothing is known for one of its parameters.
        """

        def declare(function: F) -> F:
            found = self.subscribers.add(function, topics, group, codec, options)
            if found.handler.is_async:
                text = f"{found.handler.name} is async: use the App of logboom.client.aio"
                raise InvalidRequest(text)
            return function

        return declare

    def publish(
        self, topic: str, value: object, *, codec: Codec = "json", **options: Any
    ) -> SendFuture:
        """Send a typed value; `options` are those of `Producer.send`: key, tag, headers …

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
            raise InvalidRequest("the app does not run: call start() first, or run()")
        return self._client

    @property
    def consumers(self) -> list[PushConsumer]:
        """One per subscriber, in the order of their declaration."""
        return list(self._consumers)

    def start(self, client: Client | None = None, **defaults: Any) -> None:
        """Connect (unless there is a `client`, which stays its owner's), and join all groups.

        `defaults` are options for subscribers that do not have them.

        Raises:
            InvalidRequest: it runs already. And what `connect` and `push_consumer` raise.
        """
        self._stopping.clear()
        self._begin(client, defaults)

    def _begin(self, client: Client | None, defaults: dict[str, Any]) -> None:
        if self._client is not None:
            raise InvalidRequest("the app runs already: close it first")
        self._own = client is None
        self._client = connect(self._endpoints, **self._options) if client is None else client
        try:
            for each in self.subscribers.all:
                self._consumers.append(_open(self._client, each, defaults))
        # Raised again: whatever ends the start, Ctrl-C too, must not leave consumers running.
        except BaseException:
            self._hang_up()
            raise

    def run(self) -> None:
        """Start, and go on until Ctrl-C or SIGTERM (or `stop`); then leave all groups in good order.

        A cluster that does not answer (yet) is waited for.

        Raises:
            LogboomError: what else `start` raises, or why a group does not take its member any more.
        """
        self._stopping.clear()
        before = {
            number: signal.signal(number, self._signalled)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            with contextlib.suppress(_StoppedError):
                self._begin_in_time()
            self._beginning = False
            while not self._stopping.wait(LOOK_S):
                self.check()
        finally:
            self.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _begin_in_time(self) -> None:
        """Begin once the cluster is up."""
        while not self._stopping.is_set():
            self._beginning = True
            try:
                self._begin(None, {})
            except RetryableError as error:
                LOG.warning("the app waits for its cluster: %s", error)
            else:
                return
            finally:
                self._beginning = False
            self._stopping.wait(AGAIN_S)

    def stop(self) -> None:
        """Let `run` end; from any thread, a handler's too."""
        self._stopping.set()

    def check(self) -> None:
        """
        Raises:
            LogboomError: why a group does not take its member any more.
        """
        for consumer in self._consumers:
            if consumer.error is not None:
                raise consumer.error

    def close(self) -> None:
        """Leave all groups once running handlers ended, and hang up. A second call does nothing."""
        self._stopping.set()
        self._hang_up()

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        for consumer in self._consumers:
            consumer.close()
        self._consumers.clear()
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
        if client is not None and self._own:
            client.close()

    def __enter__(self) -> Self:
        if self._client is None:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()
        if self._beginning:
            raise _StoppedError


def _open(client: Client, subscriber: SubscriberFunction, defaults: dict[str, Any]) -> PushConsumer:
    return client.push_consumer(
        subscriber.topics,
        group=subscriber.group,
        listener=subscriber.listener,
        **{**defaults, **subscriber.options},
    )
