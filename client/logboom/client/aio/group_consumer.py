"""The consumer of a group for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Self

from logboom.client.aio.bridge import call_in, run
from logboom.client.calls import FindTopic, MessageTime
from logboom.client.consumer import LOOK_AGAIN_S, seek_start
from logboom.client.fetch.fetch_buffer import FetchBuffer
from logboom.client.group_consumer import CLOSE_S, abandon
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


class GroupConsumer:
    """Reads as a member of a group; made by `Client.consumer(…, group=…)`, for one event loop. It
    joins with `async with`, `open` or the first read; all else as the consumer for threads."""

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
        self._timeout_s = timeout_s
        self._create_topics = create_topics
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        inbox = FetchBuffer(options.prefetch_bytes, lambda: call_in(self._loop, self._event.set))
        self._member = MemberState(options, inbox, threading.RLock(), store=store)
        self._sink = RetryPublisher(io, timeout_s)
        failures = FailedMessages(self._member, time.monotonic, self._sink)
        self._intake = GroupFetchCollector(self._member, io.submit, failures)
        # One that nobody holds any more must not keep its queues.
        weakref.finalize(self, abandon, io, self._member).atexit = False
        self._opening = asyncio.Lock()
        self._opened = False
        self._closed = False

    async def open(self) -> None:
        """Find the topics and join the group.

        Raises:
            GroupError: SUBSCRIPTION_MISMATCH, with the difference.
            UnknownResource: no such topic.
        """
        async with self._opening:
            self._check()
            if self._opened:
                return
            for topic in self._member.options.subscription:
                await run(self._io, FindTopic(topic, self._timeout_s, self._create_topics))
            await run(self._io, OpenMember(self._member, self._timeout_s))
            self._opened = True

    # Reading.

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Every message, waiting for the next when there is none; ends when closed."""
        await self.open()
        while not self._closed:
            self._io.check()
            taken = self._intake.take(1, time.monotonic())
            if taken:
                yield taken[0]
            else:
                await self._wait(LOOK_AGAIN_S)

    async def poll(self, max_messages: int = 1_000, timeout_s: float = 1.0) -> list[Message]:
        """Up to `max_messages` messages: what is here, else the first to come in `timeout_s`.

        None is the end of the data only for who has queues (`assigned`).
        """
        if max_messages < 1:
            raise InvalidRequest(f"max_messages is 1 or more, not {max_messages}")
        await self.open()
        deadline = time.monotonic() + timeout_s
        while True:
            self._check()
            taken = self._intake.take(max_messages, time.monotonic())
            left = deadline - time.monotonic()
            if not taken and left <= 0:
                self._intake.found_nothing(time.monotonic())
            if taken or left <= 0:
                return taken
            await self._wait(min(left, LOOK_AGAIN_S))

    async def poll_columns(self, timeout_s: float = 1.0) -> list[ColumnBatch]:
        """The batches that are here, as columns, else the first to come in `timeout_s`."""
        await self.open()
        deadline = time.monotonic() + timeout_s
        while True:
            self._check()
            batches = self._intake.take_columns(time.monotonic())
            left = deadline - time.monotonic()
            if not batches and left <= 0:
                self._intake.found_nothing(time.monotonic())
            if batches or left <= 0:
                return batches
            await self._wait(min(left, LOOK_AGAIN_S))

    # Acknowledging.

    def ack(self, given: Given | Iterable[Given]) -> None:
        """Done with a message, a batch of columns, or several of them."""
        self._check()
        self._intake.ack(given)

    def nack(self, message: Message, delay_s: float | None = None, cause: str = "nack") -> None:
        """A message failed: it comes again after `delay_s` seconds (None: as the group says)."""
        self._check()
        self._intake.nack(message, delay_s, cause, time.monotonic())
        self._event.set()

    def reject(self, message: Message, cause: str = "rejected") -> None:
        """A message that will never be handled: to the dead letters at once, with this cause."""
        self._check()
        self._intake.reject(message, cause, time.monotonic())
        self._event.set()

    async def commit(
        self, offsets: Mapping[tuple[str, int], int] | None = None, *, sync: bool = True
    ) -> None:
        """Commit what is acknowledged; with `sync` it is in the group's log when this returns.
        Arguments and errors are those of the consumer for threads."""
        await self.open()
        for (topic, queue), offset in (offsets or {}).items():
            self._intake.skip_to(topic, queue, offset)
        call = CommitMember(self._member)
        if sync:
            await run(self._io, call)
        else:
            self._io.submit(call)

    # Places.

    async def seek(self, topic: str, queue: int, offset: int | str) -> None:
        """Read a queue on from `offset`, or from its "first" or "last". Commits never go back."""
        await self.open()
        self._intake.seek(topic, queue, seek_start(offset))

    async def seek_to_time(self, topic: str, queue: int, timestamp_ms: int) -> None:
        """Read a queue on from the messages at or after a message time."""
        await self.open()
        self._intake.seek(topic, queue, MessageTime(timestamp_ms))

    def position(self, topic: str, queue: int) -> int | None:
        """Offset of the next message of a queue; None while it is looked up."""
        return self._intake.position(topic, queue)

    def committed(self, topic: str, queue: int) -> int:
        """The committed offset of a queue of this consumer, as far as it knows."""
        return self._intake.committed(topic, queue)

    async def pause(self, topic: str, queue: int) -> None:
        """Give nothing of this queue until `resume`."""
        await self.open()
        self._intake.pause(topic, queue)

    async def resume(self, topic: str, queue: int) -> None:
        """Give messages of this queue again."""
        await self.open()
        self._intake.resume(topic, queue)
        self._event.set()

    @property
    def assigned(self) -> bool:
        """Whether this member has a queue now; as of the consumer for threads."""
        with self._member.lock:
            return self._member.assigned

    async def wait_assigned(self, timeout_s: float | None = None) -> bool:
        """Wait until this member has a queue, `timeout_s` seconds at most (None: as long as it
        takes); whether it has one. Errors are those of the consumer for threads."""
        await self.open()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._check()
            self._event.clear()
            if self._intake.has_queue():
                return True
            left = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_AGAIN_S)):
                    await self._event.wait()

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

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Leave the group: wait up to `timeout_s` for what is handed out and not acknowledged,
        commit, go. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._opened and self._io.running:
            await run(self._io, CloseMember(self._member, timeout_s))
            await asyncio.to_thread(self._sink.close)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _check(self) -> None:
        self._io.check()
        if self._closed:
            raise ClientClosed("this consumer is closed: make another with client.consumer()")

    async def _wait(self, timeout_s: float) -> None:
        due = self._intake.due()
        if due is not None:
            timeout_s = min(timeout_s, max(0.0, due - time.monotonic()))
        self._event.clear()
        self._member.inbox.wanted = True
        if not self._member.inbox.arrivals:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
