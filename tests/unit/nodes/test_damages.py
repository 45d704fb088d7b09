"""Damage at a follower, in the index and in retention: reported, and fetched no more until cut."""

from __future__ import annotations

from logboom.nodes.keys import Position, log_key
from logboom.nodes.storage import WriteSet
from logboom.wire.commands import ReportDamage
from logboom.wire.messages import Replicate
from logboom.wire.view import TopicConfig
from tests.unit.nodes.rig import ME, Rig, batch, entry, produce, pull
from tests.unit.nodes.test_broker_rules import flowing, replicated

BOTH = (ME, "broker-2")


def spoil(rig: Rig, offset: int) -> None:
    """Tear an entry in the store to pieces; memory holds it no longer."""
    writes = WriteSet()
    writes.put("log", log_key(1, 0, offset), b"torn")
    rig.storage.write(writes)
    rig.replica().tail.clear()


def reported(rig: Rig) -> list[tuple[int, int]]:
    """The queues that the oldest proposal reports as damaged."""
    command = rig.commands[0][1]
    assert isinstance(command, ReportDamage)
    assert not command.mended
    return command.queues


def test_a_damaged_follower_stops_fetching_until_it_was_cut() -> None:
    rig = Rig(follower_reads=True)
    rig.lead(epoch=1, leader="broker-2", isr=BOTH, replicas=BOTH)
    replicated(rig, flowing(1, 4, 2), frames=[entry(0, 1, 2), entry(2, 1, 2)])
    spoil(rig, 2)
    rig.client().ask(pull(2))
    rig.settle()
    assert reported(rig) == [(1, 0)]
    station = rig.stations["b2:7711"]
    while station.count(Replicate):
        station.take(Replicate)
    rig.settle(2.0)
    assert station.count(Replicate) == 0
    # The report was sent again meanwhile, under the same number.
    del rig.commands[:-1]
    rig.decide()
    # Still in the ISR as far as is known here: not a byte is cut.
    assert rig.replica().end == Position(4)
    rig.lead(epoch=1, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    rig.settle()
    assert rig.replica().end == Position(2)
    (queue,) = replicated(rig, flowing(1, 4, 1), frames=[entry(2, 1, 2)]).queues
    assert (queue.offset, queue.last_epoch) == (2, 1)


def test_damage_found_by_retention_is_reported() -> None:
    rig = Rig()
    rig.lead(isr=(ME,), replicas=(ME,), config=TopicConfig(retention_ms=1_000))
    client = rig.client()
    for _ in range(3):
        client.ask(produce(), [batch()])
    rig.settle()
    spoil(rig, 0)
    rig.wall_ms += 60_000
    rig.settle(6.0)
    assert reported(rig) == [(1, 0)]
    assert len(rig.storage.content("log")) == 3


def test_damage_found_at_the_start_is_reported_before_anything_is_led() -> None:
    first = Rig()
    first.lead()
    client = first.client()
    for _ in range(3):
        client.ask(produce(), [batch()])
    spoil(first, 1)
    rig = Rig(first.storage, incarnation="two")
    assert reported(rig) == [(1, 0)]
    rig.decide()
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    rig.settle()
    # Nothing of it can be trusted: it begins anew.
    assert rig.replica().end == Position(0)
    (queue,) = replicated(rig).queues
    assert (queue.offset, queue.last_epoch) == (0, -1)
