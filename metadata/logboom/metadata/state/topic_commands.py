"""Commands on topics (create with placement, alter, delete) and producer ids."""

from __future__ import annotations

from typing import Final

from logboom.metadata.groups.group_subscriptions import remove_topic, topic_grew
from logboom.metadata.raft.log_commands import PlaceQueues, QueuesCommand
from logboom.metadata.state.elections import elected, relieved, settled
from logboom.metadata.state.queue_placement import (
    QueuePlacement,
    are_many,
    brokers_version,
    lasting_hosts,
    place_queues,
    receiver_ids,
    receivers,
    receiving_hosts,
)
from logboom.metadata.state.setting_commands import below_level
from logboom.metadata.tables.cluster_state import (
    ClusterState,
    OwnedTopics,
    Queue,
    Topic,
)
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused, unknown_topic
from logboom.metadata.tables.name_rules import MAX_PRODUCER_IDS, MAX_REPLICAS
from logboom.metadata.tables.replica_set import intern_replica_set, set_isr
from logboom.wire.access.access_rules import is_node_user
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    RestoreTopic,
)
from logboom.wire.event_table import Plain
from logboom.wire.features import PLACED_BEFORE
from logboom.wire.messages import MAX_BATCH_BYTES
from logboom.wire.names import MAX_QUEUES, group_of, topic_name_fault
from logboom.wire.view import TopicConfig

DEFAULT_REPLICAS: Final = 3
"""Number of replicas that is wanted of a topic if nobody asks for one and there are as many machines."""


def begin_placement(cluster: ClusterState, command: QueuesCommand) -> QueuePlacement | None:
    """Begin to place the queues of a command before it enters the log; None: that is not due.

    They are few, or none because the command will be refused.
    """
    topic = cluster.topics.get(command.name)
    match command:
        case CreateTopic():
            count, replicas = command.queues, _replicas(cluster, command.replicas)[0]
        case RestoreTopic():
            count, replicas = len(command.epochs), _replicas(cluster, command.replicas)[0]
        case AlterTopic():
            count = 0
            if topic is not None and command.queues is not None:
                count = command.queues - len(topic.queues)
            replicas = topic.replicas if topic is not None else 0
            replicas = replicas if command.replicas is None else command.replicas
    if cluster.features < PLACED_BEFORE or not are_many(cluster, count, replicas):
        return None
    if isinstance(command, AlterTopic) != (topic is not None):
        return None
    if _refuse_count(count) or _refuse_replicas(cluster, replicas):
        return None
    return QueuePlacement(cluster, topic, count, replicas)


def create_topic(
    cluster: ClusterState, command: CreateTopic, placed: PlaceQueues | None = None
) -> CommandOutcome:
    """Create a topic on the live brokers; the value is its id, which is never reused."""
    fault = topic_name_fault(command.name)
    if fault is not None:
        return refused("INVALID_NAME", fault)
    if command.name in cluster.topics:
        text = f"topic {command.name!r} exists already: alter it, or choose another name"
        return refused("TOPIC_EXISTS", text, topic=command.name)
    replicas, wanted = _replicas(cluster, command.replicas)
    refusal = (
        _refuse_count(command.queues)
        or _refuse_replicas(cluster, replicas)
        or _refuse_config(command.config, wanted)
        or _refuse_owner(cluster, command.owner, 1, command.queues)
        or _refuse_places(cluster, command.queues, replicas, placed)
    )
    if refusal is not None:
        return refusal
    topic = Topic(command.name, cluster.next_topic_id, command.config, command.time_ms, 0)
    cluster.next_topic_id += 1
    topic.replicas = wanted
    topic.owner = command.owner
    cluster.add_topic(topic)
    cluster.tell("topic_created", topic=topic.name, queues=command.queues, replicas=wanted)
    _add_queues(cluster, topic, command.queues, replicas, placed)
    return CommandOutcome(value=topic.id)


