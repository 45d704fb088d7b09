"""Limits of a micro-batch, and its ranges for Spark's tasks.

The arithmetic is that of Spark's Kafka source (KafkaMicroBatchStream.rateLimit and
KafkaOffsetRangeCalculator), so that options have the same meaning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from logboom.pipeline.queue_offsets import Offsets, TopicQueue


class OffsetRange(NamedTuple):
    """The offsets of one queue that a task reads: from `start` to before `stop`."""

    topic: str
    queue: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.stop - self.start


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """Return where to stop so that at most about `most` messages are read.

    Each queue gives its share of the backlog, and every queue with a backlog gives at least one
    message.
    """
    backlog = {place: max(0, stop - start.get(place, stop)) for place, stop in end.items()}
    total = sum(backlog.values())
    if total <= most:
        return dict(end)
    found = {}
    for place, stop in end.items():
        share = most * backlog[place] / total
        count = math.ceil(share) if share < 1 else math.floor(share)
        found[place] = min(stop, start.get(place, stop) + count)
    return found


def limited_bytes(
    start: Offsets, end: Offsets, most: int, message_bytes: Mapping[TopicQueue, float]
) -> Offsets:
    """Return the same by bytes, where the size of a queue's messages is known."""
    sizes = {
        place: max(0, stop - start.get(place, stop)) * message_bytes.get(place, 0.0)
        for place, stop in end.items()
    }
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    found = {}
    for place, stop in end.items():
        begin = start.get(place, stop)
        count = math.ceil((stop - begin) * most / total) if sizes[place] else stop - begin
        found[place] = min(stop, begin + count)
    return found


def shares(sizes: Mapping[TopicQueue, float], most: int) -> dict[TopicQueue, int]:
    """Return `most` bytes divided among queues by the size of what waits in them."""
    total = sum(sizes.values())
    return {place: max(1, int(most * size / total)) for place, size in sizes.items() if size}


def ranges(
    start: Offsets, end: Offsets, min_partitions: int = 0, max_records: int = 0
) -> list[OffsetRange]:
    """Return the ranges between two offsets, cut for tasks.

    Args:
        min_partitions: larger ranges are cut until there are about this many; 0: one per queue.
        max_records: the most messages of a range; 0: no limit.
    """
    whole = [
        OffsetRange(*place, start[place], stop)
        for place, stop in sorted(end.items())
        if stop > start.get(place, stop)
    ]
    if max_records:
        whole = [part for each in whole for part in cut(each, -(-each.size // max_records))]
    if len(whole) >= min_partitions:
        return whole
    total = sum(each.size for each in whole)
    return [
        part
        for each in whole
        for part in cut(each, max(1, round(min_partitions * each.size / total)))
    ]


def cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Return a range in nearly equal parts, or in fewer if it has fewer messages."""
    parts = min(parts, whole.size)
    bounds = [whole.start + whole.size * n // parts for n in range(parts + 1)]
    return [OffsetRange(whole.topic, whole.queue, low, high) for low, high in pairwise(bounds)]
