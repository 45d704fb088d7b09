"""The assigned consumer for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from logboom.client.aio.bridge import call_in, run
from logboom.client.calls import MessageTime, Start
from logboom.client.consumer import LOOK_AGAIN_S, seek_start
from logboom.client.fetch.fetch_buffer import CloseFetch, FetchBuffer
from logboom.client.fetch.fetch_collector import LOW_SHARE, FetchCollector
from logboom.client.fetch.topic_selection import TopicSelection
from logboom.client.io_thread import IoThread
from logboom.client.results import ColumnBatch, Message
from logboom.wire.errors import ClientClosed, InvalidRequest
from logboom.wire.filters.filter import Filter


class Consumer:
    """Reads queues; made by `Client.consumer`, for one event loop. One task reads at a time."""

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
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._inbox = FetchBuffer(prefetch_bytes, lambda: call_in(self._loop, self._event.set))
        self._intake = FetchCollector(self._inbox, io.submit, wanted)
        self._subscription = TopicSelection(
            topics, queues, start, wanted, uncommitted=uncommitted, compacted=compacted
        )
        self._timeout_s = timeout_s
        self._create_topics = create_topics
        self._opened = False
        self._closed = False

    async def open(self) -> None:
        """Find the topics and begin to read; `async with` and the first read do it too."""
        if self._opened:
            return
        self._check()
        for call in self._subscription.finds(self._timeout_s, create=self._create_topics):
            self._subscription.found(await run(self._io, call))
        self._opened = True
        self._open_new()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Every message, waiting for the next when there is none; ends when closed."""
        await self.open()
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
                    await self._wait(LOOK_AGAIN_S)

    async def poll(self, max_messages: int = 1_000, timeout_s: float = 1.0) -> list[Message]:
        """Up to `max_messages` messages: what is here, else the first to come in `timeout_s`."""
        if max_messages < 1:
            raise InvalidRequest(f"max_messages is 1 or more, not {max_messages}")
        await self.open()
        deadline = self._loop.time() + timeout_s
        while True:
            self._check()
            taken = self._intake.take(max_messages)
            left = deadline - self._loop.time()
            if taken or left <= 0:
                return taken
            await self._wait(min(left, LOOK_AGAIN_S))

    async def poll_columns(self, timeout_s: float = 1.0) -> list[ColumnBatch]:
        """The batches that are here, as columns, else the first to come in `timeout_s`."""
        await self.open()
        deadline = self._loop.time() + timeout_s
        while True:
            self._check()
            batches = self._intake.take_columns()
            left = deadline - self._loop.time()
            if batches or left <= 0:
                return batches
            await self._wait(min(left, LOOK_AGAIN_S))

    async def seek(self, topic: str, queue: int, offset: int | str) -> None:
        """Read a queue on from `offset`, or from its "first" or "last"."""
        await self.open()
        self._check()
        self._intake.seek(topic, queue, seek_start(offset))

    async def seek_to_time(self, topic: str, queue: int, timestamp_ms: int) -> None:
        """Read a queue on from the messages at or after a message time."""
        await self.open()
        self._check()
        self._intake.seek(topic, queue, MessageTime(timestamp_ms))

    def position(self, topic: str, queue: int) -> int | None:
        """Offset of the next message of a queue; None while it is looked up."""
        return self._intake.position(topic, queue)

    async def pause(self, topic: str, queue: int) -> None:
        """Give nothing of this queue until `resume`."""
        await self.open()
        self._check()
        self._intake.pause(topic, queue)

    async def resume(self, topic: str, queue: int) -> None:
        """Give messages of this queue again."""
        await self.open()
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

    async def close(self) -> None:
        """Read no longer; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        for fetch in self._intake.fetches:
            if self._io.running:
                self._io.submit(CloseFetch(fetch))

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
        self._open_new()
        self._event.clear()
        self._inbox.wanted = True
        if not self._inbox.arrivals:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()

    def _open_new(self) -> None:
        """Begin to read queues that the topics have got."""
        fetches = self._subscription.new_fetches(self._io.core.watching.routes, self._inbox)
        for fetch, call in fetches:
            self._intake.add(fetch)
            self._io.submit(call)
