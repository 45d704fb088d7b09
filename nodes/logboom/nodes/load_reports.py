"""Reports of this broker's load to the Raft leader, which plans moves by them.

They are soft state there, so nothing is lost with one that does not arrive: the next says everything
again. While this broker gets replicas, it reports more often, so that their progress shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.cluster.registration import Registration
from logboom.nodes.disk.disk_space import SpaceGauge
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.messages import Ok
from logboom.wire.name_servers import NameServers
from logboom.wire.operation_messages import ReplicaLoad, ReportLoad
from logboom.wire.session import Reply
from logboom.wire.stats import Statistics

REPORT_S: Final = 10.0
"""Seconds between two reports."""
MOVING_S: Final = 2.0
"""The same while this broker gets replicas."""
RETRY_S: Final = 1.0
"""Seconds before a report that found no Raft leader is repeated."""
FEW_REPLICAS: Final = 1_000
"""Replicas of a broker that reports more often while it gets some: a report of more is work."""
LOADS_AT_ONCE: Final = 500
"""Replicas in one part of a report: the next one waits for its answer."""
MEAN_S: Final = 300.0
"""Seconds over which rates are means."""


class MeanRate:
    """The mean rate of a counter over `MEAN_S`, or over its life while that is shorter."""

    __slots__ = ("_age_s", "_total", "per_s")

    def __init__(self, total: int) -> None:
        self._total = total
        self._age_s = 0.0
        self.per_s = 0.0

    def follow(self, total: int, elapsed_s: float) -> None:
        """Take the counter's value some seconds after the last one."""
        rate = max(0, total - self._total) / elapsed_s
        self._total = total
        self._age_s += elapsed_s
        weight = (
            elapsed_s / self._age_s if self._age_s < MEAN_S else -math.expm1(-elapsed_s / MEAN_S)
        )
        self.per_s += weight * (rate - self.per_s)


@dataclass(slots=True)
class _Report:
    """One report, of which parts are left to make."""

    keys: list[QueueKey]
    """All replicas when it began."""
    parts: int
    elapsed_s: float
    """Seconds since the last one began."""
    moved_in_per_s: int
    moved_out_per_s: int
    next: int = 0
    rates: dict[QueueKey, tuple[MeanRate, MeanRate]] = field(default_factory=dict)
    """The rates of the queues led here, of the parts so far."""


class LoadReports(Service):
    """The reports of one broker."""

    def __init__(
        self,
        me: str,
        queues: ReplicaTable,
        space: SpaceGauge,
        stats: Statistics,
        registration: Registration,
        links: PeerConnections,
        servers: NameServers,
        gets_replicas: Callable[[], bool],
    ) -> None:
        """Create the reports; `gets_replicas` returns True while moves bring this broker replicas."""
        self._gets_replicas = gets_replicas
        self._me = me
        self._queues = queues
        self._space = space
        self._stats = stats
        self._registration = registration
        self._links = links
        self._servers = servers
        self._report_at = float("-inf")
        self._looked_at: float | None = None
        self._rates: dict[QueueKey, tuple[MeanRate, MeanRate]] = {}
        """Led queue → bytes in, bytes out."""
        self._moved: dict[str, int] = {}
        """Counter of moved bytes → its value at the last report."""
        self._report: _Report | None = None
        """The report under way."""
        self._asking = False

    def fenced(self, turn: BrokerTurn) -> None:
        """Drop the report under way: it is another registration's."""
        self._report = None
        self._report_at = float("-inf")

    def step(self, turn: BrokerTurn) -> None:
        """Begin the report that is due."""
        if self._registration.registered and not self._asking and turn.mono >= self._report_at:
            self._begin(turn)
            self._send(turn)

    def deadline(self) -> float:
        """Return when `step` is due next."""
        if not self._registration.registered or self._asking:
            return float("inf")
        return self._report_at

    def _begin(self, turn: BrokerTurn) -> None:
        """Begin a report of all replicas; its parts are made one by one."""
        elapsed_s = 0.0 if self._looked_at is None else turn.mono - self._looked_at
        self._looked_at = turn.mono
        self._space.check(turn.mono)
        keys = list(self._queues.replicas)
        soon = len(keys) <= FEW_REPLICAS and self._gets_replicas()
        self._report_at = turn.mono + (MOVING_S if soon else REPORT_S)
        self._report = _Report(
            keys,
            max(1, math.ceil(len(keys) / LOADS_AT_ONCE)),
            elapsed_s,
            self._moved_per_s("move_bytes_in", elapsed_s),
            self._moved_per_s("move_bytes_out", elapsed_s),
        )

    def _part(self, report: _Report) -> ReportLoad:
        """Make the next part of a report."""
        begin = report.next * LOADS_AT_ONCE
        replicas = map(self._queues.replicas.get, report.keys[begin : begin + LOADS_AT_ONCE])
        loads = [
            self._load(replica, report.elapsed_s, report.rates)
            for replica in replicas
            if replica is not None
        ]
        report.next += 1
        if report.next == report.parts:
            self._rates = report.rates
        return ReportLoad(
            0,
            int(REPORT_S * 1000),
            self._me,
            self._registration.instance_epoch,
            report.next - 1,
            report.parts,
            self._space.total,
            max(0, self._space.free),
            report.moved_in_per_s,
            report.moved_out_per_s,
            loads,
        )

    def _moved_per_s(self, counter: str, elapsed_s: float) -> int:
        total = self._stats.counters.get(counter, 0)
        before = self._moved.get(counter, 0)
        self._moved[counter] = total
        return int((total - before) / elapsed_s) if elapsed_s > 0 else 0

    def _load(
        self,
        replica: Replica,
        elapsed_s: float,
        rates: dict[QueueKey, tuple[MeanRate, MeanRate]],
    ) -> ReplicaLoad:
        topic_id, queue = replica.key
        if replica.role != "leader":
            return ReplicaLoad(topic_id, queue, replica.size)
        known = self._rates.get(replica.key)
        if known is None:
            known = MeanRate(replica.appended_bytes), MeanRate(replica.sent_bytes)
        elif elapsed_s > 0:
            known[0].follow(replica.appended_bytes, elapsed_s)
            known[1].follow(replica.sent_bytes, elapsed_s)
        rates[replica.key] = known
        return ReplicaLoad(topic_id, queue, replica.size, int(known[0].per_s), int(known[1].per_s))

    def _send(self, turn: BrokerTurn) -> None:
        """Send the next part."""
        report = self._report
        if report is None or report.next == report.parts:
            self._report = None
            return
        self._asking = True
        epoch = self._registration.instance_epoch
        self._links.request(
            self._servers.leader(),
            self._part(report),
            turn,
            lambda reply, later: self._answered(epoch, reply, later),
            turn.mono + REPORT_S,
        )

    def _answered(self, epoch: int, reply: Reply, turn: BrokerTurn) -> None:
        self._asking = False
        if epoch != self._registration.instance_epoch:
            self._report = None
        elif isinstance(reply.message, Ok):
            self._send(turn)
        else:
            self._report = None
            if reply.error is not None and reply.error.code == "NOT_LEADER":
                # The heartbeat finds the leader; it is asked a second later.
                self._report_at = turn.mono + RETRY_S
