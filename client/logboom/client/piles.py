"""Where sent messages pile up until the core takes them: the API's side of a producer.

Threads of the API add, the core takes; each pile becomes one batch of one queue. Nothing here
waits: the skins override the two hooks for a topic that is not known yet and for a full buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from logboom.client.outcome import Outcome
from logboom.wire.errors import InvalidRequest, Unavailable, UnknownResource
from logboom.wire.hashing import queue_for, queues_for
from logboom.wire.messages import MAX_BATCH_BYTES, Acks
from logboom.wire.packing import pack_headers, pack_timestamps

if TYPE_CHECKING:
    from logboom.client.sending import QueueSender

F = TypeVar("F")
BytesLike: TypeAlias = bytes | bytearray | memoryview
"""What is taken for a value or a key; all but bytes is copied."""

OVERHEAD: Final = 16
"""Bytes counted for a message beside its value, key, tag and headers."""
BATCH_ROOM: Final = 4096
"""Bytes kept free below the wire's bound for a batch's head and padding."""
MAX_PILE_COUNT: Final = 65_536
"""Messages that one pile takes."""
CODECS: Final = ("none", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How a producer sends; checked by `validate`."""

    acks: Acks = "all"
    linger_ms: float = 0
    compression: str = "none"
    max_batch_bytes: int = 1024 * 1024
    buffer_bytes: int = 64 * 1024 * 1024
    """What may wait for acknowledgement; past it `send` blocks."""
    delivery_timeout_s: float = 120.0
    """How long a message is tried before its future fails."""

    def validate(self) -> None:
        """Raises InvalidRequest for what cannot work."""
        if self.acks not in ("none", "leader", "all"):
            raise InvalidRequest(f'acks is "none", "leader" or "all", not {self.acks!r}')
        if self.compression not in CODECS:
            raise InvalidRequest(f"compression is one of {CODECS}, not {self.compression!r}")
        if not 0 <= self.linger_ms <= 60_000:
            raise InvalidRequest(f"linger_ms is 0 to 60000, not {self.linger_ms}")
        if not 1024 <= self.max_batch_bytes <= MAX_BATCH_BYTES - BATCH_ROOM:
            limit = MAX_BATCH_BYTES - BATCH_ROOM
            raise InvalidRequest(f"max_batch_bytes is 1024 to {limit}, not {self.max_batch_bytes}")
        if self.buffer_bytes < self.max_batch_bytes:
            raise InvalidRequest("buffer_bytes is at least max_batch_bytes")
        if self.delivery_timeout_s <= 0:
            raise InvalidRequest("delivery_timeout_s is more than 0")


