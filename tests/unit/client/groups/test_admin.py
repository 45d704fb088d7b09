"""Lag, resets and settings of groups: flows driven by a small cluster of words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from logboom.client.admin_flows.group_flows import alter_group, delete_group, describe_group, groups
from logboom.client.admin_flows.offset_resets import (
    OffsetReset,
    ResetRequest,
    Target,
    parse_offsets,
    reset_offsets,
)
from logboom.client.calls import (
    AskLeader,
    AskNode,
    AskRaftLeader,
    FindTopic,
    LoadMetadata,
    ProposeCommand,
)
from logboom.client.flows import Flow, run_flow
from logboom.client.groups.offset_tracker import OffsetTracker
from logboom.console.consumer_survey import lags_of
from logboom.console.exporter.exporter_sample import KnownQueue, group_backlogs
from logboom.console.pages.topic_page import build_topic_groups
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch, open_batch, stamp
from logboom.wire.commands import AnyCommand, Barrier, CommandResult
from logboom.wire.errors import (
    InvalidFilter,
    InvalidRequest,
    LogboomError,
    TimedOut,
    UnknownResource,
)
from logboom.wire.filters import Filter
from logboom.wire.group_commands import AlterGroup, DeleteGroup, ResetOffsets
from logboom.wire.group_messages import GroupStatus, GroupStatusResult, MemberStatus, QueueStatus
from logboom.wire.group_view import (
    UNKNOWN_START,
    GroupConfig,
    GroupOffsets,
    GroupSummary,
    GroupView,
    MemberView,
    OwnedQueue,
    StrategyOptions,
)
from logboom.wire.messages import (
    DescribeGroup,
    GroupDescribed,
    GroupsListed,
    ListGroups,
    OffsetForTime,
    OffsetForTimeResult,
    Offsets,
    OffsetsResult,
    Pull,
    Pulled,
    PullStatus,
)
from logboom.wire.survey_messages import GroupSurvey, QueueSurvey
from logboom.wire.view import BrokerView, NameServerView, QueueView, TopicConfig, TopicView, View

T = TypeVar("T")
NOW = 1_000_000
QUEUE = QueueView([], None, 1, 1, [], [])


class Words:
    """A cluster that answers calls: topics with their messages, one group, its coordinator."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {"orders": 1}
        self.logs: dict[tuple[str, int], tuple[int, list[bytes]]] = {}
        """By queue: (first offset, batches)."""
        self.config = GroupConfig()
        self.subscription: dict[str, str] = {"orders": "*"}
        self.committed: dict[str, list[int]] = {}
        self.ranges: dict[str, list[tuple[int, bytes]]] = {}
        self.members: list[MemberView] = []
        self.unstarted: list[tuple[int, int]] = []
        self.others: dict[str, list[GroupOffsets]] = {}
        self.status: list[MemberStatus] | LogboomError = []
        self.proposed: list[AnyCommand] = []
        self.result = CommandResult(9)
        self.down: set[tuple[str, int]] = set()
        self.leader = "name-1"
        self.asked: list[str] = []
        self.pulls = 0

    def store(self, topic: str, queue: int, *batches: bytes, first: int = 0) -> None:
        """What a queue holds."""
        stamped, at = [], first
        for each in batches:
            stamped.append(stamp(each, at, 1, 1))
            at = open_batch(stamped[-1]).next_offset
        self.logs[topic, queue] = (first, stamped)

    def bounds(self, topic: str, queue: int) -> tuple[int, int]:
        """First offset and end."""
        first, batches = self.logs.get((topic, queue), (0, []))
        return first, open_batch(batches[-1]).next_offset if batches else first

    def drive(self, flow: Flow[T]) -> T:
        """Run a flow to its end."""
        return run_flow(flow, self.answer)

    def answer(self, call: Any) -> Any:
        """One call."""
        match call:
            case LoadMetadata():
                return self.view()
            case FindTopic(topic=name) if name in self.topics:
                return self.topic(name)
            case FindTopic(topic=name):
                raise UnknownResource(f"no topic {name}")
            case AskNode(endpoint=endpoint, message=message):
                self.asked.append(endpoint)
                return self.node(endpoint, message), []
            case AskLeader():
                return self.queue(call)
            case AskRaftLeader():
                return self.node(self.leader, call.message(500)), []
            case ProposeCommand(command=Barrier()):
                return self.result
            case ProposeCommand(command=command):
                self.proposed.append(command)
                return self.result
        raise AssertionError(call)

    def topic(self, name: str) -> TopicView:
        """Metadata of a topic."""
        count = max([1, *(queue + 1 for topic, queue in self.logs if topic == name)])
        return TopicView(name, self.topics[name], TopicConfig(), [QUEUE] * count, 1)

    def view(self) -> View:
        """All metadata."""
        brokers = [BrokerView("broker-1", "b1:1", "", 1, True, 1)]
        servers = [NameServerView(f"name-{n}", f"n{n}:1") for n in (1, 2)]
        topics = [self.topic(name) for name in self.topics]
        return View(9, True, "c", brokers, topics, [], [], servers, self.leader)

    def node(self, endpoint: str, message: WireMessage) -> WireMessage:
        """A name server or the coordinator."""
        assert endpoint in (self.leader, "b1:1")
        match message:
            case ListGroups():
                summary = GroupSummary("billing", 1, "clustering", [], 0, "broker-1", 1, 1, "")
                return GroupsListed(0, [summary])
            case DescribeGroup(group=name) if name in self.others:
                return GroupDescribed(0, self.group(name), self.others[name], 9)
            case DescribeGroup(group="billing"):
                return GroupDescribed(0, self.group("billing"), self.offsets(), 9)
            case DescribeGroup(group=name):
                raise UnknownResource(f"no group {name}", "UNKNOWN_GROUP")
            case GroupStatus() if isinstance(self.status, list):
                return GroupStatusResult(0, self.status)
            case GroupStatus() if isinstance(self.status, LogboomError):
                raise self.status
        raise AssertionError(message)

    def group(self, name: str) -> GroupView:
        """The group's head and members."""
        return GroupView(
            name, 1, self.config, self.subscription, 1, "broker-1", 1, 2, 2, "", 9,
            len(self.members), True, self.members, [], self.unstarted,
        )  # fmt: skip

    def offsets(self) -> list[GroupOffsets]:
        """Where it is."""
        return [
            GroupOffsets(
                self.topics[name], name, True, at, [0] * len(at), self.ranges.get(name, [])
            )
            for name, at in self.committed.items()
        ]

    def queue(self, call: AskLeader) -> tuple[WireMessage, list[bytes]]:
        """A queue's leader."""
        message = call.message(500)
        topic, queue = call.topic, call.queue
        if (topic, queue) in self.down:
            raise TimedOut("nobody leads it")
        first, end = self.bounds(topic, queue)
        match message:
            case Offsets():
                return OffsetsResult(0, [(first, end)]), []
            case OffsetForTime(timestamp_ms=time):
                return OffsetForTimeResult(0, first + time, time), []
            case Pull(offset=offset):
                self.pulls += 1
                found = [
                    b for b in self.logs[topic, queue][1] if open_batch(b).next_offset > offset
                ]
                after = open_batch(found[0]).next_offset if found else offset
                status: PullStatus = "FOUND" if found else "NO_NEW_MESSAGE"
                return Pulled(0, status, after, first, end), found[:1]
        raise AssertionError(message)


