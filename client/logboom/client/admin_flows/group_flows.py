"""The admin's flows for consumer groups (see `logboom.client.flows`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from logboom.client.admin_flows import group_lag
from logboom.client.admin_flows.group_lag import (
    GroupDescription,
    GroupMember,
    GroupQueue,
    GroupReport,
)
from logboom.client.calls import AskNode, AskRaftLeader, LoadMetadata, ProposeCommand
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import Flow, changed_fields
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.filters import Filter
from logboom.wire.group_commands import AlterGroup, DeleteGroup
from logboom.wire.group_messages import GroupStatus, GroupStatusResult, MemberStatus
from logboom.wire.group_view import (
    UNKNOWN_START,
    GroupConfig,
    GroupSummary,
    GroupView,
)
from logboom.wire.messages import (
    DescribeGroup,
    GroupDescribed,
    GroupsListed,
    ListGroups,
)
from logboom.wire.view import View

STATUS_S: Final = 2.0
"""Seconds that a coordinator has to report on its members."""


def groups(timeout: float) -> Flow[list[GroupSummary]]:
    """Return all groups by name."""
    answer, _ = yield AskRaftLeader(lambda ms: ListGroups(0, ms), timeout)
    if not isinstance(answer, GroupsListed):
        raise unexpected(answer)
    return answer.groups


def described(name: str, timeout: float) -> Flow[GroupDescribed]:
    """Return one group with its members and offsets, as the name servers know it."""
    answer, _ = yield AskRaftLeader(lambda ms: DescribeGroup(0, ms, name), timeout)
    if not isinstance(answer, GroupDescribed):
        raise unexpected(answer)
    return answer


def committed(name: str, topic: str, timeout: float) -> Flow[dict[int, int | None]]:
    """Return the committed offsets of a group in a topic, by queue, without unused queues."""
    found = yield from described(name, timeout)
    return {
        queue: None if offset == UNKNOWN_START else offset
        for each in found.offsets
        if each.topic == topic
        for queue, offset in enumerate(each.committed)
    }


def describe_group(name: str, wall_ms: int, timeout: float) -> Flow[GroupDescription]:
    """Describe one group with the lag of each queue, and why a queue is stuck."""
    found = yield from described(name, timeout)
    group = found.group
    names = [each.topic for each in found.offsets]
    view: View = yield LoadMetadata(timeout, found.version, names)
    told = yield from member_states(group, view, timeout)
    topics = {topic.id: topic.name for topic in view.topics}
    standing = GroupReport(group, told, wall_ms)
    queues: list[GroupQueue] = []
    for offsets in found.offsets:
        if offsets.subscribed and offsets.topic_id in topics:
            queues += yield from group_lag.queues(standing, offsets, timeout)
    return GroupDescription(
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
        _members(group, told, topics),
        queues,
    )


def _members(
    group: GroupView, told: list[MemberStatus] | None, topics: dict[int, str]
) -> list[GroupMember]:
    silent = {status.member: status.silent_ms for status in told or []}
    return [
        GroupMember(
            member.id,
            member.client_id,
            member.instance,
            member.room,
            member.epoch,
            silent.get(member.id),
            member.subscription_version,
            sorted((topics.get(q.topic_id, "?"), q.queue) for q in member.queues),
        )
        for member in sorted(group.members, key=lambda member: member.id)
    ]


def member_states(group: GroupView, view: View, timeout: float) -> Flow[list[MemberStatus] | None]:
    """Return what the coordinator knows of the members; None if it does not answer."""
    for broker in view.brokers:
        if broker.id == group.coordinator and broker.alive:
            left = min(timeout, STATUS_S)
            message = GroupStatus(0, int(left * 1000), group.name)
            try:
                answer, _ = yield AskNode(broker.endpoint, message, left)
            except LogboomError:
                return None
            return answer.members if isinstance(answer, GroupStatusResult) else None
    return None


def alter_group(
    name: str,
    subscription: Mapping[str, str | Filter] | None,
    changes: dict[str, Any],
    wall_ms: int,
    timeout: float,
    *,
    create: bool,
) -> Flow[None]:
    """Change settings or the subscription; with `create` create a group that does not exist."""
    config = None
    if changes:
        known = GroupConfig()
        try:
            found = yield from described(name, timeout)
        except LogboomError as error:
            if not create or error.code != "UNKNOWN_GROUP":
                raise
        else:
            known = found.group.config
        config = changed_group(known, changes)
    texts = None if subscription is None else filter_texts(subscription)
    yield ProposeCommand(AlterGroup(name, config, texts, create, wall_ms), timeout)


def filter_texts(subscription: Mapping[str, str | Filter]) -> dict[str, str]:
    """Return a subscription with canonical filter texts.

    Raises:
        InvalidFilter: a filter cannot be parsed; points at the character.
    """
    return {
        topic: (wanted if isinstance(wanted, Filter) else Filter.read(wanted)).text
        for topic, wanted in subscription.items()
    }


def changed_group(config: GroupConfig, changes: dict[str, Any]) -> GroupConfig:
    """Return settings with changes.

    Raises:
        InvalidRequest: a setting does not exist, or has another type.
    """
    fields = changed_fields(config, changes, "group setting")
    options = changes.get("options")
    if isinstance(options, Mapping):
        fields["options"] = _builtins(
            changed_fields(config.options, options, "option of a strategy")
        )
    try:
        return msgspec.convert(_builtins(fields), GroupConfig)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"a group setting has the wrong type: {error}") from None


def _builtins(fields: dict[str, Any]) -> list[Any]:
    return [msgspec.to_builtins(value) for value in fields.values()]


def delete_group(name: str, wall_ms: int, timeout: float, *, dead_letters: bool) -> Flow[None]:
    """Delete a group without members, its offsets and retries, and if asked its dead letters."""
    yield ProposeCommand(DeleteGroup(name, wall_ms, dead_letters), timeout)
