"""The two readers of a subscription's consumer: of its topic, and of its retries if it has any."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import msgspec

from logboom.client import flows
from logboom.client.calls import AskLeader, CoreCall, FindTopic
from logboom.client.flows import Flow
from logboom.client.groups.failed_messages import RetrySink
from logboom.client.results import Message
from logboom.client.subscriptions.subscriber_reader import SubscriberReader
from logboom.client.subscriptions.subscriber_state import (
    CloseSubscriber,
    SubscriberOptions,
    SubscriberState,
)
from logboom.wire.base import WireMessage
from logboom.wire.errors import AlreadyExists, InvalidRequest, UnknownResource
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX, subscription_name
from logboom.wire.subscription_messages import MakeRetryTopics
from logboom.wire.view import TopicConfig


class ReaderPair:
    """Hands out the messages of both readers, and settles each where it was read."""

    def __init__(
        self,
        options: SubscriberOptions,
        make: Callable[[SubscriberOptions], SubscriberState],
        submit: Callable[[CoreCall], None],
        sink: RetrySink,
    ) -> None:
        """Create the readers.

        Args:
            options: the subscriber's options.
            make: makes the state of a subscriber.
            submit: passes a call to the core.
            sink: takes the copies of messages that are retried or given up.
        """
        self._options = options
        self._submit = submit
        self.subscribers = [make(options)]
        if options.config.max_attempts:
            self.subscribers.append(make(retry_options(options)))
        sinks = sink if options.config.max_attempts else None
        name = subscription_name(options.topic, options.subscription)
        self._readers = [SubscriberReader(each, submit, sinks, name) for each in self.subscribers]
        self._first = 0
        """The reader that is asked first; they take turns, so that neither starves the other."""

    @property
    def waiting(self) -> bool:
        """True if there is something to take or an error to raise."""
        ready = any(reader.waiting for reader in self._readers)
        return ready or any(each.error is not None for each in self.subscribers)

    def want(self) -> None:
        """Request a ring when something arrives."""
        for subscriber in self.subscribers:
            subscriber.wanted = True

    def take(self, most: int) -> list[Message]:
        """Take up to `most` messages that have arrived.

        Raises:
            LogboomError: a queue cannot be read (raised once; the others continue); or another
                process has this consumer's name (raised each time).
        """
        taken: list[Message] = []
        for ended in self.subscribers:
            if ended.ended is not None:
                for each in self.subscribers:
                    self._submit(CloseSubscriber(each, 0.0))
                raise ended.ended
        self._first = (self._first + 1) % len(self._readers)
        for reader in (*self._readers[self._first :], *self._readers[: self._first]):
            taken = reader.take(most)
            if taken:
                break
        return taken

    def ack(self, given: Message | Iterable[Message]) -> None:
        """Acknowledge as `SubscriberReader.ack` does."""
        if len(self._readers) == 1:
            self._readers[0].ack(given)  # the fast path, because it is called for each message
            return
        for reader, messages in self._sorted(given):
            reader.ack(messages)

    def ack_cumulative(self, message: Message) -> None:
        """Acknowledge as `SubscriberReader.ack_cumulative` does."""
        self._readers[0].ack_cumulative(message)

    def nack(self, given: Message | Iterable[Message], delay_s: float, cause: str) -> None:
        """Give back as `SubscriberReader.nack` does."""
        for reader, messages in self._sorted(given):
            reader.nack(messages, delay_s, cause)

    def retry(self, given: Message | Iterable[Message], delay_s: float | None, cause: str) -> None:
        """Retry as `SubscriberReader.retry` does.

        Raises:
            InvalidRequest: the subscription has no retries.
        """
        if not self._options.config.max_attempts:
            text = "this subscription has no retries: subscribe with max_attempts"
            raise InvalidRequest(f"{text}, or give the message back with nack")
        for reader, messages in self._sorted(given):
            reader.retry(messages, delay_s, cause)

    def pause(self, *, paused: bool) -> None:
        """Stop giving permits, or start again."""
        for reader in self._readers:
            reader.pause(paused=paused)

    def _sorted(
        self, given: Message | Iterable[Message]
    ) -> list[tuple[SubscriberReader, list[Message]]]:
        """Group messages by the reader that they came from."""
        messages = [given] if isinstance(given, Message) else list(given)
        if len(self._readers) == 1:
            return [(self._readers[0], messages)]
        parts = (
            [message for message in messages if message.read_from is None],
            [message for message in messages if message.read_from is not None],
        )
        return [(r, part) for r, part in zip(self._readers, parts, strict=True) if part]


def retry_options(options: SubscriberOptions) -> SubscriberOptions:
    """Return how the retries of a subscription are read: by all its consumers, in no order, whole."""
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
    """Wait until the topic of a subscription is known, and create its own topics if it has any."""
    yield FindTopic(options.topic, timeout, create)
    if not options.config.max_attempts:
        return
    name = subscription_name(options.topic, options.subscription)
    missing = []
    for topic in (DLQ_PREFIX + name, RETRY_PREFIX + name):
        try:
            yield FindTopic(topic, timeout)
        except UnknownResource:
            missing.append(topic)  # this is the first consumer, or the topic was deleted
    if missing:
        yield from _make_topics(options, missing, wall_ms, timeout)
    for topic in missing:
        yield FindTopic(topic, timeout)


def _make_topics(
    options: SubscriberOptions, missing: list[str], wall_ms: int, timeout: float
) -> Flow[None]:
    """Have the topics of a subscription created, by the leader of queue 0 if it knows how."""

    def message(left: int) -> WireMessage:
        return MakeRetryTopics(0, left, options.topic, 0, options.subscription)

    try:
        yield AskLeader(options.topic, 0, message, timeout)
    except InvalidRequest as error:
        if error.code != "UNKNOWN_TYPE":
            raise
    else:
        return
    # The leader is of the release before.
    for topic in missing:
        with contextlib.suppress(AlreadyExists):  # another consumer was faster
            yield from flows.create_topic(topic, 1, 0, TopicConfig(), wall_ms, timeout)
