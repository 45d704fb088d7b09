"""Commands that restore a backup: topics, groups and decisions as they were at its cut.

Whatever they change belongs to topics that are being restored, from which nobody reads yet. So each
of them may be repeated, and a restore that was interrupted goes on (see docs/SAFETY.md, K5).
"""

from __future__ import annotations

from typing import Final

from logboom.metadata.groups.group_settings import make_group
from logboom.metadata.groups.group_subscriptions import subscribe, subscription_fault
from logboom.metadata.groups.offset_commands import offset_fault, start_at
from logboom.metadata.raft.log_commands import PlaceQueues
from logboom.metadata.state.setting_commands import below_level
from logboom.metadata.state.topic_commands import add_restored_topic
from logboom.metadata.tables.cluster_state import ClusterState, Topic
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused, unknown_topic
from logboom.metadata.tables.name_rules import MAX_RANGES
from logboom.metadata.transactions.decision_commands import decision_fault
from logboom.wire.commands import (
    FinishRestore,
    RestoreCounters,
    RestoreDecisions,
    RestoredOffsets,
    RestoreGroup,
    RestoreTopic,
)
from logboom.wire.errors import InvalidRequest
from logboom.wire.group_view import MAX_OFFSET, UNKNOWN_START
from logboom.wire.transactions import ParkedBatches, check_app_id

MAX_COUNTER: Final = 1 << 62
"""Upper bound of what counts up: there must always be a next one."""
MAX_MARK: Final = 200
"""Maximum length of the name of a backup."""


def restore_counters(cluster: ClusterState, command: RestoreCounters) -> CommandOutcome:
    """Let everything that counts up begin above what a backup shows."""
    refusal = below_level(cluster)
    if refusal is not None:
        return refusal
    wanted = (
        command.version,
        command.next_topic_id,
        command.next_producer_id,
        command.next_instance_epoch,
        command.next_group_id,
    )
    if not all(0 <= each < MAX_COUNTER for each in wanted):
        return refused("INVALID_ARGUMENT", "a counter that no cluster has: read the backup again")
    if command.version > cluster.version:
        cluster.skip_to(command.version)
    cluster.next_topic_id = max(cluster.next_topic_id, command.next_topic_id)
    cluster.next_producer_id = max(cluster.next_producer_id, command.next_producer_id)
    cluster.next_instance_epoch = max(cluster.next_instance_epoch, command.next_instance_epoch)
    cluster.groups.next_id = max(cluster.groups.next_id, command.next_group_id)
    return DONE


def restore_topic(
    cluster: ClusterState, command: RestoreTopic, placed: PlaceQueues | None = None
) -> CommandOutcome:
    """Create a topic that a backup is restored into; the value is its id."""
    refusal = below_level(cluster)
    if refusal is not None:
        return refusal
    if not 0 < len(command.backup) <= MAX_MARK:
        return refused("INVALID_ARGUMENT", f"name the backup, with 1 to {MAX_MARK} characters")
    known = cluster.topics.get(command.name)
    if (
        known is not None
        and known.restoring == command.backup
        and len(known.queues) == len(command.epochs)
    ):
        return CommandOutcome(value=known.id)
    if not all(-1 <= epoch < MAX_COUNTER for epoch in command.epochs):
        return refused("INVALID_ARGUMENT", "a leader epoch that no queue has")
    taken = command.name in cluster.topics
    if (
        command.topic_id
        and not taken
        and not cluster.next_topic_id <= command.topic_id < MAX_COUNTER
    ):
        # A broker that was away may still have the log of the topic that had it.
        text = f"id {command.topic_id} may have been another topic's: restore with new ids"
        return refused("INVALID_ARGUMENT", text, topic=command.name)
    return add_restored_topic(cluster, command, placed)


def restore_group(cluster: ClusterState, command: RestoreGroup) -> CommandOutcome:
    """Set offsets of a group, and create the group if there is none."""
    refusal = below_level(cluster) or _refuse_offsets(cluster, command)
    if refusal is not None:
        return refusal
    group = cluster.groups.by_name.get(command.group)
    if group is None:
        fault = subscription_fault(command.subscription) if command.subscription else None
        if fault is not None:
            return refused("INVALID_ARGUMENT", fault)
        made = make_group(cluster, command.group, command.config)
        if isinstance(made, CommandOutcome):
            return made
        group = made
        if command.subscription:
            subscribe(cluster, group, command.subscription)
    for row in command.offsets:
        topic = cluster.topics_by_id[row.topic_id]
        kept = cluster.groups.keep_all(group, topic.id, len(topic.queues))
        columns = zip(row.committed, row.seen_ends, strict=True)
        for queue, (committed, seen_end) in enumerate(columns, row.first_queue):
            if committed != UNKNOWN_START:
                start_at(cluster, group, kept, queue, committed)
                kept.seen_ends[queue] = max(committed, seen_end)
        for queue, ranges in row.ranges:
            if kept.committed[queue] != UNKNOWN_START:
                kept.ranges[queue] = ranges
    return DONE


