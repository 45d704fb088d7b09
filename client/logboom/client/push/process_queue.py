"""One queue of a push consumer: the messages that wait for a listener, and their limits."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count

from logboom.client.fetch.fetch_buffer import PULL_BYTES, CompletedFetch, FetchBuffer
from logboom.client.fetch.retry_copies import place_of
from logboom.client.groups.assigned_queue import AssignedQueue, GroupFetch, TopicFilter
from logboom.client.groups.member import MakeFetch, MemberState
from logboom.client.push_options import NO_BOUND, PushOptions
from logboom.client.results import Message


class PushFetch(GroupFetch):
    """A fetch that continues while its queue has room, by count, bytes and span of offsets."""

    __slots__ = ("fetched_count", "fetched_to", "finished_count", "options")

    def __init__(
        self,
        holding: AssignedQueue,
        start: int,
        inbox: FetchBuffer,
        share_bytes: int,
        matching: TopicFilter,
        options: PushOptions,
    ) -> None:
        super().__init__(holding, start, inbox, share_bytes, matching)
        self.options = options
        # Messages handed out before a drain that was cancelled still count.
        self.fetched_count = holding.progress.unfinished(start)
        self.finished_count = 0
        self.fetched_to = start
        """The offset after the last fetched message."""

    @property
    def cached(self) -> int:
        """Number of messages that were fetched and are not finished."""
        return self.fetched_count - self.finished_count

    @property
    def cached_bytes(self) -> int:
        """Bytes of the batches that were fetched and are not finished."""
        return self.fetched - self.consumed

    @property
    def full(self) -> bool:
        """True if a threshold is exceeded, compared before a pull as RocketMQ does."""
        options = self.options
        if self.cached > (bound := self._bound()) or not bound:
            return True
        if self.cached_bytes > (size := self._bytes_bound()) or not size:
            return True
        span = self.fetched_to - self.holding.progress.floor
        return not options.orderly and span > options.consume_concurrently_max_span

    @property
    def wanted_messages(self) -> int:
        """Number of messages for which there is room; a batch is never split."""
        return max(1, self._bound() - self.cached)

    @property
    def pull_bytes(self) -> int:
        """Number of bytes for which there is room, where the topic's limit applies."""
        if self.options.pull_threshold_size_for_topic == NO_BOUND:
            return PULL_BYTES
        return min(PULL_BYTES, max(1, self._bytes_bound() - self.cached_bytes))

    def _bound(self) -> int:
        """Maximum number of messages: the queue's own limit, or its part of the topic's."""
        of_topic = self.options.pull_threshold_for_topic
        if of_topic == NO_BOUND:
            return self.options.pull_threshold_for_queue
        return part_of(of_topic, [0 if each is None else each.cached for each in self._of_topic()])

    def _bytes_bound(self) -> int:
        of_topic = self.options.pull_threshold_size_for_topic
        if of_topic == NO_BOUND:
            return self.options.pull_threshold_size_for_queue
        held = [0 if each is None else each.cached_bytes for each in self._of_topic()]
        return part_of(of_topic, held)

    def _of_topic(self) -> list[PushFetch | None]:
        """Return this fetch, and one for each other queue of the topic; None: it is not read (yet)."""
        fetches: list[PushFetch | None] = [self]
        for holding in self.holding.share.holdings.values():
            if holding is not self.holding:
                fetch = holding.fetch
                fetches.append(fetch if isinstance(fetch, PushFetch) else None)
        return fetches

    def took(self, count: int, size: int) -> None:
        """Count messages that the core puts into the inbox."""
        self.fetched += size
        self.fetched_count += count
        self.fetched_to += count


