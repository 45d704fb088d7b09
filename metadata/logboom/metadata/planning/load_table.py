"""What brokers have last reported of their load. It is soft state of the Raft leader.

Sizes of replicas tell how much a move copies and how far it is. A report that comes in parts counts
once it is whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from logboom.metadata.tables.cluster_state import Queue
from logboom.wire.operation_messages import MAX_REPORTED, ReplicaLoad, ReportLoad

QueueKey: TypeAlias = tuple[int, int]
"""(topic id, queue)."""
MAX_PARTS: Final = 100
"""Maximum number of parts of a report."""
STALE_S: Final = 60.0
"""Seconds after which a report counts no more, since the broker is not heard any longer."""


@dataclass(slots=True)
class BrokerReport:
    """The last whole report of a broker, and the sizes of the one before it."""

    instance_epoch: int
    at: float
    """Monotonic seconds."""
    disk_bytes: int
    free_bytes: int
    moved_in_bytes_per_s: int
    moved_out_bytes_per_s: int
    replicas: dict[QueueKey, ReplicaLoad]
    former: dict[QueueKey, ReplicaLoad] = field(default_factory=dict)
    former_at: float = 0.0

    def growth_bytes_per_s(self, key: QueueKey) -> int:
        """Return by how much a replica grew between the last two reports, per second; 0 if unknown."""
        now, before = self.replicas.get(key), self.former.get(key)
        elapsed_s = self.at - self.former_at
        if now is None or before is None or elapsed_s <= 0:
            return 0
        return max(0, int((now.size_bytes - before.size_bytes) / elapsed_s))


@dataclass(slots=True)
class _Parts:
    """A report of which some parts have arrived."""

    message: ReportLoad
    replicas: dict[QueueKey, ReplicaLoad]
    next: int


class LoadTable:
    """The reports of all brokers."""

    def __init__(self) -> None:
        self.reports: dict[str, BrokerReport] = {}
        self.version = 0
        """Grows with every whole report."""
        self._parts: dict[str, _Parts] = {}

    def clear(self) -> None:
        """Forget everything, when a new leadership of the Raft group begins."""
        self.reports.clear()
        self._parts.clear()

    def keep_only(self, brokers: Collection[str]) -> None:
        """Forget all brokers but these."""
        for known in (self.reports, self._parts):
            for broker in [each for each in known if each not in brokers]:
                del known[broker]

    def take(self, message: ReportLoad, now: float) -> None:
        """Take a part of a report. One that does not continue what came before is ignored."""
        broker = message.broker
        if not 0 <= message.part < message.parts <= MAX_PARTS:
            return
        loads = message.replicas[:MAX_REPORTED]
        arrived = {(load.topic_id, load.queue): load for load in loads}
        if message.part == 0:
            self._parts[broker] = _Parts(message, arrived, 1)
        else:
            begun = self._parts.get(broker)
            same = begun is not None and (
                begun.next == message.part
                and begun.message.parts == message.parts
                and begun.message.instance_epoch == message.instance_epoch
            )
            if begun is None or not same:
                self._parts.pop(broker, None)
                return
            begun.replicas.update(arrived)
            begun.next += 1
        if self._parts[broker].next == message.parts:
            self._end(self._parts.pop(broker), now)

    def _end(self, parts: _Parts, now: float) -> None:
        message = parts.message
        before = self.reports.get(message.broker)
        report = BrokerReport(
            message.instance_epoch,
            now,
            max(0, message.disk_bytes),
            max(0, message.free_bytes),
            max(0, message.moved_in_bytes_per_s),
            max(0, message.moved_out_bytes_per_s),
            parts.replicas,
        )
        if before is not None and before.instance_epoch == message.instance_epoch:
            report.former, report.former_at = before.replicas, before.at
        self.reports[message.broker] = report
        self.version += 1

    def reported(self, broker: str, now: float) -> bool:
        """Return True if a broker has reported lately."""
        report = self.reports.get(broker)
        return report is not None and now - report.at < STALE_S

    def load(self, broker: str, key: QueueKey) -> ReplicaLoad | None:
        """Return the load of a replica; None if it is not known."""
        report = self.reports.get(broker)
        return None if report is None else report.replicas.get(key)

    def size_bytes(self, queue: Queue) -> int:
        """Return the size of a queue: that of its leader, else the largest known; 0 if unknown."""
        key = (queue.topic.id, queue.index)
        standing = queue.standing
        report = self.reports.get(standing.leader or "")
        if report is not None:
            load = report.replicas.get(key)
            if load is not None:
                return load.size_bytes
        known = (self.load(replica, key) for replica in standing.replicas)
        return max((load.size_bytes for load in known if load is not None), default=0)
