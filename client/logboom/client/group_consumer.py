# Generated from aio/group_consumer.py by `make generate`: do not edit.
"""The consumer that is a member of a group, which assigns queues to it."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Final

from logboom.client.argument_checks import check_seconds
from logboom.client.bridge import run, run_in_thread
from logboom.client.calls import FindTopic
from logboom.client.fetch.fetch_buffer import FetchBuffer
from logboom.client.group_ownership import GroupOwnership
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.group_collector import Given, GroupFetchCollector
from logboom.client.groups.member import (
    CloseMember,
    CommitMember,
    MemberOptions,
    MemberState,
    OpenMember,
)
from logboom.client.groups.offsets_file import OffsetsFile
from logboom.client.io_thread import IoThread
from logboom.client.positioned_reader import PositionedReader
from logboom.client.reader import LOOK_AGAIN_S
from logboom.client.results import ColumnBatch, Message
from logboom.client.retry_publisher import RetryPublisher

CLOSE_S: Final = 0.0
"""Seconds for which `close` waits for messages that were handed out and are not acknowledged. The
caller has normally stopped acknowledging by then."""


class GroupConsumer(GroupOwnership, PositionedReader):
    """A member of a consumer group; `Client.consumer(…, group=…)` creates it. One thread reads at a
    time; `ack`, `nack` and `commit` may be called by any.

    Acknowledgements are committed every `commit_every_s`, by `commit`, when a queue moves, and when
    the consumer closes. A message that is not acknowledged is delivered again: to this consumer
    after `nack`, or to the next owner of its queue.
    """

    def __init__(
        self,
        io: IoThread,
        options: MemberOptions,
        timeout_s: float,
        store: OffsetsFile | None = None,
    ) -> None:
        PositionedReader.__init__(self, io, timeout_s)
        inbox = FetchBuffer(options.prefetch_bytes, self._event.set, bounded=True)
        member = MemberState(options, inbox, threading.RLock(), store=store)
        GroupOwnership.__init__(self, member)
        self._sink = RetryPublisher(io, timeout_s)
        failures = FailedMessages(member, time.monotonic, self._sink)
        self._intake: GroupFetchCollector = GroupFetchCollector(member, io.submit, failures)
        self._intake_lock = member.lock
        # A consumer that is no longer referenced must not keep its queues.
        self._abandoned = weakref.finalize(self, _leave, io, member)
        self._abandoned.atexit = False

    def _open(self) -> None:
        for topic in self._member.options.subscription:
            run(self._io, FindTopic(topic, self._timeout_s, self._io.create_topics))
        run(self._io, OpenMember(self._member, self._timeout_s))

    # Reading.

    def _take(self, limit: int) -> list[Message]:
        return self._intake.take(limit, time.monotonic())

    def _take_columns(self) -> list[ColumnBatch]:
        return self._intake.take_columns(time.monotonic())

    def _found_nothing(self) -> None:
        self._intake.found_nothing(time.monotonic())

    def _wait(self, timeout_s: float) -> None:
        due = self._intake.due()
        if due is not None:
            timeout_s = min(timeout_s, max(0.0, due - time.monotonic()))
        super()._wait(timeout_s)

    def _expect(self) -> bool:
        self._member.inbox.wanted = True
        return bool(self._member.inbox.arrivals)

    # Acknowledging.

    def ack(self, given: Given | Iterable[Given]) -> None:
        """Acknowledge a message, a batch of columns, or several of them. They are not delivered
        again once this is committed.

        Raises:
            InvalidRequest: one was not given to this consumer; what came before it is acknowledged.
                (It is no error if its queue went to another member meanwhile: the message is
                delivered again there.)
        """
        self._check()
        self._intake.ack(given)

    def nack(self, message: Message, delay_s: float | None = None, cause: str = "nack") -> None:
        """Report that a message failed. It is delivered again after `delay_s` seconds (None: after
        the delay of the group's retries), and becomes a dead letter after the group's
        `max_attempts`.

        Raises:
            InvalidRequest: the delay is negative, or the message was not given to this consumer.
        """
        self._check()
        self._intake.nack(message, delay_s, cause, time.monotonic())
        self._event.set()

    def reject(self, message: Message, cause: str = "rejected") -> None:
        """Send a message that can never be handled to the dead letters, with this cause.

        Raises:
            InvalidRequest: it was not given to this consumer.
        """
        self._check()
        self._intake.reject(message, cause, time.monotonic())
        self._event.set()

    def commit(
        self, offsets: Mapping[tuple[str, int], int] | None = None, *, sync: bool = True
    ) -> None:
        """Commit all acknowledgements.

        Args:
            offsets: (topic, queue) → offset: acknowledge everything below these offsets first.
            sync: wait until the commit is stored.

        Raises:
            GroupError: BEYOND_END: an offset is past the messages that were read; or this member is
                no longer in the group, or has lost a queue.
            InvalidRequest: an offset is below the committed one.
            TimedOut: the coordinator did not answer; the commit may be stored.
        """
        self.open()
        for (topic, queue), offset in (offsets or {}).items():
            self._intake.skip_to(topic, queue, offset)
        call = CommitMember(self._member)
        if sync:
            run(self._io, call)
        else:
            self._io.submit(call)

    # Queues.

    def committed(self, topic: str, queue: int) -> int:
        """Return the committed offset of a queue of this consumer, as far as it knows."""
        return self._intake.committed(topic, queue)

    @property
    def throttled_ms(self) -> int:
        """Milliseconds for which requests of this consumer have waited in all, because its user is
        over a quota. It grows with each answer."""
        return self._member.inbox.throttled_ms

    @property
    def assigned(self) -> bool:
        """True if this member has a queue now. A new member has none while the others have all of
        them; the queues of a member that has died are freed when its session ends."""
        with self._member.lock:
            return self._member.assigned

    def wait_assigned(self, timeout_s: float | None = None) -> bool:
        """Wait until this member has a queue. Return False if `timeout_s` seconds pass first (None:
        wait as long as it takes). More queues may be assigned to it later, and revoked.

        Raises:
            GroupError: INSTANCE_TAKEN, or another reason why the group refuses this member.
        """
        self.open()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._check()
            self._event.clear()
            if self._intake.has_queue():
                return True
            left = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
            if not left > 0:
                return False
            self._event.wait(min(left, LOOK_AGAIN_S))

    @property
    def intake(self) -> GroupFetchCollector:
        """The collector of its messages, for `Transaction.send_offsets`."""
        return self._intake

    # The end.

    def close(self, timeout_s: float = CLOSE_S, *, leave: bool = False) -> None:
        """Wait up to `timeout_s` for messages that are not acknowledged, commit, and leave the
        group. A second call does nothing.

        A static member (`instance=`) stays in the group for the rest of its session, so that its next
        process continues with the same queues and nobody else notices; with `leave` it leaves, too.
        """
        check_seconds(timeout_s, "timeout_s", endless=True)
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._opened and self._io.running:
            run(self._io, CloseMember(self._member, timeout_s, leave))
            run_in_thread(self._sink.close)

    def abandon(self) -> None:
        """End the membership without waiting."""
        self._abandoned()


def _leave(io: IoThread, member: MemberState) -> None:
    """End the membership of a consumer that no longer exists; do nothing if it has ended."""
    if io.running:
        io.submit(CloseMember(member, 0))
