"""Commands on brokers: registration, fencing, step-down, removal (Q2, Q3, Q13, R13).

One command covers fencing, ISR changes and elections of all the broker's queues (Q7), and new
coordinators for the groups that it coordinated. The result is computed once per distinct replica
set, not once per queue.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple

from logboom.metadata.access.access_changes import drop_node_user
from logboom.metadata.groups.coordinator_placement import broker_came, broker_gone
from logboom.metadata.state.elections import elect_doubted, elected, settled
from logboom.metadata.state.queue_placement import place_queues, receivers, receiving_hosts
from logboom.metadata.state.setting_commands import below_level
from logboom.metadata.tables.cluster_state import (
    BrokerRegistration,
    ClusterState,
    Queue,
    needed_copies,
)
from logboom.metadata.tables.command_outcome import (
    DONE,
    CommandOutcome,
    fenced,
    refused,
    unknown_broker,
)
from logboom.metadata.tables.name_rules import (
    applied_endpoint_fault,
    broker_id_fault,
    listeners_fault,
)
from logboom.metadata.tables.replica_moves import give_up
from logboom.metadata.tables.replica_set import (
    ReplicaSet,
    intern_replica_set,
    leave,
    lose_store,
    mark_suspect,
    may_lack,
    regain_store,
)
from logboom.wire.commands import FenceBroker, RegisterBroker, RemoveBroker, StepDown

Change = Callable[[ReplicaSet, int], ReplicaSet]
"""A change of a replica set, given the number of copies that are needed."""


def register_broker(cluster: ClusterState, command: RegisterBroker) -> CommandOutcome:
    """Register a broker's process; the value is its instance epoch.

    All leaderships of the broker end, because the new process does not know what the old one
    acknowledged (Q2). A new store leaves every ISR, unless it is the one whose loss left a queue
    without a leader (Q3); a suspect one leaves every ISR that has
    another member (Q13). A repeated registration of the same process changes nothing.
    """
    fault = broker_id_fault(command.broker)
    if fault is not None:
        return refused("INVALID_NAME", fault)
    fault = applied_endpoint_fault(command.endpoint) or listeners_fault(command.listeners)
    if fault is None and not (command.store_id and command.incarnation):
        fault = "a registration needs a store id and an incarnation"
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault)
    known = cluster.brokers.get(command.broker)
    if known is None:
        epoch = _enrol(cluster, command)
        _tell_of_registration(cluster, command, epoch, fresh_store=True)
        return CommandOutcome(value=epoch)
    if known.alive and known.incarnation == command.incarnation:
        return CommandOutcome(value=known.instance_epoch)
    replaced, former = known.store_id != command.store_id, known.store_id
    known.store_id = command.store_id
    known.incarnation = command.incarnation
    known.endpoint = command.endpoint
    known.zone = command.zone
    known.host = command.host
    known.listeners = command.listeners
    known.instance_epoch = _next_epoch(cluster)
    _tell_of_registration(cluster, command, known.instance_epoch, fresh_store=replaced)
    cluster.set_alive(known, alive=True)
    cluster.touch_broker(known)
    for tails in cluster.tails.values():
        tails.pop(known.id, None)
    change: Change = _stay
    if replaced:
        change = partial(_lose_store, broker=known.id)
    elif command.suspect:
        change = partial(_doubt, broker=known.id)
    if cluster.doubted and (replaced or command.suspect):
        # What it has lost may have been one of the copies that are counted on: all have to report.
        for queue in known.queues:
            if (queue.topic.id, queue.index) in cluster.doubted:
                cluster.doubted[queue.topic.id, queue.index] = len(queue.standing.replicas)
    _restart(cluster, known, change, former if replaced else "", suspect=command.suspect)
    broker_came(cluster, known.id)
    return CommandOutcome(value=known.instance_epoch)


def _tell_of_registration(
    cluster: ClusterState, command: RegisterBroker, epoch: int, *, fresh_store: bool
) -> None:
    cluster.tell(
        "broker_registered",
        broker=command.broker,
        instance_epoch=epoch,
        zone=command.zone or None,
        host=command.host or None,
        fresh_store=fresh_store or None,
        suspect=command.suspect or None,
    )


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
        listeners=command.listeners,
    )
    if cluster.features and cluster.topics:
        cluster.filling.add(broker.id)
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


def _regain_store(s: ReplicaSet, need: int, broker: str, *, suspect: bool) -> ReplicaSet:
    regained = regain_store(s, broker)
    return mark_suspect(regained, broker, need) if suspect else regained


class _Restarted(NamedTuple):
    """What a registration makes of a replica set."""

    after: ReplicaSet
    led: bool
    """True if the broker led it."""
    lacks: bool
    """True if a new leader may lack what was committed."""
    alone: bool
    """True if the broker's former store alone held all of it."""


