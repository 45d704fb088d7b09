"""A broker that starts with recovered queues asks to lead them where nobody else could."""

from __future__ import annotations

import pytest

from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.log.log_state import LogState, put_epochs, put_record
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.salvage.recovery_marks import is_recovered, put_recovered
from logboom.wire.batch import stamp
from logboom.wire.commands import ElectLeader
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import ME, Rig, batch, pull


def recovered(*, whole: bool = True) -> SimulatedStorage:
    """A store into which one queue was brought back."""
    storage = SimulatedStorage("store-2")
    writes = WriteSet()
    entry = stamp(batch(3), 0, 4, 7)
    writes.put("log", log_key(1, 0, 0), entry)
    put_record(writes, 1, 0, LogState(0, Position(3), 7, Position(3), Position(0), len(entry)))
    put_epochs(writes, 1, 0, [(4, Position(0))])
    put_recovered(writes, (1, 0), whole=whole)
    storage.write(writes)
    storage.sync()
    return storage


def elections(rig: Rig) -> list[ElectLeader]:
    """What it asked for."""
    return [command for _, command in rig.commands if isinstance(command, ElectLeader)]


def test_it_leads_what_it_holds_and_forgets_the_mark() -> None:
    rig = Rig(recovered())
    rig.lead(5, leader=None)
    rig.settle(1.5)
    (asked,) = elections(rig)
    assert (asked.topic, asked.queue, asked.prefer) == ("flights", 0, ME)
    assert isinstance(rig.decide(), ElectLeader)
    rig.lead(6)
    rig.settle(1.5)
    assert not is_recovered(rig.storage, (1, 0))
    assert len(rig.broker.parts.restored_queues) == 0
    client = rig.client()
    client.ask(pull(0))
    answer = client.answer()
    assert (answer.status, answer.next_offset) == ("FOUND", 3)


def test_what_was_refused_is_asked_for_again() -> None:
    rig = Rig(recovered())
    rig.lead(5, leader=None)
    rig.settle(1.5)
    rig.decide(code="INVALID_ARGUMENT")
    rig.settle(0.5)
    assert elections(rig) == []
    rig.settle(1.0)
    assert len(elections(rig)) == 1


@pytest.mark.parametrize(
    ("isr", "eligible"), [((ME, "broker-2"), ()), (("broker-2",), ()), ((ME,), ("broker-2",))]
)
def test_it_waits_while_another_replica_may_hold_all(
    isr: tuple[str, ...], eligible: tuple[str, ...]
) -> None:
    rig = Rig(recovered())
    rig.lead(5, isr, (ME, "broker-2"), leader=None, eligible=eligible)
    rig.settle(5.0)
    assert elections(rig) == []
    assert is_recovered(rig.storage, (1, 0))


def test_another_leader_ends_it() -> None:
    rig = Rig(recovered())
    rig.lead(5, ("broker-2",), (ME, "broker-2"), leader="broker-2")
    rig.settle(1.5)
    assert not is_recovered(rig.storage, (1, 0))


def test_a_recovery_that_did_not_end_asks_for_nothing() -> None:
    rig = Rig(recovered(whole=False))
    rig.lead(5, leader=None)
    rig.settle(3.0)
    assert elections(rig) == []


def test_a_deleted_topic_takes_the_mark_along() -> None:
    rig = Rig(recovered())
    rig.publish()
    rig.settle(3.0)
    assert elections(rig) == []
    assert not is_recovered(rig.storage, (1, 0))
    assert len(rig.broker.parts.restored_queues) == 0