class Pile(Outcome[int]):
    """Messages of one batch. Its value, once acknowledged, is the first one's offset."""

    __slots__ = (
        "attached",
        "born",
        "count",
        "headers",
        "keys",
        "plain",
        "queue",
        "size",
        "tags",
        "time_ms",
        "times",
        "topic",
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
        """Message time of messages that were given none: set when the batch is made."""
        self.plain = True
        """Whether there are values only."""
        self.count = 0
        """Messages in it, once the core has taken it."""
        self.size = 0
        """Bytes, counted against the buffer."""
        self.attached: Any = None
        """What a skin keeps with the pile."""

    def add_extras(
        self,
        index: int,
        key: bytes | None,
        tag: str | None,
        headers: Mapping[str, bytes] | None,
        time_ms: int | None,
    ) -> None:
        """Append to the columns that exist, and make those that message `index` is first to
        need."""
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

    def time_of(self, index: int) -> int:
        """Message time of message `index`, once the batch was made."""
        time = self.times[index] if isinstance(self.times, list) else self.times
        return self.time_ms if time is None else time

    def let_go(self) -> None:
        """Drop the columns that the batch now holds; the times stay for the results."""
        self.values = []
        self.keys = self.tags = self.headers = None


class QueueLane:
    """One queue's piles: full ones, and the one that fills."""

    __slots__ = ("closed", "open", "queue", "sender", "topic")

    def __init__(self, topic: TopicLane, queue: int) -> None:
        self.topic = topic
        self.queue = queue
        self.closed: deque[Pile] = deque()
        self.open: Pile | None = None
        self.sender: QueueSender | None = None
        """The core's side."""


class TopicLane:
    """One topic's queues, and which of them takes messages without a key now."""

    __slots__ = ("largest", "name", "queues", "sticky", "topic_id")

    def __init__(self, name: str, topic_id: int, count: int, largest: int, sticky: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.largest = largest
        """Bound of a message: value, key and headers, in bytes."""
        self.queues = [QueueLane(self, queue) for queue in range(count)]
        self.sticky = sticky % count

    def move_on(self, queue: int) -> None:
        """The pile of `queue` went: keyless messages go to the next queue."""
        if queue == self.sticky:
            self.sticky = (queue + 1) % len(self.queues)


class SendBuffer(Generic[F]):
    """What one producer was given and nobody has acknowledged yet.

    Args:
        make_future: what `send` returns, from the pile and the place in it.
        lock: held for some microseconds by each side.
        clock: monotonic seconds.
        ring: called when the core has something new to take.
    """

    def __init__(
        self,
        options: ProducerOptions,
        make_future: Callable[[Pile, int], F],
        lock: AbstractContextManager[Any],
        clock: Callable[[], float],
        ring: Callable[[], object],
    ) -> None:
        options.validate()
        self.options = options
        self.lock = lock
        self.topics: dict[str, TopicLane] = {}
        """The topics that may be sent to; the core fills it, closing or a fork empties it."""
        self.ready: deque[QueueLane] = deque()
        """Queues with something new; the core empties it."""
        self.added = 0
        """Bytes ever taken in; written under the lock."""
        self.freed = 0
        """Bytes ever acknowledged or given up; written by the core alone."""
        self.room_wanted: list[Callable[[], object]] = []
        """Called (and dropped) by the core when bytes were freed."""
        self._make_future = make_future
        self._clock = clock
        self._ring = ring
        self._max_bytes = options.max_batch_bytes
        self._buffer_bytes = options.buffer_bytes

    # The hooks: a skin waits here, the pure buffer refuses.

    def find_topic(self, topic: str) -> TopicLane:
        """Called for a topic that is not in `topics`."""
        text = f"topic {topic!r} was not opened for this producer"
        raise UnknownResource(text, "UNKNOWN_TOPIC", topic=topic)

    def wait_for_room(self) -> None:
        """Called when more than `buffer_bytes` wait; returns when there is room."""
        text = f"{self._buffer_bytes} bytes wait for acknowledgement: send again later"
        raise Unavailable(text, "BUSY")

    @property
    def full(self) -> bool:
        """Whether `send` would have to wait."""
        return self.added - self.freed >= self._buffer_bytes

    def send(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        key: BytesLike | None = None,
        tag: str | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp_ms: int | None = None,
        queue: int | None = None,
    ) -> F:
        """Put one message on its queue's pile.

        The queue is the given one, else that of the key's hash, else one after the other by
        batches. Without `timestamp_ms` the message gets the time at which its batch is made.

        Raises:
            InvalidRequest: a wrong type, or TOO_LARGE with the limit.
            UnknownResource: no such topic or queue.
        """
        lane = self.topics.get(topic)
        if lane is None:
            lane = self.find_topic(topic)
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
        if size > lane.largest:
            check_size(lane, size - OVERHEAD)
        if self.added - self.freed >= self._buffer_bytes:
            self.wait_for_room()
        fresh = False
        with self.lock:
            if queue is not None:
                line = pick_queue(lane, queue)
            elif key is None:
                line = lane.queues[lane.sticky]
            else:
                line = lane.queues[queue_for(key, len(lane.queues))]
            pile = line.open
            if pile is None or pile.size + size > self._max_bytes:
                fresh = True
                pile = self._roll(line, size, keyless=queue is None and key is None)
            index = len(pile.values)
            pile.values.append(value)
            if extras or key is not None or not pile.plain:
                pile.add_extras(index, key, tag, headers, timestamp_ms)
            pile.size += size
            self.added += size
        if fresh:
            self._ring()
        return self._make_future(pile, index)

    def _roll(self, line: QueueLane, size: int, *, keyless: bool) -> Pile:
        """A pile with room for `size` more bytes; full ones on the way are closed."""
        while line.open is not None:
            if line.open.size + size <= self._max_bytes:
                return line.open
            self._close(line)
            if keyless:
                line = line.topic.queues[line.topic.sticky]
        line.open = pile = Pile(line.topic.name, line.queue, self._clock())
        self.ready.append(line)
        return pile

    def _close(self, line: QueueLane) -> None:
        if line.open is not None:
            line.closed.append(line.open)
            line.open = None
            self.ready.append(line)
            line.topic.move_on(line.queue)

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
    ) -> list[Pile]:
        """Put whole columns on their queues: by `queue`, by `keys`, else one after the other.

        Each pile is one batch of at most `max_batch_bytes`, in the order of the columns.

        Raises:
            InvalidRequest: columns of unequal length, a wrong type, or TOO_LARGE.
            UnknownResource: no such topic or queue.
        """
        lane = self.topics.get(topic)
        if lane is None:
            lane = self.find_topic(topic)
        columns = _Columns(values, keys, tags, headers, timestamps_ms)
        columns.check(lane)
        if self.added - self.freed >= self._buffer_bytes:
            self.wait_for_room()
        piles: list[Pile] = []
        with self.lock:
            for line, part in _parts(lane, columns, queue):
                piles += self._pile_up(lane, line, part)
        self._ring()
        return piles

    def _pile_up(self, topic: TopicLane, line: QueueLane | None, part: _Columns) -> list[Pile]:
        piles = []
        for start, stop, size in self._cuts(part):
            lane = topic.queues[topic.sticky] if line is None else line
            # What was sent before on this queue stays before.
            self._close(lane)
            pile = Pile(lane.topic.name, lane.queue, self._clock())
            part.fill(pile, start, stop)
            pile.size = size
            self.added += size
            lane.closed.append(pile)
            self.ready.append(lane)
            if line is None:
                topic.move_on(lane.queue)
            piles.append(pile)
        return piles

    def _cuts(self, part: _Columns) -> list[tuple[int, int, int]]:
        """(start, stop, bytes) of batches within `max_batch_bytes`; one message always fits."""
        count, total = len(part.values), part.total()
        if total <= self._max_bytes and count <= MAX_PILE_COUNT:
            return [(0, count, total)]
        cuts = []
        ends = list(accumulate(part.sizes(), initial=0))
        start = 0
        for stop in range(1, count + 1):
            over = stop < count and ends[stop + 1] - ends[start] > self._max_bytes
            if over or stop == count or stop - start == MAX_PILE_COUNT:
                cuts.append((start, stop, ends[stop] - ends[start]))
                start = stop
        return cuts

    # The core's side.

    def reshape(self, name: str, topic_id: int, count: int, largest: int, sticky: int) -> TopicLane:
        """A topic as the metadata has it now: opened, made anew, or with more queues."""
        with self.lock:
            lane = self.topics.get(name)
            if lane is None or lane.topic_id != topic_id:
                lane = self.topics[name] = TopicLane(name, topic_id, count, largest, sticky)
            lane.largest = largest
            while len(lane.queues) < count:
                lane.queues.append(QueueLane(lane, len(lane.queues)))
            return lane

    def take(self, line: QueueLane, limit: int, *, filling: bool) -> list[Pile]:
        """Up to `limit` piles of a queue, oldest first; the one that fills only if asked."""
        with self.lock:
            taken = [line.closed.popleft() for _ in range(min(limit, len(line.closed)))]
            if filling and line.open is not None and len(taken) < limit:
                taken.append(line.open)
                line.open = None
                line.topic.move_on(line.queue)
            return taken

    def take_all(self) -> list[tuple[QueueLane, list[Pile]]]:
        """Every pile, for a flush or an end."""
        with self.lock:
            lines = [line for lane in self.topics.values() for line in lane.queues]
        return [(line, self.take(line, 1 << 30, filling=True)) for line in lines]

    def free(self, size: int) -> None:
        """Bytes were acknowledged or given up."""
        self.freed += size
        while self.room_wanted:
            self.room_wanted.pop()()


class _Columns:
    """The columns of one `send_many`, checked, and parts of them."""

    __slots__ = ("headers", "keys", "lengths", "tags", "times", "values")

    def __init__(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        tags: str | Sequence[str | None] | None,
        headers: Sequence[Mapping[str, bytes] | None] | None,
        times: int | Sequence[int] | None,
    ) -> None:
        self.values = values
        self.keys = keys
        self.tags = tags
        self.headers = headers
        self.times = times
        self.lengths: list[int] | None = None
        """Bytes of each message; None: not counted yet."""

    def check(self, lane: TopicLane) -> None:
        """Refuse what no batch could hold."""
        count = len(self.values)
        if count == 0:
            raise InvalidRequest("send_many needs at least one value")
        lengths = _lengths(self.values, "values")
        if self.keys is not None:
            _same_length(self.keys, count, "keys")
            lengths = list(map(add, lengths, _lengths(self.keys, "keys")))
        if self.headers is not None:
            _same_length(self.headers, count, "headers")
            lengths = list(map(add, lengths, map(_headers_size, self.headers)))
        self._check_tags(count)
        if isinstance(self.times, int):
            check_extras(None, None, self.times)
        elif self.times is not None:
            _same_length(self.times, count, "timestamps_ms")
            pack_timestamps(self.times)
        self.lengths = lengths
        # Counting equal lengths is faster than looking for the greatest.
        largest = lengths[0] if lengths.count(lengths[0]) == count else max(lengths)
        if largest + OVERHEAD > lane.largest:
            check_size(lane, largest)

    def _check_tags(self, count: int) -> None:
        if isinstance(self.tags, str):
            check_extras(self.tags, None, None)
        elif self.tags is not None:
            _same_length(self.tags, count, "tags")
            for tag in set(self.tags):
                check_extras(tag, None, None)

    def sizes(self) -> list[int]:
        """Bytes that each message counts for."""
        lengths = self.lengths or []
        return [length + OVERHEAD for length in lengths]

    def total(self) -> int:
        """Bytes that all of them count for."""
        return sum(self.lengths or ()) + OVERHEAD * len(self.values)

    def pick(self, rows: list[int]) -> _Columns:
        """Only these rows."""
        first = rows[0]
        getter = itemgetter(*rows, first)  # two at least, so that it gives a tuple

        def picked(column: Any) -> Any:
            if column is None or isinstance(column, (str, int)):
                return column
            return getter(column)[:-1]

        columns = (self.values, self.keys, self.tags, self.headers, self.times)
        part = _Columns(*map(picked, columns))
        part.lengths = picked(self.lengths)
        return part

    def fill(self, pile: Pile, start: int, stop: int) -> None:
        """Copy rows into a pile: the caller may change its lists once `send_many` returns."""
        pile.values = list(self.values[start:stop])
        pile.keys = None if self.keys is None else list(self.keys[start:stop])
        if isinstance(self.tags, str):
            pile.tags = self.tags
        elif self.tags is not None:
            pile.tags = list(self.tags[start:stop])
        pile.headers = None if self.headers is None else list(self.headers[start:stop])
        if isinstance(self.times, int):
            pile.times = self.times
        elif self.times is not None:
            pile.times = list(self.times[start:stop])
        pile.plain = False


def _parts(
    lane: TopicLane, columns: _Columns, queue: int | None
) -> list[tuple[QueueLane | None, _Columns]]:
    """(queue, rows); the queue None for rows without a key, which go batch by batch."""
    if queue is not None:
        return [(pick_queue(lane, queue), columns)]
    count, keys = len(lane.queues), columns.keys
    if keys is None:
        return [(None, columns)]
    if count == 1:
        return [(lane.queues[0], columns)]
    rows: list[list[int]] = [[] for _ in range(count + 1)]
    if None in keys:
        places = [count if key is None else queue_for(key, count) for key in keys]
    else:
        places = queues_for(keys, count)  # type: ignore[arg-type]  # no None among them
    for row, place in enumerate(places):
        rows[place].append(row)
    lines: list[QueueLane | None] = [*lane.queues, None]
    return [
        (line, columns.pick(picked)) for line, picked in zip(lines, rows, strict=True) if picked
    ]


def _lengths(column: Sequence[bytes | None], field: str) -> list[int]:
    kinds = set(map(type, column))
    if kinds == {bytes}:
        return list(map(len, column))  # type: ignore[arg-type]  # all are bytes
    if not kinds <= {bytes, type(None)}:
        wrong = next(kind.__name__ for kind in kinds if kind not in (bytes, type(None)))
        raise InvalidRequest(f"{field} are bytes or None, not {wrong}: encode them first")
    return [0 if item is None else len(item) for item in column]


def _headers_size(headers: Mapping[str, bytes] | None) -> int:
    return 0 if headers is None else check_extras(None, headers, None)


def _same_length(column: Sequence[object], count: int, field: str) -> None:
    if len(column) != count:
        raise InvalidRequest(f"{len(column)} {field} for {count} values: give one per message")


def as_bytes(given: object, field: str) -> bytes:
    """Bytes of another bytes-like object.

    Raises:
        InvalidRequest: it is none.
    """
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    kind = type(given).__name__
    hint = ": encode it, e.g. text.encode()" if isinstance(given, str) else ""
    raise InvalidRequest(f"a {field} is bytes, not {kind}{hint}")


def check_extras(
    tag: str | None, headers: Mapping[str, bytes] | None, timestamp_ms: int | None
) -> int:
    """Bytes of tag and headers; refuses what a batch cannot hold (one bad message must not
    spoil the batch that others share)."""
    size = 0
    if tag is not None:
        if not isinstance(tag, str):
            raise InvalidRequest(f"a tag is text, not {type(tag).__name__}")
        try:
            size += len(tag.encode())
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"a tag is text that UTF-8 can hold: {error}") from error
    if headers is not None:
        size += sum(map(len, pack_headers([headers]).parts))
    if timestamp_ms is not None and (
        type(timestamp_ms) is not int or not -(1 << 63) <= timestamp_ms < 1 << 63
    ):
        raise InvalidRequest(f"timestamp_ms is whole milliseconds of 64 bits: {timestamp_ms!r}")
    return size


def check_size(lane: TopicLane, size: int) -> None:
    """Raises InvalidRequest TOO_LARGE for a message past the topic's bound."""
    if size > lane.largest:
        text = (
            f"message of {size} bytes; topic {lane.name!r} takes at most {lane.largest} "
            "(value, key and headers): raise its max_message_bytes, or split the message"
        )
        raise InvalidRequest(text, "TOO_LARGE", limit=lane.largest)


def pick_queue(lane: TopicLane, queue: int) -> QueueLane:
    """The lane of a queue given by its number.

    Raises:
        UnknownResource: UNKNOWN_QUEUE.
    """
    if not 0 <= queue < len(lane.queues):
        text = f"topic {lane.name!r} has queues 0 to {len(lane.queues) - 1}, not {queue}"
        raise UnknownResource(text, "UNKNOWN_QUEUE", topic=lane.name, queue=queue)
    return lane.queues[queue]
