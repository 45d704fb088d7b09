"""What a round of planning goes by: brokers with what they hold, and queues that need something.

`survey` examines all queues, a bounded number between two yields. Amounts count moves under way, and
those planned in the round, as done. So a plan never starts twice what is under way already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from logboom.metadata.planning.load_table import LoadTable
from logboom.metadata.tables.cluster_state import ClusterState, Queue, Topic
from logboom.metadata.tables.replica_set import ReplicaSet
from logboom.wire.operation_messages import MOVES_IN_ALL, MoveReason

QUEUES_PER_SLICE: Final = 500
"""Queues that are examined between two yields: less than 5 ms of work on a slow machine."""


@dataclass(frozen=True, slots=True)
class PlanningRules:
    """The settings and limits of a round."""

    balance_mode: str = "new-broker"
    replace_after_s: float = 0.0
    move_bytes_per_s: int = 0
    moves_per_source: int = 2
    """Moves at once that are read from one broker."""
    moves_per_destination: int = 2
    """Moves at once that are written to one broker."""
    moves_in_all: int = MOVES_IN_ALL
    cancel_after_s: float = 300.0
    """Seconds for which a destination must be dead, or full, before its move is cancelled."""
    settled_after_s: float = 600.0
    """Seconds that a broker must be back before it takes balance moves."""


@dataclass(slots=True, eq=False)
class PlannedBroker:
    """A broker, as a round of planning sees it."""

    id: str
    zone: str
    host: str
    mode: str
    alive: bool
    full: bool
    filling: bool
    dead_s: float = 0.0
    """Seconds since it died, as far as the Raft leader has seen; 0 if it is alive."""
    back_s: float = float("inf")
    """Seconds since it came back; infinity if it never was away."""
    reported: bool = False
    """True if its load is known."""
    disk_bytes: int = 0
    free_bytes: int = 0
    gone: bool = False
    """True if it is dead for so long that its replicas are replaced."""
    replicas: int = 0
    size_bytes: int = 0
    preferred: int = 0
    """Queues that it is to lead."""
    sources: int = 0
    """Moves that are read from it."""
    incoming: int = 0
    """Moves that are written to it."""
    incoming_bytes: int = 0
    """Bytes that moves may yet write to it."""

    @property
    def takes_replicas(self) -> bool:
        """True if it may get new replicas."""
        return self.alive and self.mode == "active" and not self.full

    @property
    def leaving(self) -> bool:
        """True if its replicas are to be elsewhere."""
        return self.gone or self.mode in ("draining", "drained")

    def disk_share(self, more_bytes: int) -> float:
        """Return the share of its disk that is used once all that is planned has arrived, and
        `more_bytes`; 0 if the disk is not known."""
        if not self.disk_bytes:
            return 0.0
        used = self.disk_bytes - self.free_bytes + self.incoming_bytes + more_bytes
        return used / self.disk_bytes


@dataclass(slots=True)
class PlannedMoveOf:
    """A move that the round proposes."""

    queue: Queue
    target: tuple[str, ...]
    reason: MoveReason
    size_bytes: int
    """Bytes of one replica."""
    version: int = -1
    """Version of the queue that this is planned for."""

    def __post_init__(self) -> None:
        """Take the version as it is now."""
        self.version = self.queue.version


@dataclass(slots=True)
class ClusterPicture:
    """All brokers, and the queues that are moved, need a move, or are not in sync."""

    rules: PlanningRules
    brokers: dict[str, PlannedBroker]
    loads: LoadTable
    moving: list[Queue] = field(default_factory=list)
    to_cancel: list[Queue] = field(default_factory=list)
    """Moves whose destination will not take them."""
    urgent: list[tuple[MoveReason, Queue]] = field(default_factory=list)
    """Repairs of queues that have one copy in sync, or fewer than they need."""
    repairs: list[tuple[MoveReason, Queue]] = field(default_factory=list)
    """Other repairs, and queues with another number of replicas than their topic wants."""
    drains: list[tuple[MoveReason, Queue]] = field(default_factory=list)
    restoring: int = 0
    """Topics that are being restored. Their queues are not moved."""
    under_replicated: int = 0
    """Queues that lack a replica in sync, other than those that moves bring."""
    begun: int = 0
    """Moves that copy data: under way, or planned in this round."""

    @property
    def needs(self) -> int:
        """The number of queues that have to be moved."""
        return len(self.urgent) + len(self.repairs) + len(self.drains)

    def knows(self, standing: ReplicaSet) -> bool:
        """Return True if all replicas are on brokers that were there when the round began."""
        return all(broker in self.brokers for broker in standing.replicas)

    def holders(self, target: tuple[str, ...]) -> list[PlannedBroker]:
        """Return the brokers of a target."""
        return [self.brokers[broker] for broker in target]

    def begin(self, move: PlannedMoveOf) -> None:
        """Count a move as planned."""
        standing = move.queue.standing
        before = standing.target
        added = [broker for broker in move.target if broker not in standing.replicas]
        for broker in move.target:
            if broker not in before:
                self.brokers[broker].replicas += 1
                self.brokers[broker].size_bytes += move.size_bytes
        for broker in before:
            if broker not in move.target:
                self.brokers[broker].replicas -= 1
                self.brokers[broker].size_bytes -= move.size_bytes
        self.brokers[before[0]].preferred -= 1
        self.brokers[move.target[0]].preferred += 1
        for broker in added:
            self.brokers[broker].incoming += 1
            self.brokers[broker].incoming_bytes += move.size_bytes
        if added:
            self.begun += 1
            if standing.leader is not None:
                self.brokers[standing.leader].sources += 1


def zones_of(brokers: list[PlannedBroker]) -> int:
    """Return the number of zones that brokers are in."""
    return len({broker.zone for broker in brokers})


@dataclass(slots=True, eq=False)
class _Verdict:
    """What holds for all queues that share a replica set and a wanted number of replicas."""

    holders: list[PlannedBroker]
    need: MoveReason | None
    moving: bool
    cancel: bool
    unsynced: bool
    fetching: list[PlannedBroker]
    """Those that the queue is copied to."""
    source: PlannedBroker | None
    only_copy: bool


def _judge(picture: ClusterPicture, standing: ReplicaSet, wanted: int) -> _Verdict:
    brokers, rules = picture.brokers, picture.rules
    target = standing.target
    holders = [brokers[broker] for broker in target]
    moving = standing.moving
    adding = set(standing.adding)
    fetching = [brokers[each] for each in standing.adding if each not in standing.isr]
    cancel = any(
        (broker.dead_s >= rules.cancel_after_s and not broker.alive)
        or broker.full
        or broker.mode in ("draining", "drained")
        for broker in fetching
    )
    stay = [broker for broker in holders if broker.id not in adding]
    need: MoveReason | None = None
    if any(broker.gone for broker in stay):
        need = "repair"
    elif moving:
        pass
    elif wanted and len(target) != wanted:
        need = "replicas"
    elif any(broker.leaving for broker in stay):
        need = "drain"
    in_sync = [broker for broker in standing.isr if brokers[broker].alive]
    return _Verdict(
        holders,
        None if cancel else need,
        moving,
        cancel,
        len(standing.isr) < len(target) or any(each.id not in standing.isr for each in stay),
        fetching,
        brokers.get(standing.leader or ""),
        len(in_sync) <= 1,
    )


def survey(picture: ClusterPicture, cluster: ClusterState, topics: list[Topic]) -> Iterator[int]:
    """Fill a picture; yield the number of queues examined since the last yield.

    Topics may be created and deleted between two slices: the others are still told as they are.
    """
    verdicts: dict[tuple[ReplicaSet, int], _Verdict] = {}
    size_of = picture.loads.size_bytes
    examined = 0
    for topic in topics:
        if cluster.topics_by_id.get(topic.id) is not topic:
            continue
        if topic.restoring:
            picture.restoring += 1
        for queue in topic.queues:
            if examined >= QUEUES_PER_SLICE:
                yield examined
                examined = 0
                if cluster.topics_by_id.get(topic.id) is not topic:
                    break
            examined += 1
            standing = queue.standing
            verdict = verdicts.get((standing, topic.replicas))
            if verdict is None:
                if not picture.knows(standing):
                    continue
                verdict = _judge(picture, standing, topic.replicas)
                verdicts[standing, topic.replicas] = verdict
            size = size_of(queue)
            for broker in verdict.holders:
                broker.replicas += 1
                broker.size_bytes += size
            verdict.holders[0].preferred += 1
            if verdict.moving or verdict.need or verdict.unsynced:
                _note(picture, queue, verdict, size)
    yield examined


def _note(picture: ClusterPicture, queue: Queue, verdict: _Verdict, size: int) -> None:
    """Note a queue that is not simply as it should be."""
    if verdict.unsynced:
        picture.under_replicated += 1
    if verdict.moving:
        picture.moving.append(queue)
        if verdict.cancel:
            picture.to_cancel.append(queue)
        for broker in verdict.fetching:
            broker.incoming += 1
            known = picture.loads.load(broker.id, (queue.topic.id, queue.index))
            broker.incoming_bytes += max(0, size - (known.size_bytes if known else 0))
        if verdict.fetching:
            picture.begun += 1
            if verdict.source is not None:
                verdict.source.sources += 1
    if verdict.need == "drain":
        picture.drains.append((verdict.need, queue))
    elif verdict.need == "repair" and (verdict.only_copy or len(queue.standing.isr) < queue.need):
        picture.urgent.append((verdict.need, queue))
    elif verdict.need is not None:
        picture.repairs.append((verdict.need, queue))
