"""Decisions on transactions: the first wins, once and for ever (SAFETY T1-T3)."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.transactions import decision_commands as transaction_commands
from logboom.wire.commands import AlterTopic, DeleteTopic
from logboom.wire.group_view import GroupConfig
from logboom.wire.transactions import (
    MAX_HANDLES,
    AppliedDecision,
    Decide,
    OpenApplication,
    ParkedBatches,
    ReportDecided,
)
from tests.unit.metadata.transactions.tables import TransactionTables


def test_opening_fences_who_had_it_before() -> None:
    tables = TransactionTables()
    assert tables.open() == (1, -1)
    assert tables.open() == (2, -1)
    refused = tables.refusal(0, tables.parked(0), epoch=1)
    assert (refused.code, refused.fields["epoch"]) == ("FENCED", 2)
    assert tables.refused_txn(0, commit=False, epoch=1) == "FENCED"
    assert tables.commit_txn(0, tables.parked(0), epoch=2)[0] == "commit"
    assert tables.open() == (3, 0)


def test_an_application_id_has_one_owner() -> None:
    tables = TransactionTables()
    assert tables.open() == (1, -1)
    tables.done(OpenApplication("app", 0, "query 1"))
    tables.commit_txn(7, epoch=2)
    before = tables.state.snapshot()
    for replaces in ("", "query 3"):
        refused = tables.apply(OpenApplication("app", 0, "query 2", replaces))
        assert refused.code == "APPLICATION_TAKEN"
        assert refused.fields == {"owner": "query 1", "committed": 7}
        assert tables.state.snapshot() == before, "nobody is fenced"
    # Who names no owner, and the owner itself, open it as before.
    assert tables.open() == (3, 7)
    tables.done(OpenApplication("app", 0, "query 1"))
    # Another one that says so owns it from now on.
    assert tables.done(OpenApplication("app", 0, "query 2", "query 1")).value == ["5", "7"]
    assert tables.apply(OpenApplication("app", 0, "query 1")).fields["owner"] == "query 2"
    restored = StateMachine()
    restored.restore(tables.state.snapshot())
    assert restored.cluster.transactions.apps["app"].owner == "query 2"


def test_an_owner_is_named_like_an_application() -> None:
    tables = TransactionTables()
    assert tables.apply(OpenApplication("app", 0, "a\0b")).code == "INVALID_ARGUMENT"
    assert "app" not in tables.state.cluster.transactions.apps


def test_an_epoch_that_was_never_given_is_refused() -> None:
    tables = TransactionTables()
    assert tables.refused_txn(0, epoch=1) == "INVALID_ARGUMENT"
    tables.open()
    assert tables.refused_txn(0, epoch=2) == "INVALID_ARGUMENT"


def test_applications_do_not_touch_each_other() -> None:
    tables = TransactionTables()
    tables.open()
    tables.open("other")
    tables.commit_txn(7)
    assert tables.open("other") == (2, -1)


# ── commits ─────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_tells_its_queues_what_to_release_in_which_order() -> None:
    tables = TransactionTables()
    parked = [tables.parked(2, (7, 3), (5, 0)), tables.parked(0, (1, 1))]
    kind, number, when = tables.commit_txn(4, *parked)
    assert (kind, when) == ("commit", "first")
    decision = tables.open_decisions[int(number)]
    assert (decision.sequence, decision.attempt, decision.commit) == (4, 1, True)
    assert list(decision.queues.items()) == [
        (tables.key(2), [(7, 3), (5, 0)]),
        (tables.key(0), [(1, 1)]),
    ]
    assert int(number) == tables.state.version


def test_the_first_commit_of_a_sequence_wins_for_ever() -> None:
    tables = TransactionTables()
    number = tables.commit_txn(4, tables.parked(0))[1]
    again = ["commit", number, "again", f"{tables.key(0)[0]}/0"]
    assert tables.commit_txn(4, tables.parked(1), attempt=2) == again
    assert list(tables.open_decisions) == [int(number)]
    tables.report(int(number), 0)
    # All is carried out: there is nothing to wait for.
    assert tables.commit_txn(4, tables.parked(1), attempt=2) == ["commit", "0", "again"]
    assert tables.commit_txn(3, tables.parked(1)) == ["commit", "0", "again"]
    assert tables.app.committed == 4


def test_numbers_grow_with_every_decision() -> None:
    tables = TransactionTables()
    numbers = [int(tables.commit_txn(n, tables.parked(n % 4))[1]) for n in range(6)]
    assert numbers == sorted(set(numbers))
    assert list(tables.open_decisions) == numbers


def test_a_commit_of_nothing_closes_its_sequence_and_nobody_has_to_hear() -> None:
    tables = TransactionTables()
    version = tables.state.version
    assert tables.commit_txn(4) == ["commit", "0", "first"]
    assert (tables.app.committed, tables.open_decisions) == (4, {})
    assert tables.state.version == version


@pytest.mark.parametrize(
    ("topic_id", "queue", "code"),
    [(99, 0, "UNKNOWN_TOPIC"), (1, 4, "UNKNOWN_QUEUE"), (1, -1, "UNKNOWN_QUEUE")],
)
def test_a_commit_to_queues_that_there_are_not_is_refused_whole(
    topic_id: int, queue: int, code: str
) -> None:
    tables = TransactionTables()
    assert tables.key(0)[0] == 1
    stray = ParkedBatches(topic_id, queue, [(0, 0)])
    assert tables.refused_txn(4, tables.parked(0), stray) == code
    assert tables.commit_txn(4, tables.parked(0))[2] == "first"


# ── aborts ──────────────────────────────────────────────────────────────────────────────────────


def test_an_aborted_attempt_never_commits_and_another_may() -> None:
    tables = TransactionTables()
    kind, number, when = tables.abort_txn(4, tables.parked(0, (1, 1)))
    assert (kind, when) == ("abort", "first")
    decision = tables.open_decisions[int(number)]
    assert (decision.commit, decision.queues) == (False, {tables.key(0): []})
    assert tables.refused_txn(4, tables.parked(0)) == "TRANSACTION_ABORTED"
    assert tables.commit_txn(4, tables.parked(1), attempt=2)[2] == "first"


def test_an_abort_again_reaches_the_queues_that_it_names() -> None:
    tables = TransactionTables()
    first = int(tables.abort_txn(4, tables.parked(0))[1])
    kind, number, when = tables.abort_txn(4, tables.parked(1))
    assert (kind, when, int(number) > first) == ("abort", "again", True)
    assert list(tables.open_decisions[int(number)].queues) == [tables.key(1)]
    assert tables.abort_txn(4) == ["abort", "0", "again"]


def test_an_abort_of_what_is_committed_says_so_and_lets_its_queues_drop_the_rest() -> None:
    tables = TransactionTables()
    committed = int(tables.commit_txn(4, tables.parked(0), attempt=2)[1])
    kind, number, when = tables.abort_txn(3, tables.parked(1, (9, 9)))
    assert (kind, when, int(number) > committed) == ("commit", "again", True)
    decision = tables.open_decisions[int(number)]
    assert (decision.commit, decision.sequence) == (True, 3)
    assert decision.queues == {tables.key(1): []}
    assert tables.app.aborted == {}


def test_a_commit_forgets_the_aborts_that_it_closes() -> None:
    tables = TransactionTables()
    for sequence, attempt in ((1, 1), (2, 1), (2, 2), (3, 1)):
        tables.abort_txn(sequence, attempt=attempt)
    tables.commit_txn(2, attempt=3)
    assert list(tables.app.aborted) == [(3, 1)]
    assert tables.commit_txn(2, attempt=2)[2] == "again"


def test_an_abort_passes_over_queues_that_are_gone() -> None:
    tables = TransactionTables()
    number = tables.abort_txn(4, ParkedBatches(99, 0, []), tables.parked(9), tables.parked(1))[1]
    assert list(tables.open_decisions[int(number)].queues) == [tables.key(1)]


# ── what no decision may say ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "wrong",
    [
        {"app_id": ""},
        {"app_id": "a\0b"},
        {"app_id": "x" * 256},
        {"sequence": -1},
        {"sequence": 1 << 63},
        {"attempt": 1 << 63},
        {"parked": [ParkedBatches(1, 0, [(0, 0)]), ParkedBatches(1, 0, [(1, 0)])]},
        {"parked": [ParkedBatches(1, 0, [(3, 0), (3, 0)])]},
        {"parked": [ParkedBatches(1, 0, [(-1, 0)])]},
        {"parked": [ParkedBatches(1, 0, [(0, 1 << 32)])]},
        {"parked": [ParkedBatches(1, 0, [(1 << 63, 0)])]},
    ],
)
@pytest.mark.parametrize("commit", [True, False])
def test_what_no_log_could_hold_is_refused(wrong: dict[str, Any], commit: bool) -> None:
    tables = TransactionTables()
    assert tables.refused_txn(**{"sequence": 1, "commit": commit, **wrong}) == "INVALID_ARGUMENT"


def test_an_application_id_that_no_entry_could_hold_opens_nothing() -> None:
    tables = TransactionTables()
    before = tables.state.snapshot()
    assert tables.apply(OpenApplication("a\nb", 0)).code == "INVALID_ARGUMENT"
    assert tables.state.snapshot() == before


def test_a_decision_names_so_many_places_at_most() -> None:
    tables = TransactionTables()
    many = [(n, 0) for n in range(MAX_HANDLES)]
    assert tables.refused_txn(1, tables.parked(0, *many), tables.parked(1)) == "TOO_LARGE"
    assert tables.commit_txn(1, tables.parked(0, *many))[2] == "first"


def test_what_waits_to_be_carried_out_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_commands, "MAX_WAITING", 2)
    monkeypatch.setattr(transaction_commands, "MAX_NAMED", 3)
    tables = TransactionTables()
    first = int(tables.commit_txn(1, tables.parked(0, (0, 0), (1, 0), (2, 0)))[1])
    assert tables.refused_txn(2, tables.parked(1)) == "BUSY"
    assert tables.refused_txn(1, tables.parked(1), tables.parked(2), commit=False) == "BUSY"
    assert tables.abort_txn(3, tables.parked(1))[2] == "first"
    assert tables.commit_txn(2)[2] == "first", "what makes no queue wait is still decided"
    tables.report(first, 0)
    assert tables.commit_txn(4, tables.parked(1))[2] == "first"
    assert tables.refused_txn(5, tables.parked(1)) == "BUSY"


def test_so_many_aborted_attempts_are_remembered_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_commands, "MAX_ABORTED", 2)
    tables = TransactionTables()
    tables.abort_txn(1, attempt=1)
    tables.abort_txn(1, attempt=2)
    assert tables.refused_txn(1, attempt=3, commit=False) == "TOO_LARGE"
    assert tables.abort_txn(1, attempt=2)[2] == "again"
    tables.commit_txn(1, attempt=3)
    assert tables.abort_txn(2, attempt=3)[2] == "first"


# ── reports ─────────────────────────────────────────────────────────────────────────────────────


def test_a_decision_lives_until_all_its_queues_have_reported() -> None:
    tables = TransactionTables()
    number = int(tables.commit_txn(1, tables.parked(0), tables.parked(2))[1])
    version = tables.state.version
    tables.report(number, 0)
    tables.report(number, 0, 1)
    assert list(tables.open_decisions[number].queues) == [tables.key(2)]
    assert tables.state.version == version, "nobody needs to hear of that"
    tables.report(number, 2, broker="b")
    assert (tables.open_decisions, tables.app.open) == ({}, {})
    table = tables.state.cluster.transactions
    assert (table.waiting, table.named) == (0, 0)
    assert tables.state.version == version + 1
    tables.report(number, 2)
    assert tables.state.version == version + 1


def test_a_broker_of_another_life_reports_nothing() -> None:
    tables = TransactionTables()
    number = int(tables.commit_txn(1, tables.parked(0))[1])
    late = ReportDecided("a", tables.epochs["a"], [AppliedDecision(number, *tables.key(0))])
    tables.register("a")
    assert tables.apply(late).code == "FENCED"
    tables.fence("b")
    fenced = ReportDecided("b", tables.epochs["b"], late.done)
    assert tables.apply(fenced).code == "FENCED"
    assert list(tables.open_decisions) == [number]


def test_a_deleted_topic_takes_its_queues_out_of_decisions() -> None:
    tables = TransactionTables()
    tables.create("u", queues=2)
    both = int(tables.commit_txn(1, tables.parked(0), tables.parked(1, topic="u"))[1])
    alone = int(tables.abort_txn(2, tables.parked(0, topic="u"))[1])
    tables.done(DeleteTopic("u", 0))
    assert list(tables.open_decisions) == [both]
    assert list(tables.open_decisions[both].queues) == [tables.key(0)]
    assert alone in tables.state.cluster.transactions.changes.gone_since(alone)
    tables.report(both, 0)
    assert tables.open_decisions == {}


# ── offsets ─────────────────────────────────────────────────────────────────────────────────────


def with_member() -> TransactionTables:
    """m1 alone in g."""
    tables = TransactionTables()
    tables.join("m1")
    tables.settle()
    return tables


def test_offsets_are_committed_with_the_transaction_and_only_with_its_first_commit() -> None:
    tables = with_member()
    mine = tables.consumed([tables.offset(0, 5), tables.offset(1, 6)], "m1")
    tables.commit_txn(1, tables.parked(3), consumed=[mine])
    assert [tables.committed(n) for n in range(3)] == [5, 6, 0]
    other = tables.consumed([tables.offset(0, 50)], "m1")
    assert tables.commit_txn(1, tables.parked(3), consumed=[other], attempt=2)[2] == "again"
    assert tables.committed(0) == 5
    back = tables.consumed([tables.offset(0, 2)], "m1")
    tables.commit_txn(2, consumed=[back])
    assert tables.committed(0) == 5, "an offset never goes back"


def test_one_refused_offset_refuses_the_whole_decision() -> None:
    tables = with_member()
    topic_id, epoch = tables.key(0)[0], tables.member("m1").epoch
    good = tables.offset(0, 5)
    cases: list[tuple[Any, str]] = [
        (tables.consumed([good, tables.offset(1, 1001)], "m1"), "BEYOND_END"),
        (tables.consumed([good, tables.offset(1, -1)], "m1"), "INVALID_ARGUMENT"),
        (tables.consumed([good], "m1", epoch - 1), "STALE_EPOCH"),
        (tables.consumed([good], "m9", 1), "UNKNOWN_MEMBER"),
        (tables.consumed([good]), "NOT_OWNER"),
        (type(tables.consumed([]))("none", "", 0, [good]), "UNKNOWN_GROUP"),
        (type(tables.consumed([]))("none", "m1", 1, [good]), "UNKNOWN_GROUP"),
    ]
    offset = type(good)
    for wrong, code in (
        (offset(topic_id, 1, 1, 5, 10), "STALE_EPOCH"),
        (offset(topic_id, 9, 1, 5, 10), "UNKNOWN_QUEUE"),
        (offset(99, 0, 1, 5, 10), "UNKNOWN_QUEUE"),
    ):
        cases.append((tables.consumed([good, wrong], "m1"), code))
    for consumed, code in cases:
        assert tables.refused_txn(1, tables.parked(2), consumed=[consumed]) == code
    result = tables.refusal(1, consumed=[cases[0][0]])
    assert "t/1" in result.text
    assert result.fields == {"group": "g", "topic": "t", "queue": 1}


def test_an_abort_commits_no_offsets() -> None:
    tables = with_member()
    mine = tables.consumed([tables.offset(0, 5)], "m1")
    tables.abort_txn(1, consumed=[mine])
    assert tables.committed(0) == 0


def test_a_queue_that_nobody_has_takes_offsets_without_a_member() -> None:
    tables = with_member()
    tables.leave("m1")
    tables.create("u", queues=2)
    some = tables.consumed([tables.offset(0, 5), tables.offset(1, 7, topic="u")])
    tables.commit_txn(1, consumed=[some])
    assert (tables.committed(0), tables.committed(1, "u"), tables.committed(0, "u")) == (5, 7, -1)
    tables.commit_txn(2, consumed=[tables.consumed([tables.offset(0, 3)])])
    assert tables.committed(0) == 5
    beyond = tables.consumed([tables.offset(0, 1001)])
    assert tables.refused_txn(3, consumed=[beyond]) == "BEYOND_END"
    stray = tables.consumed([tables.offset(0, 1, topic="u"), tables.offset(2, 1, topic="u")])
    assert tables.refused_txn(3, consumed=[stray]) == "UNKNOWN_QUEUE"


def test_a_queue_that_came_since_takes_offsets_too() -> None:
    tables = with_member()
    tables.create("u", queues=1)
    tables.commit_txn(1, consumed=[tables.consumed([tables.offset(0, 5, topic="u")])])
    tables.done(AlterTopic("u", 2, None, 0))
    tables.commit_txn(2, consumed=[tables.consumed([tables.offset(1, 7, topic="u")])])
    assert [tables.committed(n, "u") for n in range(2)] == [5, 7]


def test_a_start_may_come_from_a_transaction() -> None:
    """A queue whose start nobody knows yet begins where a transaction says, and is given away."""
    tables = TransactionTables()
    tables.join("m1", config=GroupConfig(start="last"))
    tables.settle()
    assert tables.owned("m1") == []
    tables.commit_txn(1, consumed=[tables.consumed([tables.offset(0, 5)])])
    assert (tables.committed(0), tables.owned("m1")) == (5, [tables.key(0)])
    assert tables.key(0) not in tables.group.unstarted


def test_the_same_proposal_again_has_the_same_answer() -> None:
    tables = TransactionTables()
    command: Decide = tables.deciding(1, tables.parked(0))
    first = tables.apply(command, "me", 1)
    assert tables.apply(command, "me", 1) == first
