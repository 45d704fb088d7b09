"""Application ids that producers make up end a week after their last use; chosen ones never."""

from __future__ import annotations

import random

import pytest

from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables import transaction_table
from logboom.metadata.tables.transaction_table import MADE_UP_KEPT_MS
from logboom.wire.commands import CommandResult
from logboom.wire.transactions import MADE_UP, Decide, OpenApplication
from tests.thorough import seeds
from tests.unit.metadata.transactions.tables import TransactionTables

BEGAN_MS = 1_700_000_000_000
WEEK_MS = MADE_UP_KEPT_MS


def own(number: int) -> str:
    """An id that a producer made up."""
    return f"{MADE_UP}{number:03}"


def opened(tables: TransactionTables, app_id: str, time_ms: int) -> CommandResult:
    result = tables.apply(OpenApplication(app_id, 0), time_ms=BEGAN_MS + time_ms)
    assert result.code == ""
    return result


def known(tables: TransactionTables) -> list[str]:
    return sorted(tables.state.cluster.transactions.apps)


def test_what_a_producer_made_up_ends_a_week_after_its_last_use() -> None:
    tables = TransactionTables()
    for app_id in ("chosen", own(1), own(2), own(3)):
        opened(tables, app_id, 0)
    tables.apply(tables.deciding(4, app_id=own(2)), time_ms=BEGAN_MS + 1_000)
    tables.apply(tables.deciding(4, app_id=own(3), commit=False), time_ms=BEGAN_MS + 2_000)
    tables.apply(tables.deciding(4, app_id="chosen"), time_ms=BEGAN_MS)
    opened(tables, "other", WEEK_MS - 1)
    assert known(tables) == [own(1), own(2), own(3), "chosen", "other"]
    opened(tables, "other", WEEK_MS)
    assert known(tables) == [own(2), own(3), "chosen", "other"]
    opened(tables, "other", WEEK_MS + 1_000)
    assert known(tables) == [own(3), "chosen", "other"]
    opened(tables, "other", 50 * WEEK_MS)
    assert known(tables) == ["chosen", "other"]
    assert tables.state.cluster.transactions.apps["chosen"].committed == 4


def test_who_comes_after_the_end_is_refused() -> None:
    tables = TransactionTables()
    opened(tables, own(1), 0)
    tables.apply(tables.deciding(0, app_id=own(1), epoch=1), time_ms=BEGAN_MS)
    opened(tables, "other", WEEK_MS)
    late = tables.apply(tables.deciding(0, tables.parked(0), app_id=own(1), epoch=1))
    assert late.code == "INVALID_ARGUMENT"
    assert not tables.open_decisions


def test_an_open_decision_keeps_its_application() -> None:
    tables = TransactionTables()
    opened(tables, own(1), 0)
    told = tables.apply(tables.deciding(0, tables.parked(0), app_id=own(1)), time_ms=BEGAN_MS)
    opened(tables, "other", 2 * WEEK_MS)
    assert own(1) in known(tables)
    assert isinstance(told.value, list)
    tables.report(int(told.value[1]), 0)
    opened(tables, "other", 3 * WEEK_MS - 1)
    assert own(1) in known(tables)
    opened(tables, "other", 3 * WEEK_MS)
    assert known(tables) == ["other"]


def test_one_command_ends_only_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_table, "ENDED_AT_ONCE", 3)
    tables = TransactionTables()
    for number in range(8):
        opened(tables, own(number), number)
    for left in (5, 2, 0):
        opened(tables, "other", 2 * WEEK_MS)
        assert len(known(tables)) == left + 1


@pytest.mark.parametrize("seed", seeds(20))
def test_a_state_that_was_restored_ends_the_same(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(transaction_table, "ENDED_AT_ONCE", 2)
    rng = random.Random(seed)
    tables, twin = TransactionTables(), TransactionTables()
    twin.state.restore(tables.state.snapshot())
    at = 0
    for _ in range(60):
        at += rng.choice((0, 1_000, WEEK_MS // 5))
        app_id = own(rng.randrange(12))
        queues = [tables.parked(0)] if rng.random() < 0.2 else []
        commands: list[OpenApplication | Decide] = [
            OpenApplication(app_id, 0),
            tables.deciding(rng.randrange(9), *queues, app_id=app_id),
            tables.deciding(rng.randrange(9), app_id=app_id, commit=False),
        ]
        command = rng.choice(commands)
        for each in (tables, twin):
            each.apply(command, time_ms=BEGAN_MS + at)
        if rng.random() < 0.3:
            restored = StateMachine()
            restored.restore(twin.state.snapshot())
            twin.state = restored
        assert twin.state.snapshot() == tables.state.snapshot()
