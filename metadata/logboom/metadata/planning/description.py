"""The answer to DescribeCluster: brokers with their loads, and how far moves are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from logboom.metadata.planning.load_table import BrokerReport, LoadTable, QueueKey
from logboom.metadata.planning.words import bytes_in_words, seconds_in_words
from logboom.metadata.tables.cluster_state import ClusterState, Queue
from logboom.wire.operation_messages import (
    BrokerLoad,
    ClusterDescribed,
    MoveReason,
    PlannerStatus,
    QueueMoveState,
)

MAX_DESCRIBED: Final = 2_000
"""Maximum number of moves in one answer."""
LOOKED_AT_ONCE: Final = 4_096
"""Queues, or replicas of a report, that are looked at between two yields; topics are not cut."""
SILENT_S: Final = 30.0
"""Seconds without progress after which a move is called stuck."""
NOT_KNOWN: Final = -1


class MoveNotes:
    """What the Raft leader has noted of moves: why they began, and their progress."""

    def __init__(self) -> None:
        self.reasons: dict[QueueKey, MoveReason] = {}
        """Why moves were begun, for those that this leader has planned."""
        self._progress: dict[QueueKey, tuple[int, float]] = {}
        """Bytes that the added replicas had, and since when."""

    def clear(self) -> None:
        """Forget everything."""
        self.reasons.clear()
        self._progress.clear()

    def follow(self, loads: LoadTable, moving: list[Queue], now: float) -> None:
        """Note the progress of all moves, and forget those that have ended."""
        progress: dict[QueueKey, tuple[int, float]] = {}
        for queue in moving:
            key = (queue.topic.id, queue.index)
            done = _done_bytes(loads, queue)
            before = self._progress.get(key)
            progress[key] = before if before is not None and before[0] == done else (done, now)
        self._progress = progress
        self.reasons = {key: why for key, why in self.reasons.items() if key in progress}

    def silent_s(self, queue: Queue, now: float) -> float:
        """Return for how long a move has made no progress."""
        known = self._progress.get((queue.topic.id, queue.index))
        return 0.0 if known is None else now - known[1]


def reason_of(cluster: ClusterState, queue: Queue, notes: MoveNotes) -> MoveReason:
    """Return why a queue is moved, as far as it is known or can be seen."""
    known = notes.reasons.get((queue.topic.id, queue.index))
    if known is not None:
        return known
    standing = queue.standing
    if any(cluster.modes.get(gone) in ("draining", "drained") for gone in standing.removing):
        return "drain"
    if any(gone not in cluster.alive for gone in standing.removing):
        return "repair"
    if len(standing.adding) != len(standing.removing):
        return "replicas"
    return "operator"


class ClusterDescription:
    """A description of the cluster in the making: there may be very many queues."""

    def __init__(
        self,
        cluster: ClusterState,
        loads: LoadTable,
        notes: MoveNotes,
        shown: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Begin a description; moves of topics that are not `shown` are left out."""
        self._cluster = cluster
        self._loads = loads
        self._notes = notes
        self._shown = shown
        self._version = cluster.version
        self._leading: Counter[str] = Counter()
        self._moving: list[Queue] = []
        self._sums: dict[str, tuple[int, int, int]] = {}

    def steps(self) -> Iterator[None]:
        """Look at all queues, and at what brokers have reported, a bounded number between two yields.

        What changes meanwhile is told as it was or as it is.
        """
        cluster, work = self._cluster, 0
        for topic in list(cluster.topics.values()):
            if cluster.topics_by_id.get(topic.id) is not topic:
                continue
            for queue in topic.queues:
                standing = queue.standing
                if standing.leader is not None:
                    self._leading[standing.leader] += 1
                if standing.moving:
                    self._moving.append(queue)
            work += len(topic.queues)
            if work >= LOOKED_AT_ONCE:
                work = 0
                yield
        for name in sorted(cluster.brokers):
            report = self._loads.reports.get(name)
            if report is not None:
                yield from self._sum_up(name, report)

    def _sum_up(self, name: str, report: BrokerReport) -> Iterator[None]:
        """Add up what a broker has reported of its replicas."""
        size_bytes = in_bytes_per_s = out_bytes_per_s = 0
        # A replica that was moved away is reported until it is deleted, and counts no more.
        topics = self._cluster.topics_by_id
        for work, ((topic_id, index), load) in enumerate(report.replicas.items(), 1):
            topic = topics.get(topic_id)
            queues = () if topic is None else topic.queues
            if 0 <= index < len(queues) and name in queues[index].standing.replicas:
                size_bytes += load.size_bytes
                in_bytes_per_s += load.in_bytes_per_s
                out_bytes_per_s += load.out_bytes_per_s
            if work % LOOKED_AT_ONCE == 0:
                yield
        self._sums[name] = size_bytes, in_bytes_per_s, out_bytes_per_s

    def result(self, planner: PlannerStatus, now: float) -> ClusterDescribed:
        """Return the description, after the last step."""
        cluster, loads = self._cluster, self._loads
        moving = [
            queue
            for queue in self._moving
            if queue.standing.moving and cluster.topics_by_id.get(queue.topic.id) is queue.topic
        ]
        moves_in: Counter[str] = Counter()
        moves_out: Counter[str] = Counter()
        for queue in moving:
            moves_in.update(queue.standing.adding)
            moves_out.update(queue.standing.removing)
        brokers = [
            _describe_broker(cluster, loads, broker, self._leading, moves_in, moves_out, self._sums)
            for broker in sorted(cluster.brokers)
        ]
        moving = [queue for queue in moving if self._shown(queue.topic.name)]
        moving.sort(key=lambda queue: (queue.topic.name, queue.index))
        moves = [
            _describe_move(cluster, loads, self._notes, queue, planner.move_bytes_per_s, now)
            for queue in moving[:MAX_DESCRIBED]
        ]
        return ClusterDescribed(0, brokers, moves, planner, self._version)


