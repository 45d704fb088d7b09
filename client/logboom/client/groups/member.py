"""The state of one group member, shared by its reader and the core.

The core writes what the group decides; the reader hands messages out and marks them finished. Both
hold `lock`, for microseconds, while they use an assigned queue.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from logboom.client.calls import CoreCall
from logboom.client.fetch.fetch_buffer import FetchBuffer, QueueFetch
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
from logboom.wire.filters import Filter
from logboom.wire.group_view import GroupConfig, QueueKey

MakeFetch = Callable[[AssignedQueue, int, FetchBuffer, int, TopicFilter], GroupFetch]
COMMIT_EVERY_S: Final = 5.0
"""Seconds between commits of what is finished (RocketMQ's persistConsumerOffsetInterval)."""
MAX_POLL_INTERVAL_MS: Final = 300_000
"""Maximum time between two polls of an application (Kafka's max.poll.interval.ms)."""

Saved = dict[QueueKey, tuple[int, bytes, int]]
"""(topic id, queue) → (offset, finished ranges above it, epoch of the queue's last loss that both
know), of every queue that the member knew; the offset is `UNPLACED` of one that starts at its end or at
a time, and whose offset is not known yet."""


class OffsetStore(Protocol):
    """The store of a broadcasting member's offsets."""

    def load(self) -> Saved:
        """Return the offsets that were saved last, none at first.

        Raises:
            LogboomError: they cannot be read.
        """
        ...

    def save(self, offsets: Saved) -> None:
        """Save offsets atomically.

        Raises:
            LogboomError: they cannot be written.
        """
        ...

    def close(self) -> None:
        """Release the store for another member."""
        ...


class MemberReader(Protocol):
    """The collector that hands out a member's messages."""

    def drop(self, holding: AssignedQueue) -> None:
        """Hand out nothing more of a queue; the core calls this under the lock."""
        ...

    def tick(self, now: float) -> None:
        """Note that time has passed; the core calls this under the lock, about twice a second."""
        ...


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """The settings with which a member joins."""

    group: str
    member_id: str
    """Unique per process and consumer."""
    subscription: dict[str, str]
    """Topic → filter text, as in `Filter.text`."""
    instance: str = ""
    """Name of a static member, which keeps its queues over a restart."""
    room: str = ""
    replace: bool = False
    config: GroupConfig = field(default_factory=GroupConfig)
    """Used only if the group is new."""
    commit_every_s: float = COMMIT_EVERY_S
    """0: commit only on `commit`, on release and on leaving."""
    prefetch_bytes: int = 32 * 1024 * 1024
    uncommitted: bool = False
    """True to receive parts of what a queue releases for a transaction."""
    max_poll_interval_ms: int = 0
    """Time without a poll or an acknowledgement after which the member leaves. 0: no limit, as for
    a listener, which is called."""


class MemberState:
    """A member: its queues, and what its group wants."""

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
        """Set for a broadcasting member, which keeps its own offsets; None: it joins its group."""
        self.reader: MemberReader | None = None
        self.holdings: dict[QueueKey, AssignedQueue] = {}
        """All queues of this member; the core changes them by `add` and `remove`."""
        self._by_name: dict[tuple[str, int], AssignedQueue] = {}
        self._paused: set[tuple[str, int]] = set()
        """(topic, queue) of those that the application paused, also while others have them."""
        self._reached: dict[tuple[str, int], int] = {}
        """(topic, queue) of those that were lost → the offset after the last message given of them."""
        self.config = options.config
        """The group's settings, once joined."""
        self.subscription = options.subscription
        self.subscription_version = 0
        self.epoch = -1
        """Member epoch; -1: out of the group."""
        self.error: LogboomError | None = None
        """Why the group no longer accepts this member, for the reader to raise."""
        self.asked = 0
        """Grows whenever the application polls or acknowledges."""
        self.away: LogboomError | None = None
        """Why the member left automatically, until its application polls again."""
        self.joins = 0
        """Number of joins; more than one means that the member was out in between."""
        self.tried: dict[QueueKey, tuple[int, int]] = {}
        """Queue that was lost → (offset, `Trial.trying`) of the message that this process was
        trying there. This process did not end with it."""
        self._turns = Turns()
        self._shares: dict[str, PrefetchShare] = {}
        self._matching: dict[str, tuple[str, TopicFilter]] = {}

    @property
    def commits_early(self) -> bool:
        """True if finished messages may be committed at any time.

        Otherwise the application decides when.
        """
        return self.options.commit_every_s > 0

    def add(self, holding: AssignedQueue) -> None:
        """Add a queue; called under the lock."""
        holding.share = self._shares.setdefault(holding.topic, holding.share)
        holding.share.holdings[holding.key] = holding
        holding.turns = self._turns
        holding.reached = self._reached.get((holding.topic, holding.queue), 0)
        self.holdings[holding.key] = holding
        self._by_name[holding.topic, holding.queue] = holding

    def remove(self, holding: AssignedQueue) -> None:
        """Remove a queue, unless it was assigned again; called under the lock."""
        name = (holding.topic, holding.queue)
        if self.holdings.get(holding.key) is holding:
            del self.holdings[holding.key]
            del holding.share.holdings[holding.key]
        if self._by_name.get(name) is holding:
            del self._by_name[name]
            self._reached[name] = max(holding.reached, holding.handed)

    def holding(self, topic: str, queue: int) -> AssignedQueue | None:
        """Find an assigned queue by its topic's name."""
        return self._by_name.get((topic, queue))

    def reached(self, topic: str, queue: int) -> int:
        """Return the offset after the last message that this member was ever given of a queue."""
        holding = self.holding(topic, queue)
        if holding is None:
            return self._reached.get((topic, queue), 0)
        return max(holding.reached, holding.handed)

    def new_fetch(self, holding: AssignedQueue, start: int) -> GroupFetch:
        """Make the fetch of a queue, paused if the application has paused the queue."""
        share = self.share_bytes()
        fetch = self.make_fetch(holding, start, self.inbox, share, holding.matching)
        fetch.uncommitted = self.options.uncommitted
        fetch.paused = (holding.topic, holding.queue) in self._paused
        holding.fetch = fetch
        return fetch

    def pause(self, topic: str, queue: int) -> None:
        """Pause a queue, also for when it is revoked and assigned again; called under the lock.

        Raises:
            UnknownResource: this member does not have the queue at the moment.
        """
        found = self.holding(topic, queue)
        if found is None:
            raise self._not_ours(topic, queue)
        self._paused.add((topic, queue))
        if found.fetch is not None:
            found.fetch.paused = True

    def resume(self, topic: str, queue: int) -> QueueFetch | None:
        """End a pause, and return the fetch to wake, if any; called under the lock.

        Raises:
            UnknownResource: this member does not have the queue at the moment, nor paused it.
        """
        found = self.holding(topic, queue)
        if found is None and (topic, queue) not in self._paused:
            raise self._not_ours(topic, queue)
        self._paused.discard((topic, queue))
        if found is None or found.fetch is None:
            return None
        found.fetch.paused = found.fetch.stalled = False
        return found.fetch

    def _not_ours(self, topic: str, queue: int) -> UnknownResource:
        text = (
            f"this member of group {self.options.group!r} does not have queue {queue} "
            f"of topic {topic!r} at the moment"
        )
        return UnknownResource(text, "UNKNOWN_QUEUE", topic=topic, queue=queue)

    def owner_epoch(self, topic: str, queue: int) -> int:
        """Return the owner epoch of an assigned queue; a later owner has a greater one.

        Raises:
            UnknownResource: this member does not have the queue at the moment.
        """
        with self.lock:
            found = self.holding(topic, queue)
            if found is None:
                raise self._not_ours(topic, queue)
            return found.owner_epoch

    @property
    def assigned(self) -> bool:
        """True if any queue is read, not counting the group's retry queues; called under the lock."""
        return any(h.state == "reading" and not h.is_retry for h in self.holdings.values())

    def queues(self) -> list[tuple[str, int]]:
        """List the queues that are read as (topic, queue), without the group's retry queues."""
        with self.lock:
            mine = [h for h in self.holdings.values() if not h.is_retry]
            return sorted((h.topic, h.queue) for h in mine if h.state == "reading")

    def matching(self, topic: str) -> TopicFilter:
        """Return the group's filter for a topic."""
        text = self.subscription.get(topic, "")
        known = self._matching.get(topic)
        if known is None or known[0] != text:
            known = self._matching[topic] = (text, matching_of(text))
        return known[1]

    def share_bytes(self) -> int:
        """Return how many bytes of one queue may wait in the inbox."""
        return max(LOW_SHARE, self.options.prefetch_bytes // max(1, len(self.holdings)))

    def changed(self) -> None:
        """Wake the reader: something has changed."""
        self.inbox.wanted = False
        self.inbox.bell()


def matching_of(text: str) -> TopicFilter:
    """Compile a filter text.

    Raises:
        InvalidFilter: it cannot be parsed.
    """
    return TopicFilter(Filter.read(text))


@dataclass(slots=True)
class OpenMember(CoreCall):
    """Join a group; resolved once the group has accepted the member."""

    member: MemberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class CommitMember(CoreCall):
    """Commit what is finished now; resolved once it is in the group's log."""

    member: MemberState
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class WakeMember(CoreCall):
    """Tell the core that the last message of a draining queue is finished."""

    member: MemberState


@dataclass(slots=True)
class CloseMember(CoreCall):
    """End a membership: finish what is handed out within `timeout`, commit, and go."""

    member: MemberState
    timeout: float
    leave: bool = False
    """Leave the group although the member is static; every other member does so anyway."""
    outcome: Promise[None] = field(default_factory=Promise)
