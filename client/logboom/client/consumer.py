# Generated from aio/consumer.py by `make generate`: do not edit.
"""The consumer without a group, which reads given queues and commits nothing."""

from __future__ import annotations

from collections.abc import Iterator

from logboom.client.bridge import run
from logboom.client.fetch.fetch_buffer import CloseFetch, FetchBuffer
from logboom.client.fetch.fetch_collector import LOW_SHARE, FetchCollector
from logboom.client.fetch.topic_selection import TopicSelection
from logboom.client.io_thread import IoThread
from logboom.client.positioned_reader import PositionedReader
from logboom.client.reader import LOOK_AGAIN_S
from logboom.client.results import ColumnBatch, Message
from logboom.wire.errors import InvalidRequest


class Consumer(PositionedReader):
    """A consumer without a group; `Client.consumer` creates it. One thread reads at a time."""

    def __init__(
        self,
        io: IoThread,
        subscription: TopicSelection,
        prefetch_bytes: int,
        timeout_s: float,
    ) -> None:
        if prefetch_bytes < LOW_SHARE:
            raise InvalidRequest(
                f"prefetch_bytes must be at least {LOW_SHARE}, not {prefetch_bytes}"
            )
        super().__init__(io, timeout_s)
        self._subscription = subscription
        self._inbox = FetchBuffer(prefetch_bytes, self._event.set, bounded=True)
        self._intake: FetchCollector = FetchCollector(self._inbox, io.submit, subscription.wanted)
        self._intake_lock = self._read_lock

    def _open(self) -> None:
        for call in self._subscription.finds(self._timeout_s, create=self._io.create_topics):
            self._subscription.found(run(self._io, call))
        self._open_new()

    def __iter__(self) -> Iterator[Message]:
        """Iterate over all messages, waiting for new ones, until the consumer is closed."""
        if not self._opened:
            self.open()
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

    @property
    def queues(self) -> list[tuple[str, int]]:
        """The queues that are read, as (topic, queue)."""
        return [(fetch.topic, fetch.queue) for fetch in self._intake.fetches]

    @property
    def corrections(self) -> int:
        """Number of times that a position did not exist and reading went on at the nearest."""
        return sum(fetch.corrections for fetch in self._intake.fetches)

    @property
    def throttled_ms(self) -> int:
        """Milliseconds for which requests of this consumer have waited in all, because its user is
        over a quota. It grows with each answer."""
        return self._inbox.throttled_ms

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        for fetch in self._intake.fetches:
            if self._io.running:
                self._io.submit(CloseFetch(fetch))

    def _take(self, limit: int) -> list[Message]:
        return self._intake.take(limit)

    def _take_columns(self) -> list[ColumnBatch]:
        return self._intake.take_columns()

    def _expect(self) -> bool:
        self._open_new()
        self._inbox.wanted = True
        return bool(self._inbox.arrivals)

    def _open_new(self) -> None:
        """Begin to read queues that the topics have gained."""
        fetches = self._subscription.new_fetches(self._io.core.watching.routes, self._inbox)
        for fetch, call in fetches:
            self._intake.add(fetch)
            self._io.submit(call)
