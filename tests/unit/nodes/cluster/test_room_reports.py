"""The name servers hear of a full disk at once, and of room once it has lasted."""

from __future__ import annotations

from logboom.nodes.cluster.room_reports import REPEAT_S, RETRY_S, ROOM_S
from logboom.wire.commands import ReportRoom
from logboom.wire.errors import NotLeader
from logboom.wire.messages import Heartbeat
from tests.unit.nodes.rig import Rig


def told(rig: Rig) -> list[bool]:
    """What was reported since the last look; all of it is decided."""
    found = []
    while rig.commands:
        if isinstance(command := rig.decide(), ReportRoom):
            found.append(command.full)
    return found


def events(rig: Rig) -> list[str]:
    """What it said of its disk."""
    return [note.event for note in rig.notes if note.event.startswith("disk_")]


def a_full_one() -> Rig:
    rig = Rig()
    rig.lead()
    assert told(rig) == []
    rig.storage.full = True
    rig.settle(1.1)
    return rig


def test_a_full_disk_is_reported_without_any_writer_and_noted_once() -> None:
    rig = a_full_one()
    assert told(rig) == [True]
    rig.settle(30.0)
    assert events(rig) == ["disk_full"]
    (note,) = [note for note in rig.notes if note.event == "disk_full"]
    assert "disk is full" in str(note.fields["text"])


def test_a_full_disk_is_reported_again_while_it_lasts_and_no_oftener_than_it_must() -> None:
    rig = a_full_one()
    assert told(rig) == [True]
    for _ in range(3):
        rig.settle(REPEAT_S - 1.0)
        assert told(rig) == []
        rig.settle(1.1)
        assert told(rig) == [True]
    rig.storage.full = False
    rig.settle(ROOM_S + 1.1)
    assert told(rig) == [False]
    rig.settle(30.0)
    assert told(rig) == []


def test_room_is_reported_once_it_has_lasted() -> None:
    rig = a_full_one()
    assert told(rig) == [True]
    rig.storage.full = False
    rig.settle(ROOM_S - 1.5)
    assert told(rig) == []
    # It fills up again meanwhile: nobody hears of the room that there was.
    rig.storage.full = True
    for _ in range(10):
        rig.settle(1.0)
        assert False not in told(rig)
    rig.storage.full = False
    rig.settle(ROOM_S + 1.1)
    assert told(rig) == [False]
    assert events(rig) == ["disk_full", "disk_has_room"] * 2


def test_a_disk_that_is_full_for_a_moment_is_reported_all_the_same() -> None:
    rig = a_full_one()
    rig.storage.full = False
    rig.settle(0.3)
    assert told(rig) == [True]
    rig.settle(ROOM_S + 1.1)
    assert told(rig) == [False]


def test_a_new_instance_epoch_says_it_anew() -> None:
    rig = a_full_one()
    assert told(rig) == [True]
    rig.granting = False
    rig.settle(1.1)
    rig.granting = True
    rig.refuse(rig.ns.take(Heartbeat), NotLeader("fenced", "FENCED"))
    rig.settle(1.1)
    assert told(rig) == [True]


def test_name_servers_that_do_not_know_the_command_are_asked_seldom() -> None:
    rig = a_full_one()
    rig.decide(code="INVALID_ARGUMENT")
    rig.settle(RETRY_S - 1.0)
    assert told(rig) == []
    rig.settle(1.1)
    assert told(rig) == [True]
