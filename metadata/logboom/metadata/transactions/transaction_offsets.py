"""Offsets that a group commits with a transaction: all of them, or nothing is decided."""

from __future__ import annotations

from logboom.metadata.groups.offset_commands import (
    commit,
    commit_fault,
    member_of,
    offset_fault,
    start_at,
)
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import CommandOutcome, refused, unknown_group
from logboom.metadata.tables.consumer_groups import ConsumerGroup, ConsumerGroupMember
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_view import UNKNOWN_START
from logboom.wire.transactions import ConsumedOffset, TransactionOffsetCommit


def refuse_offsets(
    cluster: ClusterState, consumed: list[TransactionOffsetCommit]
) -> CommandOutcome | None:
    """Return why these cannot all be committed, naming the group and the queue, or None.

    The rules are those of commits (SAFETY G3, R13). Without a member, the queue must have no owner.
    """
    for of in consumed:
        found = _whose(cluster, of)
        if isinstance(found, CommandOutcome):
            return found
        group, member = found
        for last in of.offsets:
            code = _fault(cluster, group, member, last)
            if code:
                return _refused(cluster, code, group, last)
    return None


def take_offsets(cluster: ClusterState, consumed: list[TransactionOffsetCommit]) -> None:
    """Commit the offsets that `refuse_offsets` has accepted; an offset never moves back."""
    for of in consumed:
        group = cluster.groups.by_name[of.group]
        member = group.members.get(of.member)
        for last in of.offsets:
            if member is not None:
                commit(group, member, _as_commit(last))
            else:
                _move(cluster, group, last)


def _whose(
    cluster: ClusterState, of: TransactionOffsetCommit
) -> tuple[ConsumerGroup, ConsumerGroupMember | None] | CommandOutcome:
    if of.member:
        return member_of(cluster, of.group, of.member, of.epoch)
    group = cluster.groups.by_name.get(of.group)
    return unknown_group(of.group) if group is None else (group, None)


def _fault(
    cluster: ClusterState,
    group: ConsumerGroup,
    member: ConsumerGroupMember | None,
    last: ConsumedOffset,
) -> str:
    topic = group.topics.get(last.topic_id)
    if member is not None:
        return commit_fault(topic, member, _as_commit(last))
    known = cluster.topics_by_id.get(last.topic_id)
    if known is None or not 0 <= last.queue < len(known.queues):
        return "UNKNOWN_QUEUE"
    if topic is None or not topic.has(last.queue):
        return offset_fault(last.offset, last.seen_end)
    if topic.owners[last.queue] is not None:
        return "NOT_OWNER"
    seen = topic.seen_ends[last.queue]
    return offset_fault(last.offset, max(last.seen_end, seen))


def _move(cluster: ClusterState, group: ConsumerGroup, last: ConsumedOffset) -> None:
    """Move the offset of a queue without an owner; the group need not subscribe to its topic."""
    known = cluster.topics_by_id[last.topic_id]
    topic = cluster.groups.keep_all(group, last.topic_id, len(known.queues))
    before, queue = topic.committed[last.queue], last.queue
    if last.offset >= before:
        topic.seen_ends[queue] = max(topic.seen_ends[queue], last.seen_end)
        if before == UNKNOWN_START:
            start_at(cluster, group, topic, queue, last.offset)
        else:
            topic.committed[queue] = last.offset
            topic.ranges.pop(queue, None)


def _as_commit(last: ConsumedOffset) -> QueueCommit:
    return QueueCommit(last.topic_id, last.queue, last.owner_epoch, last.offset, last.seen_end)


def _refused(
    cluster: ClusterState, code: str, group: ConsumerGroup, last: ConsumedOffset
) -> CommandOutcome:
    topic = cluster.topics_by_id.get(last.topic_id)
    name = f"topic id {last.topic_id}" if topic is None else topic.name
    text = (
        f"offset {last.offset} of group {group.name!r} in {name}/{last.queue} is refused "
        f"({code}), so nothing is decided: abort, and consume again from what is committed"
    )
    return refused(code, text, group=group.name, topic=name, queue=last.queue)
