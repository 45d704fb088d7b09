"""The replicated tables of consumer groups: members, owners of queues, and committed offsets.

They are plain data, with the primitives that keep it consistent. A group's data on a topic is in
columns of one value per queue, because one command may reassign or commit thousands of queues. A
queue whose owner is not its target is being revoked. A queue without an owner goes to its target at
once; so a queue is never given away before its former owner has released it or was fenced (see
docs/SAFETY.md, G1). The rules are in the `*_commands` modules of `groups`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from logboom.metadata.tables.change_index import ChangeIndex
from logboom.wire.group_view import UNKNOWN_START, GroupConfig, QueueKey
from logboom.wire.names import RETRY_PREFIX

K = TypeVar("K", str, int)
EPOCHS: Final = 1 << 32
"""Epochs and versions of a group between two recoveries: none has so many."""


@dataclass(slots=True, eq=False)
class ConsumerGroupMember:
    """One member; a static one stays the same across restarts, under another id and epoch."""

    id: str
    epoch: int
    """Metadata version of its join; it grows, and is never used twice in a group."""
    client_id: str
    instance: str
    room: str
    subscription_version: int
    version: int = 0
    """Metadata version of its last change."""
    user: int = 0
    """Mark of its user; 0: it has none, or from before members had one."""
    owned: dict[QueueKey, None] = field(default_factory=dict)
    """Queues that it owns (derived)."""

    @property
    def name(self) -> str:
        """The name under which queues are allocated to it, which is stable across restarts."""
        return self.instance or self.id

    def is_anothers(self, user: int) -> bool:
        """True if it is a member of another user than the one of this mark (A6)."""
        return 0 not in (self.user, user) and self.user != user


@dataclass(slots=True, eq=False)
class GroupTopic:
    """A group's data on one topic, in columns of one value per queue."""

    id: int
    subscribed: bool = False
    """False: only the offsets of a former subscription are kept."""
    targets: list[ConsumerGroupMember | None] = field(default_factory=list)
    """The intended owners."""
    owners: list[ConsumerGroupMember | None] = field(default_factory=list)
    """The current owners."""
    owner_epochs: array[int] = field(default_factory=lambda: array("q"))
    """Metadata version of the last assignment or reset; it never goes back."""
    committed: array[int] = field(default_factory=lambda: array("q"))
    """`UNKNOWN_START`: the queue is assigned to nobody before its start is set."""
    seen_ends: array[int] = field(default_factory=lambda: array("q"))
    ranges: dict[int, bytes] = field(default_factory=dict)
    """Queue → finished ranges above its committed offset."""

    def __len__(self) -> int:
        return len(self.owners)

    def has(self, queue: int) -> bool:
        """Return True if the topic has this queue."""
        return 0 <= queue < len(self.owners)

    def grow(self, count: int, start: int) -> None:
        """Extend the columns to `count` queues; the group begins in the new ones at `start`."""
        more = count - len(self.owners)
        if more > 0:
            self.targets += [None] * more
            self.owners += [None] * more
            self.owner_epochs += array("q", [0]) * more
            self.committed += array("q", [start]) * more
            self.seen_ends += array("q", [max(0, start)]) * more

    def start_all_at(self, offset: int) -> None:
        """Continue from `offset` in all queues, which have no start yet."""
        self.committed = array("q", [offset]) * len(self)
        if min(self.seen_ends, default=offset) < offset:
            self.seen_ends = array("q", [max(end, offset) for end in self.seen_ends])
        self.ranges.clear()

    def start_at(self, queue: int, offset: int) -> None:
        """Continue from `offset`, which is known to exist."""
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
    """0: no subscription was ever set."""
    coordinator: str = ""
    """The broker's id; "" while none is alive."""
    coordinator_epoch: int = 0
    coordinator_version: int = 0
    """Metadata version at which the coordinator started; it is sent everything older too."""
    group_epoch: int = 0
    target_epoch: int = 0
    fault: str = ""
    """Why the strategy could not allocate, or which queues it gives to nobody."""
    version: int = 0
    created_version: int = 0
    members: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    names: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    """Members by their names in allocations (derived)."""
    topics: dict[int, GroupTopic] = field(default_factory=dict)
    """By topic id."""
    unstarted: dict[QueueKey, None] = field(default_factory=dict)
    """Subscribed queues whose start is unknown (derived)."""
    changes: ChangeIndex[str] = field(default_factory=ChangeIndex)
    """Changes of members."""

    @property
    def is_allocated(self) -> bool:
        """True if queues are assigned to members; in broadcasting mode each member reads them all."""
        return self.config.mode == "clustering"

    @property
    def topic_names(self) -> list[str]:
        """The topics that it consumes, its retry topic included."""
        return [*self.subscription, RETRY_PREFIX + self.name] if self.is_allocated else []

    @property
    def ordered(self) -> list[ConsumerGroupMember]:
        """The members by name, in the order in which `SetTarget` numbers them."""
        return [self.names[name] for name in sorted(self.names)]


