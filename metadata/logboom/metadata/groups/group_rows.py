"""The rows of groups in a snapshot: canonical, with the columns of queues as bytes.

Owners and targets are places among the group's members by name; numbers are little-endian.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from logboom.metadata.groups.target_commands import pack_places, unpack_places
from logboom.metadata.tables.change_index import ChangeIndex
from logboom.metadata.tables.consumer_groups import ConsumerGroup, ConsumerGroupMember, GroupTopic
from logboom.wire.group_commands import NOBODY
from logboom.wire.group_view import UNKNOWN_START, GroupConfig

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState


class MemberRow(Struct, frozen=True, array_like=True):
    """One member."""

    id: str
    epoch: int
    client_id: str
    instance: str
    room: str
    subscription_version: int
    version: int


class MemberRowWithUser(MemberRow, frozen=True, array_like=True):
    """A member of a user, which there is none of below features level 3."""

    user: int = 0


class GroupTopicRow(Struct, frozen=True, array_like=True):
    """A group's data on one topic."""

    id: int
    subscribed: bool
    targets: bytes
    owners: bytes
    owner_epochs: bytes
    committed: bytes
    seen_ends: bytes
    ranges: list[tuple[int, bytes]]


class GroupRow(Struct, frozen=True, array_like=True):
    """One group."""

    name: str
    id: int
    config: GroupConfig
    subscription: list[tuple[str, str]]
    subscription_version: int
    coordinator: str
    coordinator_epoch: int
    coordinator_version: int
    group_epoch: int
    target_epoch: int
    fault: str
    version: int
    created_version: int
    members: list[MemberRowWithUser]
    """By name."""
    topics: list[GroupTopicRow]


def group_rows(cluster: ClusterState) -> list[GroupRow]:
    """Encode all groups, sorted by name."""
    return [_row(group) for _, group in sorted(cluster.groups.by_name.items())]


def _row(group: ConsumerGroup) -> GroupRow:
    members = group.ordered
    places: dict[ConsumerGroupMember | None, int] = {
        member: place for place, member in enumerate(members)
    }
    places[None] = NOBODY
    # A row without a user is one of before there were any, as older name servers write it.
    stored: list[Any] = [_member_row(member) for member in members]
    return GroupRow(
        group.name,
        group.id,
        group.config,
        sorted(group.subscription.items()),
        group.subscription_version,
        group.coordinator,
        group.coordinator_epoch,
        group.coordinator_version,
        group.group_epoch,
        group.target_epoch,
        group.fault,
        group.version,
        group.created_version,
        stored,
        [_topic_row(group.topics[number], places) for number in sorted(group.topics)],
    )


def _member_row(member: ConsumerGroupMember) -> MemberRow:
    row = (
        member.id,
        member.epoch,
        member.client_id,
        member.instance,
        member.room,
        member.subscription_version,
        member.version,
    )
    return MemberRowWithUser(*row, member.user) if member.user else MemberRow(*row)


def _topic_row(topic: GroupTopic, places: dict[ConsumerGroupMember | None, int]) -> GroupTopicRow:
    return GroupTopicRow(
        topic.id,
        topic.subscribed,
        pack_places([places[member] for member in topic.targets]),
        pack_places([places[member] for member in topic.owners]),
        _pack(topic.owner_epochs),
        _pack(topic.committed),
        _pack(topic.seen_ends),
        sorted(topic.ranges.items()),
    )


def _pack(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _unpack(data: bytes) -> array[int]:
    column = array("q")
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def restore_groups(cluster: ClusterState, rows: list[GroupRow], next_id: int) -> None:
    """Restore the groups of a snapshot, after its topics and brokers.

    Raises:
        ValueError: a column is malformed.
    """
    groups = cluster.groups
    groups.next_id = next_id
    # Deletions before the snapshot are not known here.
    groups.changes = ChangeIndex(cluster.version)
    for row in rows:
        groups.add(_group(row, cluster.version))
    for row in sorted(rows, key=lambda row: row.version):
        groups.changes.touch(row.name, row.version)


def _group(row: GroupRow, version: int) -> ConsumerGroup:
    group = ConsumerGroup(
        row.name,
        row.id,
        row.config,
        dict(row.subscription),
        row.subscription_version,
        row.coordinator,
        row.coordinator_epoch,
        row.coordinator_version,
        row.group_epoch,
        row.target_epoch,
        row.fault,
        row.version,
        row.created_version,
        changes=ChangeIndex(version),
    )
    for found in row.members:
        member = ConsumerGroupMember(*(getattr(found, field) for field in found.__struct_fields__))
        group.members[member.id] = group.names[member.name] = member
    for found in sorted(row.members, key=lambda member: member.version):
        group.changes.touch(found.id, found.version)
    members = group.ordered
    for stored in row.topics:
        topic = group.topics[stored.id] = _topic(stored, members)
        for queue, owner in enumerate(topic.owners):
            if owner is not None:
                owner.owned[topic.id, queue] = None
        for queue, committed in enumerate(topic.committed):
            if topic.subscribed and committed == UNKNOWN_START:
                group.unstarted[topic.id, queue] = None
    return group


def _topic(row: GroupTopicRow, members: list[ConsumerGroupMember]) -> GroupTopic:
    topic = GroupTopic(
        row.id,
        row.subscribed,
        _members(row.targets, members),
        _members(row.owners, members),
        _unpack(row.owner_epochs),
        _unpack(row.committed),
        _unpack(row.seen_ends),
        dict(row.ranges),
    )
    columns = (topic.targets, topic.owners, topic.owner_epochs, topic.committed, topic.seen_ends)
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"columns of topic {row.id} differ in length")
    return topic


def _members(row: bytes, members: list[ConsumerGroupMember]) -> list[ConsumerGroupMember | None]:
    places = unpack_places(row)
    if places is None or any(place >= len(members) and place != NOBODY for place in places):
        raise ValueError("a queue's member does not exist")
    return [None if place == NOBODY else members[place] for place in places]
