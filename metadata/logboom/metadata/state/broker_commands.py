"""Brokers come and go: registration, fencing, stepping down, removal (Q2, Q3, Q13, R13).

Fencing, ISR change and election of all the broker's queues are one command (Q7), and so is what
becomes of the groups it coordinates. The rule is
worked out once per distinct standing, not once per queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from logboom.metadata.groups.coordinator_placement import broker_came, broker_gone
from logboom.metadata.tables.cluster_state import BrokerRegistration, ClusterState, Queue
from logboom.metadata.tables.command_outcome import (
    DONE,
    CommandOutcome,
    fenced,
    refused,
    unknown_broker,
)
from logboom.metadata.tables.name_rules import broker_id_fault, endpoint_fault
from logboom.metadata.tables.replica_set import ReplicaSet, elect, leave, lose_store, mark_suspect
from logboom.wire.commands import FenceBroker, RegisterBroker, RemoveBroker, StepDown

Change = Callable[[ReplicaSet, int], ReplicaSet]
"""What becomes of one replica's standing, given the copies that are needed."""


def register_broker(cluster: ClusterState, command: RegisterBroker) -> CommandOutcome:
    """Begin a broker's process: value is its instance epoch.

    All its leaderships end (Q2); a new store leaves every ISR (Q3), a suspect one every ISR that
    has another member (Q13). A repeated registration of the same process changes nothing.
    """
    fault = broker_id_fault(command.broker)
    if fault is not None:
        return refused("INVALID_NAME", fault)
    fault = endpoint_fault(command.endpoint)
    if fault is None and not (command.store_id and command.incarnation):
        fault = "a registration needs a store id and an incarnation"
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault)
    known = cluster.brokers.get(command.broker)
    if known is None:
        return CommandOutcome(value=_enrol(cluster, command))
    if known.alive and known.incarnation == command.incarnation:
        return CommandOutcome(value=known.instance_epoch)
    replaced = known.store_id != command.store_id
    known.store_id = command.store_id
    known.incarnation = command.incarnation
    known.endpoint = command.endpoint
    known.zone = command.zone
    known.instance_epoch = _next_epoch(cluster)
    cluster.set_alive(known, alive=True)
    cluster.touch_broker(known)
    for tails in cluster.tails.values():
        tails.pop(known.id, None)
    change: Change = _stay
    if replaced:
        change = partial(_lose_store, broker=known.id)
    elif command.suspect:
        change = partial(_doubt, broker=known.id)
    _restart(cluster, known, change)
    broker_came(cluster, known.id)
    return CommandOutcome(value=known.instance_epoch)


def _enrol(cluster: ClusterState, command: RegisterBroker) -> int:
    broker = BrokerRegistration(
        command.broker,
        command.store_id,
        command.incarnation,
        command.endpoint,
        command.zone,
        _next_epoch(cluster),
        alive=True,
        version=0,
    )
    cluster.add_broker(broker)
    cluster.touch_broker(broker)
    broker_came(cluster, broker.id)
    return broker.instance_epoch


def _next_epoch(cluster: ClusterState) -> int:
    epoch = cluster.next_instance_epoch
    cluster.next_instance_epoch += 1
    return epoch


def _stay(s: ReplicaSet, _need: int) -> ReplicaSet:
    return s


def _lose_store(s: ReplicaSet, need: int, broker: str) -> ReplicaSet:
    return lose_store(s, broker, need)


def _doubt(s: ReplicaSet, need: int, broker: str) -> ReplicaSet:
    return mark_suspect(s, broker, need)


def _restart(cluster: ClusterState, broker: BrokerRegistration, change: Change) -> None:
    """Apply a registration to every queue the broker holds."""
    known: dict[tuple[ReplicaSet, int, bool], tuple[ReplicaSet, bool]] = {}
    for queue in broker.queues:
        key = (queue.standing, queue.topic.need, queue.topic.config.unclean_election)
        found = known.get(key)
        if found is None or cluster.tails:
            before = queue.standing
            led = before.leader == broker.id
            after = change(before, queue.topic.need)
            # A leadership of before ends even where nobody else can lead: it is given anew.
            if led or after.leader is None or after.leader in after.damaged:
                after = _elect(cluster, queue, after, last=broker.id if led else None)
            found = known[key] = (after, led)
        cluster.place(queue, found[0], anew=found[1])


def _elect(
    cluster: ClusterState, queue: Queue, s: ReplicaSet, last: str | None = None
) -> ReplicaSet:
    topic = queue.topic
    return elect(
        s,
        cluster.alive,
        topic.need,
        full=cluster.full,
        unclean=topic.config.unclean_election,
        last=last,
        tails=cluster.tails_of(queue),
    )


def fence_broker(cluster: ClusterState, command: FenceBroker) -> CommandOutcome:
    """Fence a silent broker, in the name of the raft leader of `term` (R13)."""
    if command.term != cluster.term:
        text = f"fence of term {command.term} comes too late: the term is {cluster.term}"
        return refused("STALE_EPOCH", text, epoch=cluster.term)
    broker = cluster.brokers.get(command.broker)
    if broker is None:
        return unknown_broker(command.broker)
    if broker.instance_epoch != command.instance_epoch:
        text = f"broker {broker.id!r} has registered again since"
        return refused("STALE_EPOCH", text, epoch=broker.instance_epoch)
    if broker.alive:
        _depart(cluster, broker)
    return DONE


def step_down(cluster: ClusterState, command: StepDown) -> CommandOutcome:
    """A broker stops in good order: it leads no more and counts for no ISR with another member.

    From here on it is fenced, so that nothing waits for it; it comes back by registering.
    """
    broker = cluster.brokers.get(command.broker)
    if broker is None:
        return unknown_broker(command.broker)
    if broker.instance_epoch != command.instance_epoch:
        return fenced(broker.id)
    if broker.alive:
        _depart(cluster, broker)
    return DONE


def _depart(cluster: ClusterState, broker: BrokerRegistration) -> None:
    cluster.set_alive(broker, alive=False)
    cluster.touch_broker(broker)
    known: dict[tuple[ReplicaSet, int, bool], ReplicaSet] = {}
    for queue in broker.queues:
        key = (queue.standing, queue.topic.need, queue.topic.config.unclean_election)
        after = known.get(key)
        if after is None or cluster.tails:
            after = leave(queue.standing, broker.id, queue.topic.need, trusted=True)
            if after.leader is None:
                after = _elect(cluster, queue, after)
            known[key] = after
        cluster.place(queue, after)
    broker_gone(cluster, broker.id)


def remove_broker(cluster: ClusterState, command: RemoveBroker) -> CommandOutcome:
    """Forget a fenced broker that holds no replica."""
    broker = cluster.brokers.get(command.broker)
    if broker is None:
        return unknown_broker(command.broker)
    if broker.alive:
        text = f"broker {broker.id!r} is alive: stop it first"
        return refused("INVALID_ARGUMENT", text, broker=broker.id)
    if broker.queues:
        text = (
            f"broker {broker.id!r} holds replicas of {len(broker.queues)} queues: "
            "delete those topics first"
        )
        return refused("INVALID_ARGUMENT", text, broker=broker.id)
    cluster.drop_broker(broker)
    return DONE