def _restart(
    cluster: ClusterState,
    broker: BrokerRegistration,
    change: Change,
    former: str,
    *,
    suspect: bool,
) -> None:
    """Apply a registration to every queue of which the broker has a replica.

    `former` is the store that the broker had before; "" if it is the same.
    """
    known: dict[tuple[ReplicaSet, int, bool, Queue | None, bool], _Restarted] = {}
    back: Change = partial(_regain_store, broker=broker.id, suspect=suspect)
    in_question = _in_question(cluster)
    regained = {where for where, store in cluster.lost_stores.items() if store == broker.store_id}
    keeps_former = bool(former and cluster.features)
    # A move that ends meanwhile may take the broker's replica away.
    for queue in list(broker.queues):
        regains = bool(regained) and (queue.topic.id, queue.index) in regained
        topic, config = queue.topic, queue.topic.config
        own = queue if in_question and (topic.id, queue.index) in in_question else None
        key = (queue.standing, config.min_in_sync, config.unclean_election, own, regains)
        found = known.get(key)
        if found is None:
            before = queue.standing
            led = before.leader == broker.id
            after = origin = (back if regains else change)(before, queue.need)
            # The old leadership ends even where nobody else can lead: the broker gets a new one.
            if led or after.leader is None or after.leader in after.damaged:
                after = elected(cluster, queue, after, last=broker.id if led else None)
            lacks, after = may_lack(origin, after), settled(cluster, after)
            alone = keeps_former and _held_alone(before, after, broker.id)
            found = known[key] = _Restarted(after, led, lacks, alone)
        cluster.place(queue, found.after, anew=found.led, lacks=found.lacks)
        if found.alone:
            cluster.lost_stores[queue.topic.id, queue.index] = former


def _in_question(cluster: ClusterState) -> AbstractSet[tuple[int, int]]:
    """Return the queues, as topic id and number, whose elections depend on what was reported of them.

    That of any other depends on its replica set, `min_in_sync`, `unclean_election` and the brokers.
    """
    return cluster.tails.keys() | cluster.doubted.keys()


def _held_alone(before: ReplicaSet, after: ReplicaSet, broker: str) -> bool:
    """Return True if a broker's former store held all of a queue, and its loss leaves no leader."""
    doubted = {*before.lost, *before.suspect, *before.damaged}
    return broker in after.lost and broker not in doubted


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
        cluster.tell("broker_fenced", broker=broker.id, instance_epoch=broker.instance_epoch)
        depart(cluster, broker)
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
        cluster.tell("broker_stepped_down", broker=broker.id, instance_epoch=broker.instance_epoch)
        depart(cluster, broker)
    return DONE


def depart(cluster: ClusterState, broker: BrokerRegistration) -> None:
    """Fence a broker: it leaves ISRs and leaderships, and coordinates no group."""
    cluster.set_alive(broker, alive=False)
    cluster.touch_broker(broker)
    known: dict[tuple[ReplicaSet, int, bool, Queue | None], ReplicaSet] = {}
    in_question = _in_question(cluster)
    # A move that ends meanwhile may take the broker's replica away.
    for queue in list(broker.queues):
        topic, config = queue.topic, queue.topic.config
        own = queue if in_question and (topic.id, queue.index) in in_question else None
        key = (queue.standing, config.min_in_sync, config.unclean_election, own)
        after = known.get(key)
        if after is None:
            after = leave(queue.standing, broker.id, queue.need, trusted=True)
            if after.leader is None:
                after = elected(cluster, queue, after)
            after = known[key] = settled(cluster, after)
        cluster.place(queue, after)
    broker_gone(cluster, broker.id)


