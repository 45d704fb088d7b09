"""The push consumer for threads: a listener that is called with the messages of a group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from logboom.client.calls import FindTopic
from logboom.client.fetch.fetch_buffer import FetchBuffer, WakeFetch
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.member import CloseMember, MemberOptions, MemberState, OpenMember
from logboom.client.groups.offsets_file import OffsetsFile
from logboom.client.io_thread import IoThread
from logboom.client.push.listener_runner import ListenerRunner
from logboom.client.push.process_queue import cached_by_queue, lane_fetches
from logboom.client.push.push_dispatcher import PushDispatcher
from logboom.client.push_options import PushOptions
from logboom.client.retry_publisher import RetryPublisher
from logboom.wire.errors import LogboomError


class PushConsumer:
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
        self._member = MemberState(options, inbox, self._news, lane_fetches(push), store)
        self._sink = RetryPublisher(io, timeout_s)
        failures = FailedMessages(self._member, time.monotonic, self._sink)
        self._dispatcher = PushDispatcher(self._member, push, io.submit, failures)
        for topic in options.subscription:
            io.run(FindTopic(topic, timeout_s, create_topics))
        io.run(OpenMember(self._member, timeout_s))
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
    def member_id(self) -> str:
        """This member's name in its group."""
        return self._member.options.member_id

    @property
    def handled(self) -> int:
        """How many messages the listener got."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
