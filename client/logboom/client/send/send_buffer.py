"""The API's side of a producer: messages accumulate until the core takes them.

Threads of the API add, the core takes. Nothing here waits: the skins override two hooks, for an
unknown topic and for a full buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any, Generic, TypeVar

from logboom.client.argument_checks import BytesLike, as_bytes, check_extras, check_size
from logboom.client.calls import CoreCall
from logboom.client.delays import due_time
from logboom.client.producer_options import ProducerOptions
from logboom.client.promise import Promise
from logboom.client.send.message_columns import MessageColumns, parts_of
from logboom.client.send.producer_batch import (
    JOIN_WITHIN_S,
    MAX_BATCH_COUNT,
    OVERHEAD,
    JoinedBatch,
    ProducerBatch,
    QueueAccumulator,
    TopicAccumulator,
)
from logboom.client.send.transaction_batches import TransactionBatches
from logboom.wire.errors import InvalidRequest, LogboomError, Unavailable, UnknownResource
from logboom.wire.hashing import queue_for
from logboom.wire.parking import AT_ONCE

F = TypeVar("F")


class SendBuffer(Generic[F]):
    """The messages of one producer that are not acknowledged yet.

    Args:
        options: the producer's options.
        make_future: makes the result of `send` from the batch and the index in it.
        lock: held for microseconds by each side.
        clock: monotonic seconds.
        ring: called when the core has something new to take.
    """

    def __init__(
        self,
        options: ProducerOptions,
        make_future: Callable[[ProducerBatch, int], F],
        lock: AbstractContextManager[Any],
        clock: Callable[[], float],
        ring: Callable[[], object],
    ) -> None:
        options.validate()
        self.options = options
        self.lock = lock
        self.topics: dict[str, TopicAccumulator] = {}
        """The topics to which messages may be sent; the core fills it, close or a fork empties it.
        """
        self.ready: deque[QueueAccumulator] = deque()
        """Queues with something new; the core empties it."""
        self.added = 0
        """Total bytes added; written under the lock."""
        self.freed = 0
        """Total bytes acknowledged or given up; written by the core alone."""
        self.throttled_ms = 0
        """Milliseconds for which acknowledged batches have waited because of the user's quota;
        written by the core alone."""
        self.room_wanted: list[Callable[[], object]] = []
        """Called once by the core when bytes were freed."""
        self.parks: TransactionBatches | None = None
        """The transaction to which messages belong now."""
        self.alone = False
        """True if each message gets a batch of its own."""
        self.watch: Callable[[ProducerBatch], object] | None = None
        """Called with each batch that is opened, under the lock."""
        self._ended: LogboomError | None = None
        """Why no batch is opened any more; written under the lock."""
        self._make_future = make_future
        self._clock = clock
        self._ring = ring
        self._max_bytes = options.max_batch_bytes
        self._buffer_bytes = options.buffer_bytes

    # Hooks: a skin waits here, the pure buffer refuses.

    def find_topic(self, topic: str) -> TopicAccumulator:
        """Find a topic that is not in `topics`."""
        text = f"topic {topic!r} was not opened for this producer"
        raise UnknownResource(text, "UNKNOWN_TOPIC", topic=topic)

    def find_queue(self, topic_accumulator: TopicAccumulator, queue: int) -> TopicAccumulator:
        """Find a queue that the topic is not known to have; more may have been added."""
        return topic_accumulator

    def wait_for_room(self) -> None:
        """Wait for room, if more than `buffer_bytes` are not acknowledged."""
        text = f"{self._buffer_bytes} bytes wait for acknowledgement: send again later"
        raise Unavailable(text, "BUSY")

    def wall_ms(self) -> int:
        """Return the time from which a delay counts, in ms since 1970."""
        raise InvalidRequest("this producer has no clock: it sends without a delay")

    @property
    def linger_s(self) -> float:
        """Seconds for which a batch waits to fill."""
        linger_s = self.options.linger_ms / 1000
        return linger_s if self.parks is None else max(linger_s, self.parks.linger_s)

    @property
    def full(self) -> bool:
        """True if `send` would have to wait."""
        return self.added - self.freed >= self._buffer_bytes

    def send(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        key: BytesLike | None = None,
        queue: int | None = None,
        **options: Any,
    ) -> F:
        """Add one message to the batch of its queue.

        The queue is the given one, or that of the key's hash, or changes from batch to batch.
        Without `timestamp_ms` the message gets the time at which its batch is encoded.

        Args:
            options: those of `send_with_options`.

        Raises:
            InvalidRequest: a wrong type, or TOO_LARGE with the limit.
            UnknownResource: no such topic or queue.
        """
        # Most messages take this path: bytes for a batch that fills already. Rare options are not
        # spelled out, since each absent one would cost a look-up.
        topic_accumulator = self.topics.get(topic)
        if (
            type(value) is bytes
            and (key is None or type(key) is bytes)
            and not options
            and topic_accumulator is not None
        ):
            size = OVERHEAD + len(value) if key is None else OVERHEAD + len(value) + len(key)
            room = self.added - self.freed < self._buffer_bytes
            if room and size <= topic_accumulator.largest:
                queues = topic_accumulator.queues
                with self.lock:
                    place = queue
                    if place is None:
                        place = topic_accumulator.sticky
                        if key is not None:
                            place = queue_for(key, len(queues))
                    batch = queues[place].open if 0 <= place < len(queues) else None
                    if batch is not None and batch.size + size <= self._max_bytes:
                        values = batch.values
                        index = len(values)
                        values.append(value)
                        if key is not None or not batch.plain:
                            batch.add_extras(index, key, None, None, None)
                        batch.size += size
                        self.added += size
                        return self._make_future(batch, index)
        return self.send_with_options(topic, value, key=key, queue=queue, **options)

    def send_with_options(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        key: BytesLike | None = None,
        tag: str | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp_ms: int | None = None,
        queue: int | None = None,
        delay_s: float | None = None,
        deliver_at: datetime | int | None = None,
    ) -> F:
        """Add one message; see `send`."""
        topic_accumulator = self.topics.get(topic)
        if topic_accumulator is None:
            topic_accumulator = self.find_topic(topic)
        if queue is not None and queue >= len(topic_accumulator.queues):
            topic_accumulator = self.find_queue(topic_accumulator, queue)
        size = OVERHEAD
        if type(value) is bytes:
            size += len(value)
        elif value is not None:
            value = as_bytes(value, "value")
            size += len(value)
        extras = tag is not None or headers is not None or timestamp_ms is not None
        if key is not None:
            key = as_bytes(key, "key") if type(key) is not bytes else key
            size += len(key)
        if extras:
            size += check_extras(tag, headers, timestamp_ms)
        if size > topic_accumulator.largest:
            check_size(topic_accumulator.name, topic_accumulator.largest, size - OVERHEAD)
        delayed = delay_s is not None or deliver_at is not None
        due_ms = due_time(delay_s, deliver_at, self.wall_ms()) if delayed else AT_ONCE
        if self.added - self.freed >= self._buffer_bytes:
            self.wait_for_room()
        fresh = False
        with self.lock:
            if queue is not None:
                accumulator = topic_accumulator.pick(queue)
            elif key is None:
                accumulator = topic_accumulator.queues[topic_accumulator.sticky]
            else:
                accumulator = topic_accumulator.queues[
                    queue_for(key, len(topic_accumulator.queues))
                ]
            batch = accumulator.open
            if delayed or self.alone:
                fresh = True
                batch = self._apart(accumulator, due_ms)
            elif batch is None or batch.size + size > self._max_bytes:
                fresh = True
                batch = self._roll(accumulator, size, keyless=queue is None and key is None)
            index = len(batch.values)
            batch.values.append(value)
            if extras or key is not None or not batch.plain:
                batch.add_extras(index, key, tag, headers, timestamp_ms)
            batch.size += size
            self.added += size
        if fresh:
            self._ring()
        return self._make_future(batch, index)

    def _topic_accumulator(self, topic: str, queue: int | None) -> TopicAccumulator:
        topic_accumulator = self.topics.get(topic) or self.find_topic(topic)
        if queue is not None and queue >= len(topic_accumulator.queues):
            topic_accumulator = self.find_queue(topic_accumulator, queue)
        return topic_accumulator

    def _roll(self, accumulator: QueueAccumulator, size: int, *, keyless: bool) -> ProducerBatch:
        """Return a batch with room for `size` more bytes, and close full ones."""
        while accumulator.open is not None:
            if accumulator.open.size + size <= self._max_bytes:
                return accumulator.open
            self._close(accumulator)
            if keyless:
                accumulator = accumulator.topic.queues[accumulator.topic.sticky]
        accumulator.open = batch = self._open_batch(accumulator, AT_ONCE)
        self.ready.append(accumulator)
        return batch

    def _open_batch(self, accumulator: QueueAccumulator, due_ms: int) -> ProducerBatch:
        self._check_ended()
        batch = ProducerBatch(accumulator.topic.name, accumulator.queue, self._clock())
        batch.due_ms = due_ms
        if self.parks is not None:
            self.parks.admit(batch, accumulator.topic.topic_id)
        if self.watch is not None:
            self.watch(batch)
        return batch

    def _apart(self, accumulator: QueueAccumulator, due_ms: int) -> ProducerBatch:
        """Open a batch for one delayed message, so that recalling it recalls nothing else."""
        batch = self._open_batch(accumulator, due_ms)
        accumulator.closed.append(batch)
        self.ready.append(accumulator)
        accumulator.topic.move_on(accumulator.queue)
        return batch

    def _close(self, accumulator: QueueAccumulator) -> None:
        if accumulator.open is not None:
            accumulator.closed.append(accumulator.open)
            accumulator.open = None
            self.ready.append(accumulator)
            accumulator.topic.move_on(accumulator.queue)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        queue: int | None = None,
        tags: str | Sequence[str | None] | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
        timestamps_ms: int | Sequence[int] | None = None,
        delay_s: float | None = None,
        deliver_at: datetime | int | None = None,
    ) -> list[ProducerBatch]:
        """Add columns to their queues: by `queue`, by `keys`, or from batch to batch.

        Each batch has at most `max_batch_bytes`, in the order of the columns.

        Raises:
            InvalidRequest: columns of unequal length, a wrong type, or TOO_LARGE.
            UnknownResource: no such topic or queue.
        """
        topic_accumulator = self._topic_accumulator(topic, queue)
        columns = MessageColumns(values, keys, tags, headers, timestamps_ms)
        columns.check(topic_accumulator)
        due_ms = AT_ONCE
        if delay_s is not None or deliver_at is not None:
            due_ms = due_time(delay_s, deliver_at, self.wall_ms())
        if self.added - self.freed >= self._buffer_bytes:
            self.wait_for_room()
        batches: list[ProducerBatch] = []
        with self.lock:
            for accumulator, part in parts_of(topic_accumulator, columns, queue):
                batches += self._fill_batches(topic_accumulator, accumulator, part, due_ms)
        self._ring()
        return batches

    def send_batch(
        self, topic: str, queue: int, encoded: bytes, count: int, parks: TransactionBatches | None
    ) -> ProducerBatch:
        """Add an encoded batch of `count` messages; with `parks` it waits for their decision.

        Raises:
            UnknownResource: no such topic or queue.
        """
        topic_accumulator = self._topic_accumulator(topic, queue)
        accumulator = topic_accumulator.pick(queue)
        if self.added - self.freed >= self._buffer_bytes:
            self.wait_for_room()
        batch = ProducerBatch(topic, queue, self._clock())
        batch.encoded, batch.count, batch.size = encoded, count, len(encoded)
        with self.lock:
            self._check_ended()
            if parks is not None:
                parks.admit(batch, topic_accumulator.topic_id)
            self._close(accumulator)
            accumulator.closed.append(batch)
            self.ready.append(accumulator)
            self.added += batch.size
        self._ring()
        return batch

    def _fill_batches(
        self,
        topic: TopicAccumulator,
        accumulator: QueueAccumulator | None,
        part: MessageColumns,
        due_ms: int,
    ) -> list[ProducerBatch]:
        batches = []
        for start, stop, size in self._cuts(part):
            target = topic.queues[topic.sticky] if accumulator is None else accumulator
            # Messages that were sent to this queue before keep their place before these.
            self._close(target)
            batch = self._open_batch(target, due_ms)
            part.fill(batch, start, stop)
            batch.size = size
            self.added += size
            target.closed.append(batch)
            self.ready.append(target)
            if accumulator is None:
                topic.move_on(target.queue)
            batches.append(batch)
        return batches

    def _cuts(self, part: MessageColumns) -> list[tuple[int, int, int]]:
        """Return (start, stop, bytes) of batches within `max_batch_bytes`; one message always fits."""
        count, total = len(part.values), part.total()
        if total <= self._max_bytes and count <= MAX_BATCH_COUNT:
            return [(0, count, total)]
        cuts = []
        ends = list(accumulate(part.sizes(), initial=0))
        start = 0
        for stop in range(1, count + 1):
            over = stop < count and ends[stop + 1] - ends[start] > self._max_bytes
            if over or stop == count or stop - start == MAX_BATCH_COUNT:
                cuts.append((start, stop, ends[stop] - ends[start]))
                start = stop
        return cuts

    def _check_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    # Called by the core.

    def end(self, error: LogboomError) -> None:
        """Open no further batch: a `send` that comes too late raises `error`."""
        with self.lock:
            self._ended = error

    def reshape(
        self, name: str, topic_id: int, count: int, largest: int, sticky: int
    ) -> TopicAccumulator:
        """Update a topic from the metadata: opened, recreated, or with more queues."""
        with self.lock:
            topic_accumulator = self.topics.get(name)
            if topic_accumulator is None or topic_accumulator.topic_id != topic_id:
                topic_accumulator = self.topics[name] = TopicAccumulator(
                    name, topic_id, count, largest, sticky
                )
            topic_accumulator.largest = largest
            while len(topic_accumulator.queues) < count:
                topic_accumulator.queues.append(
                    QueueAccumulator(topic_accumulator, len(topic_accumulator.queues))
                )
            return topic_accumulator

    def take(
        self, accumulator: QueueAccumulator, limit: int, *, filling: bool
    ) -> list[ProducerBatch]:
        """Take up to `limit` batches of a queue, oldest first.

        Small ones that wait are joined into batches of at most `max_batch_bytes`. The batch that
        still fills is taken only if `filling`.
        """
        with self.lock:
            taken: list[ProducerBatch] = []
            while accumulator.closed and len(taken) < limit:
                taken.append(self._take_joined(accumulator.closed))
            if filling and accumulator.open is not None and len(taken) < limit:
                taken.append(accumulator.open)
                accumulator.open = None
                accumulator.topic.move_on(accumulator.queue)
            return taken

    def _take_joined(self, closed: deque[ProducerBatch]) -> ProducerBatch:
        """Take the oldest batch, with those after it that may be sent as one with it."""
        first = closed.popleft()
        if not closed or not first.joinable:
            return first
        parts, size, count = [first], first.size, len(first.values)
        while closed:
            following = closed[0]
            size += following.size
            count += len(following.values)
            late = following.born - first.born > JOIN_WITHIN_S
            if late or size > self._max_bytes or count > MAX_BATCH_COUNT or not following.joinable:
                break
            parts.append(closed.popleft())
        return first if len(parts) == 1 else JoinedBatch(parts)

    def take_all(self) -> list[tuple[QueueAccumulator, list[ProducerBatch]]]:
        """Take all batches, for a flush or a close."""
        with self.lock:
            accumulators = [
                accumulator
                for topic_accumulator in self.topics.values()
                for accumulator in topic_accumulator.queues
            ]
        return [
            (accumulator, self.take(accumulator, 1 << 30, filling=True))
            for accumulator in accumulators
        ]

    def free(self, size: int) -> None:
        """Free bytes that were acknowledged or given up."""
        self.freed += size
        while self.room_wanted:
            self.room_wanted.pop()()


@dataclass(slots=True)
class OpenProducer(CoreCall):
    """Start to send what `buffer` takes; resolved with the producer id."""

    buffer: SendBuffer[Any]
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class OpenTopic(CoreCall):
    """Open a topic for `buffer`; for `queues` see `FindTopic`."""

    buffer: SendBuffer[Any]
    topic: str
    timeout: float
    queues: int = 0
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class Flush(CoreCall):
    """Send everything in `buffer` at once; resolved when all of it is acknowledged or given up."""

    buffer: SendBuffer[Any]
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class CloseProducer(CoreCall):
    """Close a producer; unsent batches fail with `error`, or else with ClientClosed."""

    buffer: SendBuffer[Any]
    outcome: Promise[None] = field(default_factory=Promise)
    error: LogboomError | None = None
