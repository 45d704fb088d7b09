"""Decisions in WATCH, and transactions in snapshots, beside those of before there were any."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from logboom.metadata.raft.journal_store import JournalError
from logboom.metadata.raft.log_commands import ENTRY_FORMAT, entry_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables import change_index
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.commands import Barrier, DeleteTopic
from logboom.wire.transactions import OpenApplication, ParkedBatches
from logboom.wire.view import View
from tests.unit.metadata.transactions.tables import TransactionTables

SNAPSHOTS = Path(__file__).parents[3] / "data" / "snapshots"
"""1: written by the last version without groups; 2: by the last one without transactions. Both have
a topic t."""


def watch(tables: TransactionTables, version: int = -1, *, decisions: bool = True) -> View:
    """The answer to a WATCH."""
    return view_since(tables.state.cluster, version, None, [], None, decisions=decisions)


def numbers(view: View) -> list[int]:
    """Of the decisions of an answer."""
    return [decision.number for decision in view.decisions]


def busy() -> tuple[TransactionTables, int, int]:
    """Two open decisions, one of them half reported; aborted attempts; another application."""
    tables = TransactionTables()
    tables.open()
    tables.open("other")
    tables.abort_txn(9, attempt=4)
    tables.abort_txn(9, attempt=-4)
    first = int(tables.commit_txn(3, tables.parked(0, (4, 1)), tables.parked(1))[1])
    second = int(tables.abort_txn(5, tables.parked(2), attempt=8)[1])
    tables.report(first, 1)
    return tables, first, second


def test_who_does_not_ask_is_told_of_no_decision() -> None:
    tables, first, _ = busy()
    for version in (-1, first - 1):
        view = watch(tables, version, decisions=False)
        assert (view.decisions, view.ended_decisions) == ([], [])


def test_the_whole_holds_what_is_open_and_a_delta_what_came_and_ended() -> None:
    tables, first, second = busy()
    whole = watch(tables)
    assert (whole.full, numbers(whole), whole.ended_decisions) == (True, [first, second], [])
    assert whole.decisions[0].queues == [ParkedBatches(*tables.key(0), [(4, 1)])]
    since = tables.state.version
    third = int(tables.commit_txn(4, tables.parked(0))[1])
    fourth = int(tables.commit_txn(5, tables.parked(0))[1])
    tables.report(first, 0)
    view = watch(tables, since)
    assert (view.full, numbers(view), view.ended_decisions) == (False, [third, fourth], [first])
    assert numbers(watch(tables, tables.state.version)) == []


def test_what_came_and_went_meanwhile_is_only_told_as_ended() -> None:
    tables, _, _ = busy()
    since = tables.state.version
    short = int(tables.commit_txn(4, tables.parked(0))[1])
    tables.done(DeleteTopic("t", 0))
    view = watch(tables, since)
    assert numbers(view) == []
    assert short in view.ended_decisions


def test_who_is_too_far_behind_gets_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_index, "MAX_TOMBSTONES", 1)
    tables, first, second = busy()
    since = tables.state.version
    tables.report(second, 2)
    tables.report(first, 0)
    assert watch(tables, since).full
    assert not watch(tables, since, decisions=False).full


# ── snapshots ───────────────────────────────────────────────────────────────────────────────────


def test_a_restored_state_is_the_same() -> None:
    tables, first, second = busy()
    twin = StateMachine()
    twin.restore(tables.state.snapshot())
    assert twin.snapshot() == tables.state.snapshot()
    table = twin.cluster.transactions
    assert list(table.decisions) == [first, second]
    assert list(table.apps["app"].open) == [first, second]
    assert list(table.apps["app"].aborted) == [(5, 8), (9, -4), (9, 4)]
    assert (table.waiting, table.named) == (2, 1)
    tables.state = twin
    tables.report(first, 0)
    assert list(table.decisions) == [second]
    assert watch(tables, first).full, "what ended before is not known"


def test_states_that_came_about_differently_are_written_alike() -> None:
    one, other = TransactionTables(), TransactionTables()
    for tables, attempts in ((one, (1, 2)), (other, (2, 1))):
        for attempt in attempts:
            tables.abort_txn(7, attempt=attempt)
    for tables, names in ((one, ("x", "y")), (other, ("y", "x"))):
        for name in names:
            tables.open(name)
    assert one.state.snapshot() == other.state.snapshot()


@pytest.mark.parametrize("number", [1, 2])
def test_a_snapshot_of_before_there_were_transactions_is_read(number: int) -> None:
    stored = (SNAPSHOTS / f"format-{number}.msgpack").read_bytes()
    assert msgspec.msgpack.decode(stored)[0] == number
    tables = TransactionTables()
    tables.state.restore(stored)
    assert tables.state.cluster.transactions.apps == {}
    # Nothing but transactions makes it another format.
    again, twin = tables.state.snapshot(), StateMachine()
    assert msgspec.msgpack.decode(again)[0] == number
    twin.restore(again)
    assert twin.snapshot() == again
    assert tables.commit_txn(0, tables.parked(0)) == ["commit", str(tables.state.version), "first"]
    assert msgspec.msgpack.decode(tables.state.snapshot())[0] == 3


def test_transactions_need_no_groups() -> None:
    tables, twin = TransactionTables(), StateMachine()
    tables.open()
    twin.restore(tables.state.snapshot())
    assert twin.cluster.groups.next_id == 1
    assert twin.cluster.transactions.apps["app"].epoch == 1


@pytest.mark.parametrize("damage", ["nobody's", "no queue", "no app"])
def test_a_decision_that_cannot_be_is_malformed(damage: str) -> None:
    rows = msgspec.msgpack.decode(busy()[0].state.snapshot())
    if damage == "nobody's":
        rows[19][0][1] = "nobody's"
    elif damage == "no queue":
        rows[19][0][5] = []
    else:
        rows[18] = []
    with pytest.raises(JournalError, match="malformed"):
        StateMachine().restore(msgspec.msgpack.encode(rows))


def test_commands_of_transactions_stop_a_name_server_that_does_not_know_them() -> None:
    assert entry_of("", 0, 0, OpenApplication("a", 0)).format == 3 <= ENTRY_FORMAT
    assert entry_of("", 0, 0, Barrier()).format == 1
