"""The reader's side of a consumer, which turns fetched batches into messages.

Only the API uses a collector, one thread at a time; the core fills the buffer at the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, islice
from operator import length_hint
from typing import Final

from logboom.client.calls import CoreCall, MessageTime, Start
from logboom.client.fetch.fetch_buffer import (
    CompletedFetch,
    FetchBuffer,
    QueueFetch,
    SeekFetch,
    WakeBuffer,
    WakeFetch,
)
from logboom.client.fetch.message_filter import match_messages, matcher_of, surviving_slices
from logboom.client.producer_options import start_of
from logboom.client.results import ColumnBatch, Message, messages_of
from logboom.wire.columns import Columns
from logboom.wire.errors import InvalidRequest, UnknownResource
from logboom.wire.filters import Filter

LOW_SHARE: Final = 256 * 1024
"""Minimum share of the prefetch limit that one queue gets, in bytes."""

TopicQueue = tuple[str, int]
"""(topic, queue)."""


class FetchCollector:
    """Messages that have arrived and were not handed to the application yet."""

    def __init__(
        self,
        inbox: FetchBuffer,
        call: Callable[[CoreCall], None],
        wanted: Filter | None = None,
    ) -> None:
        """Create a collector; `wanted` None: every message."""
        self._inbox = inbox
        self._call = call
        self._matcher = None if wanted is None else matcher_of(wanted)
        self._fetches: dict[TopicQueue, QueueFetch] = {}
        self._aside: dict[TopicQueue, deque[CompletedFetch]] = {}
        """Arrivals of paused queues."""
        self._arrival: CompletedFetch | None = None
        """The batch that is being handed out."""
        self._batch: Sequence[Message] = ()
        self._messages: Iterator[Message] = iter(())
        """The rest of it, as an iterator over `_batch`."""
        self.version = 0
        """Grows when the current batch becomes void, by a seek or a pause."""

    def add(self, fetch: QueueFetch) -> None:
        """Add a queue to read."""
        self._fetches[fetch.topic, fetch.queue] = fetch

    @property
    def fetches(self) -> list[QueueFetch]:
        """All queues that are read."""
        return list(self._fetches.values())

    def fetch(self, topic: str, queue: int) -> QueueFetch:
        """Return the fetch of a queue.

        Raises:
            UnknownResource: this consumer does not read it.
        """
        found = self._fetches.get((topic, queue))
        if found is None:
            text = f"this consumer does not read queue {queue} of topic {topic!r}"
            raise UnknownResource(text, "UNKNOWN_QUEUE", topic=topic, queue=queue)
        return found

    # Handing out.

    def take(self, limit: int) -> list[Message]:
        """Return up to `limit` messages without waiting; raise the error of a queue."""
        taken: list[Message] = []
        while True:
            taken.extend(islice(self._messages, limit - len(taken)))
            # If there are messages to return now, an error waits for the next call.
            if len(taken) == limit or not self.advance(calm=bool(taken)):
                break
        return taken

    def rest(self) -> Iterator[Message]:
        """Return the iterator over the current batch.

        It is shared, so that no message is handed out twice.
        """
        return self._messages

    def take_columns(self) -> list[ColumnBatch]:
        """Return everything that has arrived, as columns.

        Batches are whole: a filter only leaves out batches without a match. Of compacted batches
        the surviving messages are returned, in pieces.
        """
        batches = []
        offset = self._next_offset()
        if offset is not None and self._arrival is not None and self._arrival.columns is not None:
            columns, fetch = self._arrival.columns, self._arrival.fetch
            rest = surviving_slices(columns.from_offset(offset), self._arrival.survivors)
            batches += [ColumnBatch(fetch.topic, fetch.queue, each) for each in rest]
            self._finish()
        while (arrival := self._next(calm=bool(batches))) is not None:
            self._use(arrival)
            fetch, found = arrival.fetch, arrival.columns
            if found is not None and self._holds_match(found, arrival):
                alive = surviving_slices(found, arrival.survivors)
                batches += [ColumnBatch(fetch.topic, fetch.queue, each) for each in alive]
        return batches

    def advance(self, *, calm: bool = False) -> bool:
        """Open the next batch; return False if there is none.

        With `calm` an error stays for later.
        """
        self._finish()
        arrival = self._next(calm=calm)
        if arrival is None or arrival.columns is None:
            return False
        self._arrival = arrival
        self._use(arrival)
        fetch, columns = arrival.fetch, arrival.columns
        picked = match_messages(self._matcher, columns, arrival.matches, arrival.survivors)
        if picked is None:
            self._batch = messages_of(fetch.topic, fetch.queue, columns)
        elif 1 in picked:
            messages = messages_of(fetch.topic, fetch.queue, columns)
            self._batch = list(compress(messages, picked))
        self._messages = iter(self._batch)
        return True

    def _next(self, *, calm: bool) -> CompletedFetch | None:
        """Take the next valid arrival; raise its error."""
        arrivals = self._inbox.arrivals
        while arrivals:
            arrival = arrivals[0]
            fetch = arrival.fetch
            if arrival.generation != fetch.generation:
                arrivals.popleft()
            elif fetch.paused:
                aside = self._aside.setdefault((fetch.topic, fetch.queue), deque())
                aside.append(arrivals.popleft())
            elif arrival.passed >= 0:
                arrivals.popleft()
                fetch.reader_offset = arrival.passed
            elif arrival.error is None:
                return arrivals.popleft()
            elif calm:
                return None
            else:
                arrivals.popleft()
                raise arrival.error
        if self._inbox.wants_wake():
            self._call(WakeBuffer(self._inbox))
        return None

    def _use(self, arrival: CompletedFetch) -> None:
        """Take a batch out of the buffer, so that its bytes make room."""
        fetch = arrival.fetch
        fetch.gave(arrival.size)
        if arrival.columns is not None:
            fetch.reader_offset = arrival.columns.next_offset
        if fetch.stalled and fetch.fetched - fetch.consumed <= fetch.share_bytes // 2:
            fetch.stalled = False
            self._call(WakeFetch(fetch))
        if self._inbox.wants_wake():
            self._call(WakeBuffer(self._inbox))

    def _holds_match(self, columns: Columns, arrival: CompletedFetch) -> bool:
        picked = match_messages(self._matcher, columns, arrival.matches, arrival.survivors)
        return picked is None or 1 in picked

    def _finish(self) -> None:
        self._arrival = None
        self._batch = ()
        self._messages = iter(())

    def _next_offset(self) -> int | None:
        """Offset of the next message of the current batch."""
        left = length_hint(self._messages)
        return self._batch[-left].offset if left else None

    # Positions.

    def position(self, topic: str, queue: int) -> int | None:
        """Return the offset of the next message for the application; None if not known yet."""
        fetch = self.fetch(topic, queue)
        if self._arrival is not None and self._arrival.fetch is fetch:
            offset = self._next_offset()
            if offset is not None:
                return offset
        return fetch.reader_offset

    def seek(self, topic: str, queue: int, start: Start) -> None:
        """Continue reading at another position; what was fetched from the old one is void."""
        fetch = self.fetch(topic, queue)
        if isinstance(start, int) and start < 0:
            raise InvalidRequest(f"an offset must be 0 or more, not {start}")
        fetch.generation += 1
        fetch.reader_offset = start if type(start) is int else None
        self._aside.pop((topic, queue), None)
        self._drop_if(fetch)
        self._call(SeekFetch(fetch, start, fetch.generation))

    def pause(self, topic: str, queue: int) -> None:
        """Hand out nothing of a queue until `resume`; fetched messages are kept."""
        fetch = self.fetch(topic, queue)
        fetch.paused = True
        if self._arrival is not None and self._arrival.fetch is fetch:
            columns, offset = self._arrival.columns, self._next_offset()
            if offset is not None and columns is not None:
                rest = CompletedFetch(fetch, fetch.generation, columns.from_offset(offset), 0)
                rest.matches = self._arrival.matches
                rest.survivors = self._arrival.survivors
                self._aside.setdefault((topic, queue), deque()).append(rest)
                fetch.reader_offset = offset
            self._drop_if(fetch)

    def resume(self, topic: str, queue: int) -> None:
        """Hand out the messages of a queue again."""
        fetch = self.fetch(topic, queue)
        fetch.paused = False
        aside = self._aside.pop((topic, queue), None)
        if aside:
            # Waiting arrivals come before those of this queue that arrived later.
            self._inbox.arrivals.extendleft(reversed(aside))
        fetch.stalled = False
        self._call(WakeFetch(fetch))

    def _drop_if(self, fetch: QueueFetch) -> None:
        if self._arrival is not None and self._arrival.fetch is fetch:
            self._finish()
            self.version += 1


def check_start(start: object) -> Start:
    """Convert a start position.

    Raises:
        InvalidRequest: it is none of those that `logboom.client.producer_options.Begin` lists.
    """
    found = start_of(start)
    return MessageTime(found) if isinstance(found, int) else found


def seek_start(offset: int | str) -> Start:
    """Check what `seek` is given.

    Raises:
        InvalidRequest: it is neither an offset nor the name of an end.
    """
    if offset == "first":
        return "first"
    if offset == "last":
        return "last"
    if type(offset) is int:
        return offset
    raise InvalidRequest(f'seek takes an offset, "first" or "last", not {offset!r}')
