"""Between the core that reads ahead and the reader: arrivals, and who has how much."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logboom.client.calls import CoreCall, Start
from logboom.wire.columns import Columns
from logboom.wire.errors import LogboomError

PULL_BYTES: Final = 1024 * 1024
"""Bytes that a pull asks for, unless its reader wants more at once."""


class CompletedFetch:
    """A batch (or an error) for the reader."""

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
        """With neither batch nor error: reading went on to this offset without finding any."""
        self.matches: bytes | None = None
        """What the broker said of the whole batch, as in `Pulled`; None: it did not look."""
        self.survivors: bytes | None = None
        """Of a compacted topic: which messages are the latest of their key; None or empty: all."""


class FetchBuffer:
    """Where a reader finds what was fetched for it."""

    __slots__ = ("arrivals", "bell", "prefetch_bytes", "wanted")

    def __init__(self, prefetch_bytes: int, bell: Callable[[], object]) -> None:
        self.arrivals: deque[CompletedFetch] = deque()
        self.prefetch_bytes = prefetch_bytes
        """Bytes that may wait here, all queues together."""
        self.bell = bell
        """Called by the core when something was put in and `wanted` is set."""
        self.wanted = False
        """The reader waits; set by it before its last look into `arrivals`."""

    def put(self, arrival: CompletedFetch) -> None:
        """Only the core puts."""
        self.arrivals.append(arrival)
        if self.wanted:
            self.wanted = False
            self.bell()

    def pass_to(self, fetch: QueueFetch, generation: int, offset: int) -> None:
        """Reading went on to `offset` without a batch; many in a row are one arrival."""
        try:
            last = self.arrivals[-1]
        except IndexError:  # taken by the reader just now, or before
            last = None
        same = last is not None and (last.fetch, last.generation) == (fetch, generation)
        if last is not None and same and last.passed >= 0:
            last.passed = offset
        else:
            self.put(CompletedFetch(fetch, generation, None, 0, None, offset))


class QueueFetch:
    """One queue that is read. The reader writes `generation`, `consumed` and `paused`; the core
    the rest."""

    __slots__ = (
        "asked",
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
        """Bytes of this queue that may wait in the inbox."""
        self.tags = tags
        self.generation = 0
        """Grows with each seek; arrivals of an older one are void."""
        self.asked = (0, 0)
        """(messages, bytes) that the pull under way may bring, as `wanted_messages` and `pull_bytes`
        were."""
        self.consumed = 0
        """Bytes that the reader took out."""
        self.fetched = 0
        """Bytes that the core put in."""
        self.paused = False
        self.stalled = False
        """The core waits for room or for the end of a pause: wake it."""
        self.max_offset = -1
        """Greatest high watermark seen."""
        self.corrections = 0
        """How often the leader said that the position does not exist."""
        self.reader_offset: int | None = None
        """Offset of the next message for the reader; None until it is known."""
        self.group = ""
        """The consumer group that reads, if one does."""
        self.owner_epoch = 0
        """The group member's for this queue: leaders refuse an older one."""
        self.filter = ""
        """A property filter for the broker."""
        self.topic_id = 0
        """Only the topic of this id is meant; 0: whichever has the name."""
        self.trouble = ""
        """Code of the error that pulls keep ending in; "": they are answered."""
        self.uncommitted = False
        """Whether a part of what a queue releases for a transaction is wanted."""
        self.compacted = False
        """Whether only the latest message of each key is wanted, where that is known."""
        self.copies = False
        """Whether, of a compacted topic, what compaction keeps of messages that retention took out
        of the log is wanted too."""
        self.log_start = 0
        """Where the log begins, as far as that was told; below it there are only such copies."""

    @property
    def full(self) -> bool:
        """Whether no more is to be fetched now."""
        return self.fetched - self.consumed >= self.share_bytes

    @property
    def wanted_messages(self) -> int:
        """How many messages a pull should bring at most; 0: any number."""
        return 0

    @property
    def pull_bytes(self) -> int:
        """Bytes that one pull asks for."""
        return PULL_BYTES

    @property
    def asks_too_much(self) -> bool:
        """Whether the pull under way may bring more than there is room for by now."""
        messages, size = self.asked
        return messages > self.wanted_messages or size > self.pull_bytes

    def took(self, count: int, size: int) -> None:
        """The core puts `count` messages of `size` bytes into the inbox."""
        self.fetched += size


@dataclass(slots=True)
class OpenFetch(CoreCall):
    """Begin to read a queue into the fetch's inbox."""

    fetch: QueueFetch


@dataclass(slots=True)
class SeekFetch(CoreCall):
    """Read on from elsewhere; arrivals of an older generation are void."""

    fetch: QueueFetch
    start: Start
    generation: int


@dataclass(slots=True)
class WakeFetch(CoreCall):
    """The reader made room, or resumed: pull on."""

    fetch: QueueFetch


@dataclass(slots=True)
class CloseFetch(CoreCall):
    """Read a queue no longer."""

    fetch: QueueFetch
