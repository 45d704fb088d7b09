"""The target of a group: the intended owner of each queue, as the Raft leader allocated it."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused, unknown_group
from logboom.wire.group_commands import NOBODY, SetTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.metadata.tables.consumer_groups import (
        ConsumerGroup,
        ConsumerGroupMember,
        GroupTopic,
    )


def pack_places(places: Sequence[int]) -> bytes:
    """Encode a row of `SetTarget`."""
    row = array("H", places)
    if sys.byteorder == "big":
        row.byteswap()
    return row.tobytes()


def unpack_places(row: bytes) -> array[int] | None:
    """Decode the places of a row of `SetTarget`; None if it is malformed."""
    places = array("H")
    if len(row) % places.itemsize:
        return None
    places.frombytes(row)
    if sys.byteorder == "big":
        places.byteswap()
    return places


def set_target(cluster: ClusterState, command: SetTarget) -> CommandOutcome:
    """Set the target; every member then reconciles its own changes.

    A queue whose owner is no longer its target has to be drained and released. One without an owner
    goes to its target at once. All others continue without a pause.
    """
    group = cluster.groups.by_name.get(command.group)
    if group is None:
        return unknown_group(command.group)
    if command.group_epoch != group.group_epoch or group not in cluster.groups.pending:
        text = f"group {group.name!r} is at epoch {group.group_epoch}, allocated was another"
        return refused("STALE_EPOCH", text, group=group.name, epoch=group.group_epoch)
    members: list[ConsumerGroupMember | None] = [*group.ordered]
    rows: list[tuple[GroupTopic, array[int]]] = []
    for topic_id, row in command.rows:
        topic, places = group.topics.get(topic_id), unpack_places(row)
        if topic is None or not topic.subscribed or places is None or len(places) != len(topic):
            text = f"a target for topic {topic_id} that does not fit its queues"
            return refused("INVALID_ARGUMENT", text, group=group.name)
        if any(place >= len(members) and place != NOBODY for place in places):
            text = f"a target for topic {topic_id} that names no member of {len(members)}"
            return refused("INVALID_ARGUMENT", text, group=group.name)
        rows.append((topic, places))
    cluster.groups.touch(group)
    changed: dict[ConsumerGroupMember, None] = {}
    for topic, places in rows:
        _aim(group, topic, places, members, changed)
    if command.last:
        group.target_epoch, group.fault = group.group_epoch, command.fault
        cluster.groups.note_pending(group)
    cluster.groups.touch(group, changed)
    return DONE


def _aim(
    group: ConsumerGroup,
    topic: GroupTopic,
    places: array[int],
    members: list[ConsumerGroupMember | None],
    changed: dict[ConsumerGroupMember, None],
) -> None:
    """Set the targets of one topic. The code is inlined: one command sets those of 10,000 queues."""
    targets, owners, committed = topic.targets, topic.owners, topic.committed
    epochs, topic_id, version = topic.owner_epochs, topic.id, group.version
    for queue, place in enumerate(places):
        target = None if place == NOBODY else members[place]
        if targets[queue] is target:
            continue
        targets[queue] = target
        owner = owners[queue]
        if owner is not None:
            changed[owner] = None
        elif target is not None and committed[queue] >= 0:
            owners[queue] = target
            epochs[queue] = version
            target.owned[topic_id, queue] = None
            changed[target] = None
