"""The two readers of a consumer of a subscription: of its topic, and of its retries if it has any."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import msgspec

from logboom.client import flows
from logboom.client.calls import CoreCall, FindTopic
from logboom.client.flows import Flow
from logboom.client.groups.failed_messages import RetrySink
from logboom.client.results import Message
from logboom.client.subscriptions.subscriber_reader import SubscriberReader
from logboom.client.subscriptions.subscriber_state import SubscriberOptions, SubscriberState
from logboom.wire.errors import AlreadyExists, InvalidRequest, UnknownResource
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX, subscription_name
from logboom.wire.view import TopicConfig


class ReaderPair:
    """Hands out what either has, and settles where it was read."""

    def __init__(
        self,
        options: SubscriberOptions,
        make: Callable[[SubscriberOptions], SubscriberState],
        submit: Callable[[CoreCall], None],
        sink: RetrySink,
    ) -> None:
        """`sink`: where copies go of messages that are retried or given up."""
        self._options = options
        self.subscribers = [make(options)]
        if options.config.max_attempts:
            self.subscribers.append(make(retry_options(options)))
        sinks = sink if options.config.max_attempts else None
        name = subscription_name(options.topic, options.subscription)
        self._readers = [SubscriberReader(each, submit, sinks, name) for each in self.subscribers]
        self._first = 0
        """Which is asked first, by turns: neither starves the other."""

    @property
    def waiting(self) -> bool:
        """Whether there is something to take, or to say."""
        ready = any(reader.waiting for reader in self._readers)
        return ready or any(each.error is not None for each in self.subscribers)

    def want(self) -> None:
        """Ring when something comes."""
        for subscriber in self.subscribers:
            subscriber.wanted = True

    def take(self, most: int) -> list[Message]:
        """Up to `most` messages that are here.

        Raises:
            LogboomError: a queue cannot be had (once; the others go on).
        """
        taken: list[Message] = []
        self._first = (self._first + 1) % len(self._readers)
        for reader in (*self._readers[self._first :], *self._readers[: self._first]):
            taken = reader.take(most)
            if taken:
                break
        return taken

    def ack(self, given: Message | Iterable[Message]) -> None:
        """As `SubscriberReader.ack`."""
        if len(self._readers) == 1:
            self._readers[0].ack(given)  # at once: it is called for each message
            return
        for reader, messages in self._sorted(given):
            reader.ack(messages)

    def ack_cumulative(self, message: Message) -> None:
        """As `SubscriberReader.ack_cumulative`."""
        self._readers[0].ack_cumulative(message)

    def nack(self, given: Message | Iterable[Message], delay_s: float, cause: str) -> None:
        """As `SubscriberReader.nack`."""
        for reader, messages in self._sorted(given):
            reader.nack(messages, delay_s, cause)

    def retry(self, given: Message | Iterable[Message], delay_s: float | None, cause: str) -> None:
        """As `SubscriberReader.retry`.

        Raises:
            InvalidRequest: the subscription has no retries.
        """
        if not self._options.config.max_attempts:
            text = "this subscription has no retries: subscribe with max_attempts"
            raise InvalidRequest(f"{text}, or give the message back with nack")
        for reader, messages in self._sorted(given):
            reader.retry(messages, delay_s, cause)

    def pause(self, *, paused: bool) -> None:
        """Give permits no more, or again."""
        for reader in self._readers:
            reader.pause(paused=paused)

    def _sorted(
        self, given: Message | Iterable[Message]
    ) -> list[tuple[SubscriberReader, list[Message]]]:
        """Messages by the reader that they came from."""
        messages = [given] if isinstance(given, Message) else list(given)
        if len(self._readers) == 1:
            return [(self._readers[0], messages)]
        parts = (
            [message for message in messages if message.read_from is None],
            [message for message in messages if message.read_from is not None],
        )
        return [(r, part) for r, part in zip(self._readers, parts, strict=True) if part]


def retry_options(options: SubscriberOptions) -> SubscriberOptions:
    """How the retries of a subscription are read: by all its consumers, in no order, whole."""
    config = msgspec.structs.replace(
        options.config, kind="shared", hashing="auto_split", filter="", messages_per_s=0
    )
    topic = RETRY_PREFIX + subscription_name(options.topic, options.subscription)
    return SubscriberOptions(
        topic,
        options.subscription,
        options.consumer,
        config,
        options.priority,
        None,
        "first",
        options.window,
    )


def find_topics(
    options: SubscriberOptions, wall_ms: int, timeout: float, *, create: bool
) -> Flow[None]:
    """Wait until the topic of a subscription is known, and make its own topics if it has any."""
    yield FindTopic(options.topic, timeout, create)
    if not options.config.max_attempts:
        return
    name = subscription_name(options.topic, options.subscription)
    for topic in (DLQ_PREFIX + name, RETRY_PREFIX + name):
        try:
            yield FindTopic(topic, timeout)
            continue
        except UnknownResource:
            pass  # this is the first consumer, or the topic was deleted
        with contextlib.suppress(AlreadyExists):  # another consumer was faster
            yield from flows.create_topic(topic, 1, 0, TopicConfig(), wall_ms, timeout)
        yield FindTopic(topic, timeout)
