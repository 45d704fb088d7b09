"""ISR changes: one AlterIsr at a time, and no second change of a queue before the first is known."""

from __future__ import annotations

from logboom.nodes.log.keys import Position
from logboom.wire.commands import AlterIsr
from logboom.wire.frames import encode
from logboom.wire.messages import Heartbeat, HeartbeatGranted
from tests.unit.nodes.rig import ME, Rig, batch, fetch, produce

ALL = (ME, "broker-2", "broker-3")


def change(rig: Rig) -> list[list[str]]:
    """The ISRs that the oldest proposal asks for."""
    command = rig.commands[0][1]
    assert isinstance(command, AlterIsr)
    return [[broker for broker, _ in change.isr] for change in command.changes]


def test_wishes_of_one_moment_go_into_one_command() -> None:
    rig = Rig()
    rig.lead(isr=(ME, "broker-2"), replicas=ALL, queues=3)
    places = [(Position(0), -1)] * 3
    rig.follower("broker-3").ask(fetch(0, *places, broker="broker-3"))
    assert len(rig.commands) == 1
    assert change(rig) == [[ME, "broker-2", "broker-3"]] * 3


def test_no_second_change_while_the_first_is_under_way() -> None:
    rig = Rig()
    rig.lead(isr=(ME,), replicas=ALL)
    rig.follower("broker-3").ask(fetch(0, (Position(0), -1), broker="broker-3"))
    rig.follower().ask(fetch(0, (Position(0), -1)))
    assert len(rig.commands) == 1
    assert change(rig) == [[ME, "broker-3"]]
    rig.decide(value=[""])
    rig.lead(isr=(ME, "broker-3"), replicas=ALL)
    rig.settle(0.6)
    assert change(rig) == [[ME, "broker-3", "broker-2"]]


def test_a_refused_growth_is_tried_again_though_the_follower_says_nothing_new() -> None:
    rig = Rig()
    rig.lead(isr=(ME, "broker-2"), replicas=ALL)
    three = rig.follower("broker-3")
    three.ask(fetch(0, (Position(0), -1), broker="broker-3"))
    rig.decide(value=["FENCED"])
    rig.lead(isr=(ME, "broker-2"), replicas=ALL)
    assert rig.commands == []
    for number in range(1, 4):
        three.ask(fetch(number, broker="broker-3", wait_ms=300))
        rig.settle(0.4)
    assert change(rig) == [[ME, "broker-2", "broker-3"]]


def test_a_member_that_is_silent_for_three_seconds_leaves() -> None:
    rig = Rig()
    rig.lead(isr=ALL, replicas=ALL)
    two = rig.follower()
    two.ask(fetch(0, (Position(0), -1)))
    for number in range(1, 9):
        two.ask(fetch(number, wait_ms=400))
        rig.settle(0.5)
    assert change(rig) == [[ME, "broker-2"]]


def test_who_left_as_slow_comes_back_once_it_has_everything() -> None:
    """Two copies are asked for and it is the second: the HW stands where it left."""
    both = ALL[:2]
    rig = Rig()
    rig.lead(isr=both, replicas=both)
    client, two = rig.client(), rig.follower()
    two.ask(fetch(0, (Position(0), -1)))
    taken = number = 0
    while not rig.commands:
        for _ in range(5):
            client.ask(produce("leader"), [batch()])
        taken, number = taken + 1, number + 1
        two.ask(fetch(number, (Position(taken), 1), wait_ms=100))
        rig.settle(0.2)
    assert change(rig) == [[ME]]
    rig.decide(value=[""])
    rig.lead(isr=(ME,), replicas=both)
    end = rig.replica().end.offset
    assert rig.replica().hw == Position(taken)
    while taken < end:
        assert rig.commands == []
        taken, number = taken + 1, number + 1
        two.ask(fetch(number, (Position(taken), 1), wait_ms=100))
        rig.settle(0.2)
    assert change(rig) == [[*both]]


def test_an_append_after_idleness_removes_nobody() -> None:
    """It comes in the turn that looks for slow members: nobody could answer yet."""
    both = ALL[:2]
    rig = Rig()
    rig.lead(isr=both, replicas=both)
    client, two = rig.client(), rig.follower()
    two.ask(fetch(0, (Position(0), -1)))
    for number in range(1, 20):
        two.ask(fetch(number, wait_ms=400))
        rig.settle(0.5)
    rig.mono = max(rig.mono, rig.broker.parts.maintenance.next_at)
    client.ask(produce(), [batch()])
    assert rig.commands == []


def test_a_removed_member_counts_until_the_removal_is_known() -> None:
    rig = Rig()
    rig.lead(isr=ALL, replicas=ALL)
    client, two = rig.client(), rig.follower()
    client.ask(produce(), [batch()])
    two.ask(fetch(0, (Position(1), 1)))
    number = 1
    while not rig.commands:
        two.ask(fetch(number, wait_ms=400))
        rig.settle(0.5)
        number += 1
    assert rig.replica().hw == Position(0)
    rig.decide(value=[""])
    rig.lead(isr=(ME, "broker-2"), replicas=ALL)
    assert rig.replica().hw == Position(1)


def test_a_loop_that_was_away_blames_nobody() -> None:
    rig = Rig()
    rig.lead(isr=ALL, replicas=ALL)
    for name in ALL[1:]:
        rig.follower(name).ask(fetch(0, (Position(0), -1), broker=name))
    # Stopped for a minute, and then the first turn.
    rig.mono += 60.0
    rig.turn()
    assert rig.commands == []
    assert rig.broker.stats.counters["absences"] == 1


def test_an_absence_is_given_back_and_no_more() -> None:
    rig = Rig()
    rig.lead(isr=ALL, replicas=ALL)
    two = rig.follower()
    two.ask(fetch(0, (Position(0), -1)))
    for number in range(1, 6):
        two.ask(fetch(number, wait_ms=400))
        rig.settle(0.5)
    # broker-3 has been silent for 2.5 s; then this loop is stopped for 1.6 s.
    rig.mono += 1.6
    rig.turn()
    assert rig.broker.stats.counters["absences"] == 1
    assert rig.commands == []
    for number in range(6, 9):
        two.ask(fetch(number, wait_ms=400))
        rig.settle(0.5)
    assert change(rig) == [[ME, "broker-2"]]


def test_the_name_server_is_told_who_is_silent_of_those_that_follow() -> None:
    rig = Rig()
    rig.lead(isr=ALL, replicas=ALL)
    two, three = rig.follower(), rig.follower("broker-3")
    two.ask(fetch(0, (Position(0), -1)))
    three.ask(fetch(0, (Position(0), -1), broker="broker-3"))
    told: list[list[str]] = []
    rig.granting = False
    for number in range(1, 5):
        two.ask(fetch(number, wait_ms=400))
        rig.settle(0.5)
        if rig.ns.count(Heartbeat):
            beat = rig.ns.take(Heartbeat)
            told.append(beat.unheard)
            rig.reply(beat, HeartbeatGranted(0, 2_000, rig.version))
    assert (told[0], told[-1]) == ([], ["broker-3"])


def test_more_changes_than_a_command_has_room_for_go_in_parts() -> None:
    rig = Rig()
    queues = 1_000
    rig.lead(isr=(ME, "broker-2"), replicas=ALL, queues=queues)
    places = [(Position(0), -1)] * queues
    rig.follower("broker-3").ask(fetch(0, *places, broker="broker-3"))
    grown = 0
    while rig.commands:
        assert len(encode(rig.commands[0][0])[0]) < 60 * 1024
        count = len(change(rig))
        grown += count
        rig.decide(value=[""] * count)
    assert grown == queues
