"""The consequences of a turn's events for the queues: HWs, derived rows, and the index.

Each of them is settled once per queue and turn, however many events concerned the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, TypeAlias

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position
from logboom.nodes.parking.release_scheduler import ReleaseScheduler
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.transactions.decision_reports import DecisionReports
from logboom.nodes.turn import BrokerTurn, Figures, Service
from logboom.wire.errors import DamagedBatch, DataDamaged

INDEXED_AT_ONCE: Final = 4
"""Queues whose index advances in one turn."""
MAX_INDEX_CHECKS: Final = 512
"""Queues that one turn checks for an index that is behind."""

Follow: TypeAlias = Callable[[Replica, BrokerTurn], None]
"""Follows a queue of which more can be read."""


class LogApplier(Service):
    """Applies the entries below the HW of each log to the derived rows: parked batches and cursors.

    Staged rows cannot be read before the next turn, so entries are applied once per queue and turn.
    """

    def __init__(
        self,
        context: BrokerContext,
        repair: ReplicaRepair,
        release_scheduler: ReleaseScheduler,
        decision_reports: DecisionReports,
        followers: Sequence[Follow],
    ) -> None:
        """Create an applier.

        Args:
            followers: are called when a decision was carried out, since readers may then see more.
        """
        self._queues = context.queues
        self._repair = repair
        self._release_scheduler = release_scheduler
        self._decision_reports = decision_reports
        self._followers = followers
        self._to_apply: dict[QueueKey, Replica] = {replica.key: replica for replica in self._queues}
        """Queues with entries below the HW that the derived rows lack (Q12)."""

    def figures(self, now: float) -> Figures:
        """Return how many replicas have entries that are not applied."""
        return {"unapplied": len(self._to_apply)}

    def hw_moved(self, replica: Replica, _turn: BrokerTurn) -> None:
        """Note that there is more to apply."""
        self._to_apply[replica.key] = replica

    def deadline(self) -> float:
        """Return minus infinity while there is more to apply than one turn does."""
        return float("-inf") if self._to_apply else float("inf")

    def apply(self, turn: BrokerTurn) -> None:
        """Apply the entries of the queues that were noted."""
        queues, self._to_apply = self._to_apply, {}
        for key, replica in queues.items():
            if self._queues.replicas.get(key) is not replica or replica.damage is not None:
                continue
            reach, more, decided = replica.hw, False, False
            staged = len(turn.writes)
            if replica.parked.behind:
                try:
                    applied = replica.parked.apply(reach, self._queues.storage, turn.writes)
                except DataDamaged as error:
                    self._repair.found(replica, DamagedEntry(error.text, Position(replica.start)))
                    continue
                reach, more = applied.reach, applied.more
                decided = bool(applied.decided)
                if applied.changed:
                    self._release_scheduler.applied(replica, applied)
            replica.cursors.apply(reach, turn.writes)
            replica.applied = reach
            if len(turn.writes) > staged:
                turn.derived += len(turn.writes) - staged
                self._queues.touch_derived(replica)
            if decided:
                for follow in self._followers:
                    follow(replica, turn)
            self._decision_reports.moved(replica, turn)
            if more:
                self._to_apply[key] = replica


class LogIndexer(Service):
    """Lets the index of each queue follow its log, a little per turn."""

    def __init__(self, context: BrokerContext, repair: ReplicaRepair) -> None:
        self._queues = context.queues
        self._repair = repair
        self._to_index: dict[QueueKey, Replica] = {
            replica.key: replica for replica in self._queues if replica.damage is None
        }
        self._more = False

    def hw_moved(self, replica: Replica, _turn: BrokerTurn) -> None:
        """Note that there is more to index."""
        self._to_index[replica.key] = replica

    def deadline(self) -> float:
        """Return minus infinity while there is more to index than one turn does."""
        return float("-inf") if self._more else float("inf")

    def advance(self, turn: BrokerTurn) -> None:
        """Advance the index of a few queues."""
        left = INDEXED_AT_ONCE
        for key in list(islice(self._to_index, MAX_INDEX_CHECKS)):
            if not left:
                break
            replica = self._to_index.pop(key)
            if self._queues.replicas.get(key) is not replica or replica.damage is not None:
                continue
            if replica.index.reach >= min(replica.hw, replica.written):
                continue
            left -= 1
            staged = len(turn.writes)
            try:
                more = replica.index.advance(turn.writes, min(replica.hw, replica.written), 1)
            except (DataDamaged, DamagedBatch) as error:
                self._repair.found(replica, DamagedEntry(error.text, replica.index.reach))
                continue
            turn.derived += len(turn.writes) - staged
            if more:
                self._to_index[key] = replica
        self._more = bool(self._to_index)


class HighWatermarks(Service):
    """Raises the HWs of the queues that this broker leads, once per queue and turn."""

    def __init__(
        self,
        context: BrokerContext,
        produce_handler: ProduceHandler,
        applier: LogApplier,
        release_scheduler: ReleaseScheduler,
        decision_reports: DecisionReports,
        followers: Sequence[Follow],
    ) -> None:
        """Create the counter.

        Args:
            followers: are called, in their order, for each queue whose HW moved.
        """
        self._queues = context.queues
        self._produce_handler = produce_handler
        self._applier = applier
        self._release_scheduler = release_scheduler
        self._decision_reports = decision_reports
        self._followers = followers
        self._replication_times = context.stats.histograms["produce_replication"]

    def synced(self, token: int, turn: BrokerTurn) -> None:
        """Answer what waits only for the leader's disk, and count the HWs that may rise."""
        for replica in self._queues.synced(token):
            if replica.leading is not None:
                replica.leading.mark_synced(replica.synced, turn.mono)
                self._produce_handler.end_moved(replica, turn)
                self._queues.recount(replica)

    def settle(self, turn: BrokerTurn) -> None:
        """Count the HWs that may rise, and inform the followers of those that moved."""
        for replica in self._queues.take_recounts():
            leading = replica.leading
            hw = leading.high_watermark(replica.synced) if leading is not None else None
            if hw is not None and replica.raise_hw(hw):
                self._queues.hw_moved(replica)
                if leading is not None:
                    for synced_at in leading.take_replicated(hw):
                        self._replication_times.add(turn.mono - synced_at)
            if replica.applied < replica.hw:
                self._applier.hw_moved(replica, turn)
            if replica.parked.count:
                self._release_scheduler.arm(replica)
            self._decision_reports.moved(replica, turn)
        for replica in self._queues.take_hw_moved():
            for follow in self._followers:
                follow(replica, turn)
