"""Commands on leaders and ISRs, from brokers and operators (Q6, Q7, Q13, Q14)."""

from __future__ import annotations

from logboom.metadata.state.elections import elect_doubted, elected, relieved, settled
from logboom.metadata.tables.cluster_state import (
    BrokerRegistration,
    ClusterState,
    Queue,
    find_queue,
    find_registration,
)
from logboom.metadata.tables.command_outcome import (
    DONE,
    CommandOutcome,
    fenced,
    refused,
    unknown_topic,
)
from logboom.metadata.tables.replica_moves import finish_move
from logboom.metadata.tables.replica_set import (
    ReplicaSet,
    damage,
    force_leader,
    join_doubted,
    leave,
    led_by,
    mark_repaired,
    set_isr,
)
from logboom.wire.commands import (
    AlterIsr,
    ElectLeader,
    IsrChange,
    ReportDamage,
    ReportRoom,
    ReportTails,
)


def alter_isr(cluster: ClusterState, command: AlterIsr) -> CommandOutcome:
    """Change the ISR of queues that the calling broker leads; the value is a code per change."""
    broker = find_registration(cluster, command.broker, command.instance_epoch)
    if broker is None:
        return fenced(command.broker)
    return CommandOutcome(value=[_alter_one(cluster, broker, change) for change in command.changes])


def _alter_one(cluster: ClusterState, broker: BrokerRegistration, change: IsrChange) -> str:
    queue = find_queue(cluster, change.topic_id, change.queue)
    if queue is None:
        return "UNKNOWN_QUEUE"
    before = queue.standing
    if before.leader != broker.id:
        return "NOT_LEADER"
    if change.leader_epoch != queue.epoch:
        return "STALE_EPOCH"
    if change.version != queue.version:
        return "CONFLICT"
    isr = dict(change.isr)
    if broker.id not in isr or not isr.keys() <= set(before.replicas):
        return "INVALID_ARGUMENT"
    if any(find_registration(cluster, member, epoch) is None for member, epoch in isr.items()):
        return "FENCED"
    joined = isr.keys() - set(before.isr)
    if joined & {*before.damaged}:
        return "DATA_DAMAGED"
    if joined & cluster.full:
        return "DISK_FULL"
    after = set_isr(before, isr.keys(), queue.need)
    cluster.place(queue, _without_damaged(cluster, queue, after))
    # A change of its own: the caller got the ISR that it asked for.
    after = relieved(cluster, queue, queue.standing)
    cluster.place(queue, settled(cluster, after))
    return ""


def _without_damaged(cluster: ClusterState, queue: Queue, s: ReplicaSet) -> ReplicaSet:
    """Drop a damaged replica from the ISR once another member has joined (Q14)."""
    for broker in s.damaged:
        if broker in s.isr and len(s.isr) > 1:
            s = leave(s, broker, queue.need, trusted=False)
    return s if s.leader is not None else elected(cluster, queue, s)


def report_room(cluster: ClusterState, command: ReportRoom) -> CommandOutcome:
    """Note whether a broker's disk accepts writes."""
    broker = find_registration(cluster, command.broker, command.instance_epoch)
    if broker is None:
        return fenced(command.broker)
    (cluster.full.add if command.full else cluster.full.discard)(broker.id)
    known: dict[tuple[ReplicaSet, int], ReplicaSet] = {}
    # A move that ends meanwhile may take the broker's replica away.
    for queue in list(broker.queues):
        # How many copies it needs follows from these.
        key = (queue.standing, queue.topic.config.min_in_sync)
        after = known.get(key)
        if after is None:
            after = relieved(cluster, queue, queue.standing)
            after = known[key] = settled(cluster, after)
        cluster.place(queue, after)
    return DONE


