"""Queues of a read and their offsets, as the cluster reports them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from logboom.client import Client
from logboom.pipeline.queue_offsets import EARLIEST, LATEST, Offsets, TopicQueue, describe
from logboom.pipeline.source_options import OffsetBound, SourceOptions
from logboom.wire.errors import InvalidRequest, UnknownResource

Bounds = dict[TopicQueue, tuple[int, int]]
"""(first offset, high watermark) by queue."""


class QueueBounds:
    """The queues of one read. Nothing is requested before it is needed."""

    def __init__(self, boom: Client, options: SourceOptions) -> None:
        self._boom = boom
        self._options = options

    def bounds(self, *, lossy: bool = False) -> Bounds:
        """Return the current first offset and end of all queues that the options name.

        A compacted topic begins at 0, because what compaction keeps can be read even where
        retention has removed the log.

        Args:
            lossy: leave out topics and queues that do not exist.

        Raises:
            UnknownResource: a topic or queue that was named does not exist.
        """
        options = self._options
        found: Bounds = {}
        for topic in self._topics():
            queues = options.assigned.get(topic)
            try:
                told = self._boom.admin.offsets(topic, queues, read_compacted=True)
            except UnknownResource:
                # A topic that the pattern matched may have been deleted since.
                if not (lossy or options.pattern):
                    raise
                told = self._left(topic, queues or ())
            found.update({(topic, queue): pair for queue, pair in told.items()})
        return found

    def _left(self, topic: str, queues: Collection[int]) -> dict[int, tuple[int, int]]:
        """Return those queues that still exist. A topic that was created again may have fewer."""
        try:
            told = self._boom.admin.offsets(topic, read_compacted=True) if queues else {}
        except UnknownResource:
            return {}
        return {queue: pair for queue, pair in told.items() if queue in queues}

    def _topics(self) -> Iterable[str]:
        options = self._options
        if not options.pattern:
            return options.fixed_topics
        # Topics of retries and dead letters are read only if they are named.
        return [t.name for t in self._boom.admin.topics() if options.wants(t.name)]

    def start(self, bounds: Bounds) -> Offsets:
        """Return where a new read begins.

        Raises:
            InvalidRequest: the options lack a queue, or there is no message at or after the time.
        """
        return self._resolve(self._options.starting, bounds, "startingOffsets")

    def end(self, bounds: Bounds) -> Offsets:
        """Return where a batch read ends."""
        return self._resolve(self._options.ending, bounds, "endingOffsets")

    def _resolve(self, bound: OffsetBound, bounds: Bounds, option: str) -> Offsets:
        match bound.kind:
            case "earliest":
                return {place: first for place, (first, _) in bounds.items()}
            case "latest":
                return {place: end for place, (_, end) in bounds.items()}
            case "offsets":
                _check_whole(bound.offsets, bounds, option)
                return {place: _named(bound.offsets[place], bounds[place]) for place in bounds}
            case "group":
                return self._committed(bound.group, bounds)
            case "time":
                times: Mapping[TopicQueue, int] = dict.fromkeys(bounds, bound.time_ms)
            case "times":
                times = bound.offsets
                _check_whole(times, bounds, f"{option}ByTimestamp")
        return self._at_times(times, bounds, strict=option == "startingOffsets")

    def _at_times(
        self, times: Mapping[TopicQueue, int], bounds: Bounds, *, strict: bool
    ) -> Offsets:
        found = {}
        for place, (first, end) in bounds.items():
            offset = self._boom.admin.offset_for_time(*place, times[place])
            if first < offset:
                offset = self._among_copies(place, times[place], offset)
            if strict and offset >= end and self._options.without_match == "error":
                text = (
                    f"{describe(place)} has no message at or after {times[place]} ms: begin "
                    "earlier, or at the end there with startingOffsetsByTimestampStrategy latest"
                )
                raise InvalidRequest(text)
            found[place] = min(max(offset, first), end)
        return found

    def _among_copies(self, place: TopicQueue, time_ms: int, found: int) -> int:
        """Return the first message at or after a time, if the log has it at `found`.

        If everything before it is gone, it may be one that compaction has kept.
        """
        log_start, _ = self._boom.admin.offsets(place[0], [place[1]])[place[1]]
        if found > log_start:
            return found
        for part in self._boom.read_range(*place, 0, log_start):
            for offset, at in enumerate(part.timestamps(), part.base_offset):
                if at >= time_ms:
                    return offset
        return found

    def _committed(self, group: str, bounds: Bounds) -> Offsets:
        """Return the committed offsets of a group, or the first message where it has none."""
        known = {
            topic: self._boom.admin.committed(group, topic) for topic in {t for t, _ in bounds}
        }
        found = {}
        for (topic, queue), (first, _) in bounds.items():
            committed = known[topic].get(queue)
            found[topic, queue] = first if committed is None else committed
        return found


def moves(bound: OffsetBound, start: Offsets, bounds: Bounds) -> bool:
    """Return True if a start means another offset later, or names none until a message comes."""
    match bound.kind:
        case "latest" | "group":
            return True
        case "offsets":
            return LATEST in bound.offsets.values()
        case "time" | "times":
            return any(at >= bounds[place][1] for place, at in start.items())
        case "earliest":
            return False


def _named(offset: int, bounds: tuple[int, int]) -> int:
    return {EARLIEST: bounds[0], LATEST: bounds[1]}.get(offset, offset)


def _check_whole(named: Mapping[TopicQueue, int], bounds: Bounds, option: str) -> None:
    """Refuse offsets that leave out a queue, or name one that is not read."""
    if missing := sorted(bounds.keys() - named.keys()):
        raise InvalidRequest(f"{option} says nothing of {describe(missing[0])}: name every queue")
    if foreign := sorted(named.keys() - bounds.keys()):
        raise InvalidRequest(f"{option} names {describe(foreign[0])}, which is not read here")
