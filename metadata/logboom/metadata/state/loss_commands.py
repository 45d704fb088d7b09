"""The command that ends a loss: positions beyond what is left are cut (Q15)."""

from __future__ import annotations

import msgspec

from logboom.metadata.groups.offset_commands import start_at
from logboom.metadata.tables.cluster_state import (
    ClusterState,
    Queue,
    find_queue,
    find_registration,
)
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, fenced
from logboom.wire.commands import LossEnd, ReportLosses


def report_losses(cluster: ClusterState, command: ReportLosses) -> CommandOutcome:
    """Note where the history after a loss begins, and cut the commits of all groups to that.

    Only the leader of a queue knows it, and only once: later reports change nothing.
    """
    broker = find_registration(cluster, command.broker, command.instance_epoch)
    if broker is None:
        return fenced(command.broker)
    for reported in command.ends:
        queue = find_queue(cluster, reported.topic_id, reported.queue)
        if queue is not None and queue.standing.leader == broker.id:
            _end_loss(cluster, queue, reported)
    return DONE


def _end_loss(cluster: ClusterState, queue: Queue, reported: LossEnd) -> None:
    losses = cluster.losses.get((queue.topic.id, queue.index), [])
    for place, loss in enumerate(losses):
        if loss.epoch != reported.epoch or loss.end >= 0 or reported.end < 0:
            continue
        losses[place] = msgspec.structs.replace(loss, end=reported.end)
        cluster.touch_topic(queue.topic)
        groups = cut_commits(cluster, queue, reported.end)
        cluster.tell(
            "positions_cut",
            topic=queue.topic.name,
            queue=queue.index,
            epoch=loss.epoch,
            end=reported.end,
            groups=groups,
        )


def cut_commits(cluster: ClusterState, queue: Queue, end: int) -> int:
    """Let all groups continue at most from `end`; return how many had committed more.

    Members begin again from the commit even where that stays: what they hold may be lost, and a
    commit of it would be beyond the end.
    """
    cut = 0
    keepers = cluster.groups.keepers.get(queue.topic.id, {})
    for group in sorted(keepers, key=lambda group: group.name):
        topic = group.topics[queue.topic.id]
        if not topic.has(queue.index) or topic.committed[queue.index] < 0:
            continue
        committed = topic.committed[queue.index]
        cut += committed > end
        topic.seen_ends[queue.index] = min(topic.seen_ends[queue.index], end)
        start_at(cluster, group, topic, queue.index, min(committed, end))
    return cut
