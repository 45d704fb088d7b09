"""Support for users' own tests: a node in this process, an app on it, and the results.

    from logboom.deploy.testing import Stage
    from shop import app, charge

    def test_an_order_is_charged() -> None:
        with Stage(app) as stage:
            stage.send("orders", Order("pen"))
            (call,) = stage.calls(charge)           # waits for it
            assert call.error is None
            assert stage.values("receipts", Receipt, 1) == [Receipt("pen")]

Failed messages are delivered again after 10 to 100 ms, unless the app says otherwise. A stage is as
durable as any node and takes about a second to open. To share one, call `reset` between tests. It
needs the extra `[node]`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from logboom.client import App, Client, Message, SendResult
from logboom.client.admin_flows.group_lag import GroupQueue
from logboom.client.subscribers import SubscriberFunction
from logboom.client.typed_values import Codec, encode_value
from logboom.deploy.closeable import Closeable
from logboom.deploy.embedded import Embedded, embedded
from logboom.deploy.polling import ask_until
from logboom.wire.errors import InvalidRequest, TimedOut, UnknownResource
from logboom.wire.names import DLQ_PREFIX

T = TypeVar("T")
WAIT_S: Final = 10.0
"""Seconds that a stage waits for what a test expects."""
COMMIT_EVERY_S: Final = 0.05
"""Seconds between commits of the app's members, which `wait_caught_up` checks."""
RETRIES: Final[Mapping[str, Any]] = {
    "retry": "exponential",
    "retry_first_ms": 10,
    "retry_last_ms": 100,
}
"""Retries of groups that are created here: a test cannot wait ten seconds."""
QUEUES: Final = 2
"""Queues of a topic that a stage creates."""


class HandlerCall(NamedTuple):
    """One call of a handler."""

    given: Message | list[Message]
    """The message, or the messages of a batch."""
    error: BaseException | None
    """The error that it raised."""


