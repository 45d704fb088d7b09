"""Rules of transactions, broken on purpose: `tests.sim.broken` says who must notice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logboom.metadata.tables.transaction_table import ApplicationState, TransactionTable
from logboom.metadata.transactions import decision_commands as transaction_commands
from logboom.nodes.parking.release_scheduler import is_certain
from logboom.nodes.replica import decision_rows
from logboom.nodes.replica.replica import Replica
from logboom.nodes.transactions import decision_executor
from logboom.nodes.transactions.decision_executor import DecisionExecutor
from logboom.nodes.transactions.decision_reports import DecisionReports
from logboom.nodes.transactions.orphan_aborter import OrphanAborter
from logboom.wire.head import ControlKind
from logboom.wire.parking import encode_recalled
from logboom.wire.transactions import AppliedDecision, Decide, DecidedBody, DecisionView
from tests.sim.breaks.queues import Patch
from tests.sim.transaction_scenario import TIMEOUT_MS

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.metadata.tables.command_outcome import CommandOutcome
    from logboom.nodes.log.keys import Position
    from logboom.nodes.replica.leadership import Leadership
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.group_view import QueueKey


def commits_release_all(patch: Patch) -> None:
    """T1: a commit releases everything that its application has parked, listed or not."""

    def places(
        self: DecisionExecutor, replica: Replica, leading: Leadership, view: DecisionView
    ) -> Iterable[Position]:
        whose = (view.app_id, view.sequence, view.attempt)
        decided = DecidedBody(view.number, *whose, view.commit, [])
        storage = vars(self)["_queues"].storage
        found = decision_rows.ended_by(storage, replica.parked.ids, decided)
        return [at for at in found if at not in leading.releasing] if view.commit else []

    patch.setattr(DecisionExecutor, "_places", places)


def every_commit_wins(patch: Patch) -> None:
    """T1: a sequence that was committed is committed again."""
    before, commit = (vars(transaction_commands)[name] for name in ("_decided_before", "_commit"))

    def again(cluster: ClusterState, command: Decide, app: ApplicationState) -> CommandOutcome:
        found: CommandOutcome = (commit if command.commit else before)(cluster, command, app)
        return found

    patch.setattr(transaction_commands, "_decided_before", again)


def aborts_are_forgotten(patch: Patch) -> None:
    """T1: an aborted attempt can still be committed."""
    commit = vars(transaction_commands)["_commit"]

    def forgotten(cluster: ClusterState, command: Decide, app: ApplicationState) -> CommandOutcome:
        app.aborted.clear()
        found: CommandOutcome = commit(cluster, command, app)
        return found

    patch.setattr(transaction_commands, "_commit", forgotten)


def drops_by_its_own_clock(patch: Patch) -> None:
    """T2: a leader drops batches that wait too long for a decision."""
    step = DecisionExecutor.step

    def nobody_asks(self: OrphanAborter, turn: BrokerTurn) -> None:
        self.next_at = turn.mono + 1.0

    def drops(self: DecisionExecutor, turn: BrokerTurn) -> None:
        step(self, turn)
        queues, appended = vars(self)["_queues"], vars(self)["_appended"]
        for replica in queues:
            leading = replica.leading
            if leading is None or not is_certain(replica, leading):
                continue
            until_ms = turn.now.wall_ms - TIMEOUT_MS
            ids = replica.parked.ids
            for _, at, _ in decision_rows.by_age(
                queues.storage, ids, half=False, until_ms=until_ms
            ):
                if at in leading.recalling or at in leading.releasing:
                    continue
                body = encode_recalled(*at)
                replica.append_control(
                    ControlKind.RECALLED, body, turn.now.wall_ms, turn.writes, queues.cache
                )
                leading.recalling.add(at)
                queues.touch(replica)
                appended(replica)

    patch.setattr(OrphanAborter, "step", nobody_asks)
    patch.setattr(DecisionExecutor, "step", drops)


def nobody_goes_on(patch: Patch) -> None:
    """T3: a new leader treats a release that an earlier one began as complete."""

    def done(replica: Replica, leading: Leadership) -> None:
        release = replica.parked.release
        if release is not None and leading.decided < release.number:
            leading.decided = release.number

    patch.setattr(decision_executor, "_resume", done)


def goes_on_uncertain(patch: Patch) -> None:
    """T3: a new leader carries decisions out wherever its HW is."""

    def certain(replica: Replica, leading: Leadership) -> bool:
        return replica.damage is None and leading.enough_in_sync

    patch.setattr(decision_executor, "is_certain", certain)


def reports_what_is_appended(patch: Patch) -> None:
    """T3: a leader reports a decision once it has appended its release, before that is below the
    HW."""
    settle = DecisionReports.settle

    def early(self: DecisionReports, replica: Replica, turn: BrokerTurn) -> None:
        settle(self, replica, turn)
        leading = replica.leading
        if leading is None or leading.to_release is not None:
            return
        for number in vars(self)["_decision_executor"].on(replica.key):
            if leading.reported < number <= leading.decided:
                vars(self)["_done"][AppliedDecision(number, *replica.key)] = None
        leading.reported = max(leading.reported, leading.decided)

    patch.setattr(DecisionReports, "settle", early)


def one_report_is_enough(patch: Patch) -> None:
    """T3: a decision ends when the first queue has reported it."""
    reported = TransactionTable.reported

    def all_of_them(self: TransactionTable, number: int, key: QueueKey) -> None:
        decision = self.decisions.get(number)
        for each in list(decision.queues) if decision is not None else [key]:
            reported(self, number, each)

    patch.setattr(TransactionTable, "reported", all_of_them)


def parts_are_seen(patch: Patch) -> None:
    """T3: readers see the batches of a release one by one."""
    patch.setattr(Replica, "readable", property(lambda self: self.hw))
