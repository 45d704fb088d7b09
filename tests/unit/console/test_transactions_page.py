"""What waits for a decision or a time, from plain data."""

from __future__ import annotations

import pytest

from logboom.client.admin_flows.delayed_flows import DelayedBatches
from logboom.client.admin_flows.open_transactions import OpenTransaction, OpenTransactions
from logboom.client.results import Message, NodeStats
from logboom.console.cluster_history import ClusterHistory
from logboom.console.pages.transactions_page import (
    build_delayed,
    build_open,
    build_transactions,
    figures_of,
    find_open,
    transaction_url,
    who_wrote,
)
from logboom.console.routes.transaction_routes import decide_command
from logboom.console.widgets.page_query import FormValues, PageQuery
from logboom.wire.errors import UnknownResource
from logboom.wire.parking import DelayedBatch
from logboom.wire.transactions import HALF, TransactionId, UndecidedBatch


def parked(sequence: int, queue: int = 0, parked_ms: int = 1_000) -> UndecidedBatch:
    whose = TransactionId("shop/1", sequence, 2)
    return UndecidedBatch("orders", 1, queue, 17, 2, whose, parked_ms, 3, 5, 100)


def transaction(sequence: int, *batches: UndecidedBatch) -> OpenTransaction:
    return OpenTransaction("shop/1", sequence, 2, list(batches or [parked(sequence)]))


def test_the_oldest_comes_first_and_halves_are_told_apart() -> None:
    found = OpenTransactions(
        [transaction(4, parked(4, 0, 9_000), parked(4, 1, 9_500)), transaction(HALF)], more=True
    )
    model = build_transactions(found, ClusterHistory(), 400_000, PageQuery("/transactions"))
    rows = [row.source for row in model.table.rows]
    assert [(row["kind"], row["sequence"], row["age_ms"]) for row in rows] == [
        ("half", None, 399_000),
        ("transaction", 4, 391_000),
    ]
    assert (rows[0]["queues"], rows[1]["queues"]) == (["orders/0/17.2"], ["orders/0", "orders/1"])
    assert (model.transactions, model.halves, model.oldest_ms, model.more) == (1, 1, 399_000, True)
    assert model.figures.parked is None


def test_an_address_finds_its_transaction_whatever_its_id_has_in_it() -> None:
    found = OpenTransactions([transaction(4), transaction(5), transaction(HALF)], more=False)
    for each in found.transactions:
        path, _, parameters = transaction_url(each).partition("?")
        assert find_open(found, PageQuery(path, parameters)) is each
    with pytest.raises(UnknownResource, match="was decided"):
        find_open(found, PageQuery("/transactions/open", "app=shop%2F1&sequence=6&attempt=2"))


def test_one_transaction_with_what_it_holds() -> None:
    message = Message("orders", 0, 0, None, b'{"a": 1}', None, {"h": b"1"}, 5)
    model = build_open(transaction(4), [message], "", PageQuery("/transactions/open"))
    assert (model.title, model.half, model.sequence) == ("Transaction", "", 4)
    assert model.batches.rows[0].source["place"] == "17.2"
    assert model.messages.rows[0].source["value"] == '{"a": 1}'
    assert model.command == ("transaction", "show", "shop/1", "--sequence", "4")
    half = build_open(transaction(HALF), [], "you may not", PageQuery("/transactions/open"))
    assert (half.title, half.half, half.unread) == ("Half message", "orders/0/17.2", "you may not")


def test_ids_of_spark_are_known() -> None:
    assert "Spark query" in who_wrote("spark-6f1c2f7e")
    assert "batch write of Spark" in who_wrote("%OWN%spark-write-1")
    assert "made its own id up" in who_wrote("%OWN%7")
    assert who_wrote("shop") == ""


def test_commands_do_the_same() -> None:
    form = FormValues([("app", "shop"), ("sequence", "12"), ("attempt", "3")])
    assert list(decide_command("commit", form)) == [
        *("transaction", "commit", "shop", "--sequence", "12", "--attempt", "3", "--yes")
    ]
    half = FormValues([("app", "shop"), ("half", "orders/0/17.2")])
    assert list(decide_command("abort", half)) == [
        *("transaction", "abort", "shop", "--half", "orders/0/17.2", "--yes")
    ]


def test_delayed_messages_are_told_by_when_they_are_due() -> None:
    batches = [
        DelayedBatch("orders", 1, 0, 17, 2, 9_000, 50),
        DelayedBatch("a", 2, 1, 3, 0, 500, 9),
    ]
    history = ClusterHistory()
    counters: dict[str, int | float | str] = {"parked": 3, "parked_bytes": 59, "undecided": 1}
    history.add(1.0, [NodeStats("b1", "broker", "", counters), NodeStats("b2", "broker", "", {})])
    model = build_delayed(
        DelayedBatches(batches, more=False), "", history, 1_000, PageQuery("/delayed")
    )
    assert [(row.source["place"], row.source["due_in_ms"]) for row in model.table.rows] == [
        ("a/1/3.0", 0),
        ("orders/0/17.2", 8_000),
    ]
    figures = figures_of(history)
    assert (figures.parked, figures.parked_bytes, figures.undecided) == (3, 59, 1)
