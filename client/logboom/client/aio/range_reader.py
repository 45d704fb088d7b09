"""Bounded reads: a queue from one offset to another, as columns, reading ahead.

They serve readers that know their range, such as tasks of a batch job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from logboom.client.aio.bridge import Event, run
from logboom.client.calls import FindTopic
from logboom.client.fetch.fetch_buffer import (
    CloseFetch,
    CompletedFetch,
    FetchBuffer,
    OpenFetch,
    WakeFetch,
)
from logboom.client.fetch.message_filter import surviving_slices
from logboom.client.fetch.range_fetch import RangeFetch
from logboom.client.flows import check_queues
from logboom.client.io_thread import IoThread
from logboom.wire.columns import Columns
from logboom.wire.errors import InvalidRequest, TimedOut
from logboom.wire.view import TopicView

RANGE_BYTES: Final = 16 * 1024 * 1024
"""Bytes that a range reader reads ahead."""
LOOK_AGAIN_S: Final = 1.0
"""Seconds after which a waiting reader checks that the client still runs."""


async def read_range(
    io: IoThread,
    topic: str,
    queue: int,
    start: int,
    stop: int,
    prefetch_bytes: int,
    timeout_s: float,
) -> AsyncIterator[Columns]:
    """Read a range of a queue, as `Client.read_range` does.

    Raises:
        InvalidRequest: the range is invalid.
    """
    if not 0 <= start <= stop:
        raise InvalidRequest(
            f"a range begins at 0 or later and does not end before it begins: {start}-{stop}"
        )
    view = await _topic_with(io, topic, queue, timeout_s)
    if start == stop:
        return
    event = Event()
    inbox = FetchBuffer(prefetch_bytes, event.set)
    fetch = RangeFetch(view, queue, start, stop, inbox)
    io.submit(OpenFetch(fetch))
    try:
        at = start
        while at < stop:
            arrival = await _next(io, fetch, event, at, timeout_s)
            found = arrival.columns
            if found is None:
                at = max(at, arrival.passed)
                # Messages are missing, so the offset counts on behind them.
                fetch.reached = max(fetch.reached, at)
                continue
            found = found.slice(max(0, at - found.base_offset), stop - found.base_offset)
            at = max(at, found.next_offset)
            # Between the messages that compaction keeps there are gaps.
            fetch.reached = max(fetch.reached, at)
            for each in surviving_slices(found, arrival.survivors):
                if len(each):
                    yield each
            _make_room(io, fetch, arrival.size)
    finally:
        if io.running:
            io.submit(CloseFetch(fetch))


async def _topic_with(io: IoThread, topic: str, queue: int, timeout_s: float) -> TopicView:
    """Find a topic, and check that it has a queue.

    Raises:
        UnknownResource: there is no such topic or queue.
    """
    view: TopicView = await run(io, FindTopic(topic, timeout_s, queues=queue + 1))
    check_queues(view, [queue])
    return view


async def _next(
    io: IoThread, fetch: RangeFetch, event: Event, at: int, timeout_s: float
) -> CompletedFetch:
    """Wait for the next completed fetch, and return it, or raise its error."""
    left = timeout_s
    while not fetch.inbox.arrivals:
        io.check()
        event.clear()
        fetch.inbox.wanted = True
        if fetch.inbox.arrivals or await event.wait(min(left, LOOK_AGAIN_S)):
            continue
        left -= LOOK_AGAIN_S
        if left <= 0:
            raise TimedOut(_silence(io, fetch, at, timeout_s))
    arrival = fetch.inbox.arrivals.popleft()
    if arrival.error is not None:
        raise arrival.error
    return arrival


def _silence(io: IoThread, fetch: RangeFetch, at: int, timeout_s: float) -> str:
    """Explain why nothing arrived, as far as the client knows."""
    place = f"offset {at} of queue {fetch.queue} of topic {fetch.topic!r}"
    known = io.core.watching.routes.topics.get(fetch.topic)
    if known is not None and known.id != fetch.topic_id:
        text = f"{place} no longer exists: the topic was deleted and created again"
        return f"{text}; read it from its beginning"
    leader = None if known is None else io.core.watching.routes.leader(fetch.topic, fetch.queue)
    where = "any broker (the queue has no leader)" if leader is None else f"{leader[0]} {leader[1]}"
    return f"{place} did not arrive within {timeout_s:g} s from {where}: try `logboom doctor`"


def _make_room(io: IoThread, fetch: RangeFetch, size: int) -> None:
    fetch.consumed += size
    if fetch.stalled and fetch.fetched - fetch.consumed <= fetch.share_bytes // 2:
        fetch.stalled = False
        io.submit(WakeFetch(fetch))
