"""Commands on topics (create with placement, alter, delete) and producer ids."""

from __future__ import annotations

from logboom.metadata.groups.group_subscriptions import remove_topic, topic_grew
from logboom.metadata.state.placement import Candidate, count_hosts, place_replicas
from logboom.metadata.tables.cluster_state import ClusterState, Queue, Topic, needed_copies
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused, unknown_topic
from logboom.metadata.tables.name_rules import MAX_PRODUCER_IDS, MAX_QUEUES, MAX_REPLICAS
from logboom.metadata.tables.replica_set import elect, intern_replica_set, relieve, set_isr
from logboom.wire.commands import AllocateProducerIds, AlterTopic, CreateTopic, DeleteTopic
from logboom.wire.messages import MAX_BATCH_BYTES
from logboom.wire.names import group_of, topic_name_fault
from logboom.wire.view import TopicConfig


def create_topic(cluster: ClusterState, command: CreateTopic) -> CommandOutcome:
    """Create a topic on the live brokers; the value is its id, which is never reused."""
    fault = topic_name_fault(command.name)
    if fault is not None:
        return refused("INVALID_NAME", fault)
    if command.name in cluster.topics:
        text = f"topic {command.name!r} exists already: alter it, or choose another name"
        return refused("TOPIC_EXISTS", text, topic=command.name)
    replicas = command.replicas or min(3, _live_hosts(cluster))
    refusal = (
        _refuse_count(command.queues)
        or _refuse_replicas(cluster, replicas)
        or _refuse_config(command.config, replicas)
    )
    if refusal is not None:
        return refusal
    topic = Topic(command.name, cluster.next_topic_id, command.config, command.time_ms, 0)
    cluster.next_topic_id += 1
    topic.need = needed_copies(topic.config, replicas)
    cluster.add_topic(topic)
    _add_queues(cluster, topic, command.queues, replicas)
    return CommandOutcome(value=topic.id)


def alter_topic(cluster: ClusterState, command: AlterTopic) -> CommandOutcome:
    """Change settings, or increase the number of queues."""
    topic = cluster.topics.get(command.name)
    if topic is None:
        return unknown_topic(command.name)
    now, wanted = len(topic.queues), command.queues
    refusal = None
    if wanted is not None:
        refusal = _refuse_count(wanted)
        if refusal is None and wanted < now:
            text = f"topic {topic.name!r} has {now} queues: their number can only grow"
            refusal = refused("INVALID_ARGUMENT", text)
        if refusal is None and wanted > now:
            refusal = _refuse_replicas(cluster, topic.replicas)
    if refusal is None and command.config is not None:
        refusal = _refuse_config(command.config, topic.replicas)
    if refusal is not None:
        return refusal
    if command.config is not None and command.config != topic.config:
        _set_config(cluster, topic, command.config)
    if wanted is not None and wanted > now:
        _add_queues(cluster, topic, wanted - now, topic.replicas)
    return DONE


def delete_topic(cluster: ClusterState, command: DeleteTopic) -> CommandOutcome:
    """Delete a topic with all its messages."""
    topic = cluster.topics.get(command.name)
    if topic is None:
        return unknown_topic(command.name)
    group = group_of(topic.name)
    if group in cluster.groups.by_name:
        text = f"topic {topic.name!r} is a group's own: it goes with `logboom group delete`"
        return refused("INVALID_ARGUMENT", text, topic=topic.name, group=group)
    remove_topic(cluster, topic)
    return DONE


def allocate_producer_ids(cluster: ClusterState, command: AllocateProducerIds) -> CommandOutcome:
    """Reserve producer ids; the value is the first."""
    if not 1 <= command.count <= MAX_PRODUCER_IDS:
        text = f"{command.count} producer ids: ask for 1 to {MAX_PRODUCER_IDS}"
        return refused("INVALID_ARGUMENT", text)
    first = cluster.next_producer_id
    cluster.next_producer_id += command.count
    return CommandOutcome(value=first)