class ConsumerGroups:
    """All groups, with indexes that keep the cost of a change proportional to its size."""

    def __init__(
        self, bump: Callable[[], int], coordinated: Callable[[ConsumerGroup, str], None]
    ) -> None:
        """Create empty tables.

        Args:
            bump: notes a visible change and returns its metadata version.
            coordinated: is told of a group that has a new coordinator, or epoch, and of the former one.
        """
        self.by_name: dict[str, ConsumerGroup] = {}
        self.next_id = 1
        self.first_epoch = 0
        """Where the epochs of new groups begin, above those of groups that a recovery has lost
        (derived)."""
        self.changes: ChangeIndex[str] = ChangeIndex()
        self.subscribers: dict[str, dict[ConsumerGroup, None]] = {}
        """Topic name → groups that consume it, even before it exists (derived)."""
        self.keepers: dict[int, dict[ConsumerGroup, None]] = {}
        """Topic id → groups that have offsets in it (derived)."""
        self.coordinated: dict[str, dict[ConsumerGroup, None]] = {}
        """Broker, or "" → groups that it coordinates (derived)."""
        self.pending: dict[ConsumerGroup, None] = {}
        """Groups whose target is older than their epoch (derived)."""
        self.bump = bump
        self._coordinated = coordinated

    # ── groups ──────────────────────────────────────────────────────────────────────────────────

    def add(self, group: ConsumerGroup) -> None:
        """Add a group to the tables."""
        self.by_name[group.name] = group
        self.coordinated.setdefault(group.coordinator, {})[group] = None
        for topic in group.topic_names:
            self.subscribers.setdefault(topic, {})[group] = None
        for topic_id in group.topics:
            self.keepers.setdefault(topic_id, {})[group] = None
        self.note_pending(group)

    def drop(self, group: ConsumerGroup) -> None:
        """Remove a group without members from the tables."""
        del self.by_name[group.name]
        _discard(self.coordinated, group.coordinator, group)
        for topic in group.topic_names:
            _discard(self.subscribers, topic, group)
        for topic_id in group.topics:
            _discard(self.keepers, topic_id, group)
        self.pending.pop(group, None)
        self.changes.drop(group.name, self.bump())

    def touch(self, group: ConsumerGroup, members: Iterable[ConsumerGroupMember] = ()) -> None:
        """Note that a group, and some of its members, were added or changed."""
        version = self.bump()
        if group.version != version:
            group.version = version
            self.changes.touch(group.name, version)
        for member in members:
            if member.version != version:
                member.version = version
                group.changes.touch(member.id, version)

    def reshape(self, group: ConsumerGroup) -> None:
        """Begin a new group epoch: members, subscription or queues changed, so a target is due."""
        group.group_epoch += 1
        if not group.members or not group.is_allocated:
            group.target_epoch, group.fault = group.group_epoch, ""
        self.note_pending(group)
        self.touch(group)

    def note_pending(self, group: ConsumerGroup) -> None:
        """Keep the list of groups whose target is outdated."""
        if group.target_epoch != group.group_epoch:
            self.pending[group] = None
        else:
            self.pending.pop(group, None)

    def coordinate(self, group: ConsumerGroup, broker: str) -> None:
        """Set or restart the coordinator of a group; "" for none."""
        was = group.coordinator
        _discard(self.coordinated, group.coordinator, group)
        self.coordinated.setdefault(broker, {})[group] = None
        group.coordinator = broker
        group.coordinator_epoch += 1
        self.touch(group)
        group.coordinator_version = group.version
        self._coordinated(group, was)

    # ── topics ──────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, group: ConsumerGroup, topics: dict[str, str]) -> None:
        """Replace the subscription; the caller applies its consequences for queues."""
        for topic in group.topic_names:
            _discard(self.subscribers, topic, group)
        group.subscription = topics
        group.subscription_version = max(group.subscription_version, self.first_epoch) + 1
        for topic in group.topic_names:
            self.subscribers.setdefault(topic, {})[group] = None

    def keep(self, group: ConsumerGroup, topic_id: int, count: int) -> GroupTopic:
        """Add a topic that is new to the group, with unknown offsets."""
        topic = group.topics[topic_id] = GroupTopic(topic_id)
        topic.grow(count, UNKNOWN_START)
        self.keepers.setdefault(topic_id, {})[group] = None
        return topic

    def keep_all(self, group: ConsumerGroup, topic_id: int, count: int) -> GroupTopic:
        """Keep offsets of all `count` queues of a topic, which the group need not subscribe to.

        Queues that are added to a known topic begin at 0.
        """
        topic = group.topics.get(topic_id) or self.keep(group, topic_id, count)
        topic.grow(count, 0)
        return topic

    def follow(self, group: ConsumerGroup, topic_id: int, count: int, start: int) -> None:
        """Follow a subscribed topic of `count` queues; unknown ones begin at `start`.

        Queues that are added to a known topic begin at 0.
        """
        topic = self.keep_all(group, topic_id, count)
        if not topic.subscribed:
            topic.subscribed = True
            if start != UNKNOWN_START and topic.committed.count(UNKNOWN_START) == len(topic):
                # Many groups may wait for a new topic of many queues.
                topic.start_all_at(start)
                return
            for queue, committed in enumerate(topic.committed):
                if committed == UNKNOWN_START and start == UNKNOWN_START:
                    group.unstarted[topic_id, queue] = None
                elif committed == UNKNOWN_START:
                    topic.start_at(queue, start)

    def unfollow(self, group: ConsumerGroup, topic: GroupTopic) -> None:
        """Unsubscribe from a topic: its owners have to release it, its offsets stay."""
        topic.subscribed = False
        topic.targets = [None] * len(topic)
        self._forget_unstarted(group, topic)
        self.touch(group, [owner for owner in topic.owners if owner is not None])

    def forget_topic(self, group: ConsumerGroup, topic_id: int) -> None:
        """Remove a deleted topic with everything that the group knew of it."""
        topic = group.topics.pop(topic_id)
        _discard(self.keepers, topic_id, group)
        self._forget_unstarted(group, topic)
        owners: list[ConsumerGroupMember] = []
        for queue, owner in enumerate(topic.owners) if group.members else ():
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
        """Give a queue without an owner to its target, if it has one and a start."""
        target = topic.targets[queue]
        if target is None or topic.owners[queue] is not None or topic.committed[queue] < 0:
            return
        topic.owners[queue] = target
        target.owned[topic.id, queue] = None
        self.touch(group, (target,))
        topic.owner_epochs[queue] = group.version

    def free(self, group: ConsumerGroup, topic: GroupTopic, queue: int) -> None:
        """Free a queue whose owner has released it or was fenced."""
        owner = topic.owners[queue]
        if owner is not None:
            topic.owners[queue] = None
            del owner.owned[topic.id, queue]
            self.touch(group, (owner,))

    def renew(self, group: ConsumerGroup, topic: GroupTopic, queue: int) -> None:
        """Give the queue to the same owner in a new epoch, so that its earlier commits are refused."""
        owner = topic.owners[queue]
        if owner is not None:
            self.touch(group, (owner,))
            topic.owner_epochs[queue] = group.version

    def remove(self, group: ConsumerGroup, members: Collection[ConsumerGroupMember]) -> None:
        """Remove members: nobody waits for them, and their queues are free at once."""
        out = set(members)
        self.touch(group)
        for topic in group.topics.values():
            for queue, target in enumerate(topic.targets):
                if target in out:
                    # A queue on its way to a removed member stays with its owner, which saves a
                    # move.
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
            # Not to another removed member: no target names one any longer.
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
