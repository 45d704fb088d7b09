"""The push consumer for threads, which calls a listener with the messages of a group.

Written by hand in both clients: here worker threads take messages themselves, and in the push
consumer for asyncio one task starts a task for each call of the listener.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from logboom.client.argument_checks import check_seconds
from logboom.client.calls import FindTopic
from logboom.client.fetch.fetch_buffer import FetchBuffer, WakeFetch
from logboom.client.group_ownership import GroupOwnership
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.member import CloseMember, MemberOptions, MemberState, OpenMember
from logboom.client.groups.offsets_file import OffsetsFile
from logboom.client.io_thread import IoThread
from logboom.client.push.listener_runner import ListenerRunner
from logboom.client.push.process_queue import cached_by_queue, lane_fetches
from logboom.client.push.push_dispatcher import PushDispatcher
from logboom.client.push_options import PushOptions
from logboom.client.resource import Resource
from logboom.client.retry_publisher import RetryPublisher
from logboom.wire.errors import LogboomError


class PushConsumer(GroupOwnership, Resource):
    """A member of a group that calls a listener; `Client.push_consumer` creates it.

    A message is committed when the listener has returned None or True. If it raises, or returns
    False or `Later(seconds)`, the message is delivered again, and becomes a dead letter after the
    group's `max_attempts`. Threads are started as they are needed.
    """

    def __init__(
        self,
        io: IoThread,
        options: MemberOptions,
        push: PushOptions,
        listener: Callable[..., object],
        timeout_s: float,
        store: OffsetsFile | None = None,
    ) -> None:
        push.validate()
        self._io = io
        self._push = push
        self._timeout_s = timeout_s
        self._runner = ListenerRunner(
            listener, time.monotonic, batch=push.batch > 1, orderly=push.orderly
        )
        self._news = threading.Condition(threading.RLock())
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._closed = threading.Event()
        self._stopped = False

        inbox = FetchBuffer(options.prefetch_bytes, self._ring)
        super().__init__(MemberState(options, inbox, self._news, lane_fetches(push), store))
        self._sink = RetryPublisher(io, timeout_s)
        failures = FailedMessages(self._member, time.monotonic, self._sink)
        self._dispatcher = PushDispatcher(self._member, push, io.submit, failures)

    def open(self) -> None:
        """Find the topics, join the group, and begin to call the listener, unless that was done.

        `Client.push_consumer` calls it.

        Raises:
            GroupError: SUBSCRIPTION_MISMATCH; the text states the difference.
            UnknownResource: there is no such topic.
        """
        if self._threads:
            return
        for topic in self._member.options.subscription:
            self._io.run(FindTopic(topic, self._timeout_s, self._io.create_topics))
        self._io.run(OpenMember(self._member, self._timeout_s))
        with self._news:
            self._begin_thread()

    # Threads.

    def _ring(self) -> None:
        with self._news:
            self._news.notify()

    def _begin_thread(self) -> None:
        name = f"logboom-push-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        dispatcher, inbox, news = self._dispatcher, self._member.inbox, self._news
        while True:
            with news:
                while (work := dispatcher.next(time.monotonic())) is None:
                    if self._stopped:
                        return
                    inbox.wanted = True
                    if not inbox.arrivals:
                        self._idle += 1
                        news.wait(dispatcher.sleep(time.monotonic()))
                        self._idle -= 1
                if dispatcher.worth_sharing:
                    self._call_another()
            self._runner.run(work)
            with news:
                dispatcher.done(work, time.monotonic())

    def _call_another(self) -> None:
        """Wake or start one more thread."""
        if self._idle:
            self._news.notify()
        elif len(self._threads) < self._push.threads and not self._closing:
            self._begin_thread()

    # The caller's methods.

    def pause(self, topic: str, queue: int) -> None:
        """Pass no messages of a queue to the listener until `resume`, also if the queue is revoked
        and assigned again."""
        with self._news:
            self._member.pause(topic, queue)

    def resume(self, topic: str, queue: int) -> None:
        """Pass messages of a queue to the listener again."""
        with self._news:
            fetch = self._member.resume(topic, queue)
            if fetch is not None:
                self._io.submit(WakeFetch(fetch))
            self._news.notify()

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

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until another thread closes the consumer. Return False if `timeout_s` seconds pass
        first."""
        return self._closed.wait(timeout_s)

    # The end.

    def close(self, timeout_s: float | None = None, *, leave: bool = False) -> None:
        """Wait up to `timeout_s` (None: `await_termination_s`) for running listeners, commit, and
        leave the group. A second call does nothing.

        A static member (`instance=`) stays in the group for the rest of its session, so that its next
        process continues with the same queues and nobody else notices; with `leave` it leaves, too.

        When a listener calls it, it returns at once, and the consumer closes after the listener
        has returned.
        """
        if timeout_s is not None:
            check_seconds(timeout_s, "timeout_s", endless=True)
        with self._news:
            if self._closing:
                return
            self._closing = True
        if threading.current_thread() in self._threads:
            threading.Thread(target=self._close, args=(timeout_s, leave), daemon=True).start()
        else:
            self._close(timeout_s, leave)

    def _close(self, timeout_s: float | None, leave: bool) -> None:
        patience = self._push.await_termination_s if timeout_s is None else timeout_s
        try:
            if self._io.running:
                self._io.run(CloseMember(self._member, patience, leave))
        finally:
            with self._news:
                self._stopped = True
                self._news.notify_all()
            end = time.monotonic() + 1.0
            for thread in self._threads:
                thread.join(max(0.0, end - time.monotonic()))
            if self._io.running:
                self._sink.close()
            self._closed.set()
