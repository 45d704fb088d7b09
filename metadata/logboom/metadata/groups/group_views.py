"""Groups as WATCH and DESCRIBEGROUP show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.wire.group_view import (
    GroupOffsets,
    GroupSummary,
    GroupView,
    MemberView,
    OwnedQueue,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.metadata.tables.consumer_groups import ConsumerGroup, ConsumerGroupMember

WHOLE = -1
"""In place of a version: a full view is wanted."""


def groups_since(
    cluster: ClusterState, version: int, names: Collection[str] | None, members_at: str
) -> tuple[list[GroupView], list[str]]:
    """Return the groups that changed after `version`, and the names of deleted ones; `WHOLE`: all.

    `names` None: all groups, otherwise only these. `members_at` is a broker: groups that it does
    not coordinate are shown without members.
    """
    groups = cluster.groups
    if version == WHOLE:
        changed: Iterable[str] = groups.by_name if names is None else names
        gone: list[str] = []
    else:
        changed = _wanted(groups.changes.changed_since(version), names)
        gone = _wanted(groups.changes.gone_since(version), names)
    found = [groups.by_name[name] for name in changed if name in groups.by_name]
    return [_since(group, version, members_at) for group in found], gone


def _wanted(found: list[str], names: Collection[str] | None) -> list[str]:
    return found if names is None else [name for name in found if name in names]


def _since(group: ConsumerGroup, version: int, members_at: str) -> GroupView:
    if members_at and group.coordinator != members_at:
        return _view(group, [], [], full=False)
    # Changes before the group, or before its coordinator's start, were never sent.
    begun = max(group.created_version, group.coordinator_version if members_at else 0)
    if version < max(begun, group.changes.floor):
        return whole_view(group)
    changed = [group.members[name] for name in group.changes.changed_since(version)]
    return _view(group, changed, group.changes.gone_since(version), full=False)


def whole_view(group: ConsumerGroup) -> GroupView:
    """Build the view of a group with all its members."""
    return _view(group, group.members.values(), [], full=True)


def head_view(group: ConsumerGroup) -> GroupView:
    """Build the view of a group without its members."""
    return _view(group, (), [], full=False)


def _view(
    group: ConsumerGroup, members: Iterable[ConsumerGroupMember], gone: list[str], *, full: bool
) -> GroupView:
    return GroupView(
        group.name,
        group.id,
        group.config,
        group.subscription,
        group.subscription_version,
        group.coordinator,
        group.coordinator_epoch,
        group.group_epoch,
        group.target_epoch,
        group.fault,
        group.version,
        len(group.members),
        full,
        [_member_view(group, member) for member in members],
        gone,
        list(group.unstarted),
    )


def _member_view(group: ConsumerGroup, member: ConsumerGroupMember) -> MemberView:
    queues: list[OwnedQueue] = []
    for topic_id, queue in sorted(member.owned):
        topic = group.topics[topic_id]
        queues.append(
            OwnedQueue(
                topic_id,
                queue,
                topic.owner_epochs[queue],
                topic.committed[queue],
                topic.ranges.get(queue, b""),
                topic.targets[queue] is not member,
            )
        )
    return MemberView(
        member.id,
        member.epoch,
        member.client_id,
        member.instance,
        member.room,
        member.subscription_version,
        queues,
        member.version,
        member.user,
    )


def offsets_of(cluster: ClusterState, group: ConsumerGroup) -> list[GroupOffsets]:
    """Return a group's offsets, by topic."""
    return [
        GroupOffsets(
            topic.id,
            cluster.topics_by_id[topic.id].name,
            topic.subscribed,
            list(topic.committed),
            list(topic.seen_ends),
            sorted(topic.ranges.items()),
        )
        for topic in sorted(group.topics.values(), key=lambda known: known.id)
    ]


def summaries(cluster: ClusterState) -> list[GroupSummary]:
    """Summarize all groups, sorted by name."""
    return [summary_of(group) for _, group in sorted(cluster.groups.by_name.items())]


def summary_of(group: ConsumerGroup) -> GroupSummary:
    """Summarize one group."""
    return GroupSummary(
        group.name,
        group.id,
        group.config.mode,
        sorted(group.subscription),
        len(group.members),
        group.coordinator,
        group.group_epoch,
        group.target_epoch,
        group.fault,
        group.config.paused,
    )
