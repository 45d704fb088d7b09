"""A graceful stop: hand over, write down, end; three seconds at most."""

from __future__ import annotations

from logboom.nodes.log.keys import Position
from logboom.wire.commands import StepDown
from tests.unit.nodes.rig import ME, Rig, batch, produce

BOTH = (ME, "broker-2")


def test_a_graceful_stop_hands_over_first() -> None:
    rig = Rig()
    rig.lead(isr=BOTH, replicas=BOTH)
    rig.call_stop()
    assert rig.stop is None
    assert isinstance(rig.decide(), StepDown)
    assert rig.stop is None
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    rig.settle()
    assert rig.stop == ""


def test_a_lone_broker_stops_as_soon_as_it_is_known_that_nobody_takes_over() -> None:
    rig = Rig()
    rig.lead()
    rig.client().ask(produce(), [batch(3)])
    rig.call_stop()
    rig.decide()
    rig.lead()
    rig.settle()
    assert rig.stop == ""
    again = Rig(rig.storage, incarnation="two")
    assert again.replica().hw == Position(3)


def test_a_stop_without_name_servers_takes_three_seconds_at_most() -> None:
    rig = Rig()
    rig.lead(isr=BOTH, replicas=BOTH)
    rig.call_stop()
    rig.settle(2.9)
    assert rig.stop is None
    rig.settle(0.2)
    assert rig.stop == ""


def test_a_follower_leaves_the_in_sync_replicas_first() -> None:
    """In maintenance it leads nothing. Leaders would wait for it until they find it silent."""
    rig = Rig()
    rig.lead(leader="broker-2", isr=BOTH, replicas=BOTH)
    rig.call_stop()
    assert isinstance(rig.decide(), StepDown)
    assert rig.stop is None
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    rig.settle()
    assert rig.stop == ""
