"""The overview: what is wrong comes first, and figures are those of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace as changed

from logboom.client.admin_flows.open_transactions import OpenTransactions
from logboom.client.checks.check_result import CheckResult
from logboom.client.results import NodeStats
from logboom.console.cluster_history import ClusterHistory
from logboom.console.consumer_survey import ConsumerSurvey, build_survey
from logboom.console.pages.overview_page import (
    OverviewData,
    OverviewModel,
    build_overview,
    page_of,
)
from logboom.wire.group_view import GroupOffsets, GroupSummary
from logboom.wire.survey_messages import CursorSurvey, GroupSurvey, QueueSurvey
from logboom.wire.view import BrokerView, NameServerView, QueueView, TopicConfig, TopicView, View

BROKERS = [BrokerView(f"b{n}", f"b{n}:1", "", 1, True, 1) for n in (1, 2, 3)]
SERVERS = [NameServerView(f"n{n}", f"n{n}:1") for n in (1, 2, 3)]
QUEUE = QueueView(["b1", "b2", "b3"], "b1", 1, 1, ["b1", "b2", "b3"], [])
TOPIC = TopicView("orders", 7, TopicConfig(), [QUEUE, QUEUE], 1)
SUMMARY = GroupSummary("billing", 1, "clustering", ["orders"], 2, "b1", 1, 1, "")
GROUP = GroupSurvey(SUMMARY, [GroupOffsets(7, "orders", True, [90, 100], [100, 100])])
SURVEYS = [QueueSurvey(7, 0, 0, 100, 1), QueueSurvey(7, 1, 0, 100, 1)]


def nodes(**counters: Any) -> list[NodeStats]:
    roles = {"n1": "raft leader", "n2": "name server", "n3": "name server"}
    places = {each.id: each.endpoint for each in BROKERS}
    places |= {each.id: each.endpoint for each in SERVERS}
    return [
        NodeStats(name, roles.get(name, "broker"), endpoint, dict(counters))
        for name, endpoint in places.items()
    ]


def surveyed(groups: Sequence[GroupSurvey], queues: Sequence[QueueSurvey]) -> ConsumerSurvey:
    by_place = {(each.topic_id, each.queue): each for each in queues}
    return build_survey(0.0, groups, by_place, {}, {7: "orders"})


def overview(
    history: ClusterHistory | None = None,
    topics: Sequence[TopicView] = (TOPIC,),
    groups: Sequence[GroupSurvey] = (GROUP,),
    queues: Sequence[QueueSurvey] = tuple(SURVEYS),
    **changes: Any,
) -> OverviewModel:
    usual: dict[str, Any] = {
        "view": View(3, True, "c", BROKERS, [*topics], [], [], SERVERS, "n1"),
        "nodes": nodes(),
        "described": None,
        "versions": None,
        "consumers": surveyed(groups, queues),
        "transactions": OpenTransactions([], False),
    }
    return build_overview(OverviewData(**(usual | changes)), history or ClusterHistory(), 0)


def wrong(model: OverviewModel) -> list[str]:
    return [finding.result.check for finding in model.findings]


def tile(model: OverviewModel, title: str) -> tuple[str, str]:
    return next((each.text, each.note) for each in model.tiles if each.title == title)


def test_a_cluster_without_trouble_says_so() -> None:
    model = overview()
    assert (model.verdict, model.tone, model.findings) == ("All is well", "ok", ())
    assert model.fine > 8
    assert tile(model, "Brokers") == ("3 of 3", "alive")
    assert tile(model, "Groups") == ("1", "10 messages behind")
    one = GroupSurvey(SUMMARY, [GroupOffsets(7, "orders", True, [99, 100], [100, 100])])
    assert tile(overview(groups=[one]), "Groups") == ("1", "1 message behind")


def test_failures_come_before_warnings() -> None:
    behind = QueueView(["b1", "b2", "b3"], "b1", 1, 1, ["b1", "b2"], [])
    leaderless = QueueView(["b1", "b2", "b3"], None, 1, 1, ["b1"], [])
    model = overview(topics=[TopicView("t", 1, TopicConfig(), [behind, leaderless], 1)])
    assert model.tone == "failed"
    assert wrong(model)[0] == "every queue has a leader"
    assert [each.tone for each in model.findings] == sorted(
        (each.tone for each in model.findings), key=lambda tone: tone != "failed"
    )
    assert tile(model, "Topics") == ("1", "1 queue without a leader")


def test_a_node_that_does_not_answer_is_a_problem() -> None:
    silent = [
        NodeStats("b2", "broker", "b2:1", {}, "timed out") if each.node == "b2" else each
        for each in nodes()
    ]
    model = overview(nodes=silent)
    assert "node b2" in wrong(model)
    assert tile(model, "Brokers")[0] == "2 of 3"


def test_groups_and_subscriptions_without_consumers_are_warnings() -> None:
    idle = GroupSurvey(changed(SUMMARY, name="idle", member_count=0), GROUP.offsets)
    paused = GroupSurvey(changed(SUMMARY, name="rests", paused=True), GROUP.offsets)
    done = GroupSurvey(
        changed(SUMMARY, name="done", member_count=0),
        [GroupOffsets(7, "orders", True, [100, 100], [100, 100])],
    )
    broken = GroupSurvey(changed(SUMMARY, name="broken", fault="no room"), [])
    cursors = [
        QueueSurvey(7, 0, 0, 100, 1, [CursorSurvey("slow", 1, 4, 0), CursorSurvey("ok", 1, 4, 1)]),
        QueueSurvey(7, 1, 0, 100, 1, [CursorSurvey("ok", 1, 0, 0, ["c1"])]),
    ]
    model = overview(groups=[idle, paused, done, broken], queues=cursors)
    assert wrong(model) == [
        "group broken",
        "group idle",
        "group rests",
        "subscription orders/slow",
    ]


def test_what_was_not_told_is_left_out_and_said() -> None:
    missing = CheckResult("groups", "warning", "could not be checked: timed out")
    model = overview(consumers=None, not_asked=[missing])
    assert wrong(model) == ["groups"]
    assert tile(model, "Groups")[1] == "not told"


def test_a_full_disk_is_seen_at_once() -> None:
    model = overview(nodes=nodes(disk_bytes=100, free_bytes=3, reserve_bytes=5, disk_full=1))
    assert tile(model, "Fullest disk") == ("97%", "3 B free")
    assert "disk of b1" in wrong(model)


def test_rates_are_the_growth_of_counters_of_all_nodes() -> None:
    history = ClusterHistory()
    for at, sent in ((100.0, 0), (110.0, 500), (120.0, 1_500)):
        history.add(at, nodes(produced_messages=sent, produced_bytes=sent * 10))
    model = overview(history)
    # Six nodes tell the same counter.
    assert tile(model, "Produced") == ("600/s", "5.9 KiB/s")
    chart = next(each for each in model.charts if each.name == "messages")
    assert list(chart.series[0].values) == [300.0, 600.0]
    assert list(chart.times_s) == [110.0, 120.0]


def test_a_node_that_starts_anew_makes_no_negative_rate() -> None:
    history = ClusterHistory()
    history.add(100.0, nodes(produced_messages=500))
    history.add(110.0, nodes(produced_messages=3))
    assert history.rates("produced_messages") == [None]
    history.add(105.0, nodes(produced_messages=9))
    assert history.rates("produced_messages") == []


def test_findings_lead_to_the_pages_that_say_more() -> None:
    assert page_of("group a b") == "/groups/a%20b"
    assert page_of("subscription orders/slow") == "/subscriptions/orders/slow"
    assert page_of("all replicas in sync") == "/topics?sort=-out_of_sync"
    assert page_of("raft leader") == ""
