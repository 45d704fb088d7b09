"""What each request needs: every type has an entry, and each entry asks for the right thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from logboom.wire import access_requirements
from logboom.wire.acceptor import CLIENT_COMMANDS, OPERATOR_COMMANDS
from logboom.wire.access import access_commands
from logboom.wire.access.access_book import MAX_CACHED_NAME
from logboom.wire.access.access_rules import KINDS, VERBS_OF, AccessRule, Quota, UserKey
from logboom.wire.access_requirements import (
    ADMIN,
    COMMANDS,
    NOBODY,
    NODES,
    REQUESTS,
    Requirement,
    half_requirements,
    requirements_by_id,
)
from logboom.wire.backup_messages import FetchEntries, ReadState, RestoreEntries
from logboom.wire.base import Request
from logboom.wire.commands import (
    AlterTopic,
    AnyCommand,
    Barrier,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    RemoveBroker,
)
from logboom.wire.copy_receipts import SignCopies
from logboom.wire.group_commands import AlterGroup, DeleteGroup, JoinGroup, ResetOffsets
from logboom.wire.group_messages import (
    GroupCommit,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupRelease,
    GroupStatus,
)
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import (
    NODES_ONLY,
    OPERATORS_ONLY,
    AnyMessage,
    DescribeAccess,
    DescribeConfig,
    DescribeGroup,
    DescribeVersions,
    FinalizeUpgrade,
    FindKey,
    Hello,
    KickConnection,
    ListConnections,
    ListGroups,
    OffsetForTime,
    Offsets,
    Ping,
    Produce,
    Prove,
    Pull,
    RaftFrame,
    RemoveNameServer,
    Stats,
    Watch,
)
from logboom.wire.operation_messages import DescribeCluster, PlanBalance
from logboom.wire.parking import ListDelayed, Recall
from logboom.wire.subscription_messages import (
    AlterSubscription,
    DescribeSubscriptions,
    Detach,
    MakeRetryTopics,
    Receive,
    SettleMessages,
    Subscribe,
    SubscriptionConfig,
)
from logboom.wire.survey_messages import FindAppendTimes, SurveyGroups, SurveyQueues
from logboom.wire.transactions import (
    HALF,
    MADE_UP,
    AwaitDecided,
    CheckHalves,
    CheckParked,
    ConsumedOffset,
    Decide,
    EndHalf,
    ListUndecided,
    OpenApplication,
    ParkedBatches,
    TransactionId,
    TransactionOffsetCommit,
)
from logboom.wire.view import TopicConfig

PAGE = Path(__file__).parents[3] / "docs" / "SECURITY.md"
CONNECTION = {Hello, Prove, Ping, RaftFrame}
"""Requests without a timeout, or without an answer."""
NOTHING: list[Requirement] = []
BILLING = TransactionId("billing", 1, 1)
OWN = TransactionId(MADE_UP + "7", 1, 1)


def on_topic(verb: Any, instead: Any = None, name: str = "t") -> Requirement:
    return Requirement(verb, "topic", name, instead)


def on_group(verb: Any, *, creates: bool = False) -> Requirement:
    return Requirement(verb, "group", "g", None, creates)


def on_subscription(verb: Any, *, creates: bool = False) -> Requirement:
    return Requirement(verb, "subscription", "t/s", None, creates)


def on_billing(instead: Any = None) -> Requirement:
    return Requirement("write", "transaction", "billing", instead, creates=True)


def _of_dead_letters(verb: Any) -> Requirement:
    return Requirement(verb, "topic", "%DLQ%g")


def subscribed(name: str) -> Requirement:
    return Requirement("read", "topic", name, None, creates=True)


USES_SUBSCRIPTION = [on_topic("read"), on_subscription("read")]
OVER_THE_CLUSTER = Requirement("admin", "cluster", "cluster")
REQUEST_EXAMPLES: list[tuple[Any, list[Requirement]]] = [
    (Produce(1, 0, "t", 0, "all"), [on_topic("write")]),
    (Produce(1, 0, "t", 0, "all", transaction=BILLING), [on_topic("write"), on_billing()]),
    (Produce(1, 0, "t", 0, "all", transaction=OWN), [on_topic("write")]),
    (Pull(1, 0, "t", 0, 0, 1, 0), [on_topic("read")]),
    (Pull(1, 0, "t", 0, 0, 1, 0, group="g"), [on_topic("read"), on_group("read")]),
    (Offsets(1, 0, "t", [0]), [on_topic("describe")]),
    (OffsetForTime(1, 0, "t", 0, 0), [on_topic("describe")]),
    (FindKey(1, 0, "t", 0, 0, 0, 1), [on_topic("read")]),
    (Recall(1, 0, "t", 0, 0, 0), [on_topic("write", "manage")]),
    (Recall(1, 0, "%RETRY%g", 0, 0, 0), [Requirement("manage", "topic", "%RETRY%g")]),
    (SignCopies(1, 0, "t", 0, "g", [0]), [on_topic("read"), on_group("read")]),
    (SignCopies(1, 0, "t", 0, "t%s", [0]), [on_topic("read"), on_subscription("read")]),
    (SignCopies(1, 0, "%DLQ%g", 0, "g", [0]), [_of_dead_letters("read"), on_group("read")]),
    (SignCopies(1, 0, "%DLQ%g", 0, "g", [0], True), [_of_dead_letters("manage")]),
    (ListDelayed(1, 0, "t"), NOTHING),
    (Watch(1, 0, -1, None, 0), NOTHING),
    (ListGroups(1, 0), NOTHING),
    (DescribeGroup(1, 0, "g"), [on_group("describe")]),
    (DescribeAccess(1, 0, "bob"), NOTHING),
    (RemoveNameServer(1, 0, "name-1"), [OVER_THE_CLUSTER]),
    (DescribeVersions(1, 0), [Requirement("describe", "cluster", "cluster")]),
    (FinalizeUpgrade(1, 0, 1), [OVER_THE_CLUSTER]),
    (Stats(1, 0), [Requirement("describe", "cluster", "cluster")]),
    (ListConnections(1, 0), [Requirement("describe", "cluster", "cluster")]),
    (DescribeConfig(1, 0), [Requirement("describe", "cluster", "cluster")]),
    (DescribeCluster(1, 0), [Requirement("describe", "cluster", "cluster")]),
    (PlanBalance(1, 0), [Requirement("describe", "cluster", "cluster")]),
    (KickConnection(1, 0, "10.0.0.9:41544"), [Requirement("admin", "cluster", "cluster")]),
    (
        GroupJoin(1, 0, "g", "m", "", "", {"a": "", "b": ""}, False, GroupConfig()),
        [on_group("read", creates=True), subscribed("a"), subscribed("b")],
    ),
    (GroupHeartbeat(1, 0, "g", "m", 1, -1, 0), [on_group("read")]),
    (GroupRelease(1, 0, "g", "m", 1, []), [on_group("read")]),
    (GroupCommit(1, 0, "g", "m", 1, []), [on_group("read")]),
    (GroupLeave(1, 0, "g", "m", 1, []), [on_group("read")]),
    (GroupStatus(1, 0, "g"), [on_group("describe")]),
    (AwaitDecided(1, 0, "t", 0, 1), [on_topic("describe")]),
    (
        CheckParked(1, 0, "t", 0, BILLING, []),
        [on_topic("write", "manage"), on_billing("manage")],
    ),
    (CheckParked(1, 0, "t", 0, BILLING, [], 0, 1), [on_topic("write"), on_billing()]),
    (CheckParked(1, 0, "t", 0, OWN, [], 0, 1), [on_topic("write")]),
    (EndHalf(1, 0, "t", 0, 0, 0, True), [on_topic("write", "manage")]),
    (CheckHalves(1, 0, "billing", 0), [on_billing()]),
    (ListUndecided(1, 0, "billing"), NOTHING),
    (SurveyQueues(1, 0), NOTHING),
    (SurveyGroups(1, 0), NOTHING),
    (FindAppendTimes(1, 0, [(1, 0, 0)]), NOTHING),
    (
        Subscribe(1, 0, "t", 0, "s", "c", 1, SubscriptionConfig()),
        [on_topic("read"), on_subscription("read", creates=True)],
    ),
    (
        Subscribe(1, 0, "t", 0, "s", "c", 1, SubscriptionConfig(), create=False),
        USES_SUBSCRIPTION,
    ),
    (Receive(1, 0, "t", 0, "s", "c", 1, 1, 1, 1, 0), USES_SUBSCRIPTION),
    (SettleMessages(1, 0, "t", 0, "s", "c", 1, []), USES_SUBSCRIPTION),
    (Detach(1, 0, "t", 0, "s", "c", 1), USES_SUBSCRIPTION),
    (MakeRetryTopics(1, 0, "t", 0, "s"), USES_SUBSCRIPTION),
    (
        AlterSubscription(1, 0, "t", 0, "s", "end"),
        [on_topic("describe"), on_subscription("manage")],
    ),
    (DescribeSubscriptions(1, 0, "t", 0), [on_topic("describe")]),
    (
        DescribeSubscriptions(1, 0, "t", 0, "s"),
        [on_topic("describe"), on_subscription("describe")],
    ),
    (ReadState(1, 0), [OVER_THE_CLUSTER]),
    (FetchEntries(1, 0, "t", 0, 1, -1, 0, -1, 0, -1), [OVER_THE_CLUSTER]),
    (RestoreEntries(1, 0, "t", 0, 1, "b", 0, 0), [OVER_THE_CLUSTER]),
]
OFFSETS = TransactionOffsetCommit("g", "", 0, [ConsumedOffset(7, 0, 0, 1, 1)])


def decide(*, commit: bool, app_id: str = "billing") -> Decide:
    return Decide(app_id, 0, 1, 1, commit, [ParkedBatches(5, 0, [(1, 1)])], [OFFSETS], 0)


COMMAND_EXAMPLES: list[tuple[Any, list[Requirement]]] = [
    (Barrier(), NOTHING),
    (RemoveBroker("broker-1"), [OVER_THE_CLUSTER]),
    (
        CreateTopic("t", 1, 0, TopicConfig(), 0),
        [Requirement("manage", "topic", "t", creates=True)],
    ),
    (CreateTopic("%RETRY%t%s", 1, 0, TopicConfig(), 0), [subscribed("%RETRY%t%s")]),
    (
        CreateTopic("%RETRY%g", 1, 0, TopicConfig(), 0),
        [Requirement("manage", "topic", "%RETRY%g", creates=True)],
    ),
    (AlterTopic("t", 2, None, 0), [on_topic("manage")]),
    (DeleteTopic("t", 0), [on_topic("manage")]),
    (ElectLeader("t", 0, None, 0), [on_topic("manage")]),
    (ResetOffsets("g", [(5, 0, 1)], 0), [on_group("manage")]),
    (AlterGroup("g", None, None, False, 0), [on_group("manage")]),
    (
        AlterGroup("g", None, {"a": ""}, True, 0),
        [on_group("manage", creates=True), subscribed("a")],
    ),
    (DeleteGroup("g", 0), [on_group("manage")]),
    (OpenApplication("billing", 0), [on_billing()]),
    (OpenApplication(MADE_UP + "7", 0), NOTHING),
    (decide(commit=True), [on_billing(), on_group("read")]),
    (decide(commit=False), [on_billing("manage"), on_group("read")]),
    (decide(commit=True, app_id=MADE_UP + "7"), [on_group("read")]),
    (access_commands.CreateUser("u", [], [], 0), [OVER_THE_CLUSTER]),
    (access_commands.AddUserKey("u", UserKey("k", "", 0)), [OVER_THE_CLUSTER]),
    (
        access_commands.AddRule("user:u", AccessRule(True, "read", "topic", "*")),
        [OVER_THE_CLUSTER],
    ),
    (access_commands.SetDefaultQuota(Quota()), [OVER_THE_CLUSTER]),
]


def test_every_request_says_what_it_needs() -> None:
    asked = {each for each in get_args(AnyMessage) if issubclass(each, Request)}
    assert set(REQUESTS) == asked | CONNECTION, "give a new request an entry in REQUESTS"


def test_every_command_says_what_it_needs() -> None:
    made = {*get_args(AnyCommand), *get_args(access_commands.AccessCommand)}
    assert set(COMMANDS) == made, "give a new command an entry in COMMANDS"


@pytest.mark.parametrize(
    ("message", "needs"), REQUEST_EXAMPLES, ids=lambda each: type(each).__name__
)
def test_a_request_needs(message: Any, needs: list[Requirement]) -> None:
    rule = REQUESTS[type(message)]
    assert rule.needs is not None
    assert list(rule.needs(message)) == needs


@pytest.mark.parametrize(
    ("command", "needs"), COMMAND_EXAMPLES, ids=lambda each: type(each).__name__
)
def test_a_command_needs(command: Any, needs: list[Requirement]) -> None:
    rule = COMMANDS[type(command)]
    assert rule.needs is not None
    assert list(rule.needs(command)) == needs


def test_every_request_that_needs_something_of_its_own_has_an_example() -> None:
    shared = {id(ADMIN.needs), id(REQUESTS[Watch].needs), id(REQUESTS[Hello].needs)}
    own = {
        t
        for t, rule in {**REQUESTS, **COMMANDS}.items()
        if rule.needs and id(rule.needs) not in shared
    }
    shown = {type(each) for each, _ in REQUEST_EXAMPLES + COMMAND_EXAMPLES}
    assert {each.__name__ for each in own - shown} == {"Propose"}


def test_a_half_message_is_of_its_producer_group() -> None:
    half = Produce(1, 0, "t", 0, "all", transaction=TransactionId("billing", HALF, 0))
    rule = REQUESTS[Produce].needs
    assert rule is not None
    assert on_billing() in rule(half)
    assert list(half_requirements("billing")) == [on_billing("manage")]


def test_names_that_nothing_can_have_are_not_remembered() -> None:
    remembered = access_requirements._remembered  # noqa: SLF001 - the memory is inside
    remembered.cache_clear()
    name = "x" * (MAX_CACHED_NAME + 1)
    rules: list[tuple[Any, Any]] = [
        (COMMANDS[DeleteTopic], DeleteTopic(name, 0)),
        (REQUESTS[GroupJoin], GroupJoin(1, 9, name, "m", "", "", {name: ""}, False, GroupConfig())),
    ]
    for rule, asked in rules:
        assert {each.name for each in rule.needs(asked)} == {name}
    assert remembered.cache_info().currsize == 0
    rules[0][0].needs(DeleteTopic(name[1:], 0))
    assert remembered.cache_info().currsize == 1


def test_topics_that_a_command_names_by_id() -> None:
    reset = ResetOffsets("g", [(5, 0, 1), (5, 1, 1), (6, 0, 1)], 0)
    assert list(requirements_by_id(reset)) == [(5, "describe", None), (6, "describe", None)]
    assert list(requirements_by_id(decide(commit=True))) == [(5, "write", None), (7, "read", None)]
    assert list(requirements_by_id(decide(commit=False))) == [
        (5, "write", "manage"),
        (7, "read", None),
    ]
    assert list(requirements_by_id(Barrier())) == []


def test_only_verbs_that_mean_something_are_asked_for() -> None:
    asked = [each for _, needs in REQUEST_EXAMPLES + COMMAND_EXAMPLES for each in needs]
    for verb, kind, _, instead, _ in asked:
        assert kind in KINDS
        assert verb in VERBS_OF[kind]
        assert instead is None or instead in VERBS_OF[kind]


def test_an_open_listener_and_one_with_keys_draw_the_same_lines() -> None:
    assert {each for each, rule in REQUESTS.items() if rule is NODES} == set(NODES_ONLY)
    assert {each for each, rule in REQUESTS.items() if rule is ADMIN} == set(OPERATORS_ONLY)
    known = {each: rule for each, rule in COMMANDS.items() if each in get_args(AnyCommand)}
    assert {each for each, rule in known.items() if rule is ADMIN} == set(OPERATOR_COMMANDS)
    assert {each for each, rule in known.items() if rule.needs and rule is not ADMIN} == set(
        CLIENT_COMMANDS
    )
    assert COMMANDS[JoinGroup] is NODES
    assert COMMANDS[access_commands.AdmitInitialUsers] is NOBODY


def printed() -> dict[str, str]:
    """Type → what it needs, as the page prints them."""
    found = {}
    chapter = PAGE.read_text("utf-8").split("## What each request needs", 1)[1].split("\n## ", 1)[0]
    for line in chapter.splitlines():
        if line.startswith("| `"):
            names, needs = line.strip("| ").split(" | ")
            found.update({name.strip("` "): needs for name in names.split(",")})
    return found


def test_the_page_prints_what_each_request_and_command_needs() -> None:
    rules = {**REQUESTS, **COMMANDS}
    assert printed() == {str(t.__struct_config__.tag): rule.says for t, rule in rules.items()}
