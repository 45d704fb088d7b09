"""Flows, driven by hand."""

from __future__ import annotations

import pytest

from logboom.client.calls import AskAll, AskNode, LoadMetadata
from logboom.client.flows import (
    FENCED_STATS_S,
    STATS_S,
    describe_topic,
    stats,
)
from logboom.wire.commands import CommandResult
from logboom.wire.errors import TimedOut, UnknownResource
from logboom.wire.messages import StatsResult
from logboom.wire.view import BrokerView, NameServerView, View


def test_stats_do_not_wait_long_for_nodes_that_are_down() -> None:
    brokers = [
        BrokerView("broker-1", "b1:1", "", 1, False, 1),
        BrokerView("broker-2", "b2:1", "", 1, True, 1),
    ]
    servers = [NameServerView("name-1", "n1:1")]
    flow = stats(10.0)
    asked = next(flow)
    assert isinstance(asked, LoadMetadata)
    assert asked.topics == [], "a cluster may have 10,000"
    together = flow.send(View(1, True, "c", brokers, [], [], [], servers, "name-1"))
    assert isinstance(together, AskAll), (
        "one after the other, each that is down would cost its time"
    )
    first, second, third = together.calls
    assert isinstance(first, AskNode)
    assert isinstance(second, AskNode)
    assert isinstance(third, AskNode)
    assert (first.endpoint, first.timeout) == ("b1:1", FENCED_STATS_S)
    assert (second.endpoint, second.timeout) == ("b2:1", STATS_S)
    assert third.endpoint == "n1:1"
    first.outcome.fail(TimedOut("no answer"))
    second.outcome.resolve((StatsResult(1, "broker-2", "broker", {"leading": 1}), []))
    third.outcome.resolve((StatsResult(1, "name-1", "raft leader", {"term": 1}), []))
    with pytest.raises(StopIteration) as ended:
        flow.send(None)
    assert [(s.node, bool(s.error)) for s in ended.value.value] == [
        ("broker-1", True),
        ("broker-2", False),
        ("name-1", False),
    ]


def test_one_topic_is_described_without_the_others() -> None:
    flow = describe_topic("t", 10.0)
    next(flow)
    asked = flow.send(CommandResult(version=7))
    assert isinstance(asked, LoadMetadata)
    assert (asked.topics, asked.version) == (["t"], 7)
    with pytest.raises(UnknownResource):
        flow.send(View(7, True, "c", [], [], [], [], [], None))


def test_a_shorter_time_of_the_caller_holds() -> None:
    flow = stats(0.1)
    next(flow)
    asked = flow.send(View(1, True, "c", [], [], [], [], [NameServerView("n", "n:1")], None))
    assert [each.timeout for each in asked.calls] == [0.1]
