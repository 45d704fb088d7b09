"""Rules of transactions at the name servers, broken on purpose: `tests.sim.broken` says who notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from logboom.metadata.state import snapshot, state
from logboom.metadata.state.outcome import Outcome
from logboom.metadata.transactions import commands as transaction_commands
from logboom.metadata.transactions.commands import decide
from logboom.metadata.transactions.offsets import refuse_offsets, take_offsets
from logboom.metadata.transactions.snapshot import AppRow
from logboom.wire.transactions import Decide, DecisionView
from tests.sim.breaks.queues import Patch

if TYPE_CHECKING:
    from logboom.metadata.state.cluster import Cluster
    from logboom.metadata.transactions.transactions import App, Transactions


def older_producers_decide(patch: Patch) -> None:
    """T1: a producer that was replaced goes on deciding."""

    def unfenced(cluster: Cluster, command: Decide) -> Outcome:
        return decide(cluster, msgspec.structs.replace(command, epoch=-1))

    patch.setitem(vars(state)["_HANDLERS"], Decide, unfenced)


def lower_sequences_stay_open(patch: Patch) -> None:
    """T1: a commit closes its own sequence, and none below."""
    before, commit = (vars(transaction_commands)[name] for name in ("_decided_before", "_commit"))

    def once(cluster: Cluster, command: Decide, app: App) -> Outcome:
        late = command.commit and command.sequence < app.committed
        found: Outcome = (commit if late else before)(cluster, command, app)
        return found

    patch.setattr(transaction_commands, "_decided_before", once)


def snapshots_forget_aborts(patch: Patch) -> None:
    """T1: a name server that begins with a snapshot knows of no aborted attempt."""

    def rows(table: Transactions) -> list[AppRow]:
        return [
            AppRow(app_id, app.epoch, app.committed, [])
            for app_id, app in sorted(table.apps.items())
        ]

    patch.setattr(snapshot, "app_rows", rows)


def offsets_move_with_every_commit(patch: Patch) -> None:
    """T1: a commit that comes second commits its offsets all the same."""

    def moves(cluster: Cluster, command: Decide) -> Outcome:
        if command.commit and refuse_offsets(cluster, command.consumed) is None:
            take_offsets(cluster, command.consumed)
        return decide(cluster, command)

    patch.setitem(vars(state)["_HANDLERS"], Decide, moves)


def what_is_closed_is_left_alone(patch: Patch) -> None:
    """T2: the proposed abort of an orphan whose sequence was committed comes to nothing."""
    before = vars(transaction_commands)["_decided_before"]

    def nothing(cluster: Cluster, command: Decide, app: App) -> Outcome:
        if not command.commit:
            return Outcome(value=["commit", "0", "again"])
        found: Outcome = before(cluster, command, app)
        return found

    patch.setattr(transaction_commands, "_decided_before", nothing)


def snapshots_forget_decisions(patch: Patch) -> None:
    """T3: a name server that begins with a snapshot knows of no decision that queues wait for."""

    def rows(_table: Transactions) -> list[DecisionView]:
        return []

    patch.setattr(snapshot, "decision_rows", rows)