class Stage(Closeable):
    """An embedded node with a client, and the app's subscribers if there is an app."""

    def __init__(
        self,
        app: App | None = None,
        *,
        node: Embedded | None = None,
        topics: Mapping[str, int] | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        """Start a node unless one is given, and the app's subscribers.

        Args:
            app: its subscribers run here; it needs no endpoints of its own.
            node: a running node, which its owner closes; None: a new one.
            topics: queues by topic, created before the app starts; the topics that the app reads
                are created in any case.
            wait_s: how long to wait for expected results.
        """
        self._app = app
        self._own = node is None
        self._calls: dict[int, list[HandlerCall]] = {}
        self._news = threading.Condition()
        self.wait_s = wait_s
        self.node = embedded() if node is None else node
        """The node that the stage runs on."""
        try:
            self.client: Client = self.node.connect()
            """A client for any other checks."""
            try:
                self._start(dict(topics or {}))
            # Any error that ends the start must not leave the node running. It is raised again.
            except BaseException:
                self.client.close()
                raise
        # Any error that ends the start must not leave the node running. It is raised again.
        except BaseException:
            self._close_node()
            raise

    def _start(self, topics: dict[str, int]) -> None:
        app = self._app
        for each in app.subscribers.all if app is not None else []:
            for topic in each.topics:
                topics.setdefault(topic, QUEUES)
        known = {topic.name for topic in self.client.admin.topics()}
        for topic, queues in topics.items():
            if topic not in known:
                self.client.admin.create_topic(topic, queues=queues)
        self._producer = self.client.producer()
        if app is None:
            return
        for each in app.subscribers.all:
            self._watch(each)
        defaults: dict[str, Any] = {"commit_every_s": COMMIT_EVERY_S}
        if not any(RETRIES.keys() & each.options.keys() for each in app.subscribers.all):
            defaults |= RETRIES
        app.start(self.client, **defaults)

    def _watch(self, subscriber: SubscriberFunction) -> None:
        calls = self._calls.setdefault(id(subscriber.handler.function), [])

        def told(given: Any, error: BaseException | None) -> None:
            with self._news:
                calls.append(HandlerCall(given, error))
                self._news.notify_all()

        subscriber.watchers = [told]

    # Actions of a test.

    def send(
        self, topic: str, value: object = None, *, codec: Codec = "json", **options: Any
    ) -> SendResult:
        """Send a typed value and wait until it is stored; `options` are those of `Producer.send`."""
        return self._producer.send(topic, encode_value(value, codec), **options).result()

    # Observations of a test.

    def calls(self, handler: Callable[..., Any], count: int = 1) -> list[HandlerCall]:
        """Return the first `count` calls of a handler of the app, or all if there are more.

        Wait until there are that many.

        Raises:
            TimedOut: there were fewer when the time was over.
            InvalidRequest: the app has no such handler.
        """
        calls = self._calls.get(id(handler))
        if calls is None:
            raise InvalidRequest(f"{handler!r} is no subscriber of the app on this stage")
        with self._news:
            if not self._news.wait_for(lambda: len(calls) >= count, self.wait_s):
                text = f"{len(calls)} of {count} calls came within {self.wait_s:g} s"
                raise TimedOut(text)
            return list(calls)

    def messages(self, topic: str, count: int | None = None) -> list[Message]:
        """Return the messages of a topic by queue and offset.

        With `count`, wait until there are that many.

        Raises:
            TimedOut: there were fewer when the time was over.
            UnknownResource: there is no such topic (with a `count`: it was not created in time).
        """
        if count is None:
            return self._read(topic)

        def look() -> list[Message] | UnknownResource:
            try:
                return self._read(topic)
            except UnknownResource as error:
                return error  # it may be created later

        def enough(found: list[Message] | UnknownResource) -> bool:
            return isinstance(found, list) and len(found) >= count

        found = ask_until(look, enough, self.wait_s, pause_s=0.01)
        if isinstance(found, UnknownResource):
            raise found
        if len(found) < count:
            text = f"{topic} has {len(found)} of {count} messages after {self.wait_s:g} s"
            raise TimedOut(text)
        return found

    def values(
        self, topic: str, kind: type[T], count: int | None = None, *, codec: Codec = "json"
    ) -> list[T]:
        """Return the decoded values of a topic, as `messages` returns the messages.

        Raises:
            msgspec.DecodeError: a value has another type.
            LogboomError: as `messages` does.
        """
        decode = msgspec.msgpack.decode if codec == "msgpack" else msgspec.json.decode
        messages = self.messages(topic, count)
        return [decode(message.value or b"", type=kind) for message in messages]

    def dead_letters(self, group: str, count: int | None = None) -> list[Message]:
        """Return the dead letters of a group, or none if it has never had any."""
        try:
            return self.messages(DLQ_PREFIX + group, count)
        except UnknownResource:
            if count:
                raise
            return []

    def wait_caught_up(self, group: str) -> None:
        """Wait until a group has processed and committed everything in its topics.

        Of its retries, only those that are due count.

        Raises:
            TimedOut: it has not when the time is over; the text says what holds it up.
        """

        def behind() -> list[GroupQueue]:
            return [q for q in self.client.admin.describe_group(group).queues if q.lag != 0]

        left = ask_until(behind, lambda found: not found, self.wait_s)
        if left:
            said = ", ".join(
                f"{q.topic}/{q.queue} lags by {q.lag}{f': {q.stuck}' if q.stuck else ''}"
                for q in left
            )
            raise TimedOut(f"group {group} has not caught up in {self.wait_s:g} s: {said}")

    def reset(self) -> None:
        """Forget the calls so far."""
        with self._news:
            for calls in self._calls.values():
                calls.clear()

    def _read(self, topic: str) -> list[Message]:
        found: list[Message] = []
        for queue, (at, end) in sorted(self.client.admin.offsets(topic).items()):
            while at < end:
                result = self.client.pull(topic, queue, at, max_messages=10_000)
                found += result.messages
                at = max(result.next_offset, at + 1)
        return found

    # Closing.

    def close(self) -> None:
        """Close the app, leave its groups, and stop the node."""
        try:
            if self._app is not None:
                self._app.close()
                for each in self._app.subscribers.all:
                    each.watchers = []
            self.client.close()
        finally:
            self._close_node()

    def _close_node(self) -> None:
        if self._own:
            self.node.close()