def add_restored_topic(
    cluster: ClusterState, command: RestoreTopic, placed: PlaceQueues | None
) -> CommandOutcome:
    """Create a topic that a backup is restored into, under guards like those of any other.

    No quota counts: an administrator restores it, whoever owned it.
    """
    fault = topic_name_fault(command.name)
    if fault is not None:
        return refused("INVALID_NAME", fault)
    if command.name in cluster.topics:
        text = f"topic {command.name!r} exists already: restore it under another name (--as)"
        return refused("TOPIC_EXISTS", text, topic=command.name)
    queues = len(command.epochs)
    replicas, wanted = _replicas(cluster, command.replicas)
    refusal = (
        _refuse_count(queues)
        or _refuse_replicas(cluster, replicas)
        or _refuse_config(command.config, wanted)
        or _refuse_places(cluster, queues, replicas, placed)
    )
    if refusal is not None:
        return refusal
    topic_id = command.topic_id or cluster.next_topic_id
    topic = Topic(command.name, topic_id, command.config, command.created_ms, 0)
    cluster.next_topic_id = topic_id + 1
    topic.replicas = wanted
    topic.owner = command.owner
    topic.restoring = command.backup
    cluster.add_topic(topic)
    cluster.tell("restore_begun", topic=topic.name, queues=queues)
    _add_queues(cluster, topic, queues, replicas, placed)
    for queue, epoch in zip(topic.queues, command.epochs, strict=True):
        queue.epoch = max(epoch + 1, cluster.first_epoch)
    return CommandOutcome(value=topic.id)


def alter_topic(
    cluster: ClusterState, command: AlterTopic, placed: PlaceQueues | None = None
) -> CommandOutcome:
    """Change settings, increase the number of queues, or set the number of replicas wanted.

    Replicas are then added or removed queue by queue, by `Reassign`.
    """
    topic = cluster.topics.get(command.name)
    if topic is None:
        return unknown_topic(command.name)
    now, wanted = len(topic.queues), command.queues
    replicas = topic.replicas if command.replicas is None else command.replicas
    refusal = None
    if command.replicas is not None:
        refusal = below_level(cluster)
    if refusal is None and replicas != topic.replicas:
        refusal = _refuse_replicas(cluster, replicas) or _refuse_config(
            command.config or topic.config, replicas
        )
    if wanted is not None and refusal is None:
        refusal = _refuse_count(wanted)
        if refusal is None and wanted < now:
            text = f"topic {topic.name!r} has {now} queues: their number can only grow"
            refusal = refused("INVALID_ARGUMENT", text)
        if refusal is None and wanted > now:
            refusal = (
                _refuse_replicas(cluster, replicas)
                or _refuse_owner(cluster, topic.owner, 0, wanted - now)
                or _refuse_places(cluster, wanted - now, replicas, placed)
            )
    if refusal is None and command.config is not None:
        refusal = _refuse_config(command.config, replicas)
    if refusal is not None:
        return refusal
    settings = [] if command.config is None else _changed(topic.config, command.config)
    if settings or replicas != topic.replicas or (wanted is not None and wanted > now):
        cluster.tell(
            "topic_altered",
            topic=topic.name,
            queues=wanted,
            replicas=command.replicas,
            settings=settings or None,
        )
    if command.config is not None and command.config != topic.config:
        _set_config(cluster, topic, command.config)
    if replicas != topic.replicas:
        topic.replicas = replicas
        cluster.touch_topic(topic)
    if wanted is not None and wanted > now:
        _add_queues(cluster, topic, wanted - now, replicas, placed)
    return DONE


def _changed(before: TopicConfig, after: TopicConfig) -> list[Plain]:
    """Return each setting that has another value, as name=value."""
    return [
        f"{name}={getattr(after, name)}"
        for name in after.__struct_fields__
        if getattr(after, name) != getattr(before, name)
    ]


def delete_topic(cluster: ClusterState, command: DeleteTopic) -> CommandOutcome:
    """Delete a topic with all its messages."""
    topic = cluster.topics.get(command.name)
    if topic is None:
        return unknown_topic(command.name)
    group = group_of(topic.name)
    if group in cluster.groups.by_name and not topic.restoring:
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
    needs = [queue.need for queue in topic.queues]
    accepts_loss = config.unclean_election and not topic.config.unclean_election
    topic.config = config
    for queue, before in zip(topic.queues, needs, strict=True):
        if accepts_loss:
            # What a recovery has left in doubt is decided by that, too.
            cluster.doubted.pop((topic.id, queue.index), None)
        # Where fewer copies are needed now, the HW may advance, and eligible replicas cease to be.
        after = set_isr(queue.standing, queue.standing.isr, queue.need)
        if after.leader is None:
            after = elected(cluster, queue, after)
        else:
            after = relieved(cluster, queue, after)
        cluster.place(queue, settled(cluster, after))
        if queue.need != before:
            # A leader that counts by the old number must not shrink the ISR before it has seen the
            # new one; the new version makes its requests stale (Q7).
            queue.version += 1
    cluster.touch_topic(topic)


