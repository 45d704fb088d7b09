"""Commands on brokers: registration, fencing, step-down, removal (Q2, Q3, Q13, R13).

One command covers fencing, ISR changes and elections of all the broker's queues (Q7), and new
coordinators for the groups that it coordinated. The result is computed once per distinct replica
set, not once per queue.
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
"""A change of a replica set, given the number of copies that are needed."""


def register_broker(cluster: ClusterState, command: RegisterBroker) -> CommandOutcome:
    """Register a broker's process; the value is its instance epoch.

    All leaderships of the broker end, because the new process does not know what the old one
    acknowledged (Q2). A new store leaves every ISR (Q3); a suspect one leaves every ISR that has
    another member (Q13). A repeated registration of the same process changes nothing.
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
    known.host = command.host
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
        host=command.host,
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
    """Apply a registration to every queue of which the broker has a replica."""
    known: dict[tuple[ReplicaSet, int, bool], tuple[ReplicaSet, bool]] = {}
    for queue in broker.queues:
        key = (queue.standing, queue.topic.need, queue.topic.config.unclean_election)
        found = known.get(key)
        if found is None or cluster.tails:
            before = queue.standing
            led = before.leader == broker.id
            after = change(before, queue.topic.need)
            # The old leadership ends even where nobody else can lead: the broker gets a new one.
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
    """Fence a silent broker, on behalf of the Raft leader of `term` (R13)."""
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
    """Step down: a broker that shuts down leaves its leaderships and every ISR with another member.

    It is fenced from here on, so that nothing waits for it, and returns by registering.
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
    """Remove a fenced broker that has no replicas."""
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
