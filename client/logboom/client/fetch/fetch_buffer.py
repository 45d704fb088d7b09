"""The buffer between the core, which reads ahead, and a reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logboom.client.calls import CoreCall, Start
from logboom.wire.columns import Columns
from logboom.wire.errors import LogboomError

PULL_BYTES: Final = 1024 * 1024
"""Bytes that a pull requests, unless its reader wants more at once."""


class CompletedFetch:
    """A batch or an error for the reader."""

    __slots__ = (
        "columns",
        "error",
        "fetch",
        "generation",
        "matches",
        "passed",
        "size",
        "survivors",
    )

    def __init__(
        self,
        fetch: QueueFetch,
        generation: int,
        columns: Columns | None,
        size: int,
        error: LogboomError | None = None,
        passed: int = -1,
    ) -> None:
        self.fetch = fetch
        self.generation = generation
        self.columns = columns
        self.size = size
        self.error = error
        self.passed = passed
        """Set with neither a batch nor an error: reading has passed this offset and found nothing.
        """
        self.matches: bytes | None = None
        """The broker's matches of the whole batch, as in `Pulled`; None: it did not filter."""
        self.survivors: bytes | None = None
        """For a compacted topic: which messages are the latest of their key. None or empty: all."""


class FetchBuffer:
    """The fetched batches of one reader.

    The reader writes `consumed`; the core writes `fetched`, `expected` and `blocked`, which the
    reader resets when it wakes the core.
    """

    __slots__ = (
        "arrivals",
        "bell",
        "blocked",
        "bounded",
        "consumed",
        "expected",
        "fetched",
        "prefetch_bytes",
        "throttled_ms",
        "wanted",
    )

    def __init__(
        self, prefetch_bytes: int, bell: Callable[[], object], *, bounded: bool = False
    ) -> None:
        """Create a buffer; `bounded`: `prefetch_bytes` hold for all queues together."""
        self.arrivals: deque[CompletedFetch] = deque()
        self.bounded = bounded
        self.fetched = self.consumed = 0
        """Bytes that were put in and taken out, of queues that are still read from there."""
        self.expected = 0
        """Bytes that pulls under way are likely to bring."""
        self.blocked = False
        """True if the core holds pulls back until there is room for all queues together."""
        self.prefetch_bytes = prefetch_bytes
        """Bytes that may wait here; the answer of a pull may go beyond."""
        self.bell = bell
        """Called by the core when something was added and `wanted` is set."""
        self.wanted = False
        """True if the reader waits; it sets this before its last look into `arrivals`."""
        self.throttled_ms = 0
        """Milliseconds for which answered pulls have waited because of the user's quota."""

    @property
    def is_full(self) -> bool:
        """True if as much waits as may."""
        return self.bounded and self.fetched - self.consumed >= self.prefetch_bytes

    @property
    def has_room(self) -> bool:
        """True if a pull may be sent that is likely to bring something.

        There is room for one at least if the reader has nothing to take: then what was counted
        waits in queues that are paused, or is larger than all that may wait.
        """
        if not self.bounded:
            return True
        held = self.fetched - self.consumed + self.expected
        return held < self.prefetch_bytes or not (self.expected or self.arrivals)

    def wants_wake(self) -> bool:
        """Return True, once, if the reader has to wake the core, because half of it has room or there
        is nothing to take."""
        if not self.blocked:
            return False
        held = self.fetched - self.consumed
        if held > self.prefetch_bytes // 2 and self.arrivals:
            return False
        self.blocked = False
        return True

    def put(self, arrival: CompletedFetch) -> None:
        """Add an arrival; only the core calls this."""
        self.arrivals.append(arrival)
        if self.wanted:
            self.wanted = False
            self.bell()

    def pass_to(self, fetch: QueueFetch, generation: int, offset: int) -> None:
        """Note that reading has passed `offset` without a batch.

        Consecutive notes become one arrival.
        """
        try:
            last = self.arrivals[-1]
        except IndexError:  # the reader took it just now, or earlier
            last = None
        same = last is not None and (last.fetch, last.generation) == (fetch, generation)
        if last is not None and same and last.passed >= 0:
            last.passed = offset
        else:
            self.put(CompletedFetch(fetch, generation, None, 0, None, offset))


