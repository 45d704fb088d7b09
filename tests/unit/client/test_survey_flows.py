"""Flows of monitoring: they ask for page after page, and for what an answer left out."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.client.admin_flows import survey_flows
from logboom.client.calls import AskNode, AskRaftLeader, KnownBrokers
from logboom.client.flows import run_flow
from logboom.wire.errors import UnknownResource
from logboom.wire.group_view import GroupSummary
from logboom.wire.survey_messages import (
    MAX_PLACES,
    AppendTimesFound,
    FindAppendTimes,
    GroupsSurveyed,
    GroupSurvey,
    QueuesSurveyed,
    QueueSurvey,
    SurveyGroups,
    SurveyQueues,
)
from logboom.wire.view import BrokerView

GROUPS = [
    GroupSurvey(GroupSummary(f"g{n}", n, "clustering", [], 0, "b1", 1, 1, ""), []) for n in range(5)
]
QUEUES = [QueueSurvey(1, n, 0, n, 100) for n in range(5)]


def answer(call: Any) -> Any:
    """What nodes answer, two to a page; of places at most 30."""
    if isinstance(call, KnownBrokers):
        return [BrokerView("b1", "b1:1", "", 1, True, 1)]
    if isinstance(call, AskRaftLeader):
        asked = call.message(100)
        assert isinstance(asked, SurveyGroups)
        left = [each for each in GROUPS if each.summary.name > asked.after]
        return GroupsSurveyed(0, left[:2], len(left) > 2), []
    assert isinstance(call, AskNode)
    assert call.endpoint == "b1:1"
    if isinstance(call.message, SurveyQueues):
        rest = [each for each in QUEUES if (each.topic_id, each.queue) > call.message.after]
        reached = (rest[1].topic_id, rest[1].queue) if len(rest) > 2 else None
        return QueuesSurveyed(0, rest[:2], reached), []
    assert isinstance(call.message, FindAppendTimes)
    assert len(call.message.places) <= MAX_PLACES
    return AppendTimesFound(0, [place[2] for place in call.message.places[:30]]), []


def test_all_pages_are_joined() -> None:
    assert run_flow(survey_flows.survey_groups(1.0), answer) == GROUPS
    assert run_flow(survey_flows.survey_queues("b1", 1.0), answer) == QUEUES


def test_what_an_answer_left_out_is_asked_again() -> None:
    places = [(1, 0, offset) for offset in range(-1, 250)]
    found = run_flow(survey_flows.append_times("b1", places, 1.0), answer)
    assert found == [None, *range(250)]
    assert run_flow(survey_flows.append_times("b1", [], 1.0), answer) == []


def test_an_unknown_broker_is_named() -> None:
    with pytest.raises(UnknownResource, match="'b9'"):
        run_flow(survey_flows.survey_queues("b9", 1.0), answer)
