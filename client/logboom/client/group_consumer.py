"""The consumer of a group for threads: its queues come and go with the group's members."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final, Self

from logboom.client.calls import FindTopic, MessageTime
from logboom.client.consumer import LOOK_AGAIN_S, seek_start
from logboom.client.fetch.fetch_buffer import FetchBuffer
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
from logboom.client.results import ColumnBatch, Message
from logboom.client.retry_publisher import RetryPublisher
from logboom.wire.errors import ClientClosed, InvalidRequest

CLOSE_S: Final = 0.0
"""Seconds that `close` waits for messages that are handed out and not acknowledged: who closes has
stopped, unless other threads go on acknowledging."""


class GroupConsumer:
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
        self._io = io
        self._event = threading.Event()
        inbox = FetchBuffer(options.prefetch_bytes, self._event.set)
        self._member = MemberState(options, inbox, threading.RLock(), store=store)
        self._sink = RetryPublisher(io, timeout_s)
        failures = FailedMessages(self._member, time.monotonic, self._sink)
        self._intake = GroupFetchCollector(self._member, io.submit, failures)
        # One that nobody holds any more must not keep its queues.
        weakref.finalize(self, abandon, io, self._member).atexit = False
        self._read_lock = threading.RLock()
        self._closed = False
        for topic in options.subscription:
            io.run(FindTopic(topic, timeout_s, create_topics))
        io.run(OpenMember(self._member, timeout_s))

    # Reading.

    def __iter__(self) -> Iterator[Message]:
        """Every message, waiting for the next when there is none; ends when closed."""
        while not self._closed:
            self._io.check()
            taken = self._intake.take(1, time.monotonic())
            if taken:
                yield taken[0]
            else:
                self._wait(LOOK_AGAIN_S)

    def poll(self, max_messages: int = 1_000, timeout_s: float = 1.0) -> list[Message]:
        """Up to `max_messages` messages: what is here, else the first to come in `timeout_s`.

        None is the end of the data only for who has queues (`assigned`).
        """
        if max_messages < 1:
            raise InvalidRequest(f"max_messages is 1 or more, not {max_messages}")
        with self._read_lock:
            deadline = time.monotonic() + timeout_s
            while True:
                self._check()
                taken = self._intake.take(max_messages, time.monotonic())
                left = deadline - time.monotonic()
                if not taken and left <= 0:
                    self._intake.found_nothing(time.monotonic())
                if taken or left <= 0:
                    return taken
                self._wait(min(left, LOOK_AGAIN_S))

    def poll_columns(self, timeout_s: float = 1.0) -> list[ColumnBatch]:
        """The batches that are here, as columns, else the first to come in `timeout_s`; acknowledge
        them whole. A filter leaves out only batches that cannot hold a match."""
        with self._read_lock:
            deadline = time.monotonic() + timeout_s
            while True:
                self._check()
                batches = self._intake.take_columns(time.monotonic())
                left = deadline - time.monotonic()
                if not batches and left <= 0:
                    self._intake.found_nothing(time.monotonic())
                if batches or left <= 0:
                    return batches
                self._wait(min(left, LOOK_AGAIN_S))

    # Acknowledging.

    def ack(self, given: Given | Iterable[Given]) -> None:
        """Done with a message, a batch of columns, or several of them: it does not come again once
        it is committed."""
        self._check()
        self._intake.ack(given)

    def nack(self, message: Message, delay_s: float | None = None, cause: str = "nack") -> None:
        """A message failed: it comes again after `delay_s` seconds (None: as the group's retries
        say), and goes to the dead letters after the group's `max_attempts`.

        Raises:
            InvalidRequest: a negative delay.
        """
        self._check()
        self._intake.nack(message, delay_s, cause, time.monotonic())
        self._event.set()

    def reject(self, message: Message, cause: str = "rejected") -> None:
        """A message that will never be handled: to the dead letters at once, with this cause."""
        self._check()
        self._intake.reject(message, cause, time.monotonic())
        self._event.set()

    def commit(
        self, offsets: Mapping[tuple[str, int], int] | None = None, *, sync: bool = True
    ) -> None:
        """Commit what is acknowledged; with `sync` it is in the group's log when this returns.

        Args:
            offsets: (topic, queue) → offset: count all below as acknowledged, first.

        Raises:
            GroupError: BEYOND_END, past what was read; or this member is out, or lost a queue.
            InvalidRequest: an offset below what is committed.
            TimedOut: the coordinator did not answer; it may be committed.
        """
        self._check()
        for (topic, queue), offset in (offsets or {}).items():
            self._intake.skip_to(topic, queue, offset)
        call = CommitMember(self._member)
        if sync:
            self._io.run(call)
        else:
            self._io.submit(call)

    # Places.

    def seek(self, topic: str, queue: int, offset: int | str) -> None:
        """Read a queue on from `offset`, or from its "first" or "last". Commits never go back."""
        self._check()
        self._intake.seek(topic, queue, seek_start(offset))

    def seek_to_time(self, topic: str, queue: int, timestamp_ms: int) -> None:
        """Read a queue on from the messages at or after a message time."""
        self._check()
        self._intake.seek(topic, queue, MessageTime(timestamp_ms))

    def position(self, topic: str, queue: int) -> int | None:
        """Offset of the next message of a queue; None while it is looked up."""
        return self._intake.position(topic, queue)

    def committed(self, topic: str, queue: int) -> int:
        """The committed offset of a queue of this consumer, as far as it knows."""
        return self._intake.committed(topic, queue)

    def pause(self, topic: str, queue: int) -> None:
        """Give nothing of this queue until `resume`."""
        self._check()
        self._intake.pause(topic, queue)

    def resume(self, topic: str, queue: int) -> None:
        """Give messages of this queue again."""
        self._check()
        self._intake.resume(topic, queue)
        self._event.set()

    @property
    def assigned(self) -> bool:
        """Whether this member has a queue now. It has none yet when it has just joined and all are
        others': those of a member that died remain its own until its session ends."""
        with self._member.lock:
            return self._member.assigned

    def wait_assigned(self, timeout_s: float | None = None) -> bool:
        """Wait until this member has a queue, `timeout_s` seconds at most (None: as long as it
        takes); whether it has one. The group's other queues may still come, and go.

        Raises:
            GroupError: INSTANCE_TAKEN, or why else the group does not take this member.
        """
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
    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue) of all that this member has now, its group's retries left out."""
        return self._member.queues()

    def owner_epoch(self, topic: str, queue: int) -> int:
        """The epoch in which this member has a queue: every owner's is greater than those of all
        before it, so that others can refuse what an owner of the past writes (a fencing token).

        Raises:
            UnknownResource: this member does not have the queue at the moment.
        """
        return self._member.owner_epoch(topic, queue)

    @property
    def intake(self) -> GroupFetchCollector:
        """What it was given, for a transaction's `send_offsets`."""
        return self._intake

    @property
    def member_id(self) -> str:
        """This member's name in its group."""
        return self._member.options.member_id

    # The end.

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Leave the group: wait up to `timeout_s` for what is handed out and not acknowledged,
        commit, go. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._io.running:
            self._io.run(CloseMember(self._member, timeout_s))
            self._sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self) -> None:
        self._io.check()
        if self._closed:
            raise ClientClosed("this consumer is closed: make another with client.consumer()")

    def _wait(self, timeout: float) -> None:
        due = self._intake.due()
        if due is not None:
            timeout = min(timeout, max(0.0, due - time.monotonic()))
        self._event.clear()
        self._member.inbox.wanted = True
        if not self._member.inbox.arrivals:
            self._event.wait(timeout)


def abandon(io: IoThread, member: MemberState) -> None:
    """Let a member leave whose consumer is gone; nothing if it has left."""
    if io.running:
        io.submit(CloseMember(member, 0))
