"""`spark.readStream.format("logboom")`: micro-batches of new messages.

Spark keeps one reader per query, in a process of its own, and asks it in turn for the latest
offsets of the cluster and for the partitions between two offsets. A second reader, elsewhere, is
created only to be pickled for the tasks, so connections are made only when they are needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logboom.client import Client
from logboom.client.lookout import Lookout
from logboom.pipeline.clients import again, client
from logboom.pipeline.cluster_offsets import Bounds, QueueBounds, moves
from logboom.pipeline.commit_target import marked
from logboom.pipeline.data_loss import DataLossPolicy
from logboom.pipeline.offset_ranges import OffsetRange, limited, limited_bytes, ranges, shares
from logboom.pipeline.partition_reader import read
from logboom.pipeline.queue_offsets import Offsets, TopicQueue, from_json, to_json
from logboom.pipeline.record_batches import Field
from logboom.pipeline.source_options import SourceOptions
from logboom.wire.columns import Columns
from logboom.wire.errors import LogboomError

T = TypeVar("T")

NEWS_S: Final = 2.0
"""How long to wait for news of an unknown queue: nodes answer WATCH every second."""
WAIT_S: Final = 0.5
"""How long to wait for new messages: Spark asks again at once, up to a hundred times per
second."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream read, planned in micro-batches on the driver and executed in tasks."""

    def __init__(self, options: SourceOptions, fields: Sequence[Field]) -> None:
        self.options = options
        self.fields = fields
        self._losses = DataLossPolicy(fail=options.fail_on_data_loss)
        self._initial: Offsets | None = None
        """Where a new query begins; None: its checkpoint has recorded that."""
        self._moves = False
        """True if another look at the cluster may give another start."""
        self._begun = 0
        """How many micro-batches Spark has begun. It does not ask for the end of one that it repeats,
        so that one is counted when it is planned."""
        self._target: Offsets | None = None
        """The end offsets of Trigger.AvailableNow."""
        self._seen: Bounds = {}
        """The result of the last look."""
        self._taken_at = time.monotonic()
        """The time of the last micro-batch."""
        self._lookout: tuple[Client, Lookout] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name for it
        """Return where a new query begins.

        Spark asks several times before the first micro-batch is recorded, and the answer has to be
        the same each time. It does not record the answer: a query that died in its first micro-batch
        asks anew.
        """
        if self._initial is None:
            bounds, self._initial = self._again(self._find_start)
            self._moves = moves(self.options.starting, self._initial, bounds)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name for it
        """Return the options, as far as Spark has read limits for them."""
        if self.options.max_offsets:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.max_bytes:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name for it
        """Prepare to read everything that exists now, and nothing after it."""
        # It is not known yet whether this is a new query, whose topics have to exist.
        self._target = _ends(self._again(self._look_now))

    def latestOffset(  # noqa: N802 - Spark's name for it
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return where the next micro-batch ends, or `start` if nothing new arrives for a while.

        The first micro-batch of a query whose start moves is empty: its end is the first offset that
        Spark records, and the start of whatever follows.
        """
        begin = from_json(start, "the checkpoint") if start is not None else {}
        self._begun += 1
        ends = self._look(begin)
        if self._is_first:
            begin = {place: min(at, ends[place]) for place, at in begin.items() if place in ends}
            if self._moves:
                return to_json(begin)
        if ends == begin and self._target is None and self._wait(begin, WAIT_S):
            ends = self._look(begin)
        if self._is_too_little(begin, ends):
            self._wait(_ends(self._seen), WAIT_S)
            return to_json(begin)
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(begin, ends)
        if ends != begin:
            self._taken_at = time.monotonic()
        return to_json(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name for it
        """Return the latest offsets of the cluster at the last look, for the query's progress."""
        return marked(to_json(_ends(self._seen)), self.options)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """Return the partitions of a micro-batch."""
        begin, stop = (from_json(each, "the checkpoint") for each in (start, end))
        if self._is_first:
            # Spark asks for the start anew if it repeats the first micro-batch, and it may be after
            # the end that was recorded. Nothing is read before a start.
            begin = {place: min(at, stop[place]) for place, at in begin.items() if place in stop}
            self._begun = 1
            if self._moves:
                return []
        if begin == stop:
            return []
        begin, stop = self._losses.within(begin, stop, self._bounds({**begin, **stop}))
        parts = ranges(begin, stop, self.options.min_partitions, self.options.max_records)
        return [InputPartition(part) for part in parts]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        wanted: OffsetRange | None = partition.value
        return read(self.options, self.fields, wanted)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lookout": None}

    # Current offsets.

    @property
    def _is_first(self) -> bool:
        """True in the first micro-batch of a query, also if it is repeated."""
        return self._initial is not None and self._begun < 2

    def _client(self) -> Client:
        return client(self.options.servers, self.options.timeout_s)

    def _again(self, work: Callable[[Client], T]) -> T:
        return again(self.options.servers, self.options.timeout_s, work)

    def _find_start(self, boom: Client) -> tuple[Bounds, Offsets]:
        cluster = QueueBounds(boom, self.options)
        bounds = cluster.bounds()
        return bounds, cluster.start(bounds)

    def _look_now(self, boom: Client) -> Bounds:
        return QueueBounds(boom, self.options).bounds(lossy=not self.options.fail_on_data_loss)

    def _bounds(self, known: Offsets) -> Bounds:
        """Return what the queues hold, including all known queues that still exist.

        The client may learn of a queue later than the writer of the checkpoint.
        """
        deadline = time.monotonic() + NEWS_S
        while True:
            bounds = self._again(self._look_now)
            if known.keys() <= bounds.keys() or time.monotonic() >= deadline:
                return bounds
            # The client learns of topics automatically, but does not notify this loop.
            time.sleep(0.05)

    def _look(self, begin: Offsets) -> Offsets:
        """Return where queues end now, never before `begin`."""
        self._seen = self._bounds(begin)
        ends = _ends(self._seen)
        for place in sorted(begin.keys() - ends.keys()):
            self._losses.found(place, "is gone, and so are its messages")
        target = self._target
        if target is not None:
            # Queues of the checkpoint existed when the query began, even if the client has
            # only learned of them since. Later messages and queues belong to the next run.
            for place in begin.keys() & ends.keys():
                target.setdefault(place, ends[place])
            ends = {
                place: min(end, target[place]) for place, end in ends.items() if place in target
            }
        for place, end in ends.items():
            if end < begin.get(place, end):
                if target is not None and begin[place] <= self._seen[place][1]:
                    ends[place] = begin[place]  # read further before, with another trigger
                else:
                    self._losses.too_short(place, end, begin[place], named=self._is_first)
        return ends

    def _wait(self, ends: Offsets, timeout_s: float) -> bool:
        boom = self._client()
        if self._lookout is None or self._lookout[0] is not boom:
            self._lookout = (boom, boom.lookout())
        return self._lookout[1].wait(ends, timeout_s)

    # Limits.

    def _is_too_little(self, begin: Offsets, ends: Offsets) -> bool:
        """Return True if a micro-batch waits for more (`minOffsetsPerTrigger`)."""
        options = self.options
        if not options.min_offsets or self._target is not None or ends == begin:
            return False
        waited_ms = (time.monotonic() - self._taken_at) * 1000
        backlog = sum(end - begin.get(place, 0) for place, end in ends.items())
        return backlog < options.min_offsets and waited_ms < options.max_trigger_delay_ms

    def _limited(self, begin: Offsets, ends: Offsets) -> Offsets:
        options = self.options
        if not (options.max_offsets or options.max_bytes):
            return ends
        there = {place: self._first_read(begin, place, end) for place, end in ends.items()}
        if options.max_offsets:
            ends = limited(there, ends, options.max_offsets)
        if options.max_bytes:
            ends = self._within_bytes(there, ends, options.max_bytes)
        return ends

    def _first_read(self, begin: Offsets, place: TopicQueue, end: int) -> int:
        """Return the first offset that can be read.

        Messages that no longer exist do not enlarge a micro-batch.
        """
        first = self._seen[place][0]
        at = begin.get(place, first)
        return first if at > end else max(at, first)

    def _within_bytes(self, begin: Offsets, ends: Offsets, most: int) -> Offsets:
        """Return where to stop so that at most about `most` bytes are read.

        The brokers know how far some bytes go. Where they do not, because it is a part that only
        compaction keeps or they run an older release, it is guessed from the first batch.
        """
        waiting = {place: at for place, at in begin.items() if ends[place] > at}
        far = self._ahead(waiting, dict.fromkeys(waiting, most))
        unknown = {place: at for place, at in waiting.items() if place not in far}
        guessed = self._sizes(unknown, ends)
        sizes = {
            place: guessed.get(place, 0.0) * (ends[place] - at) for place, at in unknown.items()
        }
        for place, (offset, size) in far.items():
            at = begin[place]
            sizes[place] = size * min(1.0, (ends[place] - at) / max(1, offset - at))
        if sum(sizes.values()) > most:
            share = shares(sizes, most)
            far = self._ahead({place: begin[place] for place in far}, share)
            for place, at in unknown.items():
                only = {place: ends[place]}
                ends |= limited_bytes({place: at}, only, share.get(place, most), guessed)
        return {
            place: min(end, far[place][0]) if place in far else end for place, end in ends.items()
        }

    def _ahead(
        self, begin: Offsets, most: Mapping[TopicQueue, int]
    ) -> dict[TopicQueue, tuple[int, int]]:
        """Ask how far some bytes go from these offsets, and how many they are, where it is known."""
        found: dict[TopicQueue, tuple[int, int]] = {}
        for topic in dict.fromkeys(topic for topic, _ in begin):
            begins = {queue: at for (of, queue), at in begin.items() if of == topic}
            room = {queue: most.get((topic, queue), 1) for queue in begins}
            told = self._again(partial(_offsets_ahead, topic, begins, room))
            found |= {(topic, queue): pair for queue, pair in told.items()}
        return found

    def _sizes(self, begin: Offsets, ends: Offsets) -> dict[TopicQueue, float]:
        """Return the message sizes of queues with a backlog, from the first batch of it."""
        sizes = {}
        for place, at in begin.items():
            if ends[place] > at:
                found = self._again(partial(_first_batch, place, at))
                if found:
                    sizes[place] = found[0].head.length / found[0].head.count
        return sizes


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream whose options or columns are invalid: whatever Spark asks, it raises that error."""

    def __init__(self, error: LogboomError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name for it
        """Raise the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name for it
        """Raise the error."""
        raise self._error

    def latestOffset(  # noqa: N802 - Spark's name for it
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Raise the error."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """Raise the error."""
        raise self._error

    def read(self, partition: Any) -> Iterator[Any]:
        """Raise the error."""
        raise self._error


def _offsets_ahead(
    topic: str, begins: dict[int, int], room: dict[int, int], boom: Client
) -> dict[int, tuple[int, int]]:
    return boom.admin.offsets_ahead(topic, begins, room)


def _first_batch(place: TopicQueue, at: int, boom: Client) -> list[Columns]:
    return boom.pull(*place, at, max_messages=1, read_compacted=True).columns()


def _ends(bounds: Bounds) -> Offsets:
    return {place: end for place, (_, end) in bounds.items()}