def remove_broker(cluster: ClusterState, command: RemoveBroker) -> CommandOutcome:
    """Remove a fenced broker, and its user; its replicas are given up.

    Without `accept_loss` it is refused if a queue would lose messages by that; with it the text
    tells how many did.
    """
    broker = cluster.brokers.get(command.broker)
    if broker is None:
        return unknown_broker(command.broker)
    if broker.alive:
        text = f"broker {broker.id!r} is alive: stop it first"
        return refused("INVALID_ARGUMENT", text, broker=broker.id)
    said = ""
    keeps = bool(cluster.features) and not _lose_messages(broker)
    if broker.queues and (command.accept_loss or keeps):
        refusal = below_level(cluster)
        if refusal is None and not keeps and not receivers(cluster):
            text = "no broker is live and active that could take its queues: start one first"
            refusal = refused("TOO_FEW_BROKERS", text, live=0)
        if refusal is not None:
            return refusal
        said = _give_up_replicas(cluster, broker)
    elif broker.queues:
        # The texts of results are part of the state, so older name servers must give the same.
        text = f"broker {broker.id!r} holds replicas of {len(broker.queues)} queues: delete those topics first"
        if cluster.features:
            text = (
                f"broker {broker.id!r} alone holds messages of {len(_lose_messages(broker))} "
                f"queues: start it and move them away with `logboom broker drain {broker.id}`, or accept "
                f"their loss with `logboom broker remove {broker.id} --accept-loss`"
            )
        return refused("INVALID_ARGUMENT", text, broker=broker.id)
    cluster.drop_broker(broker)
    elect_doubted(cluster)
    cluster.tell("broker_removed", broker=broker.id, text=said or None)
    drop_node_user(cluster, broker.id)
    return CommandOutcome(text=said)


def _lose_messages(broker: BrokerRegistration) -> list[Queue]:
    """Return the queues of which no other replica holds everything for certain."""
    found: list[Queue] = []
    for queue in broker.queues:
        s = queue.standing
        if not {*s.isr, *s.eligible} - {broker.id, *s.suspect, *s.damaged, *s.lost}:
            found.append(queue)
    return found


def _give_up_replicas(cluster: ClusterState, broker: BrokerRegistration) -> str:
    """Remove all replicas of a broker that does not come back; return what that cost."""
    shorter = empty = 0
    # In an order of its own: a restored name server may hold its tables in another one.
    for queue in sorted(broker.queues, key=lambda queue: (queue.topic.id, queue.index)):
        # What is given up is not counted any more: who is eligible by the old number may lack what
        # the others commit by the new one.
        copies = len([r for r in queue.standing.original if r != broker.id])
        need = needed_copies(queue.topic.config, copies)
        left = give_up(queue.standing, broker.id, cluster.alive, need)
        if left is None:
            most = min(queue.topic.replicas, receiving_hosts(cluster))
            placed = place_queues(cluster, queue.topic, 1, most)[0]
            made = intern_replica_set(placed, placed[0], placed)
            cluster.place(queue, made, anew=True, lacks=True)
            empty += 1
            continue
        after, may_lose = left
        shorter += may_lose
        if after.leader is None and not may_lose:
            after = elected(cluster, queue, after)
        cluster.place(queue, settled(cluster, after), anew=may_lose)
        if may_lose and after.leader is None:
            # The heir is the ISR already: that its log is not complete would not be known any more.
            cluster.note_loss(queue, queue.epoch + 1)
    if not shorter and not empty:
        return ""
    return (
        f"{empty} queues had no other replica and begin anew, empty; {shorter} queues are led by a "
        "replica that was not in sync and may lack messages"
    )