def values(count: int, time_ms: int = NOW - 5_000, **more: Any) -> bytes:
    """A batch."""
    return encode_batch([b"v"] * count, timestamps_ms=time_ms, now_ms=1, **more)


def member(name: str, *owned: tuple[int, bool]) -> MemberView:
    """A member with these queues of topic 1: (queue, revoking)."""
    queues = [OwnedQueue(1, queue, 5, 0, b"", revoking) for queue, revoking in owned]
    return MemberView(name, 3, f"{name}-client", "", "", 1, queues, 9)


@pytest.fixture
def words() -> Words:
    return Words()


def test_groups_are_asked_of_the_raft_leader(words: Words) -> None:
    words.leader = "name-2"
    assert [group.name for group in words.drive(groups(5.0))] == ["billing"]
    with pytest.raises(UnknownResource) as caught:
        words.drive(describe_group("nobody", NOW, 5.0))
    assert caught.value.code == "UNKNOWN_GROUP"


def test_the_lag_is_what_is_not_finished(words: Words) -> None:
    words.store("orders", 0, values(10, NOW - 9_000), values(10))
    words.store("orders", 1, values(4))
    words.store("orders", 2, values(3), first=7)
    finished = OffsetTracker(10)
    finished.finish(12, 15)
    words.committed["orders"] = [10, 4, 0]
    words.ranges["orders"] = [(0, finished.encode())]
    words.members = [member("m1", (0, False), (1, False), (2, False))]
    found = words.drive(describe_group("billing", NOW, 5.0))
    lines = [(q.queue, q.committed, q.end, q.lag, q.age_ms, q.stuck) for q in found.queues]
    assert lines == [
        (0, 10, 20, 7, 5_000, ""),
        (1, 4, 4, 0, None, ""),
        # What retention took is nobody's to do.
        (2, 0, 10, 3, 5_000, ""),
    ]
    assert all(queue.owner == "m1" for queue in found.queues)
    assert found.members[0].queues == [("orders", 0), ("orders", 1), ("orders", 2)]


