"""The push consumer for asyncio, which calls a listener with the messages of a group.

Written by hand in both clients: here one task starts a task for each call of the listener, and in
the push consumer for threads, worker threads take messages themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from logboom.client.aio.bridge import Event, call_user, ends_worker, run, run_in_thread
from logboom.client.aio.resource import Resource
from logboom.client.argument_checks import check_seconds
from logboom.client.calls import FindTopic
from logboom.client.fetch.fetch_buffer import FetchBuffer, WakeFetch
from logboom.client.group_ownership import GroupOwnership
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.member import CloseMember, MemberOptions, MemberState, OpenMember
from logboom.client.groups.offsets_file import OffsetsFile
from logboom.client.io_thread import IoThread
from logboom.client.push.listener_runner import (
    RAISED,
    apply_result,
    fail_raised,
    place,
    takes_context,
)
from logboom.client.push.listener_task import Context, ListenerTask
from logboom.client.push.process_queue import cached_by_queue, lane_fetches
from logboom.client.push.push_dispatcher import PushDispatcher
from logboom.client.push_options import PushOptions
from logboom.client.results import Message
from logboom.client.retry_publisher import RetryPublisher
from logboom.wire.errors import ClientClosed, LogboomError

LOG = logging.getLogger("logboom.client")


class PushConsumer(GroupOwnership, Resource):
    """A member of a group that calls a listener: a coroutine function, or a function that does not
    block. `Client.push_consumer` creates it, and it begins with `async with` or `open`.

    A message is committed when the listener has returned None or True. If it raises, or returns
    False or `Later(seconds)`, the message is delivered again, and becomes a dead letter after the
    group's `max_attempts`.
    """

    def __init__(
        self,
        io: IoThread,
        options: MemberOptions,
        push: PushOptions,
        listener: Callable[..., Any],
        timeout_s: float,
        store: OffsetsFile | None = None,
    ) -> None:
        push.validate()
        self._io = io
        self._push = push
        self._listener = listener
        self._with_context = takes_context(listener)
        self._timeout_s = timeout_s
        self._event = Event()
        self._ended = asyncio.Event()
        inbox = FetchBuffer(options.prefetch_bytes, self._event.set)
        super().__init__(MemberState(options, inbox, threading.RLock(), lane_fetches(push), store))
        self._sink = RetryPublisher(io, timeout_s)
        failures = FailedMessages(self._member, time.monotonic, self._sink)
        self._dispatcher = PushDispatcher(self._member, push, io.submit, failures)
        self._opening = asyncio.Lock()
        self._pump: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def open(self) -> None:
        """Find the topics, join the group, and begin to call the listener.

        Raises:
            GroupError: SUBSCRIPTION_MISMATCH; the text states the difference.
            UnknownResource: there is no such topic.
        """
        async with self._opening:
            if self._closing:
                raise ClientClosed(
                    "this consumer is closed: make another with client.push_consumer()"
                )
            if self._pump is not None:
                return
            for topic in self._member.options.subscription:
                await run(self._io, FindTopic(topic, self._timeout_s, self._io.create_topics))
            await run(self._io, OpenMember(self._member, self._timeout_s))
            self._pump = asyncio.create_task(self._hand_out())

    async def _hand_out(self) -> None:
        """Start tasks for the messages that have arrived, up to the limit of `threads`."""
        dispatcher, inbox = self._dispatcher, self._member.inbox
        while not self._ended.is_set():
            self._event.clear()
            with self._member.lock:
                while len(self._tasks) < self._push.threads:
                    work = dispatcher.next(time.monotonic())
                    if work is None:
                        break
                    task = asyncio.create_task(self._handle(work))
                    self._tasks.add(task)
                    task.add_done_callback(self._handled)
                sleep = dispatcher.sleep(time.monotonic())
            busy = len(self._tasks) >= self._push.threads
            inbox.wanted = not busy
            if busy or not inbox.arrivals:
                await self._event.wait(sleep)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._event.set()

    async def _handle(self, work: ListenerTask) -> None:
        context: tuple[Any, ...] = (Context(work),) if self._with_context else ()
        try:
            if self._push.batch > 1:
                messages = list(work.rest)
                work.current, work.began = messages[0], time.monotonic()
                work.rest.clear()
                await self._call(work, messages, messages, context)
            else:
                await self._one_by_one(work, context)
        finally:
            work.current = None
            with self._member.lock:
                self._dispatcher.done(work, time.monotonic())

    async def _one_by_one(self, work: ListenerTask, context: tuple[Any, ...]) -> None:
        while work.rest and not work.stopped and not (self._push.orderly and work.failed):
            message = work.rest.popleft()
            work.current, work.began = message, time.monotonic()
            await self._call(work, message, [message], context)

    async def _call(
        self, work: ListenerTask, given: object, messages: list[Message], context: tuple[Any, ...]
    ) -> None:
        try:
            apply_result(work, messages, await call_user(self._listener, given, *context))
        # Whatever the listener raises means that the message failed, and so does a result that
        # cannot be applied.
        except BaseException as error:
            if ends_worker(error):
                for message in messages:
                    work.fail(message, 0, "cancelled")
                raise
            LOG.exception(RAISED, place(messages[0]))
            fail_raised(work, messages, error)

    # The caller's methods.

    async def pause(self, topic: str, queue: int) -> None:
        """Pass no messages of a queue to the listener until `resume`, also if the queue is revoked
        and assigned again."""
        with self._member.lock:
            self._member.pause(topic, queue)

    async def resume(self, topic: str, queue: int) -> None:
        """Pass messages of a queue to the listener again."""
        with self._member.lock:
            fetch = self._member.resume(topic, queue)
        if fetch is not None:
            self._io.submit(WakeFetch(fetch))
        self._event.set()

    @property
    def handled(self) -> int:
        """Number of messages that were passed to the listener."""
        return self._dispatcher.handled

    @property
    def cached(self) -> dict[tuple[str, int], int]:
        """(topic, queue) → number of messages that were fetched and are not finished."""
        return cached_by_queue(self._member)

    @property
    def error(self) -> LogboomError | None:
        """The reason why the group has expelled this member; None: it has not."""
        return self._member.error

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until another task closes the consumer. Return False if `timeout_s` seconds pass
        first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        return self._ended.is_set()

    # The end.

    async def close(self, timeout_s: float | None = None, *, leave: bool = False) -> None:
        """Wait up to `timeout_s` (None: `await_termination_s`) for running listeners, commit, and
        leave the group. A second call does nothing.

        A static member (`instance=`) stays in the group for the rest of its session, so that its next
        process continues with the same queues and nobody else notices; with `leave` it leaves, too.
        """
        if timeout_s is not None:
            check_seconds(timeout_s, "timeout_s", endless=True)
        if self._closing:
            return
        self._closing = True
        patience = self._push.await_termination_s if timeout_s is None else timeout_s
        try:
            if self._pump is not None and self._io.running:
                await run(self._io, CloseMember(self._member, patience, leave))
        finally:
            self._ended.set()
            self._event.set()
            if self._pump is not None:
                await self._pump
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._io.running:
                await run_in_thread(self._sink.close)
