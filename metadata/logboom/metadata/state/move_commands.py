"""Commands that move queues to other replicas: reassign, cancel (M1 to M5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from logboom.metadata.state.elections import elected, settled
from logboom.metadata.state.setting_commands import below_level
from logboom.metadata.tables.cluster_state import ClusterState, Queue, find_queue
from logboom.metadata.tables.command_outcome import CommandOutcome
from logboom.metadata.tables.name_rules import MAX_REPLICAS
from logboom.metadata.tables.replica_moves import begin_move, cancel_move
from logboom.wire.operation_commands import CancelReassign, QueueMove, Reassign


class MoveRefusal(NamedTuple):
    """Why a queue is not moved."""

    code: str
    text: str


def reassign(cluster: ClusterState, command: Reassign) -> CommandOutcome:
    """Move queues to other replicas; the value is a code per move, the text the first refusal's."""
    return below_level(cluster) or _outcome(
        _move(cluster, move, force=command.force) for move in command.moves
    )


def cancel_reassign(cluster: ClusterState, command: CancelReassign) -> CommandOutcome:
    """Cancel moves; the value is a code per queue, the text the first refusal's."""
    return below_level(cluster) or _outcome(_cancel(cluster, *where) for where in command.queues)


def _outcome(refusals: Iterable[MoveRefusal | None]) -> CommandOutcome:
    every = list(refusals)
    text = next((refusal.text for refusal in every if refusal is not None), "")
    return CommandOutcome(
        text=text, value=[each.code if each is not None else "" for each in every]
    )


def _move(cluster: ClusterState, move: QueueMove, *, force: bool) -> MoveRefusal | None:
    queue = find_queue(cluster, move.topic_id, move.queue)
    if queue is None:
        return _unknown_queue(move.topic_id, move.queue)
    name = _name(queue)
    if move.version not in (-1, queue.version):
        return MoveRefusal("CONFLICT", f"{name} has changed since: plan its move again")
    before, target = queue.standing, tuple(move.target)
    refusal = _refuse_target(cluster, queue, target, force=force)
    if refusal is not None:
        return refusal
    if target == before.replicas and not before.removing:
        return None
    after = begin_move(before, target, queue.need, cluster.alive, cluster.elected_last)
    if isinstance(after, str):
        return MoveRefusal("INVALID_ARGUMENT", f"{name}: {after}")
    added = set(after.replicas) - set(before.replicas)
    # A new epoch voids positions that the leader remembers of a replica that was removed and is
    # added back: what it held then is gone (M4).
    cluster.place(queue, after, anew=bool(added))
    _settle(cluster, queue)
    return None


def _refuse_target(
    cluster: ClusterState, queue: Queue, target: tuple[str, ...], *, force: bool
) -> MoveRefusal | None:
    name, before = _name(queue), queue.standing
    if not 1 <= len(target) <= MAX_REPLICAS or len(set(target)) < len(target):
        text = f"{name}: give 1 to {MAX_REPLICAS} different brokers as its replicas"
        return MoveRefusal("INVALID_ARGUMENT", text)
    wanted = min(queue.topic.config.min_in_sync, len(before.original))
    if len(target) < wanted:
        text = f"{name}: its min_in_sync needs {wanted} replicas, {len(target)} are given"
        return MoveRefusal("INVALID_ARGUMENT", text)
    for broker in target:
        if broker not in cluster.brokers:
            text = f"broker {broker[:80]!r} is not registered: see `logboom broker list`"
            return MoveRefusal("UNKNOWN_BROKER", text)
    hosts = {broker: cluster.brokers[broker].host for broker in target}
    for broker in target:
        if broker in before.replicas:
            continue
        fault = None
        mode = cluster.modes.get(broker)
        if broker not in cluster.alive:
            fault = "is not alive: start it, or choose another"
        elif mode is not None:
            fault = f"is in mode {mode} and gets no replicas: choose another"
        elif broker in cluster.full:
            fault = "has no disk space: choose another"
        elif hosts[broker] and list(hosts.values()).count(hosts[broker]) > 1:
            fault = f"shares the machine {hosts[broker]!r} with another replica: choose another"
        if fault is not None:
            return MoveRefusal("INVALID_ARGUMENT", f"{name}: broker {broker!r} {fault}")
    before_zones = len(_zones(cluster, before.original))
    zones = len(_zones(cluster, target))
    if not force and zones < min(before_zones, len(target)):
        text = (
            f"{name}: its replicas are in {before_zones} zones, and would be in {zones}: choose "
            "others, or force it"
        )
        return MoveRefusal("INVALID_ARGUMENT", text)
    return None


def _cancel(cluster: ClusterState, topic_id: int, index: int) -> MoveRefusal | None:
    queue = find_queue(cluster, topic_id, index)
    if queue is None:
        return _unknown_queue(topic_id, index)
    after = cancel_move(queue.standing, queue.need, cluster.alive, cluster.elected_last)
    if isinstance(after, str):
        return MoveRefusal("INVALID_ARGUMENT", f"{_name(queue)}: {after}")
    cluster.place(queue, after)
    _settle(cluster, queue)
    return None


def _settle(cluster: ClusterState, queue: Queue) -> None:
    s = queue.standing
    if s.leader is None:
        s = elected(cluster, queue, s)
    cluster.place(queue, settled(cluster, s))


def _zones(cluster: ClusterState, brokers: Iterable[str]) -> set[str]:
    return {cluster.brokers[broker].zone for broker in brokers}


def _name(queue: Queue) -> str:
    return f"{queue.topic.name!r} queue {queue.index}"


def _unknown_queue(topic_id: int, index: int) -> MoveRefusal:
    text = f"topic {topic_id} queue {index} does not exist: it was deleted meanwhile"
    return MoveRefusal("UNKNOWN_QUEUE", text)
