"""Batches of sent messages, by topic and queue: they fill, and are then encoded and sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import repeat
from typing import Any, Final

from logboom.client.delays import Parking
from logboom.client.promise import Promise
from logboom.wire.batch import NO_PRODUCER, encode_batch
from logboom.wire.errors import UnknownResource
from logboom.wire.parking import AT_ONCE
from logboom.wire.session_table import RequestHandle
from logboom.wire.transactions import TransactionId

NOBODY: Final = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)
"""Producer id, epoch and sequence of a batch without a sequence."""
OVERHEAD: Final = 16
"""Bytes counted for a message in addition to its value, key, tag and headers."""
MAX_BATCH_COUNT: Final = 65_536
"""Maximum number of messages in one batch."""
JOIN_WITHIN_S: Final = 1.0
"""Seconds between the oldest and the newest batch that are sent as one. The delivery time-out of
all counts from the oldest."""


class ProducerBatch(Promise[int]):
    """Messages of one batch; its value, once acknowledged, is the offset of the first one."""

    __slots__ = (
        "attached",
        "attempts",
        "born",
        "count",
        "deadline",
        "due_ms",
        "encoded",
        "headers",
        "keys",
        "order",
        "parked",
        "place",
        "plain",
        "queue",
        "size",
        "tags",
        "ticket",
        "time_ms",
        "times",
        "topic",
        "traced",
        "transaction",
        "values",
    )

    def __init__(self, topic: str, queue: int, born: float) -> None:
        super().__init__()
        self.topic = topic
        self.queue = queue
        self.born = born
        """Monotonic seconds; the delivery time-out counts from here."""
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.tags: list[str | None] | str | None = None
        self.headers: list[Mapping[str, bytes] | None] | None = None
        self.times: list[int | None] | int | None = None
        self.time_ms = 0
        """Message time of messages without a time of their own; set when the batch is encoded."""
        self.plain = True
        """True if the messages have only values."""
        self.count = 0
        """Number of messages, once the core has taken the batch."""
        self.size = 0
        """Bytes, counted against the buffer."""
        self.due_ms = AT_ONCE
        """Time of delivery, ms since 1970; -1: at once."""
        self.parked: Parking | None = None
        """Where the batch is parked until then, once acknowledged; its value is -1 then."""
        self.transaction: TransactionId | None = None
        """The transaction whose decision the messages wait for."""
        self.encoded = b""
        """The messages once they are encoded; there are no columns then."""
        self.attached: Any = None
        """Data that a skin keeps with the batch."""
        self.traced: Any = None
        """Data that tracing keeps with the batch."""

    def add_extras(
        self,
        index: int,
        key: bytes | None,
        tag: str | None,
        headers: Mapping[str, bytes] | None,
        time_ms: int | None,
    ) -> None:
        """Append to the columns that exist.

        Columns that message `index` is the first to need are created.
        """
        self.plain = False
        if self.keys is not None:
            self.keys.append(key)
        elif key is not None:
            self.keys = [*repeat(None, index), key]
        if isinstance(self.tags, list):
            self.tags.append(tag)
        elif tag is not None:
            self.tags = [*repeat(None, index), tag]
        if self.headers is not None:
            self.headers.append(headers)
        elif headers is not None:
            self.headers = [*repeat(None, index), headers]
        if isinstance(self.times, list):
            self.times.append(time_ms)
        elif time_ms is not None:
            self.times = [*repeat(None, index), time_ms]

    @property
    def joinable(self) -> bool:
        """True if the batch may be sent as one with others: nothing refers to it as a batch."""
        return self.due_ms == AT_ONCE and self.transaction is None and not self.encoded

    def time_of(self, index: int) -> int:
        """Return the message time of message `index`, once the batch is encoded."""
        time = self.times[index] if isinstance(self.times, list) else self.times
        return self.time_ms if time is None else time

    def enqueue(self, order: int, deadline: float) -> None:
        """Take a place in the order of sends; the core's side of the batch begins here."""
        self.order = order
        self.place = 0
        """Index of the batch in its producer epoch."""
        self.deadline = deadline
        self.attempts = 0
        self.ticket: RequestHandle | None = None
        """The request under way."""

    def encode(self, now_ms: int, codec: str, producer: tuple[int, int, int]) -> None:
        """Encode the batch; messages without a time get `now_ms`.

        The columns are dropped then; the times stay for the results.

        Raises:
            InvalidRequest: a batch cannot hold the messages.
        """
        self.time_ms = now_ms
        times = self.times
        self.count = len(self.values)
        self.encoded = encode_batch(
            self.values,
            self.keys,
            self.tags,
            self.headers,
            [now_ms if time is None else time for time in times]
            if isinstance(times, list)
            else times,
            now_ms=now_ms,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
        )
        self.values = []
        self.keys = self.tags = self.headers = None


