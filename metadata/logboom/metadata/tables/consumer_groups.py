"""The replicated tables of consumer groups: members, who has which queue, and how far they are.

Plain data and the primitives that keep it true. What a group knows of a topic stands in columns,
one value per queue: thousands of queues are given away or committed in one command. A queue whose
owner is not its target is being revoked; a queue without owner goes to its target at once, so no
queue is given to anybody before its former owner released it or was fenced (SAFETY G1).
The rules are in the `group_*_commands` modules.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from logboom.metadata.tables.change_index import ChangeIndex
from logboom.wire.group_view import UNKNOWN_START, GroupConfig, QueueKey
from logboom.wire.names import RETRY_PREFIX

K = TypeVar("K", str, int)


@dataclass(slots=True, eq=False)
class ConsumerGroupMember:
    """One member; a static one stays the same over its restarts, under another id and epoch."""

    id: str
    epoch: int
    """Metadata version of its joining: growing, never used twice in a group."""
    client_id: str
    instance: str
    room: str
    subscription_version: int
    version: int = 0
    """Metadata version of its last change."""
    owned: dict[QueueKey, None] = field(default_factory=dict)
    """Queues that it has (derived)."""

    @property
    def name(self) -> str:
        """What it is called in allocations: what stays over a restart."""
        return self.instance or self.id


@dataclass(slots=True, eq=False)
class GroupTopic:
    """What a group knows of one topic; columns of one value per queue."""

    id: int
    subscribed: bool = False
    """False: only the offsets of a former subscription are kept."""
    targets: list[ConsumerGroupMember | None] = field(default_factory=list)
    """Who shall have it."""
    owners: list[ConsumerGroupMember | None] = field(default_factory=list)
    """Who has it."""
    owner_epochs: array[int] = field(default_factory=lambda: array("q"))
    """Metadata version of the last assignment or reset; never back."""
    committed: array[int] = field(default_factory=lambda: array("q"))
    """`UNKNOWN_START`: nobody gets the queue before its start is set."""
    seen_ends: array[int] = field(default_factory=lambda: array("q"))
    ranges: dict[int, bytes] = field(default_factory=dict)
    """Queue → finished ranges above its committed offset."""

    def __len__(self) -> int:
        return len(self.owners)

    def has(self, queue: int) -> bool:
        """Whether there is such a queue."""
        return 0 <= queue < len(self.owners)

    def grow(self, count: int, start: int) -> None:
        """Have `count` queues; the group begins in those that come at `start`."""
        more = count - len(self.owners)
        if more > 0:
            self.targets += [None] * more
            self.owners += [None] * more
            self.owner_epochs.extend([0] * more)
            self.committed.extend([start] * more)
            self.seen_ends.extend([max(0, start)] * more)

    def start_at(self, queue: int, offset: int) -> None:
        """The group goes on from `offset`, which somebody has seen to exist."""
        self.committed[queue] = offset
        self.seen_ends[queue] = max(self.seen_ends[queue], offset)
        self.ranges.pop(queue, None)


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """One consumer group."""

    name: str
    id: int
    config: GroupConfig
    subscription: dict[str, str] = field(default_factory=dict)
    """Topic → filter text."""
    subscription_version: int = 0
    """0: nobody has subscribed yet."""
    coordinator: str = ""
    """Broker; "" while none is alive."""
    coordinator_epoch: int = 0
    coordinator_version: int = 0
    """Metadata version of the coordinator's beginning: it is told all that is older too."""
    group_epoch: int = 0
    target_epoch: int = 0
    fault: str = ""
    """Why the strategy could not allocate, or which queues it gives to nobody."""
    version: int = 0
    created_version: int = 0
    members: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    names: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    """Member by its name in allocations (derived)."""
    topics: dict[int, GroupTopic] = field(default_factory=dict)
    """By topic id."""
    unstarted: dict[QueueKey, None] = field(default_factory=dict)
    """Queues of its subscription whose start is unknown (derived)."""
    changes: ChangeIndex[str] = field(default_factory=ChangeIndex)
    """Of members."""

    @property
    def is_allocated(self) -> bool:
        """Whether queues are given to members; in broadcasting each reads them all."""
        return self.config.mode == "clustering"

    @property
    def topic_names(self) -> list[str]:
        """The topics whose queues it consumes, its retries among them."""
        return [*self.subscription, RETRY_PREFIX + self.name] if self.is_allocated else []

    @property
    def ordered(self) -> list[ConsumerGroupMember]:
        """The members by name, as `SetTarget` counts them."""
        return [self.names[name] for name in sorted(self.names)]