def priced(*prices: int) -> bytes:
    """A batch of messages with prices."""
    return values(len(prices), headers=[{"price": b"%d" % price} for price in prices])


def test_the_lag_is_that_of_lists_and_metrics_whatever_the_filter_is(words: Words) -> None:
    words.subscription = {"orders": "* WHERE price > 3"}
    words.store("orders", 0, priced(1, 5, 9), priced(1, 1), priced(7))
    finished = OffsetTracker(2)
    finished.finish(4, 5)
    words.committed["orders"], words.ranges["orders"] = [2], [(0, finished.encode())]
    (queue,) = words.drive(describe_group("billing", NOW, 5.0)).queues
    assert (queue.lag, queue.age_ms, words.pulls) == (3, 5_000, 1)
    summary = GroupSummary("billing", 1, "clustering", ["orders"], 0, "", 1, 1, "")
    offsets = GroupOffsets(1, "orders", True, [2], [6], words.ranges["orders"])
    surveyed = QueueSurvey(1, 0, 0, 6, 100)
    survey = GroupSurvey(summary, [offsets])
    (listed,) = lags_of(survey, {(1, 0): surveyed})
    assert listed.lag == queue.lag
    (metric,) = group_backlogs(survey, {(1, 0): KnownQueue("b", surveyed)})["orders"]
    assert metric.messages == queue.lag
    view = TopicView("orders", 1, TopicConfig(), [QUEUE], 1)
    of_topic = build_topic_groups(view, [survey], {0: (0, 6)}, PageQuery("/t"))
    assert of_topic.table.rows[0].source["lag"] == queue.lag


@pytest.mark.parametrize(
    ("members", "unstarted", "status", "stuck"),
    [
        ([], [], [], "the group has no member"),
        ([member("m1")], [], [], "no member has it"),
        ([member("m1", (0, False))], [(1, 0)], [], "where the group starts here is not known yet"),
        ([member("m1", (0, True))], [], [], "it moves to another member"),
        (
            [member("m1", (0, False))],
            [],
            [MemberStatus("m1", 10, [QueueStatus(1, 0, "handler running", 90_000)])],
            "handler running for 90 s",
        ),
        (
            [member("m1", (0, False))],
            [],
            [MemberStatus("m2", 10, [QueueStatus(1, 0, "paused", 1_000)])],
            "",
        ),
        (
            [member("m1", (0, False))],
            [],
            [MemberStatus("m1", 7_500, [])],
            "its member has been silent for 7.5 s",
        ),
        ([member("m1", (0, False))], [], TimedOut("no answer"), ""),
    ],
)
def test_why_a_queue_is_stuck(
    words: Words,
    members: list[MemberView],
    unstarted: list[tuple[int, int]],
    status: list[MemberStatus] | LogboomError,
    stuck: str,
) -> None:
    words.store("orders", 0, values(3))
    words.committed["orders"] = [0]
    words.members, words.unstarted, words.status = members, unstarted, status
    (queue,) = words.drive(describe_group("billing", NOW, 5.0)).queues
    assert queue.stuck == stuck
    words.committed["orders"] = [3]
    (queue,) = words.drive(describe_group("billing", NOW, 5.0)).queues
    assert queue.stuck == ""


def test_a_paused_group_says_so(words: Words) -> None:
    words.store("orders", 0, values(3))
    words.committed["orders"] = [0]
    words.members, words.config = [member("m1")], GroupConfig(paused=True)
    (queue,) = words.drive(describe_group("billing", NOW, 5.0)).queues
    assert (queue.lag, queue.stuck) == (3, "the group is paused")