def report_tails(cluster: ClusterState, command: ReportTails) -> CommandOutcome:
    """Note a suspect broker's tails, and elect a leader once all candidates have reported (Q13)."""
    broker = find_registration(cluster, command.broker, command.instance_epoch)
    if broker is None:
        return fenced(command.broker)
    for tail in command.tails:
        queue = find_queue(cluster, tail.topic_id, tail.queue)
        if queue is None:
            continue
        if (queue.topic.id, queue.index) in cluster.doubted and tail.end_offset + tail.end_side > 0:
            _join_doubted(cluster, queue, broker.id)
        if broker.id not in queue.standing.suspect:
            continue
        tails = cluster.tails.setdefault((tail.topic_id, tail.queue), {})
        tails[broker.id] = (tail.last_epoch, tail.end_offset, tail.end_side)
        if queue.standing.leader is None:
            after = elected(cluster, queue, queue.standing)
            cluster.place(queue, settled(cluster, after))
    if command.complete and broker.id in cluster.unheard:
        del cluster.unheard[broker.id]
        elect_doubted(cluster)
    return DONE


def _join_doubted(cluster: ClusterState, queue: Queue, broker: str) -> None:
    """Count a replica that the queue got in what was lost, or else its log could be the only one."""
    standing = queue.standing
    if broker not in standing.replicas and not standing.lost:
        cluster.place(queue, join_doubted(standing, broker))
        # It may as well have been moved away: it stands for none of the others.
        cluster.doubted[queue.topic.id, queue.index] += 1


def report_damage(cluster: ClusterState, command: ReportDamage) -> CommandOutcome:
    """Note that a broker's replicas are damaged, or repaired (Q14)."""
    broker = find_registration(cluster, command.broker, command.instance_epoch)
    if broker is None:
        return fenced(command.broker)
    for topic_id, index in command.queues:
        queue = find_queue(cluster, topic_id, index)
        if queue is None or broker.id not in queue.standing.replicas:
            continue
        before = queue.standing
        if command.mended:
            after = mark_repaired(before, broker.id)
        elif broker.id in before.damaged and before.leader == broker.id:
            continue
        else:
            after = damage(before, broker.id, queue.need)
        if after.leader is None:
            after = elected(cluster, queue, after)
        # The replica will be truncated. A new epoch voids its earlier positions at the leader,
        # which would otherwise let it into the ISR again for what it once held (Q4, Q6).
        cluster.place(queue, after, anew=not command.mended)
        cluster.place(queue, settled(cluster, queue.standing))
    return DONE


def elect_leader(cluster: ClusterState, command: ElectLeader) -> CommandOutcome:
    """Move a queue's leadership, or force a leader from the ISR of a queue that has none.

    Without `prefer`, the first sound ISR member in placement order leads. Forcing declares the log
    of the preferred replica to be complete, which only an operator can decide.
    """
    topic = cluster.topics.get(command.topic)
    if topic is None:
        return unknown_topic(command.topic)
    if not 0 <= command.queue < len(topic.queues):
        text = f"topic {topic.name!r} has queues 0 to {len(topic.queues) - 1}, not {command.queue}"
        return refused("UNKNOWN_QUEUE", text, topic=topic.name, queue=command.queue)
    queue = topic.queues[command.queue]
    before = queue.standing
    if command.prefer is None:
        cluster.place(queue, settled(cluster, elected(cluster, queue, before)))
        return DONE
    if command.prefer not in before.isr or command.prefer not in cluster.alive:
        text = (
            f"{command.prefer!r} is no live in-sync replica of {topic.name!r} queue "
            f"{queue.index}: choose one of {', '.join(before.isr)}"
        )
        return refused("INVALID_ARGUMENT", text, topic=topic.name, queue=queue.index)
    sound = command.prefer not in {*before.suspect, *before.damaged, *before.lost}
    if not sound and before.leader is not None:
        text = f"{command.prefer!r} is damaged: it leads only where no other can"
        return refused("INVALID_ARGUMENT", text, topic=topic.name, queue=queue.index)
    mode = cluster.modes.get(command.prefer)
    if mode is not None and before.leader is not None:
        end = "maintenance off" if mode == "maintenance" else "undrain"
        text = (
            f"{command.prefer!r} is in mode {mode} and leads only where no other can: end that with "
            f"`logboom broker {end} {command.prefer}`"
        )
        return refused("INVALID_ARGUMENT", text, topic=topic.name, queue=queue.index)
    after = led_by(before, command.prefer) if sound else force_leader(before, command.prefer)
    cluster.place(queue, finish_move(after, cluster.alive, cluster.elected_last))
    return DONE