def _refuse_offsets(cluster: ClusterState, command: RestoreGroup) -> CommandOutcome | None:
    for row in command.offsets:
        topic = cluster.topics_by_id.get(row.topic_id)
        if topic is None or topic.restoring != command.backup:
            return _not_restoring(f"the topic of id {row.topic_id}", command.backup)
        last = row.first_queue + len(row.committed)
        if not 0 <= row.first_queue <= last <= len(topic.queues):
            text = f"topic {topic.name!r} has {len(topic.queues)} queues, not {last}"
            return refused("UNKNOWN_QUEUE", text, topic=topic.name)
        if not _sound(row, last):
            text = f"offsets of group {command.group!r} in {topic.name!r} that cannot be"
            return refused("INVALID_ARGUMENT", text, topic=topic.name)
    return None


def _sound(row: RestoredOffsets, last: int) -> bool:
    return (
        len(row.committed) == len(row.seen_ends)
        and all(
            committed == UNKNOWN_START or not offset_fault(committed, max(committed, seen_end))
            for committed, seen_end in zip(row.committed, row.seen_ends, strict=True)
        )
        and all(committed < MAX_OFFSET for committed in row.committed)
        and all(row.first_queue <= queue < last for queue, _ in row.ranges)
        and all(len(ranges) <= MAX_RANGES for _, ranges in row.ranges)
    )


def restore_decisions(cluster: ClusterState, command: RestoreDecisions) -> CommandOutcome:
    """Add decisions, each with a number of its own, and what is known of applications."""
    refusal = below_level(cluster) or _refuse_decisions(cluster, command)
    if refusal is not None:
        return refusal
    table = cluster.transactions
    for known in command.applications:
        app = table.app(known.app_id)
        app.epoch = max(app.epoch, known.epoch)
        app.used_ms = max(app.used_ms, known.used_ms)
        app.owner = app.owner or known.owner
        if known.committed > app.committed:
            table.close(app, known.committed)
        app.aborted |= {
            (sequence, attempt): None
            for sequence, attempt in known.aborted
            if sequence > app.committed
        }
    for each in command.decisions:
        # The queues carry them out by their numbers, so that no two may have the same.
        cluster.begin()
        table.decide(each.app_id, each.sequence, each.attempt, each.queues, commit=each.commit)
    return DONE


def _refuse_decisions(cluster: ClusterState, command: RestoreDecisions) -> CommandOutcome | None:
    names = [
        *(each.app_id for each in command.applications),
        *(each.app_id for each in command.decisions),
    ]
    try:
        for name in names:
            check_app_id(name)
    except InvalidRequest as error:
        return refused("INVALID_ARGUMENT", error.text)
    for each in command.decisions:
        fault = decision_fault(each.sequence, each.attempt, each.queues)
        if fault is not None:
            return fault
        for parked in each.queues:
            if not _is_restored(cluster, parked, command.backup):
                where = f"queue {parked.queue} of topic id {parked.topic_id}"
                return _not_restoring(where, command.backup)
    return None


def _is_restored(cluster: ClusterState, parked: ParkedBatches, backup: str) -> bool:
    topic = cluster.topics_by_id.get(parked.topic_id)
    known = topic is not None and 0 <= parked.queue < len(topic.queues)
    return topic is not None and known and topic.restoring == backup


def finish_restore(cluster: ClusterState, command: FinishRestore) -> CommandOutcome:
    """Begin normal work on a restored topic, with new leader epochs."""
    refusal = below_level(cluster)
    if refusal is not None:
        return refusal
    topic = cluster.topics.get(command.topic)
    if topic is None or topic.id != command.topic_id:
        return unknown_topic(command.topic)
    if not topic.restoring:
        return DONE  # It was finished before.
    if topic.restoring != command.backup:
        return _not_restoring(f"topic {topic.name!r}", command.backup)
    topic.restoring = ""
    _begin_anew(cluster, topic)
    return DONE


def _begin_anew(cluster: ClusterState, topic: Topic) -> None:
    for queue in topic.queues:
        cluster.place(queue, queue.standing, anew=True)
    cluster.touch_topic(topic)


def _not_restoring(what: str, backup: str) -> CommandOutcome:
    text = f"{what} is not being restored from {backup[:MAX_MARK]!r}: begin the restore again"
    return refused("INVALID_ARGUMENT", text)
