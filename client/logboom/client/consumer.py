"""The assigned consumer for threads: reads the queues that it was given, commits nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from logboom.client.calls import MessageTime, Start
from logboom.client.fetch.fetch_buffer import CloseFetch, FetchBuffer
from logboom.client.fetch.fetch_collector import LOW_SHARE, FetchCollector
from logboom.client.fetch.topic_selection import TopicSelection
from logboom.client.io_thread import IoThread
from logboom.client.results import ColumnBatch, Message
from logboom.wire.errors import ClientClosed, InvalidRequest
from logboom.wire.filters.filter import Filter

LOOK_AGAIN_S = 1.0
"""How often a waiting reader looks whether the client still lives, and for new queues."""


class Consumer:
    """Reads queues; made by `Client.consumer`. One thread reads at a time."""

    def __init__(
        self,
        io: IoThread,
        topics: Sequence[str],
        queues: Sequence[int] | None,
        start: Start,
        wanted: Filter,
        prefetch_bytes: int,
        timeout_s: float,
        *,
        create_topics: bool = False,
        uncommitted: bool = False,
        compacted: bool = False,
    ) -> None:
        if prefetch_bytes < LOW_SHARE:
            raise InvalidRequest(f"prefetch_bytes is at least {LOW_SHARE}, not {prefetch_bytes}")
        self._io = io
        self._event = threading.Event()
        self._lock = threading.RLock()
        self._inbox = FetchBuffer(prefetch_bytes, self._event.set)
        self._intake = FetchCollector(self._inbox, io.submit, wanted)
        self._subscription = TopicSelection(
            topics, queues, start, wanted, uncommitted=uncommitted, compacted=compacted
        )
        self._closed = False
        for call in self._subscription.finds(timeout_s, create=create_topics):
            self._subscription.found(io.run(call))
        self._open_new()

    def __iter__(self) -> Iterator[Message]:
        """Every message, waiting for the next when there is none; ends when closed."""
        intake = self._intake
        while not self._closed:
            version = intake.version
            for message in intake.rest():
                yield message
                if intake.version != version:
                    break
            else:
                if self._closed:
                    return
                self._io.check()
                if not intake.advance():
                    self._wait(LOOK_AGAIN_S)

    def poll(self, max_messages: int = 1_000, timeout_s: float = 1.0) -> list[Message]:
        """Up to `max_messages` messages: what is here, else the first to come in `timeout_s`."""
        if max_messages < 1:
            raise InvalidRequest(f"max_messages is 1 or more, not {max_messages}")
        with self._lock:
            deadline = time.monotonic() + timeout_s
            while True:
                self._check()
                taken = self._intake.take(max_messages)
                left = deadline - time.monotonic()
                if taken or left <= 0:
                    return taken
                self._wait(min(left, LOOK_AGAIN_S))

    def poll_columns(self, timeout_s: float = 1.0) -> list[ColumnBatch]:
        """The batches that are here, as columns, else the first to come in `timeout_s`.

        Batches are whole: a filter leaves out only those that hold no match.
        """
        with self._lock:
            deadline = time.monotonic() + timeout_s
            while True:
                self._check()
                batches = self._intake.take_columns()
                left = deadline - time.monotonic()
                if batches or left <= 0:
                    return batches
                self._wait(min(left, LOOK_AGAIN_S))

    def seek(self, topic: str, queue: int, offset: int | str) -> None:
        """Read a queue on from `offset`, or from its "first" or "last"."""
        with self._lock:
            self._check()
            self._intake.seek(topic, queue, seek_start(offset))

    def seek_to_time(self, topic: str, queue: int, timestamp_ms: int) -> None:
        """Read a queue on from the messages at or after a message time."""
        with self._lock:
            self._check()
            self._intake.seek(topic, queue, MessageTime(timestamp_ms))

    def position(self, topic: str, queue: int) -> int | None:
        """Offset of the next message of a queue; None while it is looked up."""
        with self._lock:
            return self._intake.position(topic, queue)

    def pause(self, topic: str, queue: int) -> None:
        """Give nothing of this queue until `resume`."""
        with self._lock:
            self._check()
            self._intake.pause(topic, queue)

    def resume(self, topic: str, queue: int) -> None:
        """Give messages of this queue again."""
        with self._lock:
            self._check()
            self._intake.resume(topic, queue)
        self._event.set()

    @property
    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue) of all that is read."""
        return [(fetch.topic, fetch.queue) for fetch in self._intake.fetches]

    @property
    def corrections(self) -> int:
        """How often a position did not exist and the nearest was taken instead."""
        return sum(fetch.corrections for fetch in self._intake.fetches)

    def close(self) -> None:
        """Read no longer; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        for fetch in self._intake.fetches:
            if self._io.running:
                self._io.submit(CloseFetch(fetch))

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
        self._open_new()
        self._event.clear()
        self._inbox.wanted = True
        if not self._inbox.arrivals:
            self._event.wait(timeout)

    def _open_new(self) -> None:
        """Begin to read queues that the topics have got."""
        fetches = self._subscription.new_fetches(self._io.core.watching.routes, self._inbox)
        for fetch, call in fetches:
            self._intake.add(fetch)
            self._io.submit(call)


def seek_start(offset: int | str) -> Start:
    """What `seek` takes.

    Raises:
        InvalidRequest: something else.
    """
    if offset == "first":
        return "first"
    if offset == "last":
        return "last"
    if type(offset) is int:
        return offset
    raise InvalidRequest(f'seek takes an offset, "first" or "last", not {offset!r}')
