"""Retries and dead letters of a subscription's consumer.

As in Pulsar, the consumer sends the copy, and acknowledges the message only once the copy is safe.
Until then it holds the message. If the copy cannot be sent, it gives the message back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from logboom.client.fetch.retry_copies import copy_headers, retry_delay_ms
from logboom.client.groups.failed_messages import RetrySink
from logboom.client.results import Message
from logboom.client.subscriptions.subscribed_queue import SubscribedQueue
from logboom.client.subscriptions.subscriber_state import SubscriberState
from logboom.wire.errors import LogboomError
from logboom.wire.group_view import GroupConfig
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX

LOG = logging.getLogger("logboom.client")

SEND_BACK_MS: Final = 5_000
"""Milliseconds before a message whose copy could not be sent is delivered again."""
_LEVELS: Final = GroupConfig()
"""A retry without a delay waits as a group's does."""


class RetryCopies:
    """The copies of one subscriber's messages."""

    def __init__(
        self, subscriber: SubscriberState, name: str, sink: RetrySink, wake: Callable[[], None]
    ) -> None:
        """Start without copies.

        Args:
            subscriber: the state of the subscriber.
            name: follows the prefixes in the topics' names.
            sink: takes the copies.
            wake: called when there is something to tell the leaders.
        """
        self._subscriber = subscriber
        self._name = name
        self._sink = sink
        self._wake = wake
        self.retried = 0
        self.buried = 0
        """Number of dead letters."""

    def bury(self, place: SubscribedQueue, offset: int, message: Message, cause: str) -> None:
        """Make a message that was read at `offset` a dead letter; called under the lock."""
        headers = copy_headers(message, message.attempt, cause)
        self._send(DLQ_PREFIX + self._name, place, offset, message, headers, 0)

    def retry(
        self,
        place: SubscribedQueue,
        offset: int,
        message: Message,
        delay_s: float | None,
        cause: str,
    ) -> None:
        """Send a message to the retries, where it waits until it is due; called under the lock."""
        waits = retry_delay_ms(_LEVELS, message.attempt) if delay_s is None else delay_s * 1000
        headers = copy_headers(message, message.attempt + 1, cause)
        self._send(RETRY_PREFIX + self._name, place, offset, message, headers, int(waits))

    def _send(
        self,
        topic: str,
        place: SubscribedQueue,
        offset: int,
        message: Message,
        headers: dict[str, bytes],
        delay_ms: int,
    ) -> None:
        place.sending.add(offset)

        def done(error: LogboomError | None) -> None:
            with self._subscriber.lock:
                place.sending.discard(offset)
                if error is None:
                    place.done.add(offset)
                    place.to_ack.append(offset)
                    self.buried += topic.startswith(DLQ_PREFIX)
                    self.retried += topic.startswith(RETRY_PREFIX)
                else:
                    LOG.warning("a copy for %s was not sent: %s", topic, error)
                    place.again.append((offset, SEND_BACK_MS))
                self._wake()

        self._sink.send(topic, message, headers, delay_ms, done)
