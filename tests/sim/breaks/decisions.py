"""Rules of transactions at the name servers, broken on purpose: `tests.sim.broken` says who notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from logboom.metadata.state import state_machine, state_snapshot
from logboom.metadata.tables.command_outcome import CommandOutcome
from logboom.metadata.transactions import decision_commands as transaction_commands
from logboom.metadata.transactions.decision_commands import decide, open_transaction
from logboom.metadata.transactions.transaction_offsets import refuse_offsets, take_offsets
from logboom.metadata.transactions.transaction_rows import AppRow
from logboom.wire.transactions import Decide, DecisionView, OpenApplication
from tests.sim.breaks.queues import Patch

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.metadata.tables.transaction_table import ApplicationState, TransactionTable


def older_producers_decide(patch: Patch) -> None:
    """T1: a producer that was replaced still decides."""

    def unfenced(cluster: ClusterState, command: Decide) -> CommandOutcome:
        return decide(cluster, msgspec.structs.replace(command, epoch=-1))

    patch.setitem(vars(state_machine)["_HANDLERS"], Decide, unfenced)


def lower_sequences_stay_open(patch: Patch) -> None:
    """T1: a commit closes its own sequence, and no lower one."""
    before, commit = (vars(transaction_commands)[name] for name in ("_decided_before", "_commit"))

    def once(cluster: ClusterState, command: Decide, app: ApplicationState) -> CommandOutcome:
        late = command.commit and command.sequence < app.committed
        found: CommandOutcome = (commit if late else before)(cluster, command, app)
        return found

    patch.setattr(transaction_commands, "_decided_before", once)


def an_id_changes_hands(patch: Patch) -> None:
    """T1: whoever numbers sequences opens an application id that another one numbers."""

    def for_anybody(cluster: ClusterState, command: OpenApplication) -> CommandOutcome:
        return open_transaction(cluster, msgspec.structs.replace(command, owner=""))

    patch.setitem(vars(state_machine)["_HANDLERS"], OpenApplication, for_anybody)


def snapshots_forget_aborts(patch: Patch) -> None:
    """T1: a name server that starts from a snapshot has no aborted attempts."""

    def rows(table: TransactionTable) -> list[AppRow]:
        return [
            AppRow(app_id, app.epoch, app.committed, [])
            for app_id, app in sorted(table.apps.items())
        ]

    patch.setattr(state_snapshot, "app_rows", rows)


def offsets_move_with_every_commit(patch: Patch) -> None:
    """T1: a second commit still commits its offsets."""

    def moves(cluster: ClusterState, command: Decide) -> CommandOutcome:
        if command.commit and refuse_offsets(cluster, command.consumed) is None:
            take_offsets(cluster, command.consumed)
        return decide(cluster, command)

    patch.setitem(vars(state_machine)["_HANDLERS"], Decide, moves)


def what_is_closed_is_left_alone(patch: Patch) -> None:
    """T2: the proposed abort of an orphan whose sequence was committed has no effect."""
    before = vars(transaction_commands)["_decided_before"]

    def nothing(cluster: ClusterState, command: Decide, app: ApplicationState) -> CommandOutcome:
        if not command.commit:
            return CommandOutcome(value=["commit", "0", "again"])
        found: CommandOutcome = before(cluster, command, app)
        return found

    patch.setattr(transaction_commands, "_decided_before", nothing)


def snapshots_forget_decisions(patch: Patch) -> None:
    """T3: a name server that starts from a snapshot has no open decisions."""

    def rows(_table: TransactionTable) -> list[DecisionView]:
        return []

    patch.setattr(state_snapshot, "decision_rows", rows)
