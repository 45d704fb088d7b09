"""One queue of a push consumer: what waits for a listener, and how much may."""

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
    """A queue that is fetched as long as its lane has room, by count, bytes and span."""

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
        # What was handed out before a drain that came to nothing is still counted.
        self.fetched_count = holding.progress.unfinished(start)
        self.finished_count = 0
        self.fetched_to = start
        """The offset after the last that was fetched, counting what was fetched."""

    @property
    def cached(self) -> int:
        """Messages that were fetched and are not finished."""
        return self.fetched_count - self.finished_count

    @property
    def cached_bytes(self) -> int:
        """The bytes of the batches that were fetched and are not finished."""
        return self.fetched - self.consumed

    @property
    def full(self) -> bool:
        """Whether a threshold is passed; compared as RocketMQ does, before a pull."""
        options = self.options
        if self.cached > (bound := self._bound()) or not bound:
            return True
        if self.cached_bytes > (size := self._bytes_bound()) or not size:
            return True
        span = self.fetched_to - self.holding.progress.floor
        return not options.orderly and span > options.consume_concurrently_max_span

    @property
    def wanted_messages(self) -> int:
        """What there is room for; a batch is never split."""
        return max(1, self._bound() - self.cached)

    @property
    def pull_bytes(self) -> int:
        """The same in bytes, where it is a part of the topic's."""
        if self.options.pull_threshold_size_for_topic == NO_BOUND:
            return PULL_BYTES
        return min(PULL_BYTES, max(1, self._bytes_bound() - self.cached_bytes))

    def _bound(self) -> int:
        """Messages: this queue's own, or its part of the topic's."""
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
        """This one, and one for each other queue of the topic; None: it is not read (yet)."""
        fetches: list[PushFetch | None] = [self]
        for holding in self.holding.share.holdings.values():
            if holding is not self.holding:
                fetch = holding.fetch
                fetches.append(fetch if isinstance(fetch, PushFetch) else None)
        return fetches

    def took(self, count: int, size: int) -> None:
        """The core puts messages into the inbox."""
        self.fetched += size
        self.fetched_count += count
        self.fetched_to += count


def part_of(bound: int, held: list[int]) -> int:
    """What a queue may have of a topic's bound, if queues have so much of it: an equal part, or less
    while others hold more than theirs; but of a bound below their number one each."""
    left, count = bound, len(held)
    for most in sorted(held, reverse=True):
        if most * count <= left or count == 1:
            break
        left -= most
        count -= 1
    return max(left // count, 1 if bound < len(held) else 0)


class ProcessQueue:
    """The messages of one holding that wait for a listener."""

    __slots__ = ("_order", "_sizes", "busy", "count", "holding", "later", "ready", "suspended")

    def __init__(self, holding: AssignedQueue) -> None:
        self.holding = holding
        self.ready: deque[list[Message]] = deque()
        """Lists of growing offsets, never empty; what was put back comes first."""
        self.count = 0
        """Messages in `ready`."""
        self.later: list[tuple[float, int, Message]] = []
        """A heap: what comes again from here, and when."""
        self.busy = False
        """orderly: a listener has this queue."""
        self.suspended = 0.0
        """orderly: nothing is handed out before this time."""
        self._sizes: deque[tuple[int, PushFetch, int]] = deque()
        """(offset after it, fetch, bytes) of batches that are not finished."""
        self._order = count()

    @property
    def paused(self) -> bool:
        """Whether its user said so."""
        fetch = self.holding.fetch
        return fetch is not None and fetch.paused

    @property
    def next(self) -> int:
        """Offset of what is taken next; there is some."""
        return place_of(self.ready[0][0])[2]

    def open(self, arrival: CompletedFetch) -> None:
        """A batch came."""
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
        """Up to `limit` messages, the oldest first, of growing offsets."""
        taken: list[Message] = []
        while self.ready and len(taken) < limit:
            first = self.ready[0]
            if taken and place_of(first[0])[2] <= place_of(taken[-1])[2]:
                break  # it was put back
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
        """What was taken and not handled comes first again."""
        if messages:
            self.ready.appendleft(messages)
            self.count += len(messages)

    def wait(self, message: Message, when: float) -> None:
        """A message comes again from here."""
        heapq.heappush(self.later, (when, next(self._order), message))

    def ripen(self, now: float) -> None:
        """Messages whose time has come are ready."""
        due: list[Message] = []
        while self.later and self.later[0][0] <= now:
            due.append(heapq.heappop(self.later)[2])
        for message in reversed(due):
            self.put_back([message])

    def finish(self, messages: list[Message]) -> None:
        """Messages of growing offsets are done."""
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
        """The queue is lost: nothing of it matters any more."""
        self.ready.clear()
        self.later.clear()
        self._sizes.clear()
        self.count = 0


def lane_fetches(options: PushOptions) -> MakeFetch:
    """How a push consumer's member makes fetches."""

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
    """(topic, queue) → messages of a push consumer that were fetched and are not finished."""
    with member.lock:
        return {
            (holding.topic, holding.queue): holding.fetch.cached
            for holding in member.holdings.values()
            if isinstance(holding.fetch, PushFetch) and not holding.is_retry
        }