def test_what_a_strategy_gives_to_nobody_is_said_even_without_a_lag(words: Words) -> None:
    for queue in range(3):
        words.store("orders", queue, values(3))
    words.committed["orders"] = [3, 3, 3]
    words.members = [member("m1", (0, False))]
    written = {"m1": [("orders", 0)], "m9": [("orders", 1)]}
    words.config = GroupConfig(strategy="by_config", options=StrategyOptions(written))
    found = words.drive(describe_group("billing", NOW, 5.0)).queues
    assert [queue.stuck for queue in found] == [
        "",
        "by_config gives it to 'm9', who is not in the group",
        "by_config gives it to nobody",
    ]
    words.config = GroupConfig(strategy="machine_room", options=StrategyOptions(rooms=["north"]))
    found = words.drive(describe_group("billing", NOW, 5.0)).queues
    assert found[1].stuck == "its leader is in none of the rooms that machine_room consumes: north"


def test_a_queue_without_leader_or_start_has_no_lag(words: Words) -> None:
    words.store("orders", 0, values(3))
    words.store("orders", 1, values(3))
    words.committed["orders"] = [0, UNKNOWN_START]
    words.down.add(("orders", 0))
    first, second = words.drive(describe_group("billing", NOW, 5.0)).queues
    assert (first.end, first.lag, first.stuck) == (None, None, "nobody leads it")
    assert (second.committed, second.end, second.lag) == (None, 3, None)


def test_a_broadcasting_group_has_no_offsets_of_its_own(words: Words) -> None:
    words.config = GroupConfig(mode="broadcasting")
    words.store("orders", 0, values(3))
    words.committed["orders"] = [0]
    (queue,) = words.drive(describe_group("billing", NOW, 5.0)).queues
    assert (queue.committed, queue.end, queue.lag, queue.stuck) == (None, 3, None, "")


def plan(words: Words, *, dry_run: bool = True, **asked: Any) -> list[OffsetReset]:
    """A reset of group billing."""
    return words.drive(reset_offsets(ResetRequest("billing", **asked), NOW, 5.0, dry_run=dry_run))


@pytest.fixture
def two(words: Words) -> Words:
    """Two queues: 5 to 25 at 20, 0 to 8 at 8."""
    words.store("orders", 0, values(20), first=5)
    words.store("orders", 1, values(8))
    words.committed["orders"] = [20, 8]
    return words


@pytest.mark.parametrize(
    ("asked", "targets"),
    [
        ({"to": "first"}, {0: 5, 1: 0}),
        ({"to": "last"}, {0: 25, 1: 8}),
        ({"to": 3}, {0: 8, 1: 3}),
        ({"to": datetime.fromtimestamp(0.002, UTC)}, {0: 7, 1: 2}),
        ({"to": {0: 7}}, {0: 7}),
        ({"to": {("orders", 1): 8}}, {1: 8}),
        ({"to": {0: 2}}, {0: 5}),
        ({"shift": -10}, {0: 10, 1: 0}),
        ({"shift": 100}, {0: 25, 1: 8}),
        ({"from_group": "other"}, {1: 8}),
        ({"listed": {("orders", 0): 6, ("orders", 1): 0}}, {0: 6, 1: 0}),
        ({"to": "first", "topic": "orders", "queues": [1]}, {1: 0}),
    ],
)
def test_a_plan(two: Words, asked: dict[str, Any], targets: dict[int, int]) -> None:
    two.others["other"] = [GroupOffsets(1, "orders", True, [UNKNOWN_START, 99], [0, 0])]
    found = plan(two, **asked)
    assert {line.queue: line.target for line in found} == targets
    assert {line.committed for line in found} <= {20, 8}
    assert two.proposed == []


def test_a_plan_is_carried_out_and_told_queue_by_queue(two: Words) -> None:
    two.result = CommandResult(9, value=["", "UNKNOWN_QUEUE"])
    done = plan(two, to="first", dry_run=False)
    assert two.proposed == [ResetOffsets("billing", [(1, 0, 5), (1, 1, 0)], NOW)]
    assert [line.code for line in done] == ["", "UNKNOWN_QUEUE"]


def test_retries_stay_as_they_are_unless_they_are_named(two: Words) -> None:
    retries = "%RETRY%billing"
    two.topics[retries] = 3
    two.store(retries, 0, values(3))
    two.committed[retries] = [3]
    assert {line.topic for line in plan(two, to="first")} == {"orders"}
    assert {line.topic for line in plan(two, shift=-1)} == {"orders"}
    assert [line.topic for line in plan(two, to="first", topic=retries)] == [retries]
    listed = {(retries, 0): 2, ("orders", 0): 6}
    assert {line.topic: line.target for line in plan(two, listed=listed)} == {
        retries: 2,
        "orders": 6,
    }


