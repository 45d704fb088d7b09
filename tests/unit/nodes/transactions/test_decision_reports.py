"""What a leader reports of decisions, and whom it answers, whatever goes on meanwhile."""

from __future__ import annotations

import msgspec
import pytest

from logboom.wire.errors import NotLeader
from logboom.wire.messages import Heartbeat, Ok
from logboom.wire.transactions import (
    AppliedDecision,
    AwaitDecided,
    Decide,
    DecisionView,
    ParkedBatches,
    ReportDecided,
)
from logboom.wire.view import QueueView
from tests.unit.nodes.replica.test_parked_queue import pass_time
from tests.unit.nodes.rig import ME, Rig
from tests.unit.nodes.transactions.transactions_rig import abort, alone, commit, park

PAIR = (ME, "broker-2")


def reports(rig: Rig) -> list[list[int]]:
    """The decisions that each report under way names."""
    return [
        [each.number for each in command.done]
        for _, command in rig.commands
        if isinstance(command, ReportDecided)
    ]


def test_few_reports_are_under_way_and_the_rest_shares_the_next() -> None:
    rig, _ = alone()
    for number in range(50, 60):
        rig.announce(*(abort(n, n) for n in range(50, number + 1)))
        rig.settle()
    found: list[list[int]] = []
    for _ in range(10):
        assert len(rig.commands) <= 4
        found += reports(rig)
        for _ in range(len(rig.commands)):
            rig.decide()
        rig.settle(0.6)
    assert len(found) <= 6
    assert [number for each in found for number in each] == list(range(50, 60))
    rig.announce(abort(70, 70))
    rig.settle()
    assert reports(rig) == [[70]]


def test_who_is_fenced_reports_everything_anew_and_nothing_in_its_old_epoch() -> None:
    rig, client = alone()
    place = park(client, b"1")
    decisions = [commit(50, place), *(abort(n, n) for n in range(51, 58))]
    for upto in range(1, len(decisions) + 1):
        rig.announce(*decisions[:upto])
        rig.settle()
    assert 1 <= len(reports(rig)) <= 4
    rig.granting = False
    rig.settle(1.0)
    rig.refuse(rig.ns.take(Heartbeat), NotLeader("fenced", "FENCED"))
    rig.granting = True
    rig.commands.clear()
    rig.settle(0.2)
    rig.lead(epoch=2)
    rig.announce(*decisions)
    # Long enough for whatever is still asked for to be asked again.
    rig.settle(2.0)
    assert {number for each in reports(rig) for number in each} == set(range(50, 58))
    for _, command in rig.commands:
        assert isinstance(command, ReportDecided)
        assert command.instance_epoch == rig.instance_epoch == 2


@pytest.mark.parametrize("gone", [False, True])
def test_a_refused_report_of_a_queue_that_is_led_no_more_is_forgotten(gone: bool) -> None:
    rig, _ = alone()
    rig.announce(abort(50))
    rig.settle()
    if gone:
        rig.publish()
    else:
        rig.lead(epoch=2, leader="broker-2", isr=PAIR, replicas=PAIR)
    assert isinstance(rig.decide("FENCED_BROKER"), ReportDecided)
    rig.settle(2.0)
    assert rig.commands == []


def test_who_waits_for_an_unknown_decision_is_answered_once_it_must_be_known() -> None:
    rig, client = alone()
    assert client.ask(AwaitDecided(0, 60_000, "flights", 0, 90)) == []
    elsewhere = [ParkedBatches(9, 0, [])]
    rig.announce(DecisionView(80, "app", 4, 0, False, elsewhere))
    assert client.taken() == []
    rig.announce(DecisionView(91, "app", 5, 0, False, elsewhere))
    assert isinstance(client.answer(), Ok)


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_queues_only_the_waiters_of_the_lost_one_are_sent_on(first: int) -> None:
    rig = Rig()
    rig.lead(queues=2)
    staying, moved = waiters = rig.client("one"), rig.client("two")
    for queue in (first, 1 - first):
        assert waiters[queue].ask(AwaitDecided(0, 60_000, "flights", queue, 90)) == []
    assert rig.view is not None
    (topic,) = rig.view.topics
    other = QueueView(list(PAIR), "broker-2", 2, rig.version + 1, list(PAIR), [])
    rig.publish(msgspec.structs.replace(topic, queues=[topic.queues[0], other]))
    rig.settle()
    with pytest.raises(NotLeader):
        moved.answer()
    assert staying.taken() == []


def test_one_report_names_the_queues_that_carried_it_out() -> None:
    rig = Rig()
    rig.lead(queues=2)
    queues = [ParkedBatches(1, 0, []), ParkedBatches(1, 1, [])]
    rig.announce(DecisionView(50, "app", 0, 0, False, queues))
    rig.settle()
    done = [each for _, c in rig.commands if isinstance(c, ReportDecided) for each in c.done]
    assert done == [AppliedDecision(50, 1, 0), AppliedDecision(50, 1, 1)]


def test_orphans_share_the_way_and_are_asked_for_again_by_who_was_fenced() -> None:
    rig, client = alone()
    park(client, b"1")
    pass_time(rig, 62_000)
    assert [isinstance(command, Decide) for _, command in rig.commands] == [True]
    rig.granting = False
    rig.settle(1.0)
    rig.refuse(rig.ns.take(Heartbeat), NotLeader("fenced", "FENCED"))
    rig.granting = True
    rig.commands.clear()
    rig.lead(epoch=2)
    pass_time(rig, 2_000)
    assert [isinstance(command, Decide) for _, command in rig.commands] == [True]
