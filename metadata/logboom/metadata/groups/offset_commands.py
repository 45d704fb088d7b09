"""Commands on the offsets of groups: commits, releases, starts and resets (SAFETY G1, G3, R13).

A commit only moves forward, never past an end that was seen, and is accepted only from the owner in
the epochs that it names. Commits do not change metadata: they have no version and wake no WATCH.
"""

from __future__ import annotations

from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import (
    CommandOutcome,
    not_coordinator,
    refused,
    unknown_group,
)
from logboom.metadata.tables.consumer_groups import ConsumerGroup, ConsumerGroupMember, GroupTopic
from logboom.metadata.tables.name_rules import MAX_RANGES
from logboom.wire.group_commands import (
    CommitOffsets,
    GroupCommits,
    QueueCommit,
    ReleaseQueues,
    ResetOffsets,
    SetStart,
)
from logboom.wire.group_view import MAX_OFFSET, UNKNOWN_START


def member_of(
    cluster: ClusterState, name: str, member_id: str, epoch: int
) -> tuple[ConsumerGroup, ConsumerGroupMember] | CommandOutcome:
    """Find a group and its member in this epoch, or UNKNOWN_GROUP, UNKNOWN_MEMBER, STALE_EPOCH."""
    group = cluster.groups.by_name.get(name)
    if group is None:
        return unknown_group(name)
    member = group.members.get(member_id)
    if member is None:
        text = f"{member_id!r} is no member of group {name!r} (any more): join again"
        return refused("UNKNOWN_MEMBER", text, group=name)
    if member.epoch != epoch:
        text = f"member {member_id!r} has joined again since, in epoch {member.epoch}, not {epoch}"
        return refused("STALE_EPOCH", text, group=name, epoch=member.epoch)
    return group, member


def offset_fault(offset: int, seen_end: int) -> str:
    """Return why no commit can name this offset, given the end of the queue (G3), or ""."""
    if offset < 0 or seen_end >= MAX_OFFSET:
        return "INVALID_ARGUMENT"
    return "BEYOND_END" if offset > seen_end else ""


def commit_fault(topic: GroupTopic | None, member: ConsumerGroupMember, last: QueueCommit) -> str:
    """Return the code that refuses a commit, or "" if it is valid."""
    queue = last.queue
    if topic is None or not topic.has(queue):
        return "UNKNOWN_QUEUE"
    if topic.owners[queue] is not member:
        return "NOT_OWNER"
    if topic.owner_epochs[queue] != last.owner_epoch:
        return "STALE_EPOCH"
    if len(last.ranges) > MAX_RANGES:
        return "INVALID_ARGUMENT"
    return offset_fault(last.offset, max(last.seen_end, topic.seen_ends[queue]))


def commit(group: ConsumerGroup, member: ConsumerGroupMember, last: QueueCommit) -> str:
    """Apply one commit; return its code, "" if it is done or was done before."""
    topic, queue = group.topics.get(last.topic_id), last.queue
    code = commit_fault(topic, member, last)
    if topic is None or code:
        return code
    if last.offset >= topic.committed[queue]:
        topic.committed[queue] = last.offset
        topic.seen_ends[queue] = max(last.seen_end, topic.seen_ends[queue])
        if last.ranges:
            topic.ranges[queue] = last.ranges
        elif topic.ranges:
            topic.ranges.pop(queue, None)
    return ""


def commit_offsets(cluster: ClusterState, command: CommitOffsets) -> CommandOutcome:
    """Apply commits of several groups; the value is a code for each."""
    codes: list[str] = []
    for commits in command.groups:
        group = cluster.groups.by_name.get(commits.group)
        code = _refuse(group, command.coordinator, commits)
        for of in commits.members:
            member = None if group is None else group.members.get(of.member)
            if code or group is None:
                codes += [code] * len(of.queues)
            elif member is None:
                codes += ["UNKNOWN_MEMBER"] * len(of.queues)
            elif member.epoch != of.epoch:
                codes += ["STALE_EPOCH"] * len(of.queues)
            else:
                codes += [commit(group, member, last) for last in of.queues]
    return CommandOutcome(value=codes)


def _refuse(group: ConsumerGroup | None, coordinator: str, commits: GroupCommits) -> str:
    if group is None:
        return "UNKNOWN_GROUP"
    current = (group.coordinator, group.coordinator_epoch)
    return "" if current == (coordinator, commits.coordinator_epoch) else "NOT_COORDINATOR"


def release_queues(cluster: ClusterState, command: ReleaseQueues) -> CommandOutcome:
    """Commit and release queues in one step (G1); the value is a code for each."""
    found = member_of(cluster, command.group, command.member, command.epoch)
    if isinstance(found, CommandOutcome):
        return found
    group, member = found
    codes: list[str] = []
    for last in command.releases:
        code = commit(group, member, last)
        if not code:
            topic = group.topics[last.topic_id]
            cluster.groups.free(group, topic, last.queue)
            cluster.groups.give(group, topic, last.queue)
        codes.append(code)
    return CommandOutcome(value=codes)


def set_start(cluster: ClusterState, command: SetStart) -> CommandOutcome:
    """Set where a group begins in queues that existed before it; the value is a code for each."""
    group = cluster.groups.by_name.get(command.group)
    if group is None:
        return unknown_group(command.group)
    if command.coordinator_epoch != group.coordinator_epoch:
        return not_coordinator(group, command.coordinator_epoch)
    codes: list[str] = []
    for topic_id, queue, offset in command.starts:
        topic = group.topics.get(topic_id)
        code = _refuse_offset(topic, queue, offset)
        if topic is not None and not code and topic.committed[queue] == UNKNOWN_START:
            start_at(cluster, group, topic, queue, offset)
        codes.append(code)
    return CommandOutcome(value=codes)


def reset_offsets(cluster: ClusterState, command: ResetOffsets) -> CommandOutcome:
    """Reset offsets for an operator; the value is a code for each.

    The current owner continues from the new offset, and cannot commit what it read before. Topics
    that the group does not subscribe to may be named, so that offsets can be set before members
    join.
    """
    group = cluster.groups.by_name.get(command.group)
    if group is None:
        return unknown_group(command.group)
    codes: list[str] = []
    for topic_id, queue, offset in command.offsets:
        known = cluster.topics_by_id.get(topic_id)
        topic = group.topics.get(topic_id)
        if known is not None:
            topic = cluster.groups.keep_all(group, topic_id, len(known.queues))
        code = _refuse_offset(topic, queue, offset)
        if topic is not None and not code:
            start_at(cluster, group, topic, queue, offset)
        codes.append(code)
    if codes.count(""):
        cluster.tell("offsets_reset", group=group.name, moved=codes.count(""))
    return CommandOutcome(value=codes)


def _refuse_offset(topic: GroupTopic | None, queue: int, offset: int) -> str:
    if topic is None or not topic.has(queue):
        return "UNKNOWN_QUEUE"
    return "" if 0 <= offset < MAX_OFFSET else "INVALID_ARGUMENT"


def start_at(
    cluster: ClusterState, group: ConsumerGroup, topic: GroupTopic, queue: int, offset: int
) -> None:
    """Let a group continue from an offset, which may be earlier, whoever owns the queue."""
    topic.start_at(queue, offset)
    group.unstarted.pop((topic.id, queue), None)
    cluster.groups.touch(group)
    if topic.owners[queue] is topic.targets[queue]:
        cluster.groups.renew(group, topic, queue)
    else:
        # Its owner processes again what it had still to finish: there is nothing to wait for.
        cluster.groups.free(group, topic, queue)
    cluster.groups.give(group, topic, queue)
