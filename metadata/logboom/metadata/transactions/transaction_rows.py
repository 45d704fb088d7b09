"""The rows of transactions in a snapshot."""

from __future__ import annotations

from msgspec import Struct

from logboom.metadata.tables.change_index import ChangeIndex
from logboom.metadata.tables.transaction_table import (
    ApplicationState,
    Attempt,
    PendingDecision,
    TransactionTable,
    decision_view,
)
from logboom.wire.transactions import DecisionView


class AppRow(Struct, frozen=True, array_like=True, gc=False):
    """The state of one application id."""

    app_id: str
    epoch: int
    committed: int
    aborted: list[Attempt]
    """Sorted."""
    used_ms: int = 0
    owner: str = ""


def app_rows(table: TransactionTable) -> list[AppRow]:
    """Encode all applications, sorted by id."""
    return [
        AppRow(app_id, app.epoch, app.committed, sorted(app.aborted), app.used_ms, app.owner)
        for app_id, app in sorted(table.apps.items())
    ]


def decision_rows(table: TransactionTable) -> list[DecisionView]:
    """Encode all open decisions, sorted by number."""
    return [decision_view(decision) for decision in table.decisions.values()]


def restore_transactions(
    table: TransactionTable, apps: list[AppRow], decisions: list[DecisionView], version: int
) -> None:
    """Restore the transactions of a snapshot of this metadata version into the empty tables.

    Raises:
        ValueError: a decision names no queue, or an application that does not exist.
    """
    for row in apps:
        aborted = dict.fromkeys(row.aborted)
        app = ApplicationState(row.epoch, row.committed, aborted, row.used_ms, row.owner)
        table.put(row.app_id, app)
    # Decisions that ended before the snapshot are not known here.
    table.changes = ChangeIndex(version)
    for view in decisions:
        if not view.queues or view.app_id not in table.apps:
            raise ValueError(f"decision {view.number} is nobody's")
        queues = {(parked.topic_id, parked.queue): parked.places for parked in view.queues}
        table.add(
            PendingDecision(
                view.number, view.app_id, view.sequence, view.attempt, view.commit, queues
            )
        )
