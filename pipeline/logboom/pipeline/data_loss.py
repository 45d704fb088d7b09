"""Messages that a read expects and that no longer exist: an error, or skipped on request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from logboom.pipeline.cluster_offsets import Bounds
from logboom.pipeline.offset_ranges import OffsetRange
from logboom.pipeline.queue_offsets import Offsets, TopicQueue, describe
from logboom.wire.columns import Columns
from logboom.wire.errors import OffsetOutOfRange

LOG = logging.getLogger("logboom.pipeline")

WITHOUT: Final = "read on without them"
FROM_FIRST: Final = "read it from its first message"
AS_FAR: Final = "read as far as there are messages"
"""What a read does with failOnDataLoss=false."""
ANEW: Final = "it was made anew, or lost its end"
TOO_FAR: Final = (
    "startingOffsets or endingOffsets ask for more than there is (-1 is the latest), or the topic was "
    "made anew"
)


class DataLossPolicy:
    """The handling of a loss: an error, or a line in the log."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail

    def found(self, place: TopicQueue, what: str, otherwise: str = WITHOUT) -> None:
        """Report that messages of a queue no longer exist.

        Args:
            otherwise: what is done if losses are to be skipped.

        Raises:
            OffsetOutOfRange: losses are not to be skipped.
        """
        text = f"{describe(place)} {what}"
        if self._fail:
            text = f"{text}: say failOnDataLoss false to {otherwise}"
            raise OffsetOutOfRange(text, topic=place[0], queue=place[1])
        LOG.warning("%s; reading on (failOnDataLoss is false: %s)", text, otherwise)

    def too_short(self, place: TopicQueue, high: int, asked: int, *, named: bool) -> None:
        """Report that a queue ends before an offset.

        Args:
            named: options name the offset, and nothing before it is read. Otherwise the messages up
                to it were read before, so the queue has others now, and is read anew.

        Raises:
            OffsetOutOfRange: losses are not to be skipped.
        """
        what = f"ends at offset {high}, not at {asked}: {TOO_FAR if named else ANEW}"
        self.found(place, what, AS_FAR if named else FROM_FIRST)

    def within(
        self, start: Offsets, end: Offsets, bounds: Bounds, *, named: bool = False
    ) -> tuple[Offsets, Offsets]:
        """Return the offsets, limited to what the queues hold.

        A queue that `start` does not know is new, and is read from its first message.

        Args:
            named: as in `too_short`.

        Raises:
            OffsetOutOfRange: something is cut off, and losses are not to be skipped.
        """
        for place in sorted((start.keys() | end.keys()) - bounds.keys()):
            self.found(place, "is gone, and so are its messages")
        starts: Offsets = {}
        ends: Offsets = {}
        for place, stop in end.items():
            if place not in bounds:
                continue
            first, high = bounds[place]
            begin = start.get(place, 0)
            if begin < first:
                self.found(place, f"begins at offset {first} now, messages from {begin} are gone")
                begin = min(first, max(stop, begin))
            if stop > high or begin > stop:
                self.too_short(place, high, max(stop, begin), named=named)
                begin = first if begin > stop and not named else min(begin, high)
                stop = min(stop, high)
            starts[place], ends[place] = begin, max(begin, stop)
        return starts, ends

    def contiguous(
        self,
        parts: Iterable[Columns],
        wanted: OffsetRange,
        log_start: Callable[[], int] = lambda: 0,
    ) -> Iterator[Columns]:
        """Yield the parts of a range, and report whatever is missing between them.

        Args:
            log_start: where the log of a compacted topic begins now. Before it there is what
                compaction keeps, with gaps. It is 0 for any other topic.

        Raises:
            OffsetOutOfRange: something is missing, and losses are not to be skipped.
        """
        place, at = (wanted.topic, wanted.queue), wanted.start
        begins = 0

        def missing(stop: int) -> None:
            nonlocal begins
            if stop > begins and stop > (begins := log_start()):
                self.found(place, f"lacks offsets {max(at, begins)} to {stop - 1}")

        for part in parts:
            if part.base_offset != at:
                missing(part.base_offset)
            yield part
            at = part.next_offset
        if at != wanted.stop:
            missing(wanted.stop)
