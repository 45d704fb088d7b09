"""The Raft leader's work for groups: it allocates queues to members and proposes the target.

It does so outside `apply`, and names the group epoch that it saw. If the group has changed
meanwhile, the target is refused and computed again. A large group that changes often is allocated
about once a second at most, and no turn of the loop allocates more than one large group.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from logboom.metadata.allocate import InvalidAllocation, allocate_topics, owners
from logboom.metadata.groups.target_commands import pack_places
from logboom.wire.group_commands import NOBODY, SetTarget
from logboom.wire.group_owners import strategy_fault, why_unowned
from logboom.wire.names import RETRY_PREFIX

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.metadata.tables.consumer_groups import ConsumerGroup, GroupTopic
    from logboom.metadata.tables.replica_set import ReplicaSet
    from logboom.wire.group_view import QueueKey

PACE: Final = 10_000.0
"""Queues and members allocated per second and group, so that changes in a burst share one
allocation."""
MAX_PER_TURN: Final = 5_000
"""Queues and members after which other groups wait for the next turn."""
MAX_ROW_BYTES: Final = 40_000
"""Bytes of rows in one command, which must stay below `MAX_COMMAND_BYTES`."""
NAMED: Final = 3
"""Queues without an owner that a fault names."""


class GroupTargets:
    """The groups that wait for an allocation, and the proposals in flight."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        """Group id → parts in flight."""
        self._not_before: dict[int, float] = {}
        """Group id → monotonic seconds."""
        self._spent = 0
        """Queues and members allocated in this turn."""

    def begin_turn(self) -> None:
        """Begin a turn of the loop."""
        self._spent = 0

    def restart(self) -> None:
        """Forget everything in flight, when a term begins."""
        self._asked.clear()
        self._not_before.clear()

    def take(self, cluster: ClusterState, now: float, wall_ms: int) -> list[SetTarget]:
        """Return the targets to propose; report the end of each to `ended`."""
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
        """Note that a proposal was applied, refused or lost."""
        left = self._asked.get(group_id, 0) - 1
        if left > 0:
            self._asked[group_id] = left
        else:
            self._asked.pop(group_id, None)

    def deadline(self, cluster: ClusterState) -> float | None:
        """Return when `take` is due next."""
        waiting = (group.id for group in cluster.groups.pending if group.id not in self._asked)
        return min((self._not_before.get(number, 0.0) for number in waiting), default=None)


def targets_of(cluster: ClusterState, group: ConsumerGroup, wall_ms: int) -> list[SetTarget]:
    """Compute the target of a group by its strategy, in as many commands as it takes."""
    part = partial(SetTarget, group.name, group.group_epoch)
    try:
        rows, fault = _rows(cluster, group)
    except InvalidAllocation as error:
        return [part([], last=True, fault=error.text, time_ms=wall_ms)]
    parts: list[list[tuple[int, bytes]]] = [[]]
    size = 0
    for row in rows:
        if size + len(row[1]) > MAX_ROW_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(row)
        # The array and the topic id add a few bytes.
        size += len(row[1]) + 16
    return [
        part(some, last=some is parts[-1], fault=fault * (some is parts[-1]), time_ms=wall_ms)
        for some in parts
    ]


def _rows(cluster: ClusterState, group: ConsumerGroup) -> tuple[list[tuple[int, bytes]], str]:
    """Compute a row per topic, and the queues that the strategy gives to nobody, with the reason."""
    topics = [group.topics[number] for number in sorted(group.topics)]
    topics = [topic for topic in topics if topic.subscribed and len(topic)]
    if not topics:
        return [], ""
    owner_of = {} if group.config.paused else _allocate(cluster, group, topics)
    places = {member.name: place for place, member in enumerate(group.ordered)}
    places[""] = NOBODY
    rows = [
        (
            topic.id,
            pack_places(
                [places[owner_of.get((topic.id, queue), "")] for queue in range(len(topic))]
            ),
        )
        for topic in topics
    ]
    return rows, "" if group.config.paused else _unowned(cluster, group, topics, owner_of)


def _unowned(
    cluster: ClusterState,
    group: ConsumerGroup,
    topics: list[GroupTopic],
    owner_of: dict[QueueKey, str],
) -> str:
    """Describe the queues without an owner, the first with its reason; "" if there are none."""
    left = [
        (cluster.topics_by_id[topic.id].name, queue)
        for topic in topics
        for queue in range(len(topic))
        if (topic.id, queue) not in owner_of
    ]
    if not left:
        return ""
    named = [
        f"{topic}/{queue} ({why_unowned(group.config, group.names, topic, queue)})"
        for topic, queue in left[:NAMED]
    ]
    more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
    return f"no member gets {', '.join(named)}{more}: see `logboom group alter --strategy`"


def _allocate(
    cluster: ClusterState, group: ConsumerGroup, topics: list[GroupTopic]
) -> dict[QueueKey, str]:
    """Allocate topic by topic; the group's retry topic on its own, whatever the strategy."""
    own = cluster.topics.get(RETRY_PREFIX + group.name)
    data = [topic for topic in topics if own is None or topic.id != own.id]
    fault = strategy_fault(group.config)
    if fault is not None:
        # An earlier version accepted these settings of the group: everything stays as it is.
        raise InvalidAllocation(fault)
    found: dict[QueueKey, str] = {}
    if data:
        options = group.config.options
        allocation = allocate_topics(
            group.config.strategy,
            [[(topic.id, queue) for queue in range(len(topic))] for topic in data],
            list(group.names),
            config=_configured(cluster, group, data),
            rooms=options.rooms,
            room_of=partial(_room_of, cluster, group),
            virtual_nodes=options.virtual_nodes,
            previous=_previous(data),
        )
        found = owners(allocation)
    if own is not None and own.id in group.topics:
        allocate_retries(cluster, group, group.topics[own.id], found)
    return found