def test_a_topic_that_the_group_does_not_read_yet(two: Words) -> None:
    two.topics["flights"] = 2
    two.store("flights", 0, values(3))
    (line,) = plan(two, to="last", topic="flights")
    assert (line.topic, line.committed, line.target) == ("flights", None, 3)
    assert plan(two, shift=-1, topic="flights") == []


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "not nothing"),
        ({"to": "first", "shift": 1}, "to and shift"),
        ({"to": "middle"}, '"first", "last"'),
        ({"to": -1}, '"first", "last"'),
        ({"to": datetime.fromisoformat("2026-01-01")}, "time zone"),
        ({"to": "first", "queues": [1]}, "name it too"),
        ({"to": {0: 26}}, "5 to 25, not 26"),
        ({"to": {7: 0}}, "no queue 7"),
        ({"to": "first", "topic": "orders", "queues": [7]}, "0 to 1, not 7"),
        ({"to": "first", "topic": "nothing"}, "no topic"),
        ({"from_group": "nobody"}, "no group"),
    ],
)
def test_a_wrong_reset_is_refused(two: Words, asked: dict[str, Any], why: str) -> None:
    with pytest.raises((InvalidRequest, UnknownResource), match=why):
        plan(two, dry_run=False, **asked)
    assert two.proposed == []


def test_a_queue_number_needs_its_topic_where_there_are_two(two: Words) -> None:
    two.topics["flights"] = 2
    two.store("flights", 0, values(3))
    two.committed["flights"] = [0]
    to: Target = {0: 1}
    with pytest.raises(InvalidRequest, match="which topic"):
        plan(two, to=to)
    assert [line.topic for line in plan(two, to=to, topic="flights")] == ["flights"]


@pytest.mark.parametrize(
    "content",
    [
        b'[{"topic": "orders", "queue": 1, "offset": 4}]',
        (
            b'{"name": "billing", "queues": [{"topic": "orders", "queue": 1, "committed": 4, "lag": 2},'
            b'{"topic": "orders", "queue": 0, "committed": null}]}'
        ),
    ],
)
def test_offsets_of_a_file(content: bytes) -> None:
    assert parse_offsets(content, "offsets.json") == {("orders", 1): 4}


DEEP = b'{"more": ' + b"[" * 100_000


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b'{"queues": 3}', b'[{"topic": "x"}]', b"\xff", DEEP]
)
def test_a_file_that_is_none_is_named(content: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"offsets\.json is not a list of offsets"):
        parse_offsets(content, "offsets.json")


def altered(words: Words, name: str = "billing", **asked: Any) -> AlterGroup:
    """The command that an alteration comes to."""
    subscription: Mapping[str, str | Filter] | None = asked.pop("subscription", None)
    create = asked.pop("create", False)
    words.drive(alter_group(name, subscription, asked, NOW, 5.0, create=create))
    command = words.proposed[-1]
    assert isinstance(command, AlterGroup)
    return command


def test_settings_and_subscriptions_are_altered(words: Words) -> None:
    assert altered(words, session_ms=30_000) == AlterGroup(
        "billing", GroupConfig(session_ms=30_000), None, False, NOW
    )
    made = altered(words, "new", subscription={"orders": "b||a WHERE x>1"}, create=True, start=5)
    assert made == AlterGroup(
        "new", GroupConfig(start=5), {"orders": "a || b WHERE x > 1"}, True, NOW
    )
    assert altered(words, subscription={"orders": Filter.of("a")}).config is None
    words.drive(delete_group("billing", NOW, 5.0, dead_letters=False))
    assert words.proposed[-1] == DeleteGroup("billing", NOW)
    words.drive(delete_group("billing", NOW, 5.0, dead_letters=True))
    assert words.proposed[-1] == DeleteGroup("billing", NOW, dead_letters=True)


def test_wrong_alterations_are_refused_before_anything_is_asked(words: Words) -> None:
    with pytest.raises(InvalidRequest, match="no group setting is called 'sesion_ms'"):
        altered(words, sesion_ms=1)
    with pytest.raises(InvalidRequest, match="wrong type"):
        altered(words, session_ms="long")
    with pytest.raises(InvalidFilter):
        altered(words, subscription={"orders": "a | b"})
    with pytest.raises(UnknownResource):
        altered(words, "nobody", session_ms=1)
    assert words.proposed == []