def _set_config(cluster: ClusterState, topic: Topic, config: TopicConfig) -> None:
    topic.config = config
    need = needed_copies(config, topic.replicas)
    changed, topic.need = need != topic.need, need
    for queue in topic.queues:
        before = queue.standing
        # Where fewer copies are needed now, the HW may advance, and eligible replicas cease to be.
        after = set_isr(before, before.isr, need)
        if after.leader is None:
            tails = cluster.tails_of(queue)
            after = elect(
                after,
                cluster.alive,
                need,
                full=cluster.full,
                unclean=config.unclean_election,
                tails=tails,
            )
        else:
            after = relieve(after, cluster.full, cluster.alive, need)
        cluster.place(queue, after)
        if changed:
            # A leader that counts by the old number must not shrink the ISR before it has seen the
            # new one; the new version makes its requests stale (Q7).
            queue.version += 1
    cluster.touch_topic(topic)


def _add_queues(cluster: ClusterState, topic: Topic, count: int, replicas: int) -> None:
    candidates = {
        broker.id: Candidate(
            broker.id, broker.zone, broker.preferred, len(broker.queues), host=broker.host
        )
        for broker in cluster.brokers.values()
        if broker.alive
    }
    roomy = {name: each for name, each in candidates.items() if name not in cluster.full}
    if count_hosts(each.host for each in roomy.values()) >= replicas:
        candidates = roomy
    for queue in topic.queues:
        _count(candidates, queue.standing.replicas)
    for placed in place_replicas(list(candidates.values()), count, replicas):
        made = intern_replica_set(placed, placed[0], placed)
        cluster.add_queue(Queue(topic, len(topic.queues), made))
    cluster.touch_topic(topic)
    topic_grew(cluster, topic)


def _count(candidates: dict[str, Candidate], replicas: tuple[str, ...]) -> None:
    """Count what the topic has already towards the placement of its new queues."""
    for position, broker in enumerate(replicas):
        candidate = candidates.get(broker)
        if candidate is None:
            continue
        candidate.topic_held += 1
        if position == 0:
            candidate.topic_preferred += 1
            for second in replicas[1:2]:
                candidate.seconds[second] = candidate.seconds.get(second, 0) + 1


def _refuse_count(queues: int) -> CommandOutcome | None:
    if 1 <= queues <= MAX_QUEUES:
        return None
    return refused("INVALID_ARGUMENT", f"{queues} queues: a topic has 1 to {MAX_QUEUES}")


def _refuse_replicas(cluster: ClusterState, replicas: int) -> CommandOutcome | None:
    live = len(cluster.alive)
    if live == 0:
        text = "no broker is alive: start one and try again"
        return refused("TOO_FEW_BROKERS", text, live=live)
    if replicas < 1 or replicas > MAX_REPLICAS:
        return refused("INVALID_ARGUMENT", f"{replicas} replicas: give 1 to {MAX_REPLICAS}")
    if replicas > live:
        text = f"{replicas} replicas need {replicas} live brokers, there are {live}: start more"
        return refused("TOO_FEW_BROKERS", text, live=live)
    hosts = _live_hosts(cluster)
    if replicas > hosts:
        text = (
            f"{replicas} replicas need {replicas} machines, the {live} live brokers are on {hosts}: "
            "start brokers on others, or ask for fewer replicas"
        )
        return refused("TOO_FEW_BROKERS", text, live=live)
    return None


def _live_hosts(cluster: ClusterState) -> int:
    return count_hosts(cluster.brokers[name].host for name in cluster.alive)


def _refuse_config(config: TopicConfig, replicas: int) -> CommandOutcome | None:
    fault = None
    if not 0 <= config.min_in_sync <= replicas:
        fault = f"min_in_sync {config.min_in_sync}: give 1 to {replicas} (the replicas), or 0"
    elif config.retention_ms < -1 or config.retention_ms == 0:
        fault = f"retention_ms {config.retention_ms}: give 1 or more, or -1 to keep for ever"
    elif config.retention_bytes < -1 or config.retention_bytes == 0:
        fault = f"retention_bytes {config.retention_bytes}: give 1 or more, or -1 for no bound"
    elif not 1 <= config.max_message_bytes <= MAX_BATCH_BYTES:
        fault = f"max_message_bytes {config.max_message_bytes}: give 1 to {MAX_BATCH_BYTES}"
    elif min(config.dispatch_messages_per_s, config.dispatch_bytes_per_s) < 0:
        fault = "a dispatch rate is 0 (no limit) or more per second"
    return None if fault is None else refused("INVALID_ARGUMENT", fault)
