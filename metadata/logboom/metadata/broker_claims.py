"""Whether a broker may speak of what a command names: queues that it leads, groups that it coordinates.

The Raft leader checks this before a command enters the log; an honest broker may be late, so what is
refused has a result like that of a command that was applied. What the state machine compares itself,
such as the leader of an ISR change, is not repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable

from logboom.metadata.tables.cluster_state import ClusterState, find_queue
from logboom.metadata.tables.command_outcome import (
    CommandOutcome,
    not_coordinator,
    refused,
    unknown_group,
    unknown_topic,
)
from logboom.wire.access_requirements import REQUESTS
from logboom.wire.commands import AnyCommand, CreateTopic, ElectLeader
from logboom.wire.group_commands import JoinGroup, LeaveGroup, ReleaseQueues, SetStart
from logboom.wire.names import group_of, subscription_of
from logboom.wire.subscription_messages import MakeRetryTopics
from logboom.wire.transactions import Decide, ReportDecided


def refuse_claim(broker: str, command: AnyCommand, cluster: ClusterState) -> CommandOutcome | None:
    """Return the outcome of a command that is not this broker's to propose, or None (A7)."""
    match command:
        case JoinGroup() | LeaveGroup() | ReleaseQueues() | SetStart():
            # A new group has no coordinator yet.
            return _refuse_group(broker, command.group, cluster)
        case Decide():
            for each in command.parked:
                if find_queue(cluster, each.topic_id, each.queue) is None:
                    return unknown_topic(str(each.topic_id))
            queues = ((each.topic_id, each.queue) for each in command.parked)
            return _refuse_queues(broker, queues, cluster)
        case ReportDecided():
            # Of a queue that was deleted meanwhile, there is nothing left to be wrong about.
            queues = ((each.topic_id, each.queue) for each in command.done)
            return _refuse_queues(broker, queues, cluster)
        case ElectLeader():
            return _refuse_election(broker, command, cluster)
        case CreateTopic():
            return _refuse_retries(broker, command, cluster)
        case _:
            return None


def _refuse_group(broker: str, name: str, cluster: ClusterState) -> CommandOutcome | None:
    group = cluster.groups.by_name.get(name)
    if group is None or group.coordinator == broker:
        return None
    return not_coordinator(group, group.coordinator_epoch)


def _refuse_queues(
    broker: str, queues: Iterable[tuple[int, int]], cluster: ClusterState
) -> CommandOutcome | None:
    for topic_id, index in queues:
        queue = find_queue(cluster, topic_id, index)
        if queue is not None and queue.standing.leader != broker:
            return _not_leader(broker, queue.topic.name)
    return None


def _refuse_election(
    broker: str, command: ElectLeader, cluster: ClusterState
) -> CommandOutcome | None:
    """A broker asks to lead a queue that was restored into its store, and nobody leads."""
    topic = cluster.topics.get(command.topic)
    if topic is None or not 0 <= command.queue < len(topic.queues):
        return unknown_topic(command.topic)
    standing = topic.queues[command.queue].standing
    if standing.leader is None and [*standing.isr] == [broker] and not standing.eligible:
        return None
    return _not_leader(broker, command.topic)


def _refuse_retries(
    broker: str, command: CreateTopic, cluster: ClusterState
) -> CommandOutcome | None:
    """Coordinators create topics of their groups, leaders those of subscriptions for who may read."""
    source = subscription_of(command.name)
    if source is None:
        name = group_of(command.name) or ""
        if name not in cluster.groups.by_name or command.owner:
            return unknown_group(name)
        return _refuse_group(broker, name, cluster)
    topic = cluster.topics.get(source[0])
    if topic is None:
        return unknown_topic(source[0])
    if all(queue.standing.leader != broker for queue in topic.queues):
        return _not_leader(broker, topic.name)
    needs = REQUESTS[MakeRetryTopics].needs
    wish, decide = MakeRetryTopics(0, 0, source[0], 0, source[1]), cluster.access.book.decide
    if command.owner and needs is not None:
        for verb, kind, name, *_ in needs(wish):
            if not decide(command.owner, verb, kind, name).allowed:
                return refused(
                    "FORBIDDEN", f"user {command.owner!r} may not {verb} {kind} {name!r}"
                )
    return None


def _not_leader(broker: str, topic: str) -> CommandOutcome:
    return refused("NOT_LEADER", f"{broker} does not lead what it names of topic {topic!r}: WATCH")
