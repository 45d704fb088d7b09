"""The replica matrix: what is where, filters, and pages of rows and columns."""

from __future__ import annotations

from logboom.console.pages.brokers_page import held_row
from logboom.console.pages.replicas_page import ReplicasModel, build_replicas
from logboom.console.widgets.data_table import csv_text
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.view import TopicView
from tests.sim.world.processor import counted
from tests.unit.console.console_data import (
    broker_load,
    described,
    move_state,
    queue_view,
    topic_view,
)

FOUR = described(*map(broker_load, "abcd"), moves=[move_state("orders", 1, stuck="b is dead")])
TOPICS = [
    topic_view("flights", queue_view("ab"), queue_view("bc", "b"), queue_view("ca", leader=None)),
    topic_view(
        "orders",
        queue_view("ab", leader="b"),
        queue_view("acb", "ab", adding=["c"], removing=["b"]),
    ),
    topic_view("%RETRY%billing", queue_view("ab")),
]


def matrix(parameters: str = "", topics: list[TopicView] | None = None) -> ReplicasModel:
    return build_replicas(
        FOUR, TOPICS if topics is None else topics, PageQuery("/replicas", parameters)
    )


def names(model: ReplicasModel) -> list[str]:
    return [f"{row.topic}/{row.queue}" for row in model.rows]


def test_each_cell_says_what_a_broker_has() -> None:
    model = matrix()
    assert [each.broker for each in model.brokers] == ["a", "b", "c", "d"]
    states = {f"{row.topic}/{row.queue}": [cell.state for cell in row.cells] for row in model.rows}
    assert states == {
        "flights/0": ["leader", "in sync", "", ""],
        "flights/1": ["", "leader", "catching up", ""],
        "flights/2": ["in sync", "", "in sync", ""],
        "orders/0": ["in sync", "leader", "", ""],
        "orders/1": ["leader", "removing", "adding", ""],
    }
    assert model.rows[0].cells[0].label == "a: leader"


def test_what_a_dead_broker_has_is_down_and_an_only_copy_is_never_green() -> None:
    cluster = described(broker_load("a"), broker_load("b", alive=False), broker_load("c"))
    topics = [
        topic_view(
            "t",
            queue_view("abc", "ac"),
            queue_view("bac", "b", leader=None),
            queue_view("abc", "a"),
            queue_view("cab", "a", leader=None),
            queue_view("a"),
            queue_view("bac"),
        )
    ]
    rows = build_replicas(cluster, topics, PageQuery("/replicas")).rows
    assert [[(cell.words, cell.tone) for cell in row.cells] for row in rows] == [
        [("leader", "info"), ("down", "failed"), ("in sync", "ok")],
        [("catching up", "warning"), ("down, only copy", "failed"), ("catching up", "warning")],
        [("leader, only copy", "failed"), ("down", "failed"), ("catching up", "warning")],
        [("only copy", "failed"), ("down", "failed"), ("catching up", "warning")],
        # It is to have one copy.
        [("leader", "info"), ("", ""), ("", "")],
        # Nobody has missed it yet.
        [("in sync", "ok"), ("leader, down", "failed"), ("in sync", "ok")],
    ]
    assert [
        held_row("t", number, topics[0], "b", alive=False)["sync"] for number in (0, 1, 2, 5)
    ] == ["down", "only copy", "down", "down"]


def test_a_move_is_told_with_its_queue() -> None:
    (row,) = matrix("show=moving").rows
    assert (row.topic, row.queue, row.is_moving, row.stuck) == ("orders", 1, True, "b is dead")
    assert row.move == "+c -b stuck: b is dead"


def test_filters_choose_queues() -> None:
    assert names(matrix("show=wrong")) == ["flights/1", "flights/2"]
    assert names(matrix("show=displaced")) == ["flights/2", "orders/0"]
    assert names(matrix("topic=ORD")) == ["orders/0", "orders/1"]
    assert names(matrix("topic=nothing")) == []
    assert names(matrix("show=nonsense")) == names(matrix())


def test_topics_of_the_system_are_shown_if_asked_for() -> None:
    assert "%RETRY%billing/0" not in names(matrix())
    assert "%RETRY%billing/0" in names(matrix("hidden=1"))
    assert names(matrix("topic=%25RETRY%25billing")) == ["%RETRY%billing/0"]


def test_an_exact_name_leaves_out_longer_ones() -> None:
    topics = [topic_view("order", queue_view("ab")), topic_view("orders", queue_view("ab"))]
    assert names(matrix("topic=order", topics)) == ["order/0"]
    assert names(matrix("topic=orde", topics)) == ["order/0", "orders/0"]


def test_rows_and_brokers_come_in_pages() -> None:
    big = described(*(broker_load(f"broker-{number:03}") for number in range(60)))
    topics = [topic_view(f"t{number:03}", queue_view("ab")) for number in range(120)]
    model = build_replicas(big, topics, PageQuery("/replicas", "page=3&brokers=2"))
    assert (len(model.rows), model.page, model.pages, model.matched) == (20, 3, 3, 120)
    assert model.next_url == ""
    assert [current for *_, current in model.broker_pages] == [False, True, False]
    assert model.brokers[0].broker == "broker-024"
    assert model.broker_pages[2][0] == "broker-048 to broker-059"
    assert build_replicas(big, topics, PageQuery("/replicas", "page=99&brokers=99")).page == 3


def test_a_broker_that_is_down_or_not_active_is_marked() -> None:
    cluster = described(broker_load("a", alive=False), broker_load("b", mode="draining"))
    model = build_replicas(cluster, [], PageQuery("/replicas"))
    assert [(each.state, each.tone) for each in model.brokers] == [
        ("down", "failed"),
        ("draining", "warning"),
    ]


def test_all_queues_are_given_as_csv() -> None:
    assert matrix().table.every_row == ()
    lines = csv_text(matrix("format=csv&topic=orders").table).splitlines()
    assert lines[1] == "orders,0,b,1,a b,a b,,,,"
    assert len(lines) == 3


def test_a_page_of_forty_thousand_queues_builds_only_its_rows() -> None:
    queues = [queue_view("abc") for _ in range(4)]
    topics = [topic_view(f"t{number:05}", *queues) for number in range(10_000)]
    model, calls = counted(lambda: matrix("show=displaced", topics))
    # Rows are not built: a few calls for each queue decide which are shown.
    assert calls < 20 * model.total
    assert (model.total, model.matched) == (40_000, 0)
