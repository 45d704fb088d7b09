"""Commands on members of groups: joining, leaving, expiry (SAFETY G1, G2, R13)."""

from __future__ import annotations

from typing import Final

from logboom.metadata.groups.group_settings import make_group
from logboom.metadata.groups.group_subscriptions import (
    refuse_mismatch,
    subscribe,
    subscription_fault,
)
from logboom.metadata.groups.offset_commands import commit, member_of
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import (
    CommandOutcome,
    not_coordinator,
    refused,
    unknown_group,
)
from logboom.metadata.tables.consumer_groups import ConsumerGroup, ConsumerGroupMember
from logboom.metadata.tables.name_rules import MAX_MEMBERS, member_id_fault
from logboom.wire.group_commands import ExpireMembers, JoinGroup, LeaveGroup

MAX_LABEL: Final = 256
"""Maximum length of a member's client id and room, in characters."""
_TAKEN: Final = (
    "another process has joined as instance {!r} of group {!r} and has its queues: end this one, or "
    "give each process an instance of its own"
)
_ANOTHERS: Final = (
    "{!r} of group {!r} is a member of another user: end that one, or choose another name"
)


def join_group(cluster: ClusterState, command: JoinGroup) -> CommandOutcome:
    """Let a member join, for the first time or again; the value is its epoch."""
    fault = _fault(command)
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault)
    group = cluster.groups.by_name.get(command.group)
    if group is not None:
        refusal = _refuse(cluster, group, command)
        if refusal is not None:
            return refusal
    else:
        made = make_group(cluster, command.group, command.config)
        if isinstance(made, CommandOutcome):
            return made
        group = made
    if group.subscription != command.subscription:
        subscribe(cluster, group, command.subscription)
    known = group.names.get(command.instance or command.member)
    if known is None:
        member = ConsumerGroupMember(command.member, 0, "", command.instance, command.room, 0)
        group.members[member.id] = group.names[member.name] = member
        _begin(cluster, group, member, command)
        cluster.groups.reshape(group)
    else:
        member = known
        _take_over(cluster, group, member, command)
    return CommandOutcome(value=member.epoch)


def _fault(command: JoinGroup) -> str | None:
    fault = member_id_fault(command.member) or subscription_fault(command.subscription)
    if fault is None and command.instance:
        fault = member_id_fault(command.instance, "instance")
    if fault is None and max(len(command.room), len(command.client_id)) > MAX_LABEL:
        fault = f"a room and a client id have at most {MAX_LABEL} characters"
    return fault


def _refuse(
    cluster: ClusterState, group: ConsumerGroup, command: JoinGroup
) -> CommandOutcome | None:
    """Return why this member cannot join an existing group, or None."""
    if command.coordinator_epoch != group.coordinator_epoch:
        return not_coordinator(group, command.coordinator_epoch)
    named = group.names.get(command.instance or command.member)
    same_id = group.members.get(command.member)
    fault = None
    if named is not None and named.instance != command.instance:
        fault = f"the name {named.name!r} is that of another member: choose another"
    elif named is not None and named.is_anothers(command.user):
        return refused("INSTANCE_TAKEN", _ANOTHERS.format(named.name, group.name), group=group.name)
    elif (
        command.again
        and named is not None
        and named.id != command.member
        # Else the name may have changed hands in what a recovery has lost (R15).
        and named.epoch >= cluster.recovered_at
    ):
        return refused("INSTANCE_TAKEN", _TAKEN.format(named.name, group.name), group=group.name)
    elif same_id is not None and same_id is not named:
        fault = f"member id {command.member!r} is that of another member: choose another"
    elif named is None and len(group.members) >= MAX_MEMBERS:
        fault = f"group {group.name!r} has {MAX_MEMBERS} members, which is the most"
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault, group=group.name)
    if command.replace or group.subscription_version == 0:
        return None
    return refuse_mismatch(group, command.subscription)


def _begin(
    cluster: ClusterState, group: ConsumerGroup, member: ConsumerGroupMember, command: JoinGroup
) -> None:
    cluster.groups.touch(group, (member,))
    member.epoch = group.version
    member.client_id = command.client_id
    member.room = command.room
    member.user = command.user
    member.subscription_version = group.subscription_version


def _take_over(
    cluster: ClusterState, group: ConsumerGroup, member: ConsumerGroupMember, command: JoinGroup
) -> None:
    """Replace a member by the same one in a new epoch: its queues continue, under new owner epochs."""
    groups = cluster.groups
    moved = member.room != command.room
    if member.id != command.member:
        del group.members[member.id]
        group.members[command.member] = member
        groups.touch(group)
        group.changes.drop(member.id, group.version)
        member.id, member.version = command.member, 0
    _begin(cluster, group, member, command)
    for topic_id, queue in list(member.owned):
        topic = group.topics[topic_id]
        if topic.targets[queue] is member:
            groups.renew(group, topic, queue)
        else:
            # The process that was to drain it is fenced.
            groups.free(group, topic, queue)
            groups.give(group, topic, queue)
    if moved:
        groups.reshape(group)


def leave_group(cluster: ClusterState, command: LeaveGroup) -> CommandOutcome:
    """Remove a member, with its last commits; the value is a code per release."""
    found = member_of(cluster, command.group, command.member, command.epoch)
    if isinstance(found, CommandOutcome):
        return found
    group, member = found
    codes = [commit(group, member, last) for last in command.releases]
    cluster.groups.remove(group, (member,))
    return CommandOutcome(value=codes)


def expire_members(cluster: ClusterState, command: ExpireMembers) -> CommandOutcome:
    """Remove members on behalf of their coordinator (R13); the value is a code for each."""
    group = cluster.groups.by_name.get(command.group)
    if group is None:
        return unknown_group(command.group)
    current = (group.coordinator, group.coordinator_epoch)
    if (command.coordinator, command.coordinator_epoch) != current:
        return not_coordinator(group, command.coordinator_epoch)
    codes: list[str] = []
    out: dict[str, ConsumerGroupMember] = {}
    for name, epoch in command.members:
        member = group.members.get(name)
        if member is None:
            codes.append("UNKNOWN_MEMBER")
        elif member.epoch != epoch:
            codes.append("STALE_EPOCH")
        else:
            codes.append("")
            out[name] = member
    if out:
        cluster.groups.remove(group, list(out.values()))
    return CommandOutcome(value=codes)