class JoinedBatch(ProducerBatch):
    """Batches of several calls that are sent as one; each of them keeps a result of its own."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[ProducerBatch]) -> None:
        first = parts[0]
        super().__init__(first.topic, first.queue, first.born)
        self.parts = parts
        self.size = sum(part.size for part in parts)

    def encode(self, now_ms: int, codec: str, producer: tuple[int, int, int]) -> None:
        """Encode all parts as one batch; see `ProducerBatch.encode`."""
        parts = self.parts
        self.values = [value for part in parts for value in part.values]
        self.keys = _joined(parts, [part.keys for part in parts])
        self.tags = _joined(parts, [part.tags for part in parts])
        self.headers = _joined(parts, [part.headers for part in parts])
        self.times = _joined(parts, [part.times for part in parts])
        super().encode(now_ms, codec, producer)
        for part in parts:
            part.time_ms = now_ms
            part.count = len(part.values)
            part.values = []
            part.keys = part.tags = part.headers = None

    def resolve(self, value: int) -> None:
        """Give each part the offset of its own first message; see `Promise.resolve`."""
        offset = value
        for part in self.parts:
            part.resolve(offset)
            if value >= 0:
                offset += part.count
        super().resolve(value)

    def fail(self, error: Exception) -> None:
        """Fail all parts; see `Promise.fail`."""
        for part in self.parts:
            part.fail(error)
        super().fail(error)


def _joined(parts: list[ProducerBatch], columns: list[Any]) -> Any:
    """Concatenate one column of several batches; it stays a constant if all parts share that."""
    first = columns[0]
    if not isinstance(first, list) and all(column == first for column in columns):
        return first
    joined: list[Any] = []
    for part, column in zip(parts, columns, strict=True):
        joined += column if isinstance(column, list) else repeat(column, len(part.values))
    return joined


def ignored(topic: str, queue: int | None, count: int) -> ProducerBatch:
    """Return a finished batch without an offset, for messages that need not be stored again."""
    batch = ProducerBatch(topic, -1 if queue is None else queue, 0.0)
    batch.count = count
    batch.resolve(-1)
    return batch


class QueueAccumulator:
    """The batches of one queue: full ones, and the one that fills."""

    __slots__ = ("closed", "open", "queue", "topic")

    def __init__(self, topic: TopicAccumulator, queue: int) -> None:
        self.topic = topic
        self.queue = queue
        self.closed: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None


class TopicAccumulator:
    """The queues of one topic, and which of them takes messages without a key now."""

    __slots__ = ("largest", "name", "queues", "sticky", "topic_id")

    def __init__(self, name: str, topic_id: int, count: int, largest: int, sticky: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.largest = largest
        """Maximum size of a message: value, key and headers, in bytes."""
        self.queues = [QueueAccumulator(self, queue) for queue in range(count)]
        self.sticky = sticky % count

    def move_on(self, queue: int) -> None:
        """Send keyless messages to the next queue, because the batch of `queue` is complete."""
        if queue == self.sticky:
            self.sticky = (queue + 1) % len(self.queues)

    def pick(self, queue: int) -> QueueAccumulator:
        """Return a queue by its number.

        Raises:
            UnknownResource: UNKNOWN_QUEUE.
        """
        if not 0 <= queue < len(self.queues):
            text = f"topic {self.name!r} has queues 0 to {len(self.queues) - 1}, not {queue}"
            raise UnknownResource(text, "UNKNOWN_QUEUE", topic=self.name, queue=queue)
        return self.queues[queue]
