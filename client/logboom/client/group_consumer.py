# Generated from aio/group_consumer.py by client/generate_blocking.py: do not edit, run `make generate`.
"""The consumer of a group: its queues come and go with the group's members."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Final

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
"""Seconds that `close` waits for messages that are handed out and not acknowledged: who closes has
stopped, unless others go on acknowledging."""


class GroupConsumer(GroupOwnership, PositionedReader):
    """Reads as a member of a group; made by `Client.consumer(…, group=…)`. One thread reads at a
    time; `ack`, `nack` and `commit` may be called by any.

    What is acknowledged is committed every `commit_every_s`, by `commit`, and when a queue moves
    or the consumer closes. What is not comes again: to this consumer after `nack`, or to whoever
    has the queue next.
    """

    def __init__(
        self,
        io: IoThread,
        options: MemberOptions,
        timeout_s: float,
        *,
        create_topics: bool,
        store: OffsetsFile | None = None,
    ) -> None:
        PositionedReader.__init__(self, io, timeout_s)
        self._create_topics = create_topics
        inbox = FetchBuffer(options.prefetch_bytes, self._event.set)
        member = MemberState(options, inbox, threading.RLock(), store=store)
        GroupOwnership.__init__(self, member)
        self._sink = RetryPublisher(io, timeout_s)
        failures = FailedMessages(member, time.monotonic, self._sink)
        self._intake: GroupFetchCollector = GroupFetchCollector(member, io.submit, failures)
        self._intake_lock = member.lock
        # A consumer that nobody holds any longer must not keep its queues.
        self._abandoned = weakref.finalize(self, _leave, io, member)
        self._abandoned.atexit = False

    def _open(self) -> None:
        for topic in self._member.options.subscription:
            run(self._io, FindTopic(topic, self._timeout_s, self._create_topics))
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
        """Acknowledge a message, a batch of columns, or several of them: they do not come again once
        they are committed."""
        self._check()
        self._intake.ack(given)

    def nack(self, message: Message, delay_s: float | None = None, cause: str = "nack") -> None:
        """Report that a message failed: it comes again after `delay_s` seconds (None: as the group's
        retries say), and goes to the dead letters after the group's `max_attempts`.

        Raises:
            InvalidRequest: a negative delay.
        """
        self._check()
        self._intake.nack(message, delay_s, cause, time.monotonic())
        self._event.set()

    def reject(self, message: Message, cause: str = "rejected") -> None:
        """Send a message that can never be handled to the dead letters, with this cause."""
        self._check()
        self._intake.reject(message, cause, time.monotonic())
        self._event.set()

    def commit(
        self, offsets: Mapping[tuple[str, int], int] | None = None, *, sync: bool = True
    ) -> None:
        """Commit what is acknowledged; with `sync` it is in the group's log when this returns.

        Args:
            offsets: (topic, queue) → offset: acknowledge everything below it first.

        Raises:
            GroupError: BEYOND_END, past what was read; or this member is out, or lost a queue.
            InvalidRequest: an offset below what is committed.
            TimedOut: the coordinator did not answer; it may be committed.
        """
        self.open()
        for (topic, queue), offset in (offsets or {}).items():
            self._intake.skip_to(topic, queue, offset)
        call = CommitMember(self._member)
        if sync:
            run(self._io, call)
        else:
            self._io.submit(call)

    # Places.

    def committed(self, topic: str, queue: int) -> int:
        """The committed offset of a queue of this consumer, as far as it knows."""
        return self._intake.committed(topic, queue)

    @property
    def assigned(self) -> bool:
        """True if this member has a queue now. It has none yet when it has just joined and others
        have all: those of a member that died remain its own until its session ends."""
        with self._member.lock:
            return self._member.assigned

    def wait_assigned(self, timeout_s: float | None = None) -> bool:
        """Wait until this member has a queue, `timeout_s` seconds at most (None: as long as it
        takes), and return whether it has one. The group's other queues may still come, and go.

        Raises:
            GroupError: INSTANCE_TAKEN, or another reason why the group does not take this member.
        """
        self.open()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._check()
            self._event.clear()
            if self._intake.has_queue():
                return True
            left = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            self._event.wait(min(left, LOOK_AGAIN_S))

    @property
    def intake(self) -> GroupFetchCollector:
        """The messages it was given, for a transaction's `send_offsets`."""
        return self._intake

    # The end.

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Leave the group: wait up to `timeout_s` for what is handed out and not acknowledged,
        commit, go. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._opened and self._io.running:
            run(self._io, CloseMember(self._member, timeout_s))
            run_in_thread(self._sink.close)

    def abandon(self) -> None:
        """Leave the group without waiting."""
        self._abandoned()


def _leave(io: IoThread, member: MemberState) -> None:
    """Let a member leave whose consumer is gone; nothing if it has left."""
    if io.running:
        io.submit(CloseMember(member, 0))
