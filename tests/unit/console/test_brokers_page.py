"""The list of brokers, one broker, and the moves of replicas."""

from __future__ import annotations

import pytest

from logboom.client.results import NodeStats
from logboom.console.cluster_history import ClusterHistory
from logboom.console.pages.brokers_page import (
    BrokerModel,
    BrokersData,
    BrokersModel,
    build_broker,
    build_brokers,
)
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.errors import InvalidRequest
from logboom.wire.messages import NodeVersion, VersionsDescribed
from logboom.wire.operation_messages import BrokerLoad, ClusterDescribed, PlannerStatus
from logboom.wire.view import TopicView
from tests.unit.console.console_data import (
    MIB,
    broker_load,
    broker_view,
    described,
    move_state,
    queue_view,
    topic_view,
)

QUERY = PageQuery("/brokers")


def brokers_of(cluster: ClusterDescribed, versions: dict[str, str] | None = None) -> BrokersModel:
    told = None
    if versions is not None:
        nodes = [NodeVersion(name, "broker", text, 1, "") for name, text in versions.items()]
        told = VersionsDescribed(0, 1, 1, nodes)
    views = [broker_view(each.broker, alive=each.alive) for each in cluster.brokers]
    return build_brokers(BrokersData(cluster, views, told), QUERY)


def one(load: BrokerLoad, topics: list[TopicView]) -> BrokerModel:
    cluster = described(load, broker_load("b"), broker_load("c"))
    views = [broker_view(each.broker, alive=each.alive) for each in cluster.brokers]
    data = BrokersData(cluster, views, None)
    return build_broker(data, topics, load.broker, ClusterHistory(), PageQuery("/brokers/a"))


def test_a_list_of_brokers_that_are_well_has_nothing_to_say() -> None:
    model = brokers_of(described(broker_load("a"), broker_load("b")), {"a": "1.0", "b": "1.0"})
    assert model.notices == ()
    row = model.brokers.rows[0].source
    assert (row["state"], row["mode"], row["version"]) == ("up", "active", "1.0")
    assert (row["disk_percent"], row["free_bytes"]) == (40, 600 * MIB)


def test_empty_columns_are_left_out() -> None:
    names = [head.column.name for head in brokers_of(described(broker_load("a"))).brokers.heads]
    assert not {"zone", "host", "version", "moves"} & set(names)
    zoned = brokers_of(described(broker_load("a", zone="x", moves_in=1)))
    names = [head.column.name for head in zoned.brokers.heads]
    assert {"zone", "moves"} <= set(names)


def test_what_is_wrong_is_said_the_worst_first() -> None:
    cluster = described(
        broker_load("a", alive=False),
        broker_load("b", full=True),
        broker_load("c", mode="maintenance"),
        broker_load("d", free_bytes=50 * MIB),
        broker_load("e", mode="draining"),
        moves=[move_state("flights", 1, stuck="broker-4 is dead")],
        planner=PlannerStatus("stalled", ["no broker has room"], 3, "off", 0.0, 0),
    )
    model = brokers_of(cluster, {"a": "1.0", "b": "1.1"})
    assert [(each.text, each.tone) for each in model.notices] == [
        ("a is down", "failed"),
        ("b is out of disk space: writes to it are refused", "failed"),
        ("Replicas should move and cannot: no broker has room", "failed"),
        ("1 move stuck: broker-4 is dead", "failed"),
        ("d is above 85 % of the disk", "warning"),
        ("c is in maintenance", "warning"),
        ("e is draining", "info"),
        ("Brokers run different releases: 1.0, 1.1", "info"),
    ]


def test_a_move_tells_how_far_it_is() -> None:
    model = brokers_of(described(broker_load("a"), moves=[move_state("flights", 1)]))
    row = model.moves.rows[0].source
    assert (row["queue_name"], row["change"], row["percent"]) == ("flights/1", "+c -b", 40)
    assert (row["left_bytes"], row["left_ms"]) == (60 * MIB, 60_000)


def test_a_move_of_which_nothing_is_known_says_so() -> None:
    unknown = move_state("flights", 1, done_bytes=-1, total_bytes=-1, bytes_per_s=-1, left_s=-1)
    row = brokers_of(described(broker_load("a"), moves=[unknown])).moves.rows[0].source
    assert [row[of] for of in ("percent", "left_bytes", "bytes_per_s", "left_ms")] == [None] * 4


def test_what_a_broker_does_not_tell_yet_is_unknown() -> None:
    quiet = broker_load("a", size_bytes=-1, disk_bytes=-1, free_bytes=-1, in_bytes_per_s=-1)
    row = brokers_of(described(quiet)).brokers.rows[0].source
    assert row["size_bytes"] is row["disk_percent"] is row["in_bytes_per_s"] is None
    assert ("Disk", "not known yet") in one(quiet, []).facts


def test_one_broker_shows_its_replicas_and_what_stopping_it_costs() -> None:
    topics = [
        topic_view("alone", queue_view("ab", "a"), queue_view("bc")),
        topic_view("whole", queue_view("bac")),
    ]
    model = one(broker_load("a"), topics)
    assert [
        (row.source["queue_name"], row.source["role"], row.source["sync"])
        for row in model.held.rows
    ] == [
        ("alone/0", "leader", "only copy"),
        ("whole/0", "follower", "in sync"),
    ]
    assert [row.source["risk"] for row in model.risks.rows] == ["only-copy"]
    assert model.notices[0].text == "Only a is in sync in alone/0"


def test_a_broker_that_is_down_costs_nothing_more() -> None:
    model = one(broker_load("a", alive=False), [topic_view("t", queue_view("ab", "a"))])
    assert model.risks.rows == ()
    assert model.risks.empty == "a does not run."


def test_what_was_consumed_includes_subscriptions() -> None:
    history = ClusterHistory()
    for at, out in ((100.0, 0), (110.0, 50)):
        counters: dict[str, int | float | str] = {
            "messages_out": out,
            "bytes_out": out * 10,
            "pulled_messages": 0,
        }
        history.add(at, [NodeStats("a", "broker", "a:1", counters)])
    data = BrokersData(described(broker_load("a")), [broker_view("a")], None)
    model = build_broker(data, [], "a", history, QUERY)
    consumed = {chart.name: chart.series[1].values for chart in model.charts}
    assert consumed == {"written": [50.0], "messages": [5.0]}


def test_a_broker_that_there_is_not_is_named() -> None:
    data = BrokersData(described(broker_load("a")), [broker_view("a")], None)
    with pytest.raises(InvalidRequest, match="no broker 'z': there are a") as refused:
        build_broker(data, [], "z", ClusterHistory(), QUERY)
    assert refused.value.code == "UNKNOWN_BROKER"
