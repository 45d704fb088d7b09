"""What the raft leader does for groups: it allocates queues to members and proposes the target.

Outside apply, with the group epoch that it saw; if the group has changed meanwhile, the target is
refused and worked out anew. A large group that changes often is allocated at most every second or
so, and no turn of the loop allocates more than one large group.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from logboom.metadata.allocate import InvalidAllocation, allocate, owners
from logboom.metadata.groups.target_commands import pack_places
from logboom.wire.group_commands import NOBODY, SetTarget

if TYPE_CHECKING:
    from logboom.metadata.groups.groups import Group, GroupTopic
    from logboom.metadata.state.cluster import Cluster
    from logboom.wire.group_view import QueueKey

PACE: Final = 10_000.0
"""Queues and members allocated per second, per group; a burst of changes is taken together."""
MAX_PER_TURN: Final = 5_000
"""Queues and members after which the rest waits for the next turn."""
MAX_ROW_BYTES: Final = 40_000
"""Of rows in one command, which must stay below `MAX_COMMAND_BYTES`."""


class GroupTargets:
    """Which groups are to be allocated, and which proposals are under way."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        """Group id → parts under way."""
        self._not_before: dict[int, float] = {}
        """Group id → monotonic seconds."""
        self._spent = 0
        """Queues and members allocated in this turn."""

    def begin_turn(self) -> None:
        """A turn of the loop begins."""
        self._spent = 0

    def restart(self) -> None:
        """A term begins: nothing of ours is under way."""
        self._asked.clear()
        self._not_before.clear()

    def take(self, cluster: Cluster, now: float, wall_ms: int) -> list[SetTarget]:
        """Targets to propose; each is to be told of by `ended`."""
        found: list[SetTarget] = []
        for group in list(cluster.groups.pending):
            if group.id in self._asked or self._not_before.get(group.id, now) > now:
                continue
            if self._spent >= MAX_PER_TURN:
                break
            parts = targets_of(cluster, group, wall_ms)
            self._asked[group.id] = len(parts)
            size = len(group.members) + sum(len(topic) for topic in group.topics.values())
            self._not_before[group.id] = now + size / PACE
            self._spent += size
            found += parts
        return found

    def ended(self, group_id: int) -> None:
        """A proposal was applied, refused or lost."""
        left = self._asked.get(group_id, 0) - 1
        if left > 0:
            self._asked[group_id] = left
        else:
            self._asked.pop(group_id, None)

    def deadline(self, cluster: Cluster) -> float | None:
        """When `take` is wanted next."""
        waiting = (group.id for group in cluster.groups.pending if group.id not in self._asked)
        return min((self._not_before.get(number, 0.0) for number in waiting), default=None)


def targets_of(cluster: Cluster, group: Group, wall_ms: int) -> list[SetTarget]:
    """The target of a group by its strategy, in as many commands as it takes."""
    part = partial(SetTarget, group.name, group.group_epoch)
    try:
        rows = _rows(cluster, group)
    except InvalidAllocation as error:
        return [part([], last=True, fault=error.text, time_ms=wall_ms)]
    parts: list[list[tuple[int, bytes]]] = [[]]
    size = 0
    for row in rows:
        if size + len(row[1]) > MAX_ROW_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(row)
        # Its array and topic id take a few bytes more.
        size += len(row[1]) + 16
    return [part(some, last=some is parts[-1], fault="", time_ms=wall_ms) for some in parts]


def _rows(cluster: Cluster, group: Group) -> list[tuple[int, bytes]]:
    topics = [group.topics[number] for number in sorted(group.topics)]
    topics = [topic for topic in topics if topic.subscribed and len(topic)]
    if not topics:
        return []
    owner_of = {} if group.config.paused else _allocate(cluster, group, topics)
    places = {member.name: place for place, member in enumerate(group.ordered)}
    places[""] = NOBODY
    return [
        (
            topic.id,
            pack_places(
                [places[owner_of.get((topic.id, queue), "")] for queue in range(len(topic))]
            ),
        )
        for topic in topics
    ]


def _allocate(cluster: Cluster, group: Group, topics: list[GroupTopic]) -> dict[QueueKey, str]:
    queues = [(topic.id, queue) for topic in topics for queue in range(len(topic))]
    previous: dict[str, list[QueueKey]] = {}
    for topic in topics:
        for queue, (target, owner) in enumerate(zip(topic.targets, topic.owners, strict=True)):
            holder = target or owner
            if holder is not None:
                previous.setdefault(holder.name, []).append((topic.id, queue))
    options = group.config.options
    allocation = allocate(
        group.config.strategy,
        queues,
        list(group.names),
        config=_configured(cluster, group, set(queues)),
        rooms=options.rooms,
        room_of=partial(_room_of, cluster, group),
        virtual_nodes=options.virtual_nodes,
        previous=previous,
    )
    return owners(allocation)


def _configured(cluster: Cluster, group: Group, queues: set[QueueKey]) -> dict[str, list[QueueKey]]:
    """What by_config is told: only members that are here, and queues that exist."""
    found: dict[str, list[QueueKey]] = {}
    for name, chosen in group.config.options.config.items():
        topics = [(cluster.topics.get(topic), queue) for topic, queue in chosen]
        keys = [(topic.id, queue) for topic, queue in topics if topic is not None]
        if name in group.names:
            found[name] = [key for key in keys if key in queues]
    return found


def _room_of(cluster: Cluster, group: Group, value: QueueKey | str) -> str | None:
    """Zone of a queue's leader (or first replica), or the room that a member said."""
    if isinstance(value, str):
        return group.names[value].room
    topic_id, queue = value
    standing = cluster.topics_by_id[topic_id].queues[queue].standing
    return cluster.brokers[standing.leader or standing.replicas[0]].zone
