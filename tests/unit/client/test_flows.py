"""Flows, driven by hand."""

from __future__ import annotations

import pytest

from logboom.client.calls import AskNode, LoadMetadata, ProposeCommand
from logboom.client.flows import (
    ATTEMPT_S,
    FENCED_STATS_S,
    STATS_S,
    remove_name_server,
    stats,
)
from logboom.wire.commands import CommandResult
from logboom.wire.errors import InvalidRequest, NotLeader, TimedOut
from logboom.wire.messages import Ok, StatsResult
from logboom.wire.view import BrokerView, NameServerView, View


def test_stats_do_not_wait_long_for_nodes_that_are_down() -> None:
    brokers = [
        BrokerView("broker-1", "b1:1", "", 1, False, 1),
        BrokerView("broker-2", "b2:1", "", 1, True, 1),
    ]
    servers = [NameServerView("name-1", "n1:1")]
    flow = stats(10.0)
    assert isinstance(next(flow), LoadMetadata)
    first = flow.send(View(1, True, "c", brokers, [], [], [], servers, "name-1"))
    assert isinstance(first, AskNode)
    assert (first.endpoint, first.timeout) == ("b1:1", FENCED_STATS_S)
    second = flow.throw(TimedOut("no answer"))
    assert (second.endpoint, second.timeout) == ("b2:1", STATS_S)
    third = flow.send((StatsResult(1, "broker-2", "broker", {"leading": 1}), []))
    with pytest.raises(StopIteration) as ended:
        flow.send((StatsResult(1, "name-1", "raft leader", {"term": 1}), []))
    assert third.endpoint == "n1:1"
    assert [(s.node, bool(s.error)) for s in ended.value.value] == [
        ("broker-1", True),
        ("broker-2", False),
        ("name-1", False),
    ]


def test_a_shorter_time_of_the_caller_holds() -> None:
    flow = stats(0.1)
    next(flow)
    asked = flow.send(View(1, True, "c", [], [], [], [], [NameServerView("n", "n:1")], None))
    assert asked.timeout == 0.1


def test_a_change_of_the_group_does_not_wait_long_for_a_leader_that_is_gone() -> None:
    servers = [NameServerView("name-1", "n1:1"), NameServerView("name-2", "n2:1")]
    flow = remove_name_server("name-2", 30.0)
    assert isinstance(next(flow), ProposeCommand)
    assert isinstance(flow.send(CommandResult(1)), LoadMetadata)
    asked = [flow.send(View(1, True, "c", [], [], [], [], servers, "name-2"))]
    # The one that seemed to lead is the one that is lost; the other does not lead yet.
    asked.append(flow.throw(TimedOut("no answer")))
    asked.append(flow.throw(NotLeader("wait")))
    asked.append(flow.throw(TimedOut("no answer")))
    with pytest.raises(StopIteration):
        flow.send((Ok(1), []))
    assert [call.endpoint for call in asked] == ["n2:1", "n1:1", "n2:1", "n1:1"]
    assert {call.timeout for call in asked} == {ATTEMPT_S}


def test_a_change_of_the_group_that_is_refused_is_not_asked_for_again() -> None:
    flow = remove_name_server("name-2", 30.0)
    next(flow)
    flow.send(CommandResult(1))
    flow.send(View(1, True, "c", [], [], [], [], [NameServerView("n", "n:1")], "n"))
    with pytest.raises(InvalidRequest):
        flow.throw(InvalidRequest("no"))
