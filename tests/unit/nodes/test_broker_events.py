"""What a broker's log tells of itself: leaderships, lease, registration, strangers, stalls."""

from __future__ import annotations

from typing import Any

from logboom.wire.actor import PeerAddress, Received
from logboom.wire.errors import Refused
from logboom.wire.event_table import EVENTS
from logboom.wire.frames import encode
from logboom.wire.messages import Heartbeat, Hello
from tests.unit.nodes.rig import ME, NAME_SERVER, Rig

BOTH = (ME, "broker-2")


def told(rig: Rig, *wanted: str) -> list[tuple[str, dict[str, Any]]]:
    """The events since the last look, with the fields that have a value."""
    notes, rig.notes = rig.notes, []
    for each in notes:
        assert each.fields.keys() <= {*EVENTS[each.event].fields}, each
    return [
        (each.event, {name: value for name, value in each.fields.items() if value is not None})
        for each in notes
        if not wanted or each.event in wanted
    ]


def test_leaderships_are_told_when_they_begin_and_end() -> None:
    rig = Rig()
    where = {"topic": "flights", "queue": 0}
    rig.lead(epoch=1, isr=BOTH, replicas=BOTH)
    assert told(rig) == [("leadership_gained", {**where, "epoch": 1})]
    rig.lead(epoch=1, isr=BOTH, replicas=BOTH)
    rig.settle(3.0)
    assert told(rig) == [], "nothing has changed"
    rig.lead(epoch=2, leader="broker-2", isr=BOTH, replicas=BOTH)
    assert told(rig) == [("leadership_lost", {**where, "epoch": 1, "leader": "broker-2"})]
    rig.lead(epoch=3, isr=BOTH, replicas=BOTH)
    assert told(rig) == [("leadership_gained", {**where, "epoch": 3})]
    # The topic is deleted.
    rig.publish()
    assert told(rig) == [
        ("leadership_lost", {**where, "epoch": 3}),
        ("replica_deleted", where),
    ]


def test_a_lease_that_lapses_is_told_once_and_so_is_the_next() -> None:
    rig = Rig()
    rig.lead()
    rig.settle(5.0)
    told(rig)
    rig.granting = False
    rig.settle(10.0)
    assert [name for name, _ in told(rig)] == ["lease_lost"]
    rig.granting = True
    rig.settle(3.0)
    ((name, fields),) = told(rig)
    assert name == "lease_regained"
    assert 5 <= fields["seconds"] <= 13


def test_a_fenced_broker_says_so_and_what_it_led() -> None:
    rig = Rig()
    rig.lead()
    before = rig.instance_epoch
    told(rig)
    rig.granting = False
    rig.settle(1.0)
    rig.refuse(rig.ns.take(Heartbeat), Refused("unknown instance", "FENCED"), NAME_SERVER)
    assert told(rig)[:2] == [
        ("registration_lost", {"instance_epoch": before}),
        ("leadership_lost", {"topic": "flights", "queue": 0, "epoch": 1}),
    ]


def test_a_refused_registration_is_told_with_its_reason() -> None:
    rig = Rig(register=False)
    rig.decide(code="FENCED")
    assert told(rig) == [("registration_refused", {"text": "FENCED"})]


def test_a_lease_that_is_given_up_is_not_lost() -> None:
    rig = Rig()
    rig.lead()
    told(rig)
    rig.call_stop()
    rig.granting = False
    rig.settle(2.9)
    assert "lease_lost" not in [name for name, _ in told(rig)]


def test_strangers_are_told_with_what_they_call_themselves() -> None:
    rig = Rig()
    rig.broker.auditor.address_of = lambda _: "10.0.0.9"
    told(rig)
    hello = encode(Hello(1, 99, 99, "from the future", "client", 0))
    rig.turn(Received(PeerAddress("main", b"stranger"), hello))
    ((name, fields),) = told(rig)
    assert name == "stranger_refused"
    assert fields.pop("text")
    assert fields == {
        "address": "10.0.0.9",
        "client": "from the future",
        "kind": "client",
        "code": "UNSUPPORTED_VERSION",
    }
    rig.broker.auditor.refused_key("10.0.0.8", "secure")
    rig.turn()
    ((name, fields),) = told(rig)
    assert (name, fields["address"], fields["listener"]) == ("key_refused", "10.0.0.8", "secure")


def test_many_strangers_of_one_turn_are_bounded() -> None:
    rig = Rig()
    told(rig)
    for number in range(5_000):
        rig.broker.auditor.refused_key(f"10.0.{number // 250}.{number % 250}", "secure")
    rig.turn()
    assert len(told(rig)) == 1_000


def test_a_stall_of_the_loop_is_told() -> None:
    rig = Rig()
    rig.settle(1.0)
    told(rig)
    rig.mono += 4.0
    rig.turn()
    assert ("loop_stalled", {"seconds": 4.0}) in told(rig)
