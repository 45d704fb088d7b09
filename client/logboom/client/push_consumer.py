"""The push consumer for threads: a listener that is called with the messages of a group.

By hand in both clients: here listeners are run by worker threads that take their messages
themselves, and those of the push consumer for asyncio are tasks that one task hands out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

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
    """Calls a listener as a member of a group; made by `Client.push_consumer`.

    A message is committed when the listener returned None or True. If it raises, or returns False
    or `Later(seconds)`, the message comes again, and after the group's `max_attempts` goes to the
    dead letters. Threads begin as they are needed.
    """

    def __init__(
        self,
        io: IoThread,
        options: MemberOptions,
        push: PushOptions,
        listener: Callable[..., object],
        timeout_s: float,
        *,
        create_topics: bool,
        store: OffsetsFile | None = None,
    ) -> None:
        push.validate()
        self._io = io
        self._push = push
        self._timeout_s = timeout_s
        self._create_topics = create_topics
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
        """Find the topics, join the group and begin; `Client.push_consumer` has done it.

        Raises:
            GroupError: SUBSCRIPTION_MISMATCH, with the difference.
            UnknownResource: no such topic.
        """
        if self._threads:
            return
        for topic in self._member.options.subscription:
            self._io.run(FindTopic(topic, self._timeout_s, self._create_topics))
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
        """There is work for one more thread."""
        if self._idle:
            self._news.notify()
        elif len(self._threads) < self._push.threads and not self._closing:
            self._begin_thread()

    # What its user may do.

    def pause(self, topic: str, queue: int) -> None:
        """Hand out nothing of this queue until `resume`."""
        with self._news:
            self._member.fetch(topic, queue).paused = True

    def resume(self, topic: str, queue: int) -> None:
        """Hand out messages of this queue again."""
        with self._news:
            fetch = self._member.fetch(topic, queue)
            fetch.paused = fetch.stalled = False
            self._io.submit(WakeFetch(fetch))
            self._news.notify()

    @property
    def handled(self) -> int:
        """Number of messages that the listener was given."""
        return self._dispatcher.handled

    @property
    def cached(self) -> dict[tuple[str, int], int]:
        """(topic, queue) → messages that were fetched and are not finished, of all its queues."""
        return cached_by_queue(self._member)

    @property
    def error(self) -> LogboomError | None:
        """Why the group does not take this member any more; None: it does."""
        return self._member.error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the consumer is closed (by another thread); False after `timeout_s`."""
        return self._closed.wait(timeout_s)

    # The end.

    def close(self, timeout_s: float | None = None) -> None:
        """Leave the group: hand out nothing more, wait for running listeners up to `timeout_s`
        (None: `await_termination_s`), commit, go. A second call does nothing.

        Called by a listener it returns at once, and the rest follows when that has returned.
        """
        with self._news:
            if self._closing:
                return
            self._closing = True
        if threading.current_thread() in self._threads:
            threading.Thread(target=self._close, args=(timeout_s,), daemon=True).start()
        else:
            self._close(timeout_s)

    def _close(self, timeout_s: float | None) -> None:
        patience = self._push.await_termination_s if timeout_s is None else timeout_s
        try:
            if self._io.running:
                self._io.run(CloseMember(self._member, patience))
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
