"""One round of planning: repairs, then drains, then balance; a bounded number of queues at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from logboom.metadata.planning.balance import Balance, BalanceLimits
from logboom.metadata.planning.cluster_picture import (
    ClusterPicture,
    PlannedBroker,
    PlannedMoveOf,
    PlanningRules,
    survey,
    zones_of,
)
from logboom.metadata.planning.load_table import LoadTable, QueueKey
from logboom.metadata.planning.repairs import BUSY, MovePlan, plan_repairs
from logboom.metadata.planning.words import counted, seconds_in_words
from logboom.metadata.tables.cluster_state import ClusterState, Queue
from logboom.wire.operation_messages import (
    BalancePlanned,
    BrokerShare,
    PlannedMove,
    PlannerState,
    PlannerStatus,
)

MOST_REASONS: Final = 8
"""Reasons that are told at most."""
EXAMINED_FOR_BALANCE: Final = 6_000
"""Queues that a round looks at for balance; the next one looks at others."""
NO_LIMIT: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Attendance:
    """What the Raft leader has seen of brokers that die and come back."""

    died: Mapping[str, float] = field(default_factory=dict)
    """Dead broker → since when, as far as this leader has seen."""
    returned: Mapping[str, float] = field(default_factory=dict)
    """Live broker → when it came back, if this leader has seen that."""


def picture_of(
    cluster: ClusterState,
    loads: LoadTable,
    rules: PlanningRules,
    attendance: Attendance,
    now: float,
) -> ClusterPicture:
    """Return the picture of all brokers, still without their queues."""
    brokers: dict[str, PlannedBroker] = {}
    for name in sorted(cluster.brokers):
        broker = cluster.brokers[name]
        report = loads.reports.get(name)
        planned = PlannedBroker(
            name,
            broker.zone,
            broker.host,
            cluster.modes.get(name, "active"),
            broker.alive,
            name in cluster.full,
            name in cluster.filling,
            reported=loads.reported(name, now),
        )
        if report is not None:
            planned.disk_bytes, planned.free_bytes = report.disk_bytes, report.free_bytes
        if not broker.alive:
            planned.dead_s = max(0.0, now - attendance.died.get(name, now))
            planned.gone = 0 < rules.replace_after_s <= planned.dead_s
        elif name in attendance.returned:
            planned.back_s = now - attendance.returned[name]
        brokers[name] = planned
    return ClusterPicture(rules, brokers, loads)


class MoveRound:
    """One round. `steps` makes it; the results are complete once it has ended."""

    def __init__(
        self,
        cluster: ClusterState,
        loads: LoadTable,
        rules: PlanningRules,
        attendance: Attendance,
        refused: dict[QueueKey, str],
        now: float,
        number: int = 0,
        skipped: int = 0,
    ) -> None:
        """Begin a round.

        Args:
            refused: (topic id, queue) → why its last move was refused a short time ago.
            number: of the round; where there is much to do, each begins at another queue.
            skipped: queues in which earlier rounds have looked for balance in vain.
        """
        self._number = number
        self._skipped = skipped
        self._cluster = cluster
        self._rules = rules
        self._refused = refused
        self.picture = picture_of(cluster, loads, rules, attendance, now)
        self.plan = MovePlan()
        """What is to be moved, without balance."""
        self.balance: Balance | None = None
        self.drained: list[str] = []
        """Draining brokers that hold no replica any more."""
        self.filled: list[str] = []
        """New brokers that hold their share."""
        self._waits: list[str] = []
        """Why balance waits."""

    @property
    def moves(self) -> list[PlannedMoveOf]:
        """The moves to begin."""
        return self.plan.moves + ([] if self.balance is None else self.balance.plan.moves)

    @property
    def cancels(self) -> list[Queue]:
        """The moves to cancel."""
        return self.picture.to_cancel

    def steps(self) -> Iterator[int]:
        """MovePlan; yield the number of queues examined since the last yield."""
        picture = self.picture
        yield from survey(picture, self._cluster, list(self._cluster.topics.values()))
        for needs in (picture.urgent, picture.repairs, picture.drains):
            yield from plan_repairs(picture, needs, self.plan, self._refused, self._number)
        self.drained = [
            name
            for name, mode in sorted(self._cluster.modes.items())
            if mode == "draining" and not self._cluster.brokers[name].queues
        ]
        self._waits = self._balance_waits()
        if self._rules.balance_mode == "off" or self._waits or not self._may_balance():
            return
        rules = self._rules
        limits = BalanceLimits(
            rules.moves_in_all,
            rules.moves_per_source,
            rules.moves_per_destination,
            only_filling=rules.balance_mode != "continuous",
            settled_after_s=rules.settled_after_s,
            examined=EXAMINED_FOR_BALANCE,
            skipped=self._skipped,
        )
        self.balance = Balance(picture, self._cluster, limits)
        yield from self.balance.steps()
        self.filled = [] if self.balance.plan.stalls else self.balance.filled

    @property
    def skipped(self) -> int:
        """The number of queues that the next round need not look at for balance."""
        if self.balance is None or not self.balance.more or self.balance.plan.moves:
            return 0
        return self._skipped + EXAMINED_FOR_BALANCE

    def _may_balance(self) -> bool:
        """Return True if there is something to balance onto: in new-broker mode a new broker."""
        if self._rules.balance_mode == "continuous":
            return True
        return any(broker.filling for broker in self.picture.brokers.values())

    def _balance_waits(self) -> list[str]:
        return balance_waits(self.picture)

    def status(self) -> PlannerStatus:
        """Return what the planner does and why not more, once the round has ended."""
        picture, rules = self.picture, self._rules
        begun = len(self.moves) + len(picture.moving)
        waiting = max(0, picture.needs - len(self.plan.moves))
        state, reasons = self._state(begun, waiting)
        return PlannerStatus(
            state,
            reasons[:MOST_REASONS],
            waiting,
            rules.balance_mode,
            rules.replace_after_s,
            rules.move_bytes_per_s,
        )

    def _state(self, begun: int, waiting: int) -> tuple[PlannerState, list[str]]:
        stalls, waits = _told(self.plan.stalls), _told(self.plan.waits)
        dead = self._dead()
        if begun:
            return "moving", [*stalls, *waits, *dead]
        if waiting:
            return ("stalled" if stalls else "waiting"), [*stalls, *waits, *dead]
        if dead:
            return "waiting", [*dead, *self._waits]
        wants = self._rules.balance_mode != "off" and self._may_balance()
        if wants and self._waits:
            return "waiting", self._waits
        if self.balance is not None:
            if self.balance.more:
                return "waiting", ["it is looking for queues that even out the brokers"]
            of_balance = self.balance.plan
            if of_balance.stalls:
                return "stalled", [*_told(of_balance.stalls), *_told(of_balance.waits)]
            if of_balance.waits:
                return "waiting", _told(of_balance.waits)
        if self._rules.balance_mode == "off":
            return "off", ["balance_mode is off: only repairs and drains move replicas"]
        if self._rules.balance_mode == "new-broker" and not wants:
            return "idle", ["no broker is new: balance_mode new-broker moves nothing else"]
        return "idle", ["the brokers are even"]

    def _dead(self) -> list[str]:
        """Return what becomes of the replicas of dead brokers that are not replaced yet."""
        told: list[str] = []
        after_s = self._rules.replace_after_s
        for broker in self.picture.brokers.values():
            if broker.alive or broker.gone or not broker.replicas:
                continue
            what = f"{broker.id} is dead for {seconds_in_words(broker.dead_s)}"
            if after_s > 0:
                told.append(f"{what}: its replicas are replaced after {seconds_in_words(after_s)}")
            else:
                told.append(f"{what}: replace_after_s is 0, so its replicas wait for it")
        return told


def balance_waits(picture: ClusterPicture) -> list[str]:
    """Return why nothing may be balanced now, in words."""
    waits: list[str] = []
    if picture.restoring:
        # Their sizes are not known before they are restored.
        waits.append(f"until restores have ended: {counted(picture.restoring, 'topic')}")
    if picture.needs or picture.to_cancel:
        needed = picture.needs + len(picture.to_cancel)
        waits.append(f"repairs and drains come first: {counted(needed, 'queue')}")
    if picture.under_replicated:
        waits.append(f"{counted(picture.under_replicated, 'queue')} not in sync everywhere")
    silent = [each.id for each in picture.brokers.values() if each.alive and not each.reported]
    if silent:
        waits.append(f"the load of {', '.join(silent[:3])} is not known yet")
    return waits


def _told(reasons: Mapping[str, int]) -> list[str]:
    """Return reasons with their numbers of queues, the most frequent first."""
    ordered = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    return [
        f"{why.removeprefix(BUSY)} ({counted(number, 'queue')})"
        if number > 1
        else why.removeprefix(BUSY)
        for why, number in ordered
    ]


class BalanceRun:
    """The plan for PlanBalance: everything at once, by the rules of the mode "continuous"."""

    def __init__(
        self,
        cluster: ClusterState,
        loads: LoadTable,
        rules: PlanningRules,
        attendance: Attendance,
        most: int,
        now: float,
    ) -> None:
        self._cluster = cluster
        self._most = most
        self._picture = picture_of(cluster, loads, rules, attendance, now)
        self.result = BalancePlanned(0, [], [], [], [])

    def steps(self) -> Iterator[int]:
        """MovePlan; yield the number of queues examined since the last yield."""
        picture = self._picture
        yield from survey(picture, self._cluster, list(self._cluster.topics.values()))
        before = _shares(picture)
        reasons = balance_waits(picture)
        moves: list[PlannedMove] = []
        if not reasons:
            limits = BalanceLimits(
                NO_LIMIT,
                NO_LIMIT,
                NO_LIMIT,
                NO_LIMIT,
                only_filling=False,
                most_planned=self._most,
            )
            balance = Balance(picture, self._cluster, limits)
            yield from balance.steps()
            moves = [self._planned(move) for move in balance.plan.moves]
            reasons = [*_told(balance.plan.stalls), *_told(balance.plan.waits)]
            if not moves and not reasons:
                reasons = ["the brokers are even"]
        self.result = BalancePlanned(0, moves, before, _shares(picture), reasons)

    def _planned(self, move: PlannedMoveOf) -> PlannedMove:
        queue, holders = move.queue, self._picture.holders
        before = queue.standing.target
        added = [broker for broker in move.target if broker not in before]
        return PlannedMove(
            queue.topic.name,
            queue.topic.id,
            queue.index,
            queue.version,
            list(queue.standing.replicas),
            list(move.target),
            move.size_bytes * len(added),
            zones_of(holders(before)),
            zones_of(holders(move.target)),
        )


def _shares(picture: ClusterPicture) -> list[BrokerShare]:
    return [
        BrokerShare(each.id, each.replicas, each.preferred, each.size_bytes)
        for each in picture.brokers.values()
    ]