def _describe_broker(
    cluster: ClusterState,
    loads: LoadTable,
    name: str,
    leading: Mapping[str, int],
    moves_in: Mapping[str, int],
    moves_out: Mapping[str, int],
    sums: Mapping[str, tuple[int, int, int]],
) -> BrokerLoad:
    broker, report = cluster.brokers[name], loads.reports.get(name)
    unknown = (NOT_KNOWN, NOT_KNOWN, NOT_KNOWN)
    size_bytes, in_bytes_per_s, out_bytes_per_s = sums.get(name, unknown)
    return BrokerLoad(
        name,
        cluster.modes.get(name, "active"),
        broker.alive,
        name in cluster.full,
        name in cluster.filling,
        broker.zone,
        broker.host,
        len(broker.queues),
        leading[name],
        broker.preferred,
        size_bytes,
        NOT_KNOWN if report is None else report.disk_bytes,
        NOT_KNOWN if report is None else report.free_bytes,
        in_bytes_per_s,
        out_bytes_per_s,
        moves_in[name],
        moves_out[name],
        NOT_KNOWN if report is None else report.moved_in_bytes_per_s,
        NOT_KNOWN if report is None else report.moved_out_bytes_per_s,
    )


def _describe_move(
    cluster: ClusterState,
    loads: LoadTable,
    notes: MoveNotes,
    queue: Queue,
    move_bytes_per_s: int,
    now: float,
) -> QueueMoveState:
    standing = queue.standing
    key = (queue.topic.id, queue.index)
    size = loads.size_bytes(queue)
    leader = None if standing.leader is None else loads.load(standing.leader, key)
    done, total = _done_bytes(loads, queue), size * len(standing.adding)
    rate = sum(
        report.growth_bytes_per_s(key)
        for broker in standing.adding
        if (report := loads.reports.get(broker)) is not None
    )
    produced = NOT_KNOWN if leader is None else leader.in_bytes_per_s
    known = leader is not None or not standing.adding
    left = max(0, total - done)
    return QueueMoveState(
        queue.topic.name,
        queue.index,
        list(standing.replicas),
        list(standing.adding),
        list(standing.removing),
        reason_of(cluster, queue, notes),
        min(done, total) if known else NOT_KNOWN,
        total if known else NOT_KNOWN,
        rate,
        produced,
        _left_s(left, rate, produced * len(standing.adding)) if known else NOT_KNOWN,
        _stuck(cluster, notes, queue, rate, produced, move_bytes_per_s, left, now),
    )


def _done_bytes(loads: LoadTable, queue: Queue) -> int:
    key = (queue.topic.id, queue.index)
    size, done = loads.size_bytes(queue), 0
    for broker in queue.standing.adding:
        load = loads.load(broker, key)
        if broker in queue.standing.isr:
            done += size
        elif load is not None:
            done += min(load.size_bytes, size)
    return done


def _left_s(left_bytes: int, rate: int, produced: int) -> int:
    if not left_bytes:
        return 0
    gained = rate - max(0, produced)
    return left_bytes // gained if gained > 0 else NOT_KNOWN


def _stuck(
    cluster: ClusterState,
    notes: MoveNotes,
    queue: Queue,
    rate: int,
    produced: int,
    move_bytes_per_s: int,
    left: int,
    now: float,
) -> str:
    """Return why a move makes no progress, in words; "" if it does."""
    standing = queue.standing
    if standing.leader is None:
        return "the queue has no leader to copy from"
    for broker in standing.adding:
        if broker not in cluster.alive:
            return f"{broker} is dead: the move is cancelled if it stays so"
        if broker in cluster.full:
            return f"the disk of {broker} is full: the move is cancelled if it stays so"
    target = [each for each in standing.replicas if each not in standing.removing]
    for broker in target:
        if broker not in standing.isr and broker not in standing.adding:
            state = "is dead" if broker not in cluster.alive else "is not in sync"
            return f"{broker} {state}, and the move ends once all of its target are in sync"
    if left and 0 < move_bytes_per_s < produced:
        throttle, grows = bytes_in_words(move_bytes_per_s), bytes_in_words(produced)
        return f"throttle {throttle}/s < {grows}/s produced: raise move_bytes_per_s"
    if left and 0 < rate < produced:
        return f"it copies {bytes_in_words(rate)}/s, and {bytes_in_words(produced)}/s are produced"
    silent_s = notes.silent_s(queue, now)
    if silent_s >= SILENT_S:
        return f"nothing was copied for {seconds_in_words(silent_s)}"
    return ""