def part_of(bound: int, held: list[int]) -> int:
    """Return a queue's part of a topic's limit, given what each queue holds.

    The part is equal, or smaller while other queues hold more than theirs. If the limit is below
    the number of queues, it is one.
    """
    left, count = bound, len(held)
    for most in sorted(held, reverse=True):
        if most * count <= left or count == 1:
            break
        left -= most
        count -= 1
    return max(left // count, 1 if bound < len(held) else 0)


class ProcessQueue:
    """The messages of one assigned queue that wait for a listener."""

    __slots__ = ("_order", "_sizes", "busy", "count", "holding", "later", "ready", "suspended")

    def __init__(self, holding: AssignedQueue) -> None:
        self.holding = holding
        self.ready: deque[list[Message]] = deque()
        """Lists of growing offsets, never empty; messages that were put back come first."""
        self.count = 0
        """Number of messages in `ready`."""
        self.later: list[tuple[float, int, Message]] = []
        """A heap of messages to hand out again from here, by time."""
        self.busy = False
        """orderly: a listener has messages of this queue."""
        self.suspended = 0.0
        """orderly: nothing is handed out before this time."""
        self._sizes: deque[tuple[int, PushFetch, int]] = deque()
        """(offset after it, fetch, bytes) of batches that are not finished."""
        self._order = count()

    @property
    def paused(self) -> bool:
        """True if the application has paused the queue."""
        fetch = self.holding.fetch
        return fetch is not None and fetch.paused

    @property
    def next(self) -> int:
        """Offset of the next message to take; there is one."""
        return place_of(self.ready[0][0])[2]

    def open(self, arrival: CompletedFetch) -> None:
        """Add an arrived batch."""
        holding, columns, fetch = self.holding, arrival.columns, arrival.fetch
        if columns is None:
            holding.pass_to(arrival.passed)
        else:
            messages = holding.open(columns, arrival.matches)
            if isinstance(fetch, PushFetch):
                fetch.finished_count += len(columns) - len(messages)
                fetch.fetched_to = max(fetch.fetched_to, columns.next_offset)
                self._sizes.append((columns.next_offset, fetch, arrival.size))
            if messages:
                self.ready.append(messages)
                self.count += len(messages)
        holding.handed = holding.arrived

    def take(self, limit: int) -> list[Message]:
        """Take up to `limit` messages, the oldest first, of growing offsets."""
        taken: list[Message] = []
        while self.ready and len(taken) < limit:
            first = self.ready[0]
            if taken and place_of(first[0])[2] <= place_of(taken[-1])[2]:
                break  # the rest was put back
            room = limit - len(taken)
            if len(first) <= room:
                self.ready.popleft()
                taken = taken + first if taken else first
            else:
                taken = taken + first[:room]
                self.ready[0] = first[room:]
        self.count -= len(taken)
        return taken

    def put_back(self, messages: list[Message]) -> None:
        """Put messages that were taken and not handled back to the front."""
        if messages:
            self.ready.appendleft(messages)
            self.count += len(messages)

    def wait(self, message: Message, when: float) -> None:
        """Hand a message out again from here at the time `when`."""
        heapq.heappush(self.later, (when, next(self._order), message))

    def ripen(self, now: float) -> None:
        """Make messages ready whose time has come."""
        due: list[Message] = []
        while self.later and self.later[0][0] <= now:
            due.append(heapq.heappop(self.later)[2])
        for message in reversed(due):
            self.put_back([message])

    def finish(self, messages: list[Message]) -> None:
        """Finish messages of growing offsets."""
        if not messages:
            return
        progress = self.holding.progress
        first, last = place_of(messages[0])[2], place_of(messages[-1])[2]
        if last - first + 1 == len(messages):
            progress.finish(first, last + 1)
        else:
            for message in messages:
                offset = place_of(message)[2]
                progress.finish(offset, offset + 1)
        self._free(len(messages))

    def _free(self, count: int) -> None:
        """Give room back: by count at once, by bytes as the commit point passes batches."""
        fetch, floor = self.holding.fetch, self.holding.progress.floor
        if isinstance(fetch, PushFetch):
            fetch.finished_count += count
        sizes = self._sizes
        while sizes and sizes[0][0] <= floor:
            _, of, size = sizes.popleft()
            of.consumed += size

    def clear(self) -> None:
        """Drop everything, because the queue is lost."""
        self.ready.clear()
        self.later.clear()
        self._sizes.clear()
        self.count = 0


def lane_fetches(options: PushOptions) -> MakeFetch:
    """Return the function that makes the fetches of a push consumer's member."""

    def make(
        holding: AssignedQueue,
        start: int,
        inbox: FetchBuffer,
        share_bytes: int,
        matching: TopicFilter,
    ) -> GroupFetch:
        return PushFetch(holding, start, inbox, share_bytes, matching, options)

    return make


def cached_by_queue(member: MemberState) -> dict[tuple[str, int], int]:
    """Return (topic, queue) → number of fetched messages that are not finished."""
    with member.lock:
        return {
            (holding.topic, holding.queue): holding.fetch.cached
            for holding in member.holdings.values()
            if isinstance(holding.fetch, PushFetch) and not holding.is_retry
        }
