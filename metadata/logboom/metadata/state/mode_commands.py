"""The command that sets the mode of a broker (M6)."""

from __future__ import annotations

from logboom.metadata.groups.coordinator_placement import broker_came, broker_gone
from logboom.metadata.state.elections import settled
from logboom.metadata.state.setting_commands import below_level
from logboom.metadata.tables.cluster_state import BrokerRegistration, ClusterState
from logboom.metadata.tables.command_outcome import (
    DONE,
    CommandOutcome,
    refused,
    unknown_broker,
)
from logboom.metadata.tables.replica_set import ReplicaSet, hand_over
from logboom.wire.operation_commands import MODES, SetBrokerMode


def set_broker_mode(cluster: ClusterState, command: SetBrokerMode) -> CommandOutcome:
    """Set a broker's mode; one that is not active gives its leaderships and groups away.

    It stays in every ISR. Where no other can lead, it goes on leading.
    """
    refusal = below_level(cluster)
    if refusal is not None:
        return refusal
    broker = cluster.brokers.get(command.broker)
    if broker is None:
        return unknown_broker(command.broker)
    mode = next((each for each in MODES if each == command.mode), None)
    if mode is None:
        text = f"{command.mode[:80]!r} is no mode of a broker: give one of {', '.join(MODES)}"
        return refused("INVALID_ARGUMENT", text, broker=broker.id)
    now = cluster.modes.get(broker.id, "active")
    if mode == "drained" and broker.queues:
        text = (
            f"broker {broker.id!r} still holds replicas of {len(broker.queues)} queues: it is "
            "drained once they are moved"
        )
        return refused("INVALID_ARGUMENT", text, broker=broker.id)
    if mode == now:
        return DONE
    if mode == "drained" and now != "draining":
        text = f"broker {broker.id!r} is {now}: only one that is draining becomes drained"
        return refused("INVALID_ARGUMENT", text, broker=broker.id)
    if mode == "active":
        del cluster.modes[broker.id]
    else:
        cluster.modes[broker.id] = mode
    cluster.tell("broker_mode_changed", broker=broker.id, mode=mode, was=now)
    cluster.touch_broker(broker)
    if mode == "active":
        _take_leaderships_over(cluster, broker)
        if broker.alive:
            broker_came(cluster, broker.id)
    else:
        _give_leaderships_away(cluster, broker)
        broker_gone(cluster, broker.id)
    return DONE


def _give_leaderships_away(cluster: ClusterState, broker: BrokerRegistration) -> None:
    known: dict[ReplicaSet, ReplicaSet] = {}
    for queue in broker.queues:
        before = queue.standing
        if before.leader != broker.id:
            continue
        after = known.get(before)
        if after is None:
            after = known[before] = hand_over(
                before, (broker.id,), cluster.alive, cluster.elected_last
            )
        cluster.place(queue, after)


def _take_leaderships_over(cluster: ClusterState, broker: BrokerRegistration) -> None:
    """Let others that are not active, and led for want of a better one, hand over to this broker."""
    known: dict[ReplicaSet, ReplicaSet] = {}
    # A move that ends meanwhile may take the broker's replica away.
    for queue in list(broker.queues):
        after = known.get(queue.standing)
        if after is None:
            after = known[queue.standing] = settled(cluster, queue.standing)
        cluster.place(queue, after)
