"""What is known of Spark jobs, from plain data."""

from __future__ import annotations

from logboom.client.admin_flows.open_transactions import OpenTransaction
from logboom.client.results import NodeConnections
from logboom.console.consumer_survey import ConsumerHistory, ConsumerSurvey, build_survey
from logboom.console.pages.pipeline_page import build_pipeline
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.group_view import GroupOffsets, GroupSummary
from logboom.wire.messages import ConnectionState
from logboom.wire.survey_messages import GroupSurvey, QueueSurvey
from logboom.wire.transactions import TransactionId, UndecidedBatch


def group(name: str, committed: int, members: int = 0) -> GroupSurvey:
    summary = GroupSummary(name, 1, "clustering", ["orders"], members, "", 1, 1, "")
    return GroupSurvey(summary, [GroupOffsets(1, "orders", True, [committed], [committed])])


def survey(at_s: float, *groups: GroupSurvey) -> ConsumerSurvey:
    return build_survey(at_s, groups, {(1, 0): QueueSurvey(1, 0, 0, 100, 1)}, {}, {1: "orders"})


def transaction(app_id: str) -> OpenTransaction:
    whose = TransactionId(app_id, 41, 3)
    return OpenTransaction(
        app_id, 41, 3, [UndecidedBatch("orders", 1, 0, 7, 0, whose, 1_000, 0, 5, 64)]
    )


def connection(client_id: str) -> ConnectionState:
    return ConnectionState("10.0.0.9:4", "main", client_id, "client", "", "", 5_000, 10, 7, -1, 0)


def test_groups_that_move_without_members_come_first() -> None:
    history = ConsumerHistory()
    for at_s, committed in ((10.0, 5), (20.0, 5), (30.0, 50)):
        newest = survey(
            at_s, group("a-idle", 3), group("served", committed, 2), group("stream", committed)
        )
        history.add(newest)
    history.add(newest := survey(40.0, group("a-idle", 3), group("stream", 50)))
    assert history.committed_at_s("stream") == 30.0
    assert history.committed_at_s("a-idle") is None
    model = build_pipeline(newest, history, [], [], 50_000, PageQuery("/pipeline"))
    rows = [row.source for row in model.readers.rows]
    assert [(row["group"], row["state"], row["lag"]) for row in rows] == [
        ("stream", "commits", 50),
        ("a-idle", "no commit seen", 97),
    ]
    assert (rows[0]["commit_ms"], model.since_s) == (30_000, 10.0)
    assert rows[0]["command"] == "logboom pipeline lag --group stream"


def test_writes_and_processes_of_spark_are_told_from_others() -> None:
    model = build_pipeline(
        survey(1.0),
        ConsumerHistory(),
        [transaction("spark-7f"), transaction("%OWN%spark-write-1"), transaction("shop")],
        [
            NodeConnections("broker-1", [connection("spark-0a1b"), connection("client-1")], 2),
            NodeConnections("broker-2", [], 0, "it does not answer"),
        ],
        61_000,
        PageQuery("/pipeline"),
    )
    assert {row.source["app_id"] for row in model.writers.rows} == {
        "spark-7f",
        "%OWN%spark-write-1",
    }
    assert {row.source["age_ms"] for row in model.writers.rows} == {60_000}
    (process,) = model.processes.rows
    assert (process.source["client"], process.source["sent"]) == ("spark-0a1b", None)
    assert (model.connected, model.unanswered) == (1, ("broker-2: it does not answer",))
    assert any("checkpoint" in text for text in model.unknown)
