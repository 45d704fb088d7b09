"""Filters of a query that spare reading: by topic, queue and offset exactly, by time from below.

Opt-in (`filterPushdown`), for two reasons. Spark refuses readers that take filters unless its setting
`spark.sql.python.filterPushdown.enabled` is on. And Spark 4.3 keeps the plan of a frame's last read: an
action without filters on the same frame gets what the filters of the one before had left. So a frame
with this option is for one query; the next loads anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from logboom.pipeline.batch_reader import BatchReader
from logboom.pipeline.cluster import Cluster
from logboom.pipeline.offsets import Offsets

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What filters left over."""

    topics: frozenset[str] | None = None
    """None: all. So is it for queues."""
    queues: frozenset[int] | None = None
    low: int = 0
    """Least offset."""
    high: int | None = None
    """The offset before which it ends."""
    since_ms: int | None = None
    """Least message time."""

    def narrowed(self, filter: Any) -> tuple[Wanted, bool] | None:
        """With one more filter, and whether nothing of it is left for Spark to do; None: it spares
        nothing."""
        # NOT has no column of its own, only a child.
        path: tuple[str, ...] = getattr(filter, "attribute", ())
        if len(path) != 1:
            return None
        match path[0], filter:
            case "topic", EqualTo() | In():
                return dataclasses.replace(self, topics=_both(self.topics, filter.value)), True
            case "partition", EqualTo() | In():
                return dataclasses.replace(self, queues=_both(self.queues, filter.value)), True
            case (
                "offset",
                EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual(),
            ):
                return self._by_offset(filter, filter.value), True
            case "timestamp", EqualTo() | GreaterThan() | GreaterThanOrEqual():
                return self._since(filter), False
            case _:
                return None

    def _by_offset(self, filter: Any, offset: int) -> Wanted:
        low, high = self.low, self.high
        match filter:
            case EqualTo():
                low, high = max(low, offset), _least(high, offset + 1)
            case GreaterThan():
                low = max(low, offset + 1)
            case GreaterThanOrEqual():
                low = max(low, offset)
            case LessThan():
                high = _least(high, offset)
            case LessThanOrEqual():
                high = _least(high, offset + 1)
        return dataclasses.replace(self, low=low, high=high)

    def _since(self, filter: Any) -> Wanted:
        # Message times are whole milliseconds, Spark's are microseconds.
        micros = (filter.value - EPOCH) // MICROSECOND
        least = micros // 1000 + 1 if isinstance(filter, GreaterThan) else -(-micros // 1000)
        return dataclasses.replace(self, since_ms=max(least, self.since_ms or least))


class PushdownReader(BatchReader):
    """A batch reader that takes filters."""

    wanted = Wanted()

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name for it
        """Take what spares reading; what is returned Spark does itself."""
        for each in filters:
            found = self.wanted.narrowed(each)
            if found is not None:
                self.wanted = found[0]
            if found is None or not found[1]:
                yield each

    def narrowed(self, cluster: Cluster, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """What the filters leave."""
        wanted = self.wanted
        starts: Offsets = {}
        ends: Offsets = {}
        for place, stop in end.items():
            topic, queue = place
            if wanted.topics is not None and topic not in wanted.topics:
                continue
            if wanted.queues is not None and queue not in wanted.queues:
                continue
            begin = max(start[place], wanted.low)
            if wanted.since_ms is not None:
                begin = max(begin, cluster.at_time(place, wanted.since_ms))
            starts[place], ends[place] = begin, _least(wanted.high, stop)
        return starts, ends


def _both(known: frozenset[Any] | None, value: Any) -> frozenset[Any]:
    new = frozenset(_each(value))
    return new if known is None else known & new


def _each(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from value
    else:
        yield value


def _least(bound: int | None, offset: int) -> int:
    return offset if bound is None else min(bound, offset)