class QueueFetch:
    """A queue that is read.

    The reader writes `generation`, `consumed` and `paused`; the core writes the rest.
    """

    __slots__ = (
        "asked",
        "closed",
        "compacted",
        "consumed",
        "copies",
        "corrections",
        "fetched",
        "filter",
        "generation",
        "group",
        "inbox",
        "log_start",
        "max_offset",
        "owner_epoch",
        "owner_proof",
        "paused",
        "queue",
        "reader_offset",
        "share_bytes",
        "stalled",
        "start",
        "tags",
        "topic",
        "topic_id",
        "trouble",
        "uncommitted",
    )

    def __init__(
        self,
        topic: str,
        queue: int,
        start: Start,
        inbox: FetchBuffer,
        share_bytes: int,
        tags: list[str] | None = None,
    ) -> None:
        self.topic = topic
        self.queue = queue
        self.start: Start = start
        self.inbox = inbox
        self.share_bytes = share_bytes
        """Bytes of this queue that may wait in the buffer."""
        self.tags = tags
        self.generation = 0
        """Grows with each seek; arrivals of an older generation are void."""
        self.asked = (0, 0)
        """(messages, bytes) that the pull under way may return, from `wanted_messages` and
        `pull_bytes`."""
        self.consumed = 0
        """Bytes that the reader has taken out."""
        self.fetched = 0
        """Bytes that the core has put in."""
        self.closed = False
        """True once the core reads no more."""
        self.paused = False
        self.stalled = False
        """True if the core waits for room or for the end of a pause, and has to be woken."""
        self.max_offset = -1
        """Greatest high watermark seen."""
        self.corrections = 0
        """Number of times that the leader said that the position does not exist."""
        self.reader_offset: int | None = None
        """Offset of the next message for the reader; None until it is known."""
        self.group = ""
        """The consumer group of the reader, if any."""
        self.owner_epoch = 0
        """Owner epoch of the group member for this queue; leaders refuse an older one."""
        self.owner_proof = b""
        """The coordinator's proof of that epoch; empty if it gave none."""
        self.filter = ""
        """Property filter for the broker."""
        self.topic_id = 0
        """Read only the topic with this id; 0: whichever has the name."""
        self.trouble = ""
        """Code of the error with which pulls keep failing; "": they succeed."""
        self.uncommitted = False
        """True to receive parts of what a queue releases for a transaction."""
        self.compacted = False
        """True to receive only the latest message of each key, where that is known."""
        self.copies = False
        """True to also receive messages of a compacted topic that retention removed from the log
        and compaction keeps as copies."""
        self.log_start = 0
        """Start of the log as far as known; below it there are only such copies."""

    @property
    def full(self) -> bool:
        """True if nothing more may be fetched now."""
        return self.fetched - self.consumed >= self.share_bytes

    @property
    def wanted_messages(self) -> int:
        """Maximum number of messages that a pull should return; 0: any number."""
        return 0

    @property
    def pull_bytes(self) -> int:
        """Bytes that one pull requests."""
        return PULL_BYTES

    @property
    def asks_too_much(self) -> bool:
        """True if the pull under way may return more than there is room for by now."""
        messages, size = self.asked
        return messages > self.wanted_messages or size > self.pull_bytes

    def took(self, count: int, size: int) -> None:
        """Count `count` messages of `size` bytes that the core puts into the buffer."""
        self.fetched += size
        self.inbox.fetched += size

    def gave(self, size: int) -> None:
        """Count bytes that the reader has taken out."""
        self.consumed += size
        if not self.closed:
            self.inbox.consumed += size

    def void(self) -> None:
        """Count nothing of what waits any more: the reader drops it."""
        self.inbox.fetched -= self.fetched - self.consumed
        self.fetched = self.consumed

    def close(self) -> None:
        """Count nothing of what waits for all queues together: this one is read no more."""
        self.closed = True
        self.inbox.fetched -= self.fetched - self.consumed


@dataclass(slots=True)
class OpenFetch(CoreCall):
    """Start reading a queue into the buffer."""

    fetch: QueueFetch


@dataclass(slots=True)
class SeekFetch(CoreCall):
    """Continue reading at another position; arrivals of an older generation are void."""

    fetch: QueueFetch
    start: Start
    generation: int


@dataclass(slots=True)
class WakeFetch(CoreCall):
    """Continue to pull: the reader made room, or resumed."""

    fetch: QueueFetch


@dataclass(slots=True)
class WakeBuffer(CoreCall):
    """Send the pulls that were held back: the reader made room for all queues together."""

    inbox: FetchBuffer


@dataclass(slots=True)
class CloseFetch(CoreCall):
    """Stop reading a queue."""

    fetch: QueueFetch