def allocate_retries(
    cluster: ClusterState, group: ConsumerGroup, retries: GroupTopic, found: dict[QueueKey, str]
) -> None:
    """Allocate the retry topic: owners keep their queues, others go to the members with fewest.

    Every member can serve retries.
    """
    if not retries.subscribed:
        return
    load = Counter(found.values())
    written = owners(_configured(cluster, group, [retries]))
    members = _retry_members(cluster, group, retries)
    for queue in range(len(retries)):
        holder = retries.targets[queue] or retries.owners[queue]
        owner = written.get((retries.id, queue), "")
        if owner and group.config.strategy == "by_config":
            pass
        elif holder is not None and holder.name in members:
            owner = holder.name
        else:
            owner = min(members, key=lambda name: (load[name], name))
        found[retries.id, queue] = owner
        load[owner] += 1


def _retry_members(cluster: ClusterState, group: ConsumerGroup, retries: GroupTopic) -> list[str]:
    """Return the members for retries: those in by_config, those in a listed room, or else all."""
    config, names = group.config, list(group.names)
    some: list[str] = []
    if config.strategy == "by_config":
        some = [name for name in names if config.options.config.get(name)]
    elif config.strategy == "machine_room_nearby":
        room = _zone(cluster, (retries.id, 0))
        some = [name for name in names if group.names[name].room == room]
    return some or names


def _previous(topics: list[GroupTopic]) -> dict[str, list[QueueKey]]:
    """Return the queues that each member has or is about to get."""
    found: dict[str, list[QueueKey]] = {}
    for topic in topics:
        for queue, (target, owner) in enumerate(zip(topic.targets, topic.owners, strict=True)):
            holder = target or owner
            if holder is not None:
                found.setdefault(holder.name, []).append((topic.id, queue))
    return found


def _configured(
    cluster: ClusterState, group: ConsumerGroup, among: list[GroupTopic]
) -> dict[str, list[QueueKey]]:
    """Restrict the configuration of by_config to members and queues that exist."""
    counts = {topic.id: len(topic) for topic in among}
    found: dict[str, list[QueueKey]] = {}
    for name, chosen in group.config.options.config.items():
        topics = [(cluster.topics.get(topic), queue) for topic, queue in chosen]
        keys = dict.fromkeys((topic.id, queue) for topic, queue in topics if topic is not None)
        if name in group.names:
            found[name] = [key for key in keys if 0 <= key[1] < counts.get(key[0], 0)]
    return found


def _room_of(cluster: ClusterState, group: ConsumerGroup, value: QueueKey | str) -> str:
    """Return the zone of a queue's leader (or first replica), or the room that a member reported."""
    strategy = group.config.strategy
    if isinstance(value, str):
        room = group.names[value].room
        if not room:
            text = (
                f"member {value!r} has no room, which {strategy} needs: start it with room=, or with "
                "`logboom consume --room`"
            )
            raise InvalidAllocation(text)
        return room
    zone = _zone(cluster, value)
    if not zone:
        topic, standing = cluster.topics_by_id[value[0]], _standing(cluster, value)
        broker = standing.leader or standing.replicas[0]
        text = (
            f"broker {broker}, which has {topic.name}/{value[1]}, is in no zone, which {strategy} "
            "needs: set zone in its file"
        )
        raise InvalidAllocation(text)
    return zone


def _zone(cluster: ClusterState, key: QueueKey) -> str:
    standing = _standing(cluster, key)
    return cluster.brokers[standing.leader or standing.replicas[0]].zone


def _standing(cluster: ClusterState, key: QueueKey) -> ReplicaSet:
    return cluster.topics_by_id[key[0]].queues[key[1]].standing
