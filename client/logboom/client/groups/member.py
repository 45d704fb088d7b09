"""One member of a consumer group, as its reader and the core share it.

The core writes what the group says; the reader hands messages out and marks them finished. Both
hold `lock`, for microseconds, while they look at a holding.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from logboom.client.calls import CoreCall
from logboom.client.fetch.fetch_buffer import FetchBuffer
from logboom.client.fetch.fetch_collector import LOW_SHARE
from logboom.client.groups.assigned_queue import (
    AssignedQueue,
    GroupFetch,
    PrefetchShare,
    TopicFilter,
    Turns,
)
from logboom.client.promise import Promise
from logboom.wire.errors import LogboomError, UnknownResource
from logboom.wire.filters.filter import Filter
from logboom.wire.group_view import GroupConfig, QueueKey

MakeFetch = Callable[[AssignedQueue, int, FetchBuffer, int, TopicFilter], GroupFetch]
COMMIT_EVERY_S: Final = 5.0
"""Seconds between commits of what is finished (RocketMQ's persistConsumerOffsetInterval)."""
MAX_POLL_INTERVAL_MS: Final = 300_000
"""How long who polls may take between two polls (Kafka's max.poll.interval.ms)."""

Saved = dict[QueueKey, tuple[int, bytes]]
"""(topic id, queue) → (offset, finished ranges above it)."""


class OffsetStore(Protocol):
    """Where a broadcasting member keeps its offsets."""

    def load(self) -> Saved:
        """What was saved last; empty at first.

        Raises:
            LogboomError: it cannot be read.
        """
        ...

    def save(self, offsets: Saved) -> None:
        """Keep these; all or nothing, whatever happens meanwhile.

        Raises:
            LogboomError: they cannot be written.
        """
        ...

    def close(self) -> None:
        """Let another member have it."""
        ...


class MemberReader(Protocol):
    """Who hands out the messages of a member."""

    def drop(self, holding: AssignedQueue) -> None:
        """Hand out nothing more of a queue; called by the core, under the lock."""
        ...

    def tick(self, now: float) -> None:
        """Time has passed; called by the core, under the lock, about twice a second."""
        ...


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """How a member joins."""

    group: str
    member_id: str
    """Unique for each process and consumer."""
    subscription: dict[str, str]
    """Topic → filter text, as `Filter.text` has it."""
    instance: str = ""
    """A static member's name: it keeps its queues over a restart."""
    room: str = ""
    replace: bool = False
    config: GroupConfig = field(default_factory=GroupConfig)
    """Used only if the group is new."""
    commit_every_s: float = COMMIT_EVERY_S
    """0: only on `commit`, on release and on leaving."""
    prefetch_bytes: int = 32 * 1024 * 1024
    uncommitted: bool = False
    """Whether a part of what a queue releases for a transaction is wanted."""
    max_poll_interval_ms: int = 0
    """How long the caller may neither poll nor acknowledge before the member leaves; 0: for ever, as
    a listener's, which is called."""


class MemberState:
    """A member: what it has, and what its group wants."""

    def __init__(
        self,
        options: MemberOptions,
        inbox: FetchBuffer,
        lock: AbstractContextManager[Any],
        make_fetch: MakeFetch = GroupFetch,
        store: OffsetStore | None = None,
    ) -> None:
        self.options = options
        self.inbox = inbox
        self.lock = lock
        self.make_fetch = make_fetch
        self.store = store
        """Of a broadcasting member, which keeps its offsets itself; None: it joins its group."""
        self.reader: MemberReader | None = None
        self.holdings: dict[QueueKey, AssignedQueue] = {}
        """Every queue that this member has; the core writes it, by `add` and `remove`."""
        self._by_name: dict[tuple[str, int], AssignedQueue] = {}
        self.config = options.config
        """The group's own, once joined."""
        self.subscription = options.subscription
        self.subscription_version = 0
        self.epoch = -1
        """Member epoch; -1: out of the group."""
        self.error: LogboomError | None = None
        """Why the group does not take this member any more, for the reader to raise."""
        self.asked = 0
        """Grows whenever the caller polls or acknowledges."""
        self.away: LogboomError | None = None
        """Why it left by itself, until its caller polls again."""
        self.joins = 0
        """How often the group took this member: more than one means it was out in between."""
        self.tried: dict[QueueKey, tuple[int, int]] = {}
        """Queue that was lost → (offset, `Trial.trying`) of the message that this process tried there:
        it has not ended with it."""
        self._turns = Turns()
        self._shares: dict[str, PrefetchShare] = {}
        self._matching: dict[str, tuple[str, TopicFilter]] = {}

    @property
    def commits_early(self) -> bool:
        """Whether what is finished may be committed at any time; if not, the caller says when."""
        return self.options.commit_every_s > 0

    def add(self, holding: AssignedQueue) -> None:
        """The member has one more queue; under the lock."""
        holding.share = self._shares.setdefault(holding.topic, holding.share)
        holding.share.holdings[holding.key] = holding
        holding.turns = self._turns
        self.holdings[holding.key] = holding
        self._by_name[holding.topic, holding.queue] = holding

    def remove(self, holding: AssignedQueue) -> None:
        """It has one less, unless it got the queue anew; under the lock."""
        name = (holding.topic, holding.queue)
        if self.holdings.get(holding.key) is holding:
            del self.holdings[holding.key]
            del holding.share.holdings[holding.key]
        if self._by_name.get(name) is holding:
            del self._by_name[name]

    def holding(self, topic: str, queue: int) -> AssignedQueue | None:
        """The holding of a queue by its topic's name."""
        return self._by_name.get((topic, queue))

    def fetch(self, topic: str, queue: int) -> GroupFetch:
        """What is read of a queue; under the lock.

        Raises:
            UnknownResource: this member does not have it at the moment.
        """
        holding = self.holding(topic, queue)
        if holding is None or not isinstance(holding.fetch, GroupFetch):
            raise self._not_ours(topic, queue)
        return holding.fetch

    def _not_ours(self, topic: str, queue: int) -> UnknownResource:
        text = (
            f"this member of group {self.options.group!r} does not have queue {queue} "
            f"of topic {topic!r} at the moment"
        )
        return UnknownResource(text, "UNKNOWN_QUEUE", topic=topic, queue=queue)

    def owner_epoch(self, topic: str, queue: int) -> int:
        """Under which epoch this member has a queue; a later owner's is greater.

        Raises:
            UnknownResource: it does not have it at the moment.
        """
        with self.lock:
            found = self.holding(topic, queue)
            if found is None:
                raise self._not_ours(topic, queue)
            return found.owner_epoch

    @property
    def assigned(self) -> bool:
        """Whether any queue is read, the group's retries left out; under the lock."""
        return any(h.state == "reading" and not h.is_retry for h in self.holdings.values())

    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue) of all that is read, the group's retries left out."""
        with self.lock:
            mine = [h for h in self.holdings.values() if not h.is_retry]
            return sorted((h.topic, h.queue) for h in mine if h.state == "reading")

    def matching(self, topic: str) -> TopicFilter:
        """What the group wants of a topic."""
        text = self.subscription.get(topic, "")
        known = self._matching.get(topic)
        if known is None or known[0] != text:
            known = self._matching[topic] = (text, matching_of(text))
        return known[1]

    def share_bytes(self) -> int:
        """What one queue may have in the inbox."""
        return max(LOW_SHARE, self.options.prefetch_bytes // max(1, len(self.holdings)))

    def changed(self) -> None:
        """Something the reader should look at."""
        self.inbox.wanted = False
        self.inbox.bell()


def matching_of(text: str) -> TopicFilter:
    """A filter text made ready.

    Raises:
        InvalidFilter: it cannot be read.
    """
    return TopicFilter(Filter.read(text))


@dataclass(slots=True)
class OpenMember(CoreCall):
    """Join a group; the outcome comes once the group has taken the member."""

    member: MemberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class CommitMember(CoreCall):
    """Commit what is finished now; with the outcome it is in the group's log."""

    member: MemberState
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class WakeMember(CoreCall):
    """The reader finished with the last message of a queue that is to be given away."""

    member: MemberState


@dataclass(slots=True)
class CloseMember(CoreCall):
    """Leave the group: finish what is handed out within `timeout`, commit, go."""

    member: MemberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)
