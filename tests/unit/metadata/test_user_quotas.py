"""Quotas of users at a name server: requests beyond them wait, and other users notice nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from logboom.wire.access.access_commands import SetDefaultQuota
from logboom.wire.access.access_rules import Quota
from logboom.wire.base import WireMessage
from logboom.wire.commands import AnyCommand, Barrier, CreateTopic, RemoveBroker
from logboom.wire.group_messages import GroupHeartbeat
from logboom.wire.messages import (
    DescribeGroup,
    Failure,
    ListGroups,
    Ping,
    Pong,
    Propose,
    Stats,
    Throttled,
    Watch,
)
from logboom.wire.view import TopicConfig
from tests.unit.metadata.user_desk import UserDesk

REQUESTS_PER_S = 20
AT_ONCE = 200


def desk_with_quota() -> UserDesk:
    """A name server whose users may make some requests a second."""
    desk = UserDesk()
    desk.propose(SetDefaultQuota(Quota(requests_per_s=REQUESTS_PER_S)))
    return desk


def proposed(command: AnyCommand) -> list[WireMessage]:
    return [Propose(each, 60_000, f"p{each}", 1, command) for each in range(1, AT_ONCE + 1)]


REQUESTS: dict[str, Sequence[WireMessage]] = {
    "barriers": proposed(Barrier()),
    "commands": proposed(CreateTopic("t", 1, 1, TopicConfig(), 0)),
    "refused commands": proposed(RemoveBroker("broker-1")),
    "watches": [Watch(each, 60_000, -1, None, 0) for each in range(1, AT_ONCE + 1)],
    "reads": [ListGroups(each, 60_000) for each in range(1, AT_ONCE + 1)],
    "refused reads": [DescribeGroup(each, 60_000, "g") for each in range(1, AT_ONCE + 1)],
    "what brokers serve": [
        GroupHeartbeat(each, 60_000, "theirs", "m", 1, 1, 0, []) for each in range(1, AT_ONCE + 1)
    ],
    "refused statistics": [Stats(each, 60_000) for each in range(1, AT_ONCE + 1)],
}


def answered(answers: Sequence[WireMessage]) -> int:
    return sum(each.id > 0 and not isinstance(each, Throttled) for each in answers)


@pytest.mark.parametrize("asked", REQUESTS.values(), ids=REQUESTS)
def test_what_is_beyond_the_quota_waits_and_is_answered_all_the_same(
    asked: Sequence[WireMessage],
) -> None:
    desk = desk_with_quota()
    desk.rule("alice", "read", "group", "theirs")
    answers = desk.begin_all("alice", asked)
    assert answered(answers) <= REQUESTS_PER_S + 2
    figures = desk.core.counters()
    assert int(figures["throttled_requests"]) >= AT_ONCE - REQUESTS_PER_S - 2
    desk.run(2)
    assert answered(answers) <= 3 * REQUESTS_PER_S + 2
    assert any(isinstance(each, Throttled) for each in answers), "the client waits on"
    desk.run(AT_ONCE / REQUESTS_PER_S)
    assert answered(answers) == AT_ONCE
    assert not [each for each in answers if isinstance(each, Failure) and each.code == "BUSY"]


def test_other_users_and_nodes_do_not_wait() -> None:
    desk = desk_with_quota()
    desk.create_user("bob")
    desk.begin_all("alice", REQUESTS["barriers"])
    assert answered(desk.begin("bob", Propose(1, 1_000, "", 0, Barrier()))) == 1
    assert desk.propose(Barrier()).code == ""


def test_a_right_that_was_given_meanwhile_counts_for_what_has_waited() -> None:
    desk = desk_with_quota()
    answers = desk.begin_all("alice", REQUESTS["commands"])
    desk.rule("alice", "manage", "topic", "t")
    desk.run(2 * AT_ONCE / REQUESTS_PER_S)
    assert answered(answers) == AT_ONCE
    assert desk.core.cluster.topics["t"].owner == "alice"


def test_pings_beyond_some_a_second_are_not_answered() -> None:
    desk = UserDesk()
    answers = desk.begin_all("alice", [Ping(-each) for each in range(1, AT_ONCE)])
    assert 1 <= sum(isinstance(each, Pong) for each in answers) <= 20
    desk.run(1.1)
    assert isinstance(desk.begin_all("alice", [Ping(-1)])[-1], Pong)
