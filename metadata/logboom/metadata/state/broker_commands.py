"""Brokers come and go: registration, fencing, stepping down, removal (Q2, Q3, Q13, R13).

Fencing, ISR change and election of all the broker's queues are one command (Q7), and so is what
becomes of the groups it coordinates. The rule is
worked out once per distinct standing, not once per queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from logboom.metadata.groups.coordinators import broker_came, broker_gone
from logboom.metadata.state.cluster import Broker, Cluster, Queue
from logboom.metadata.state.names import broker_id_fault, endpoint_fault
from logboom.metadata.state.outcome import DONE, Outcome, fenced, refused, unknown_broker
from logboom.metadata.state.standing import Standing, doubt, elect, leave, lose_store
from logboom.wire.commands import FenceBroker, RegisterBroker, RemoveBroker, StepDown

Change = Callable[[Standing, int], Standing]
"""What becomes of one replica's standing, given the copies that are needed."""


def register_broker(cluster: Cluster, command: RegisterBroker) -> Outcome:
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
        return Outcome(value=_enrol(cluster, command))
    if known.alive and known.incarnation == command.incarnation:
        return Outcome(value=known.instance_epoch)
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
    return Outcome(value=known.instance_epoch)


def _enrol(cluster: Cluster, command: RegisterBroker) -> int:
    broker = Broker(
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


def _next_epoch(cluster: Cluster) -> int:
    epoch = cluster.next_instance_epoch
    cluster.next_instance_epoch += 1
    return epoch


def _stay(s: Standing, _need: int) -> Standing:
    return s


def _lose_store(s: Standing, need: int, broker: str) -> Standing:
    return lose_store(s, broker, need)


def _doubt(s: Standing, need: int, broker: str) -> Standing:
    return doubt(s, broker, need)


def _restart(cluster: Cluster, broker: Broker, change: Change) -> None:
    """Apply a registration to every queue the broker holds."""
    known: dict[tuple[Standing, int, bool], tuple[Standing, bool]] = {}
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


def _elect(cluster: Cluster, queue: Queue, s: Standing, last: str | None = None) -> Standing:
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


def fence_broker(cluster: Cluster, command: FenceBroker) -> Outcome:
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


def step_down(cluster: Cluster, command: StepDown) -> Outcome:
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


def _depart(cluster: Cluster, broker: Broker) -> None:
    cluster.set_alive(broker, alive=False)
    cluster.touch_broker(broker)
    known: dict[tuple[Standing, int, bool], Standing] = {}
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


def remove_broker(cluster: Cluster, command: RemoveBroker) -> Outcome:
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
