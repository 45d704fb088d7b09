"""Where a group starts in queues that it never had (Q8, Q11, SetStart)."""

from __future__ import annotations

from typing import Literal

import pytest

from logboom.wire.errors import Unavailable
from logboom.wire.group_commands import AlterGroup, SetStart
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import (
    OffsetForTime,
    OffsetForTimeResult,
    Offsets,
    OffsetsResult,
    Produced,
)
from tests.unit.nodes.groups.group_rig import GROUP, GroupRig
from tests.unit.nodes.rig import ME, batch, produce


def filled(brokers: int = 1, counts: tuple[int, ...] = (5, 0, 7)) -> GroupRig:
    """Topic "flights" with messages in the queues that this broker leads."""
    rig = GroupRig(len(counts), brokers)
    client = rig.client("producer")
    for queue, count in enumerate(counts):
        if rig.state.cluster.topics["flights"].queues[queue].standing.leader != ME:
            continue
        for _ in range(count):
            client.ask(produce(queue=queue), [batch()])
            rig.settle()
            assert isinstance(client.answer(), Produced)
    return rig


def at(start: Literal["first", "last"] | int) -> GroupConfig:
    """Settings of a group that starts there."""
    return GroupConfig(start=start)


def test_the_end_of_own_queues_is_known_at_once() -> None:
    rig = filled()
    member = rig.join("a", config=at("last"))
    rig.settle(0.1)
    member.beat()
    assert {number: queue.start for number, queue in member.queues.items()} == {0: 5, 1: 0, 2: 7}


def test_the_first_messages_need_no_asking() -> None:
    rig = filled()
    member = rig.join("a", config=at("first"))
    member.beat()
    assert {number: queue.start for number, queue in member.queues.items()} == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize(("time_ms", "start"), [(0, 0), (1 << 60, 5)])
def test_a_time_is_looked_up(time_ms: int, start: int) -> None:
    rig = filled()
    member = rig.join("a", config=at(time_ms))
    rig.settle(0.1)
    member.beat()
    assert member.queues[0].start == start


def test_other_leaders_are_asked_until_they_know() -> None:
    """Q8: a new leader does not say where its queue ends before it knows."""
    rig = filled(brokers=2, counts=(4, 4))
    rig.coordinate_or_create(at("last"))
    leaders = [q.standing.leader for q in rig.state.cluster.topics["flights"].queues]
    there = leaders.index("broker-2")
    station = rig.stations["b2:7711"]
    member = rig.join("a")
    rig.settle(0.05)
    asked = station.take(Offsets)
    assert (asked.queues, asked.topic) == ([there], "flights")
    rig.refuse(asked, Unavailable("a new leader"), "b2:7711")
    rig.settle(0.05)
    assert not station.count(Offsets)
    rig.settle(0.1)
    rig.reply(station.take(Offsets), OffsetsResult(0, [(3, 44)]), endpoint="b2:7711")
    rig.settle(0.05)
    member.beat()
    assert member.queues[there].start == 44


def test_a_leader_that_says_nothing_is_asked_again() -> None:
    rig = filled(brokers=2, counts=(4, 4))
    rig.coordinate_or_create(at(5))
    station = rig.stations["b2:7711"]
    rig.join("a")
    rig.settle(0.05)
    first = station.take(OffsetForTime)
    assert first.timestamp_ms == 5
    rig.settle(2.5)
    again = station.take(OffsetForTime)
    assert again.id != first.id
    # The late answer to the first is dropped (Q5).
    rig.reply(first, OffsetForTimeResult(0, 99, 5), endpoint="b2:7711")
    rig.reply(again, OffsetForTimeResult(0, 3, 5), endpoint="b2:7711")
    rig.settle(0.1)
    assert rig.committed(first.queue) == 3


def test_a_start_whose_proposal_is_refused_is_said_again() -> None:
    rig = filled()
    rig.deciding = False
    member = rig.client()
    from_member = rig.member("a")
    member.ask(from_member.joining(config=at("last")))
    while not any(isinstance(command, SetStart) for _, command in rig.commands):
        rig.decide_next()
        rig.settle(0.01)
    message, _ = next(each for each in rig.commands if isinstance(each[1], SetStart))
    rig.commands = [each for each in rig.commands if each[0] is not message]
    rig.answer_refused(message, "NOT_COORDINATOR")
    rig.deciding = True
    rig.decide_all()
    rig.settle(1.0)
    assert [rig.committed(queue) for queue in range(3)] == [5, 0, 7]


def test_queues_that_come_later_begin_at_their_first_message() -> None:
    rig = filled()
    member = rig.join("a", subscription={"flights": "*", "later": "*"}, config=at("last"))
    rig.settle(0.1)
    rig.create("later", 2)
    rig.settle(0.1)
    told = member.beat()
    assert told is not None
    assert {q.start for q in told.queues if told.topics[q.topic_id] == "later"} == {0}


def test_who_begins_to_coordinate_finishes_what_was_begun() -> None:
    rig = filled(brokers=2, counts=(4, 4))
    rig.done(AlterGroup(GROUP, at("last"), {"flights": "*"}, True, 0))
    rig.coordinate()
    rig.settle(0.1)
    station = rig.stations["b2:7711"]
    while station.count(Offsets):
        rig.reply(station.take(Offsets), OffsetsResult(0, [(0, 4)]), endpoint="b2:7711")
    rig.settle(0.2)
    assert not rig.group.unstarted
