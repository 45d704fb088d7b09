"""What `logboom top` shows of two samples, and how it fits a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from logboom.cli.top_layout import layout
from logboom.cli.top_sample import (
    ClusterSample,
    broker_rows,
    group_rows,
    headline,
    number_text,
    sample_of,
    topic_rows,
)
from logboom.client.admin_flows.survey_flows import survey_cluster
from logboom.client.calls import AskAll, AskNode, AskRaftLeader, LoadMetadata
from logboom.client.flows import run_flow
from logboom.client.results import NodeStats
from logboom.console.consumer_survey import GroupProgress, QueueLag
from logboom.wire.errors import TimedOut
from logboom.wire.group_view import GroupOffsets, GroupSummary
from logboom.wire.messages import Stats, StatsResult
from logboom.wire.operation_messages import DescribeCluster
from logboom.wire.survey_messages import (
    GroupsSurveyed,
    GroupSurvey,
    QueuesSurveyed,
    QueueSurvey,
    SurveyGroups,
    SurveyQueues,
)
from logboom.wire.view import BrokerView, NameServerView, QueueView, TopicConfig, TopicView, View
from tests.unit.console.console_data import described


def sample(
    at_s: float, produced: int, end: int, lag: int, *, names: int = 1, restarted: bool = False
) -> ClusterSample:
    """Return a sample of two brokers, `names` topics and as many groups."""
    counters: dict[str, int | float | str] = {
        "leading": 2,
        "replicas": 4,
        "produced_messages": 3 if restarted else produced,
        "messages_out": 2 * produced,
        "free_bytes": 25,
        "disk_bytes": 100,
    }
    nodes = [
        NodeStats("broker-1", "broker", "h:1", counters),
        NodeStats("broker-2", "broker", "h:2", {}, "no answer"),
        NodeStats("name-1", "raft leader", "h:3", {"version": 1}),
    ]
    whole = QueueView(["broker-1", "broker-2"], "broker-1", 1, 1, ["broker-1", "broker-2"], [])
    behind = QueueView(["broker-1", "broker-2"], None, 1, 1, ["broker-1"], [])
    moving = QueueView(
        ["broker-1", "broker-3"], "broker-1", 1, 1, ["broker-1"], [], ["broker-3"], []
    )
    topics = [
        TopicView(f"topic-{number:03}", number, TopicConfig(), [whole, behind, moving], 1)
        for number in range(names)
    ]
    offsets = {topic.name: {0: (2, end), 1: (0, end), 2: (0, 0)} for topic in topics}
    groups = [
        GroupProgress(
            GroupSummary(f"group-{number:03}", number, "clustering", [], 0, "", 1, 1, ""),
            (QueueLag("topic-000", 0, 0, 5, 5 + lag, lag),),
            None,
        )
        for number in range(names)
    ]
    return ClusterSample(at_s, nodes, topics, offsets, groups)


def test_rates_are_those_between_two_samples() -> None:
    before, now = sample(10.0, 100, 50, 40), sample(12.0, 300, 60, 20)
    first, second = broker_rows(now, before)
    assert (first["in_per_s"], first["state"], first["disk"]) == (100.0, "up", 0.75)
    assert first["out_per_s"] == 200.0
    assert (second["in_per_s"], second["state"]) == (None, "down")
    (topic,) = topic_rows(now, before)
    # Two queues grew by ten each, in two seconds.
    assert (topic["in_per_s"], topic["messages"]) == (10.0, 118)
    assert group_rows(now, before)[0]["lag_per_s"] == -10.0


def test_a_restarted_process_has_no_rate_instead_of_a_negative_one() -> None:
    now = sample(12.0, 300, 60, 20, restarted=True)
    assert broker_rows(now, sample(10.0, 100, 50, 40))[0]["in_per_s"] is None


def test_the_first_sample_has_no_rates() -> None:
    now = sample(12.0, 300, 60, 20)
    assert broker_rows(now, None)[0]["in_per_s"] is None
    assert topic_rows(now, None)[0]["in_per_s"] is None
    assert group_rows(now, None)[0]["lag_per_s"] is None


def test_a_replica_that_is_being_added_does_not_count_as_missing() -> None:
    (topic,) = topic_rows(sample(1.0, 0, 0, 0), None)
    assert (topic["queues"], topic["in_sync"], topic["led"], topic["moving"]) == (3, 2, 2, 1)


def test_the_headline_tells_what_is_missing() -> None:
    told = headline(sample(1.0, 0, 0, 0), None)
    assert told == "1/2 brokers · raft leader name-1 · 2/3 queues in sync"


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
@pytest.mark.parametrize("names", [1, 300])
def test_a_screen_fits_its_terminal(width: int, names: int) -> None:
    height = 30
    before, now = sample(10.0, 100, 50, 40, names=names), sample(12.0, 300, 60, 20, names=names)
    out = io.StringIO()
    Console(file=out, width=width, height=height, force_terminal=False).print(
        layout(now, before, width, height)
    )
    lines = out.getvalue().rstrip("\n").split("\n")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = out.getvalue()
    assert "broker-1" in text
    assert "topic-000" in text
    assert "group-000" in text
    if names > 1:
        assert "more" in text
    assert ("replicas" in text) == (width >= 80)
    assert ("zone" in text) == (width >= 140)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.4, "0"), (9_999, "9999"), (12_345, "12.3k"), (4.56e6, "4.6M"), (3e9, "3.0G")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number_text(value) == text


class Nodes:
    """Two brokers that lead half of 60 topics each, a name server, and 30 groups; pages of 20."""

    TOPICS, GROUPS, PAGE = 60, 30, 20

    def __init__(self, silent: str = "", *, leader: bool = True) -> None:
        self.leader = leader
        """True if the name servers have a leader."""
        self.silent = silent
        """The broker that never answers; nobody has fenced it yet."""
        self.rounds = 0
        self.asked: dict[str, int] = {}
        """Broker → how often it was asked."""

    def answer(self, call: Any) -> Any:
        """Answer a call of a flow."""
        if isinstance(call, LoadMetadata):
            return self._view()
        assert isinstance(call, AskAll), "one by one, nodes that are down cost their time-outs"
        self.rounds += 1
        for each in call.calls:
            assert isinstance(each, AskNode | AskRaftLeader)
            self._settle(each)
        return None

    def _settle(self, call: AskNode | AskRaftLeader) -> None:
        if isinstance(call, AskRaftLeader):
            if self.leader:
                call.outcome.resolve((self._leader(call.message(100)), []))
            else:
                call.outcome.fail(TimedOut("nobody leads"))
            return
        broker = call.endpoint.partition(":")[0]
        self.asked[broker] = self.asked.get(broker, 0) + 1
        assert call.timeout <= 1.0
        if broker == self.silent:
            call.outcome.fail(TimedOut("no answer"))
        elif isinstance(call.message, Stats):
            call.outcome.resolve((StatsResult(0, broker, "broker", {"leading": 1}), []))
        else:
            assert isinstance(call.message, SurveyQueues)
            after = call.message.after[0]
            own = [n for n in range(self.TOPICS) if "ab"[n % 2] == broker and n > after]
            page = [QueueSurvey(n, 0, 0, 50, 100) for n in own[: self.PAGE]]
            reached = (own[self.PAGE - 1], 0) if len(own) > self.PAGE else None
            call.outcome.resolve((QueuesSurveyed(0, page, reached), []))

    def _leader(self, message: Any) -> Any:
        if isinstance(message, DescribeCluster):
            return described()
        assert isinstance(message, SurveyGroups)
        names = [f"g{n:02}" for n in range(self.GROUPS) if f"g{n:02}" > message.after]
        page = [
            GroupSurvey(
                GroupSummary(name, int(name[1:]), "clustering", [], 0, "", 1, 1, ""),
                [GroupOffsets(int(name[1:]), f"t{name[1:]}", True, [8], [9])],
            )
            for name in names[: self.PAGE]
        ]
        return GroupsSurveyed(0, page, len(names) > self.PAGE)

    def _view(self) -> View:
        topics = [
            TopicView(
                f"t{n:02}", n, TopicConfig(), [QueueView(["a"], "ab"[n % 2], 1, 1, ["a"], [])], 1
            )
            for n in range(self.TOPICS)
        ]
        brokers = [BrokerView(each, f"{each}:1", "", 1, True, 1) for each in "ab"]
        return View(1, True, "c", brokers, topics, [], [], [NameServerView("n", "n:1")], "n")


@pytest.mark.parametrize("silent", ["", "b"])
def test_everything_is_measured_in_few_turns_whoever_does_not_answer(silent: str) -> None:
    nodes = Nodes(silent)
    found = sample_of(1.0, run_flow(survey_cluster(1.0, 30.0), nodes.answer))
    # 60 topics and 30 groups are three requests for each kind in pages of 20, at once.
    assert nodes.rounds == 2
    # For its figures and for its queues; and once more for those of the second page.
    assert nodes.asked == {"a": 3, "b": 2 if silent else 3, "n": 1}
    topics = {row["topic"]: row["messages"] for row in topic_rows(found, None)}
    groups = {row["group"]: row["lag"] for row in group_rows(found, None)}
    assert (len(topics), len(groups)) == (Nodes.TOPICS, Nodes.GROUPS)
    unknown = {"b"} if silent else set()
    assert all((topics[f"t{n:02}"] is None) == ("ab"[n % 2] in unknown) for n in range(60))
    assert all((groups[f"g{n:02}"] is None) == ("ab"[n % 2] in unknown) for n in range(30))
    assert found.left_out == ("no answer from b" if silent else "")
    assert {each.node for each in found.nodes if each.error} == unknown


def test_without_a_raft_leader_brokers_and_topics_are_shown() -> None:
    nodes = Nodes(leader=False)
    found = sample_of(1.0, run_flow(survey_cluster(1.0, 30.0), nodes.answer))
    assert found.left_out == "no Raft leader answers"
    assert (len(topic_rows(found, None)), group_rows(found, None)) == (60, [])
    assert "b" in [row["broker"] for row in broker_rows(found, None)]
