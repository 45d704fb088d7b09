"""Pages of the console, built from what the nodes of a simulated cluster answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from logboom.client.results import NodeStats
from logboom.console.cluster_history import ClusterHistory
from logboom.console.consumer_survey import ConsumerHistory, ConsumerSurvey, build_survey
from logboom.console.pages.brokers_page import BrokersData, BrokersModel, build_brokers
from logboom.console.pages.groups_page import build_groups
from logboom.console.pages.name_servers_page import NameServersModel, build_name_servers
from logboom.console.pages.overview_page import OverviewData, OverviewModel, build_overview
from logboom.console.pages.replicas_page import ReplicasModel, build_replicas
from logboom.console.pages.topic_page import build_queues, topic_state
from logboom.console.pages.topics_page import build_topics, topic_rows
from logboom.console.widgets.data_table import Row, TableModel
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.actor import Call
from logboom.wire.base import WireMessage
from logboom.wire.group_commands import AlterGroup
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import DescribeVersions, Stats, StatsResult, Watch, WatchResult
from logboom.wire.operation_messages import DescribeCluster
from logboom.wire.survey_messages import QueuesSurveyed, QueueSurvey, SurveyGroups, SurveyQueues
from logboom.wire.view import View
from tests.sim.alert_world import AlertWorld


def ask(world: AlertWorld, endpoint: str, message: WireMessage) -> Any:
    """Return the answer of a node, or None."""
    found: list[Any] = []

    def answered(answer: Any, _batches: Sequence[Any], _error: Any) -> None:
        found.append(answer)

    process = world.world.machines["operator"].process
    assert process is not None
    process.deliver(Call(partial(world.client.request, endpoint, message, answered, 2.0)))
    while not found:
        world.world.scheduler.run(world.now + 0.1)
    return found[0]


def view_of(world: AlertWorld) -> View:
    leader = world.world.machines[world.raft_leader()]
    answer = ask(world, leader.listeners["main"], Watch(0, 2_000, -1, None, 0))
    assert isinstance(answer, WatchResult)
    return answer.view


def operate(world: AlertWorld, message: WireMessage) -> Any:
    """Return the answer of the raft leader."""
    found: list[Any] = []
    process = world.world.machines["operator"].process
    assert process is not None
    answered = partial(_note, found)
    for _ in range(20):
        process.deliver(Call(partial(world.client.operate, message, answered)))
        while not found:
            settled(world, 0.1)
        if found[0] is not None:
            return found[0]
        found.clear()  # It asked a name server that does not lead, and knows now which one does.
        settled(world, 0.5)
    raise AssertionError(f"no leader answers {message}")


def _note(found: list[Any], answer: Any, _error: Any) -> None:
    found.append(answer)


def stats_of(world: AlertWorld) -> list[NodeStats]:
    nodes = []
    for machine in world.world.nodes():
        endpoint = machine.listeners["main"]
        answer = ask(world, endpoint, Stats(0, 2_000))
        told = isinstance(answer, StatsResult)
        counters = answer.counters if told else {}
        role = answer.role if told else machine.kind
        error = "" if told else "timed out"
        nodes.append(NodeStats(machine.name, role, endpoint, counters, error))
    return nodes


def overview(world: AlertWorld) -> OverviewModel:
    data = OverviewData(view_of(world), stats_of(world), None, None, None, None)
    return build_overview(data, ClusterHistory(), 0)


def wrong(model: OverviewModel) -> dict[str, str]:
    """Return what is wrong, except that the listeners of this world are open."""
    found = {each.result.check: str(each.tone) for each in model.findings}
    return {check: tone for check, tone in found.items() if not check.startswith("listeners of")}


def settled(world: AlertWorld, seconds: float) -> None:
    world.world.scheduler.run(world.now + seconds)


def test_the_overview_follows_a_broker_that_dies_and_comes_back() -> None:
    world = AlertWorld(11, 1.0)
    settled(world, 30.0)
    assert wrong(overview(world)) == {}

    view = view_of(world)
    topics = build_topics(topic_rows(view.topics, {}), PageQuery("/topics", ""))
    assert [row.source["name"] for row in topics.table.rows] == ["all", "alone", "pair"]
    alone = next(topic for topic in view.topics if topic.name == "alone")
    victim = alone.queues[0].replicas[0]

    world.world.machines[victim].idle = True
    world.world.kill(victim)
    settled(world, 30.0)
    model = overview(world)
    assert model.tone == "failed"
    found = wrong(model)
    assert found[f"node {victim}"] == "failed"
    assert found["every queue has a leader"] == "failed"
    alone = next(topic for topic in view_of(world).topics if topic.name == "alone")
    assert topic_state(alone)[1] == "failed"
    queues = build_queues(alone, {}, [], PageQuery("/topics/alone/queues", ""))
    assert queues.table.rows[0].source["leader"] is None

    world.world.machines[victim].idle = False
    world.world.boot(victim)
    settled(world, 60.0)
    assert wrong(overview(world)) == {}


def brokers(world: AlertWorld) -> BrokersModel:
    described = operate(world, DescribeCluster(0, 2_000))
    versions = operate(world, DescribeVersions(0, 2_000))
    return build_brokers(
        BrokersData(described, view_of(world).brokers, versions), PageQuery("/brokers", "")
    )


def replicas(world: AlertWorld, query: str) -> ReplicasModel:
    described = operate(world, DescribeCluster(0, 2_000))
    return build_replicas(described, view_of(world).topics, PageQuery("/replicas", query))


def by(table: TableModel, name: str) -> dict[str, Row]:
    """Return the rows of a table by one of their fields."""
    return {row.source[name]: row.source for row in table.rows}


def test_brokers_and_replicas_follow_a_broker_that_is_drained_and_killed() -> None:
    world = AlertWorld(11, 1.0)
    settled(world, 30.0)
    page = brokers(world)
    rows = by(page.brokers, "broker")
    assert {(row["state"], row["mode"]) for row in rows.values()} == {("up", "active")}
    assert sum(row["leads"] for row in rows.values()) == 6
    assert (page.planner.state, page.planner.tone) == ("idle", "")
    assert len(replicas(world, "").rows) == 6
    assert replicas(world, "show=wrong").rows == ()

    # The topic "all" needs all three brokers: what one of them holds of it has nowhere to go.
    drained = world.keeper("alone")
    world.set_mode(drained, "draining")
    settled(world, 60.0)
    page = brokers(world)
    row = by(page.brokers, "broker")[drained]
    assert (row["mode"], row["leads"], row["replicas"]) == ("draining", 0, 2)
    assert drained not in world.client.routes.topics["alone"].queues[0].replicas
    assert page.planner.state == "stalled"
    assert [notice.tone for notice in page.notices] == ["failed", "info"]
    assert "cannot" in page.notices[0].text

    world.world.machines[drained].idle = True
    world.world.kill(drained)
    settled(world, 30.0)
    page = brokers(world)
    assert by(page.brokers, "broker")[drained]["state"] == "down"
    assert page.notices[0].text == f"{drained} is down"
    matrix = replicas(world, "show=wrong")
    assert {row.topic for row in matrix.rows} == {"all"}
    column = [broker.broker for broker in matrix.brokers].index(drained)
    assert {row.cells[column].state for row in matrix.rows} == {"down"}
    assert matrix.brokers[column].tone == "failed"

    world.world.machines[drained].idle = False
    world.world.boot(drained)
    world.set_mode(drained, "active")
    settled(world, 60.0)
    page = brokers(world)
    assert page.notices == ()
    assert replicas(world, "show=wrong").rows == ()


def name_servers(world: AlertWorld) -> NameServersModel:
    view = view_of(world)
    versions = operate(world, DescribeVersions(0, 2_000))
    return build_name_servers(
        view.name_servers,
        stats_of(world),
        world.raft_leader(),
        versions,
        PageQuery("/name-servers", ""),
    )


def test_name_servers_follow_one_that_dies_and_comes_back() -> None:
    world = AlertWorld(12, 1.0)
    settled(world, 20.0)
    page = name_servers(world)
    rows = by(page.servers, "name_server")
    assert [row["role"] for row in rows.values()].count("leader") == 1
    assert {row["restart"] for row in rows.values()} == {"yes"}
    assert page.notices == ()

    victim = world.follower()
    world.world.machines[victim].idle = True
    world.world.kill(victim)
    settled(world, 10.0)
    page = name_servers(world)
    rows = by(page.servers, "name_server")
    assert rows[victim]["state"] == "down"
    others = [row for name, row in rows.items() if name != victim]
    assert {row["restart"] for row in others} == {"no: no majority would remain"}
    assert [notice.tone for notice in page.notices] == ["failed", "warning"]

    world.world.machines[victim].idle = False
    world.world.boot(victim)
    settled(world, 20.0)
    page = name_servers(world)
    assert page.notices == ()
    assert by(page.servers, "name_server")[victim]["lag"] == 0


def survey(world: AlertWorld) -> ConsumerSurvey:
    """Return what the console would learn of groups and queues."""
    view = view_of(world)
    told = operate(world, SurveyGroups(0, 2_000))
    queues: dict[tuple[int, int], QueueSurvey] = {}
    for broker in view.brokers:
        answer = ask(world, broker.endpoint, SurveyQueues(0, 2_000))
        if isinstance(answer, QueuesSurveyed):
            queues |= {(each.topic_id, each.queue): each for each in answer.queues}
    topics = {topic.id: topic.name for topic in view.topics}
    return build_survey(world.now, told.groups, queues, {}, topics)


def test_groups_and_topics_tell_what_waits() -> None:
    world = AlertWorld(13, 1.0)
    settled(world, 20.0)
    process = world.world.machines["operator"].process
    assert process is not None
    codes: list[str] = []
    command = AlterGroup("billing", GroupConfig(start="first"), {"all": ""}, True, 1)
    process.deliver(
        Call(lambda: world.client.propose(command, lambda result: codes.append(result.code)))
    )
    settled(world, 20.0)
    assert codes == [""]

    history = ConsumerHistory()
    history.add(survey(world))
    settled(world, 20.0)
    found = survey(world)
    history.add(found)
    rows = topic_rows(view_of(world).topics, found.stocks)
    stored = by(build_topics(rows, PageQuery("/topics", "hidden=1")).table, "name")
    messages = stored["all"]["messages"]
    assert messages > 80, "two queues get two messages a second"

    page = build_groups(found, history, PageQuery("/groups", ""))
    row = by(page.table, "name")["billing"]
    assert (row["state"], row["members"]) == ("empty", 0)
    assert row["lag"] == messages + stored["%RETRY%billing"]["messages"]
    assert row["lag_per_s"] > 1
