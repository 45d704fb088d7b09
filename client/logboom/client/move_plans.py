"""Plans of drains, moves, replica numbers and removals: what they copy and cost, and why they cannot be.

Pure: they go by what the Raft leader told. A plan that cannot be raises before anything changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.written_values import bytes_text, counted
from logboom.wire.errors import InvalidRequest
from logboom.wire.operation_messages import BalancePlanned, BrokerLoad, ClusterDescribed
from logboom.wire.view import QueueView, TopicView

NAMED: Final = 5
"""Queues that a sentence names."""


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """What a command is about to do."""

    facts: dict[str, Any]
    """For programs."""
    lines: list[str]
    """For people."""
    copied_bytes: int = 0
    """Bytes that will be copied, as far as they are known."""


def target_of(queue: QueueView) -> list[str]:
    """Return the replicas that a queue has once its move is done."""
    return [broker for broker in queue.replicas if broker not in queue.removing]


def broker_of(described: ClusterDescribed, broker: str) -> BrokerLoad:
    """Return a broker.

    Raises:
        InvalidRequest: there is none of this id; the text has those that there are.
    """
    for each in described.brokers:
        if each.broker == broker:
            return each
    known = ", ".join(each.broker for each in described.brokers)
    raise InvalidRequest(f"no broker {broker!r}: there are {known}", "UNKNOWN_BROKER")


def queue_of(topic: TopicView, queue: int) -> QueueView:
    """Return a queue.

    Raises:
        InvalidRequest: the topic has no such queue.
    """
    if not 0 <= queue < len(topic.queues):
        text = f"{topic.name} has no queue {queue}: its queues are 0 to {len(topic.queues) - 1}"
        raise InvalidRequest(text, "UNKNOWN_QUEUE")
    return topic.queues[queue]


def broker_ids(text: str) -> list[str]:
    """Return the ids of "broker-1,broker-2".

    Raises:
        InvalidRequest: there is none, or one twice.
    """
    ids = [each.strip() for each in text.split(",") if each.strip()]
    if not ids:
        raise InvalidRequest("no broker is named: write --replicas broker-1,broker-2")
    if len(set(ids)) < len(ids):
        raise InvalidRequest(f"{text} names a broker twice: a queue has one replica on each")
    return ids


def unable(broker: BrokerLoad) -> str:
    """Return why a broker takes no replicas, in words; "" if it takes them."""
    if not broker.alive:
        return "is down: start it"
    if broker.mode == "maintenance":
        return f"is in maintenance: `logboom broker maintenance off {broker.broker}` ends that"
    if broker.mode != "active":
        return f"is {broker.mode}: `logboom broker undrain {broker.broker}` ends that"
    if broker.full:
        return "has no disk space"
    return ""


def plan_drain(
    described: ClusterDescribed, topics: Sequence[TopicView], broker: str
) -> OperationPlan:
    """Plan the move of all replicas away from a broker.

    Raises:
        InvalidRequest: there is no such broker, or a queue has nowhere to go.
    """
    giver = broker_of(described, broker)
    by_id = {each.broker: each for each in described.brokers}
    receivers = [each for each in described.brokers if each is not giver and not unable(each)]
    nowhere: list[str] = []
    crowded: list[str] = []
    stranded: list[str] = []
    held = led = most = 0
    for name, queue in _queues(topics):
        target = target_of(queue)
        if broker not in target:
            continue
        held += 1
        most = max(most, len(target))
        led += queue.leader == broker
        others = [by_id[each] for each in target if each != broker and each in by_id]
        possible = _possible(receivers, others)
        if not possible:
            nowhere.append(name)
        elif not _keeps_zones(possible, others, giver):
            crowded.append(name)
        if queue.leader is None and queue.isr == [broker]:
            stranded.append(name)
    if nowhere:
        raise InvalidRequest(
            f"{counted(len(nowhere), 'queue')} of {broker} would have nowhere to go ({_some(nowhere)}): "
            f"they have up to {counted(most, 'replica')}, and {counted(len(receivers), 'other broker')} "
            f"can take any. Start another broker on a machine of its own, or lower the number with "
            "`logboom topic alter … --replicas …`",
            "TOO_FEW_BROKERS",
        )
    if crowded:
        raise InvalidRequest(
            f"{counted(len(crowded), 'queue')} of {broker} would be in fewer zones ({_some(crowded)}): "
            f"start another broker in zone {giver.zone!r}, or move them with `logboom queue move TOPIC "
            "QUEUE --replicas … --force`",
            "TOO_FEW_BROKERS",
        )
    _check_room(giver.size_bytes, receivers)
    size = max(0, giver.size_bytes)
    facts = {
        "broker": broker,
        "queues": held,
        "leads": led,
        "bytes": _known(giver.size_bytes),
        "receivers": [each.broker for each in receivers],
        "stranded": stranded,
    }
    holds = f"{counted(held, 'replica')}, {_size(giver.size_bytes)}"
    lines = [
        f"{broker} holds {holds}; it leads {counted(led, 'queue')}",
        f"they move to {_listed(each.broker for each in receivers)}; each queue stays in as many zones"
        if held
        else "there is nothing to move",
        "it costs the copy over the network, at most `move_bytes_per_s` to each broker; leaders move first",
    ]
    if stranded:
        lines.append(
            f"{_some(stranded)}: {broker} has the only copy and does not run: start it, or they stay"
        )
    return OperationPlan(facts, lines if held else lines[:2], size)


def plan_move(
    described: ClusterDescribed, topic: TopicView, number: int, target: list[str], *, force: bool
) -> OperationPlan:
    """Plan the move of one queue to the brokers of `target`. `described` has the topic's sizes.

    Raises:
        InvalidRequest: a broker is unknown or takes no replicas, two are on one machine, they are too
            few, or in fewer zones.
    """
    queue = queue_of(topic, number)
    before = target_of(queue)
    brokers = [broker_of(described, each) for each in target]
    original = [each for each in queue.replicas if each not in queue.adding]
    adding = [each for each in target if each not in queue.replicas]
    removing = [each for each in original if each not in target]
    for each in brokers:
        if each.broker in adding and unable(each):
            raise InvalidRequest(f"{each.broker} {unable(each)}, or choose another broker")
    hosts = [each.host for each in brokers if each.host]
    for each in brokers:
        if each.broker in adding and hosts.count(each.host) > 1:
            raise InvalidRequest(
                f"{each.broker} is on the machine {each.host} like another one of {', '.join(target)}: "
                "choose a broker of another machine"
            )
    _check_in_sync(topic, len(target), topic.config.min_in_sync)
    zones = (_zones(described, original), _zones(described, target))
    if zones[1] < min(zones[0], len(target)) and not force:
        raise InvalidRequest(
            f"its replicas are in {counted(zones[0], 'zone')}, and would be in {zones[1]}: choose "
            "brokers of other zones, or say --force"
        )
    size = described.sizes[number] if number < len(described.sizes) else 0
    _check_room(size, [each for each in brokers if each.broker in adding])
    copied = size * len(adding)
    facts = {
        "topic": topic.name,
        "queue": number,
        "before": before,
        "after": target,
        "adding": adding,
        "removing": removing,
        "bytes": copied,
        "zones_before": zones[0],
        "zones_after": zones[1],
    }
    lines = [f"{topic.name} queue {number}: {', '.join(before)} → {', '.join(target)}"]
    lines.append(
        f"copied: {_size(size or -1)} to {_listed(adding)}"
        if adding
        else "nothing is copied: all of these have it already"
    )
    if removing:
        lines.append(f"given up, once the others are in sync: {', '.join(removing)}")
    if queue.leader not in target:
        lines.append(f"the leader moves from {queue.leader or 'nobody'} to one of them")
    lines.append(f"zones: {zones[0]} → {zones[1]}")
    return OperationPlan(facts, lines, copied)


def plan_replicas(
    described: ClusterDescribed, topic: TopicView, replicas: int, min_in_sync: int
) -> OperationPlan:
    """Plan another number of replicas of a topic. `described` has the topic's sizes.

    Raises:
        InvalidRequest: there are too few brokers or machines for it, or it is below `min_in_sync`.
    """
    _check_in_sync(topic, replicas, min_in_sync)
    if not 1 <= replicas <= 15:
        raise InvalidRequest(f"{replicas} replicas: give 1 to 15")
    able = [each for each in described.brokers if not unable(each)]
    machines = len({each.host or each.broker for each in able})
    if replicas > machines:
        raise InvalidRequest(
            f"{replicas} replicas need {replicas} machines, and {counted(len(able), 'broker')} on "
            f"{machines} can take any: start more, or see `logboom broker list` for those that are "
            "down, full or not active",
            "TOO_FEW_BROKERS",
        )
    counts = [len(target_of(queue)) for queue in topic.queues]
    sizes = described.sizes or [0] * len(counts)
    more = [max(0, replicas - count) for count in counts]
    fewer = sum(max(0, count - replicas) for count in counts)
    copied = sum(size * added for size, added in zip(sizes, more, strict=False))
    _check_room(copied, able)
    zones = min((_zones(described, target_of(queue)) for queue in topic.queues), default=0)
    after = min(replicas, len({each.zone for each in able}))
    before = topic.replicas or max(counts, default=0)
    facts = {
        "topic": topic.name,
        "queues": len(counts),
        "replicas_before": before,
        "replicas_after": replicas,
        "added": sum(more),
        "removed": fewer,
        "bytes": copied,
        "zones_before": zones,
        "zones_after": after,
    }
    wanted, queues = counted(replicas, "replica"), counted(len(counts), "queue")
    lines = [f"{topic.name}: {before} → {wanted} of each of {queues}"]
    if any(more):
        lines.append(
            f"copied: {counted(sum(more), 'replica')}, {_size(copied or -1)}, queue by queue; as much "
            "disk space is used in addition"
        )
    if fewer:
        lines.append(f"given up: {counted(fewer, 'replica')}; nothing is copied for that")
    if not any(more) and not fewer:
        lines.append("every queue has so many already")
    lines.append(f"zones of a queue: {zones} → {after}")
    needed = min_in_sync or replicas // 2 + 1
    lines.append(f"a write with acks=all then needs {counted(needed, 'copy', 'copies')}")
    return OperationPlan(facts, lines, copied)


@dataclass(frozen=True, slots=True)
class Removal:
    """What the removal of a dead broker costs."""

    plan: OperationPlan
    lost: list[str]
    """Queues whose only copy it has."""
    doubtful: list[str]
    """Queues whose other replicas may lack messages."""

    @property
    def loses(self) -> bool:
        """True if messages are lost for good."""
        return bool(self.lost or self.doubtful)


def plan_removal(described: ClusterDescribed, topics: Sequence[TopicView], broker: str) -> Removal:
    """Plan the removal of a dead broker.

    Raises:
        InvalidRequest: there is no such broker, or it is alive; the text has the remedy.
    """
    gone = broker_of(described, broker)
    if gone.alive:
        drained = (
            ""
            if gone.mode == "drained"
            else f"drain it with `logboom broker drain {broker} --wait`, "
        )
        raise InvalidRequest(f"{broker} is alive: {drained}stop it, then remove it")
    lost: list[str] = []
    doubtful: list[str] = []
    held = 0
    for name, queue in _queues(topics):
        if broker not in queue.replicas:
            continue
        held += 1
        if queue.replicas == [broker]:
            lost.append(name)
        elif not {*queue.isr, *queue.eligible} - {broker}:
            doubtful.append(name)
    facts = {
        "broker": broker,
        "replicas": held,
        "bytes": _known(gone.size_bytes),
        "lost_queues": lost,
        "doubtful_queues": doubtful,
    }
    lines = [f"{broker} is down and holds {counted(held, 'replica')}"]
    if lost:
        lines.append(
            f"ALL MESSAGES ARE LOST of {counted(len(lost), 'queue')}, since it has the only copy: "
            f"{', '.join(lost)}"
        )
    if doubtful:
        lines.append(
            f"MESSAGES MAY BE LOST of {counted(len(doubtful), 'queue')}, since no other copy is in "
            f"sync: {', '.join(doubtful)}"
        )
    kept = held - len(lost) - len(doubtful)
    if kept:
        lines.append(
            f"{counted(kept, 'queue')} {'keeps' if kept == 1 else 'keep'} all messages on other brokers, "
            "and get another replica if there is a broker for it"
        )
    elif not held:
        lines.append("no queue loses anything")
    lines.append("if it comes back later, it comes as a new broker, without its replicas")
    return Removal(OperationPlan(facts, lines, 0), lost, doubtful)


def plan_rows(planned: BalancePlanned) -> list[dict[str, Any]]:
    """Return the moves of a plan of balance as rows."""
    rows: list[dict[str, Any]] = []
    for move in planned.moves:
        added = [each for each in move.target if each not in move.replicas]
        removed = [each for each in move.replicas if each not in move.target]
        rows.append(
            {
                "topic": move.topic,
                "queue": move.queue,
                "change": _change(added, removed) or f"led by {move.target[0]}",
                "copied": bytes_text(move.copied_bytes),
                "zones": f"{move.zones_before} → {move.zones_after}",
                "before": move.replicas,
                "after": move.target,
                "copied_bytes": move.copied_bytes,
            }
        )
    return rows


def _change(added: Iterable[str], removed: Iterable[str]) -> str:
    return " ".join([*(f"+{each}" for each in added), *(f"-{each}" for each in removed)])


def move_text(queue: QueueView) -> str:
    """Return what a queue gets and loses: `+broker-4 -broker-1`; "" without a move."""
    return _change(queue.adding, queue.removing)


def _queues(topics: Iterable[TopicView]) -> Iterator[tuple[str, QueueView]]:
    for topic in topics:
        for number, queue in enumerate(topic.queues):
            yield f"{topic.name}/{number}", queue


def _possible(receivers: Iterable[BrokerLoad], others: Collection[BrokerLoad]) -> list[BrokerLoad]:
    """Return who can take a replica beside others."""
    held = {each.broker for each in others}
    hosts = {each.host for each in others} - {""}
    return [each for each in receivers if each.broker not in held and each.host not in hosts]


def _keeps_zones(
    possible: Iterable[BrokerLoad], others: Iterable[BrokerLoad], giver: BrokerLoad
) -> bool:
    zones = {each.zone for each in others}
    return any(len(zones | {each.zone}) >= len(zones | {giver.zone}) for each in possible)


def _zones(described: ClusterDescribed, ids: Collection[str]) -> int:
    return len({each.zone for each in described.brokers if each.broker in ids})


def _check_room(size: int, receivers: Sequence[BrokerLoad]) -> None:
    """Raise if brokers have less space than will arrive; what is not known is not judged."""
    if size <= 0 or any(each.free_bytes < 0 for each in receivers) or not receivers:
        return
    # Brokers of one machine share a disk, whose space would be counted twice.
    disks = {(each.host or each.broker): each.free_bytes for each in receivers}
    free = sum(disks.values())
    if size > free:
        raise InvalidRequest(
            f"{bytes_text(size)} are to be copied, and {_listed(each.broker for each in receivers)} "
            f"have {bytes_text(free)} free: make room or add a broker first"
        )


def _check_in_sync(topic: TopicView, replicas: int, min_in_sync: int) -> None:
    if replicas < min_in_sync:
        raise InvalidRequest(
            f"{counted(replicas, 'replica')} of {topic.name} are fewer than its min_in_sync, "
            f"{min_in_sync}: lower that first with `logboom topic alter {topic.name} --min-in-sync "
            f"{replicas}`"
        )


def _known(size: int) -> int | None:
    return None if size < 0 else size


def _size(size: int) -> str:
    return "a size that is not known yet" if size < 0 else bytes_text(size)


def _listed(ids: Iterable[str]) -> str:
    *first, last = ids
    return f"{', '.join(first)} and {last}" if first else last


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
