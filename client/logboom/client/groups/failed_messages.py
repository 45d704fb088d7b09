"""Failed messages: each is retried later, and becomes a dead letter in the end.

A sink sends the copies (`logboom.client.fetch.retry_copies`). Without a sink, or if sending fails, this
member hands the message out again. The commit point does not pass the message until it is handled
or its copy is safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from logboom.client.fetch.retry_copies import DEAD, copy_headers, retry_delay_ms
from logboom.client.groups.assigned_queue import AssignedQueue
from logboom.client.groups.member import MemberState
from logboom.client.results import Message
from logboom.wire.errors import LogboomError
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX

LOG = logging.getLogger("logboom.client")

SEND_BACK_S: Final = 5.0
"""Seconds before a message whose copy could not be sent is handed out again (as in RocketMQ)."""


class RedeliverySink(Protocol):
    """The collector that hands out messages and receives failed ones; called under the lock."""

    def retry(self, holding: AssignedQueue, message: Message, when: float) -> None:
        """Hand out a message again at the time `when`."""
        ...

    def sent_on(self, holding: AssignedQueue, message: Message) -> None:
        """Finish a message whose copy is safe."""
        ...


class RetrySink(Protocol):
    """A destination of retry copies."""

    can_delay: bool
    """True if a queue can hold copies until they are due; if not, this member retries locally."""

    def send(
        self,
        topic: str,
        message: Message,
        headers: dict[str, bytes],
        delay_ms: int,
        done: Callable[[LogboomError | None], None],
    ) -> None:
        """Send a copy and call `done` once it is safe or has failed."""
        ...


class FailedMessages:
    """The failed messages of one member."""

    def __init__(
        self, member: MemberState, clock: Callable[[], float], sink: RetrySink | None = None
    ) -> None:
        self._member = member
        self._clock = clock
        self._sink = sink
        self.retried = 0
        self.buried = 0
        """Number of dead letters."""

    def fail(
        self,
        again: RedeliverySink,
        holding: AssignedQueue,
        message: Message,
        delay_s: float | None,
        cause: str,
        now: float,
    ) -> None:
        """Schedule the next attempt of a message that failed, or bury it; called under the lock."""
        config = self._member.config
        delay_ms = retry_delay_ms(config, message.attempt) if delay_s is None else delay_s * 1000
        sink = self._sink
        last = delay_s == DEAD or message.attempt >= config.max_attempts
        alone = self._member.store is not None
        if last and (alone or sink is not None):
            self.bury(again, holding, message, cause)
        elif sink is not None and sink.can_delay and not alone:
            self._send(sink, again, holding, message, int(delay_ms), cause)
        else:
            self.retried += 1
            again.retry(holding, self.tried(message), now + max(delay_ms, 0) / 1000)

    def tried(self, message: Message) -> Message:
        """Return the same message with its next attempt number."""
        return msgspec.structs.replace(message, attempt=message.attempt + 1)

    def bury(
        self, again: RedeliverySink, holding: AssignedQueue, message: Message, cause: str
    ) -> None:
        """Send a message to the dead letters; called under the lock."""
        if self._member.store is not None:
            # A broadcasting member has no retry or dead-letter topic that anybody would read.
            LOG.error("group %s: %r given up: %s", self._member.options.group, message, cause)
            again.sent_on(holding, message)
        elif self._sink is None:
            again.retry(holding, message, self._clock() + SEND_BACK_S)
        else:
            topic, queue, offset = message.topic, message.queue, message.offset
            LOG.warning(
                "group %s: %s/%s at %s is a dead letter after attempt %s: %s",
                *(self._member.options.group, topic, queue, offset, message.attempt, cause),
            )
            self._send(self._sink, again, holding, message, -1, cause)

    def _send(
        self,
        sink: RetrySink,
        again: RedeliverySink,
        holding: AssignedQueue,
        message: Message,
        delay_ms: int,
        cause: str,
    ) -> None:
        """Send a copy; a delay of -1 ms sends it to the dead letters."""
        dead, group = delay_ms < 0, self._member.options.group
        topic = (DLQ_PREFIX if dead else RETRY_PREFIX) + group

        def done(error: LogboomError | None) -> None:
            with self._member.lock:
                if error is None:
                    self.buried += dead
                    self.retried += not dead
                    again.sent_on(holding, message)
                    return
                LOG.warning("group %s: copy for %s not sent: %s", group, topic, error)
                again.retry(holding, message, self._clock() + SEND_BACK_S)
            self._member.changed()

        headers = copy_headers(message, message.attempt + (not dead), cause)
        sink.send(topic, message, headers, max(delay_ms, 0), done)