class ConsumerGroups:
    """All groups, and the indexes that let a change cost what it changes."""

    def __init__(self, bump: Callable[[], int]) -> None:
        """`bump` says that something visible changes, and in which metadata version."""
        self.by_name: dict[str, ConsumerGroup] = {}
        self.next_id = 1
        self.changes: ChangeIndex[str] = ChangeIndex()
        self.subscribers: dict[str, dict[ConsumerGroup, None]] = {}
        """Topic name → groups that consume it, also before it exists (derived)."""
        self.keepers: dict[int, dict[ConsumerGroup, None]] = {}
        """Topic id → groups that keep offsets in it (derived)."""
        self.coordinated: dict[str, dict[ConsumerGroup, None]] = {}
        """Broker, or "" → groups that it coordinates (derived)."""
        self.pending: dict[ConsumerGroup, None] = {}
        """Groups whose target is behind their epoch (derived)."""
        self.bump = bump

    # ── groups ──────────────────────────────────────────────────────────────────────────────────

    def add(self, group: ConsumerGroup) -> None:
        """Put a group into the tables."""
        self.by_name[group.name] = group
        self.coordinated.setdefault(group.coordinator, {})[group] = None
        for topic in group.topic_names:
            self.subscribers.setdefault(topic, {})[group] = None
        for topic_id in group.topics:
            self.keepers.setdefault(topic_id, {})[group] = None
        self.note_pending(group)

    def drop(self, group: ConsumerGroup) -> None:
        """Take a group without members out of the tables."""
        del self.by_name[group.name]
        _discard(self.coordinated, group.coordinator, group)
        for topic in group.topic_names:
            _discard(self.subscribers, topic, group)
        for topic_id in group.topics:
            _discard(self.keepers, topic_id, group)
        self.pending.pop(group, None)
        self.changes.drop(group.name, self.bump())

    def touch(self, group: ConsumerGroup, members: Iterable[ConsumerGroupMember] = ()) -> None:
        """A group, and some of its members, came or changed."""
        version = self.bump()
        if group.version != version:
            group.version = version
            self.changes.touch(group.name, version)
        for member in members:
            if member.version != version:
                member.version = version
                group.changes.touch(member.id, version)

    def reshape(self, group: ConsumerGroup) -> None:
        """Members, subscription or queues changed: the target is to be worked out anew."""
        group.group_epoch += 1
        if not group.members or not group.is_allocated:
            group.target_epoch, group.fault = group.group_epoch, ""
        self.note_pending(group)
        self.touch(group)

    def note_pending(self, group: ConsumerGroup) -> None:
        """Keep the list of groups whose target is behind."""
        if group.target_epoch != group.group_epoch:
            self.pending[group] = None
        else:
            self.pending.pop(group, None)

    def coordinate(self, group: ConsumerGroup, broker: str) -> None:
        """A broker begins to coordinate a group, or begins again, or ("") nobody does."""
        _discard(self.coordinated, group.coordinator, group)
        self.coordinated.setdefault(broker, {})[group] = None
        group.coordinator = broker
        group.coordinator_epoch += 1
        self.touch(group)
        group.coordinator_version = group.version

    # ── topics ──────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, group: ConsumerGroup, topics: dict[str, str]) -> None:
        """Have another subscription; what follows from it for queues is the caller's."""
        for topic in group.topic_names:
            _discard(self.subscribers, topic, group)
        group.subscription = topics
        group.subscription_version += 1
        for topic in group.topic_names:
            self.subscribers.setdefault(topic, {})[group] = None

    def keep(self, group: ConsumerGroup, topic_id: int, count: int) -> GroupTopic:
        """Have offsets of a topic new to the group, all unknown."""
        topic = group.topics[topic_id] = GroupTopic(topic_id)
        topic.grow(count, UNKNOWN_START)
        self.keepers.setdefault(topic_id, {})[group] = None
        return topic

    def keep_all(self, group: ConsumerGroup, topic_id: int, count: int) -> GroupTopic:
        """Have offsets of all `count` queues of a topic, which the group need not subscribe to.

        Queues that come to a topic it knows begin at 0.
        """
        topic = group.topics.get(topic_id) or self.keep(group, topic_id, count)
        topic.grow(count, 0)
        return topic

    def follow(self, group: ConsumerGroup, topic_id: int, count: int, start: int) -> None:
        """A topic of the subscription has `count` queues, where nothing is known to begin at `start`.

        Queues that come to a topic it knows begin at 0.
        """
        topic = self.keep_all(group, topic_id, count)
        if not topic.subscribed:
            topic.subscribed = True
            for queue, committed in enumerate(topic.committed):
                if committed == UNKNOWN_START and start == UNKNOWN_START:
                    group.unstarted[topic_id, queue] = None
                elif committed == UNKNOWN_START:
                    topic.start_at(queue, start)

    def unfollow(self, group: ConsumerGroup, topic: GroupTopic) -> None:
        """A topic is no longer subscribed to: its owners have to release it, its offsets stay."""
        topic.subscribed = False
        topic.targets = [None] * len(topic)
        self._forget_unstarted(group, topic)
        self.touch(group, [owner for owner in topic.owners if owner is not None])

    def forget_topic(self, group: ConsumerGroup, topic_id: int) -> None:
        """A topic is gone with all that the group knew of it."""
        topic = group.topics.pop(topic_id)
        _discard(self.keepers, topic_id, group)
        self._forget_unstarted(group, topic)
        owners: list[ConsumerGroupMember] = []
        for queue, owner in enumerate(topic.owners):
            if owner is not None:
                del owner.owned[topic_id, queue]
                owners.append(owner)
        self.touch(group, owners)

    def _forget_unstarted(self, group: ConsumerGroup, topic: GroupTopic) -> None:
        if group.unstarted:
            for queue in range(len(topic)):
                group.unstarted.pop((topic.id, queue), None)

    # ── members and their queues ────────────────────────────────────────────────────────────────

    def give(self, group: ConsumerGroup, topic: GroupTopic, queue: int) -> None:
        """A queue without owner goes to its target, if it has one and a start."""
        target = topic.targets[queue]
        if target is None or topic.owners[queue] is not None or topic.committed[queue] < 0:
            return
        topic.owners[queue] = target
        target.owned[topic.id, queue] = None
        self.touch(group, (target,))
        topic.owner_epochs[queue] = group.version

    def free(self, group: ConsumerGroup, topic: GroupTopic, queue: int) -> None:
        """A queue's owner has released it, or is fenced."""
        owner = topic.owners[queue]
        if owner is not None:
            topic.owners[queue] = None
            del owner.owned[topic.id, queue]
            self.touch(group, (owner,))

    def renew(self, group: ConsumerGroup, topic: GroupTopic, queue: int) -> None:
        """The same owner has the queue anew: what it said under the former epoch is refused."""
        owner = topic.owners[queue]
        if owner is not None:
            self.touch(group, (owner,))
            topic.owner_epochs[queue] = group.version

    def remove(self, group: ConsumerGroup, members: Collection[ConsumerGroupMember]) -> None:
        """Members are out: nobody shall wait for them, their queues are free at once."""
        out = set(members)
        self.touch(group)
        for topic in group.topics.values():
            for queue, target in enumerate(topic.targets):
                if target in out:
                    # Who was to give it to a member that is gone keeps it: no needless move.
                    owner = topic.owners[queue]
                    topic.targets[queue] = stays = None if owner in out else owner
                    if stays is not None:
                        self.touch(group, (stays,))
        freed: list[QueueKey] = []
        for member in members:
            freed += member.owned
            del group.members[member.id]
            del group.names[member.name]
        for topic_id, queue in freed:
            topic = group.topics[topic_id]
            topic.owners[queue] = None
            # To nobody who is out as well: no target names one any more.
            self.give(group, topic, queue)
        for member in members:
            member.owned.clear()
            group.changes.drop(member.id, group.version)
        self.reshape(group)


def _discard(index: dict[K, dict[ConsumerGroup, None]], key: K, group: ConsumerGroup) -> None:
    found = index.get(key)
    if found is not None:
        found.pop(group, None)
        if not found:
            del index[key]