def _replicas(cluster: ClusterState, asked: int) -> tuple[int, int]:
    """Return the number of replicas that a new topic gets, and the number that is wanted.

    They differ if nobody asked for a number and a broker is down or in maintenance: the Raft leader
    adds the others once it is back.
    """
    if asked:
        return asked, asked
    now = min(DEFAULT_REPLICAS, receiving_hosts(cluster))
    if not cluster.features:
        return now, now
    return now, max(now, min(DEFAULT_REPLICAS, lasting_hosts(cluster)))


def _add_queues(
    cluster: ClusterState, topic: Topic, count: int, replicas: int, placed: PlaceQueues | None
) -> None:
    if placed is None:
        places = place_queues(cluster, topic, count, replicas)
    else:
        ids = receiver_ids(cluster)
        places = [tuple([ids[number] for number in place]) for place in placed.places]
    # Hundreds of queues have the same few places.
    made = {place: intern_replica_set(place, place[0], place) for place in dict.fromkeys(places)}
    epoch = cluster.first_epoch
    for place in places:
        cluster.add_queue(Queue(topic, len(topic.queues), made[place], epoch))
    cluster.touch_topic(topic)
    topic_grew(cluster, topic)


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
    active = len(receivers(cluster))
    if not active or replicas > active:
        text = (
            f"{replicas} replicas need {replicas} active brokers, there are {active}: start more, or "
            "end the maintenance or draining of some"
        )
        return refused("TOO_FEW_BROKERS", text, live=live)
    hosts = receiving_hosts(cluster)
    if replicas > hosts:
        text = (
            f"{replicas} replicas need {replicas} machines, the {live} live brokers are on {hosts}: "
            "start brokers on others, or ask for fewer replicas"
        )
        return refused("TOO_FEW_BROKERS", text, live=live)
    return None


def _refuse_places(
    cluster: ClusterState, count: int, replicas: int, placed: PlaceQueues | None
) -> CommandOutcome | None:
    """Refuse what is not placed, if that takes long, or was placed for something else."""
    if placed is None:
        if cluster.features < PLACED_BEFORE or not are_many(cluster, count, replicas):
            return None
    elif (
        placed.brokers_version == brokers_version(cluster)
        and len(placed.places) == count
        and len(placed.places[0]) == replicas
    ):
        return None
    text = "a broker or the topic has changed while the queues were placed: ask again"
    return refused("CONFLICT", text)


def _refuse_owner(
    cluster: ClusterState, owner: str, topics: int, queues: int
) -> CommandOutcome | None:
    """Refuse more topics and queues than the quota of their owner allows."""
    if not owner or is_node_user(owner):
        return None
    quota = cluster.access.book.quota_of(owner)
    owned = cluster.owned.get(owner, OwnedTopics())
    for what, limit, has, more in (
        ("topics", quota.topics, owned.topics, topics),
        ("queues", quota.queues, owned.queues, queues),
    ):
        if limit and more and has + more > limit:
            text = (
                f"user {owner!r} has {has} {what} and its quota is {limit}: delete some, or raise "
                f"the quota (`logboom quota set {owner} --{what} {has + more}`)"
            )
            return refused("QUOTA_EXCEEDED", text, user=owner, limit=limit)
    return None


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
    elif config.delete_retention_ms < 0:
        fault = f"delete_retention_ms {config.delete_retention_ms}: give 0 or more"
    elif min(config.dispatch_messages_per_s, config.dispatch_bytes_per_s) < 0:
        fault = "a dispatch rate is 0 (no limit) or more per second"
    return None if fault is None else refused("INVALID_ARGUMENT", fault)
