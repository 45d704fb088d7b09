"""Registered, heard every second, fenced, registered anew (Q2, Q11)."""

from __future__ import annotations

from logboom.nodes.cluster.registration import TOLD_AT_ONCE
from logboom.wire.commands import CommandResult, RegisterBroker
from logboom.wire.errors import NotLeader, Refused
from logboom.wire.messages import Heartbeat, HeartbeatGranted, Proposed
from tests.unit.nodes.rig import NAME_SERVER, Rig, Station


def test_a_heartbeat_a_second() -> None:
    rig = Rig()
    rig.granting = False
    rig.settle(0.99)
    assert rig.ns.count(Heartbeat) == 0
    rig.settle(0.01)
    beat = rig.ns.take(Heartbeat)
    assert (beat.broker, beat.instance_epoch) == ("broker-1", rig.instance_epoch)


def test_many_replicas_that_were_opened_are_told_at_once() -> None:
    rig = Rig()
    rig.lead(queues=TOLD_AT_ONCE - 1)
    rig.granting = False
    rig.settle(0.5)
    assert rig.ns.count(Heartbeat) == 0, "few of them wait for the next second"
    rig.lead(2, queues=TOLD_AT_ONCE)
    rig.settle()
    beat = rig.ns.take(Heartbeat)
    assert beat.replicas == TOLD_AT_ONCE
    rig.reply(beat, HeartbeatGranted(0, 2_000, rig.version))
    rig.settle(0.5)
    assert rig.ns.count(Heartbeat) == 0


def test_replicas_that_the_metadata_does_not_give_the_broker_are_not_told() -> None:
    rig = Rig()
    rig.lead(queues=3)
    rig.granting = False
    others = ("broker-2", "broker-3")
    rig.lead(2, leader="broker-2", isr=others, replicas=others, queues=2)
    rig.settle(1.0)
    assert len(rig.broker.queues.replicas) == 3
    assert rig.ns.take(Heartbeat).replicas == 1


def test_the_raft_leader_is_found_by_its_followers_hint() -> None:
    rig = Rig()
    other = rig.stations["ns2:7701"] = Station("ns2:7701", "name-2")
    rig.granting = False
    rig.settle(1.0)
    rig.refuse(
        rig.ns.take(Heartbeat), NotLeader("not here", leader="name-2", endpoint=other.endpoint)
    )
    assert other.count(Heartbeat) == 1


def test_without_a_hint_it_is_asked_again_soon() -> None:
    rig = Rig()
    rig.granting = False
    rig.settle(1.0)
    rig.refuse(rig.ns.take(Heartbeat), NotLeader("an election is on", leader=None))
    rig.settle(0.11)
    assert rig.ns.count(Heartbeat) == 1


def test_a_refused_registration_is_tried_again_and_said_in_stats() -> None:
    rig = Rig(register=False)
    assert isinstance(rig.decide(code="FENCED"), RegisterBroker)
    assert not rig.broker.registered
    assert rig.broker.registration.refusal == "FENCED"
    rig.settle(1.1)
    assert isinstance(rig.decide(value=3), RegisterBroker)
    assert rig.broker.registration.instance_epoch == 3


def test_fenced_once_it_registers_once() -> None:
    rig = Rig()
    rig.lead()
    rig.granting = False
    rig.settle(1.0)
    before = rig.instance_epoch
    rig.refuse(rig.ns.take(Heartbeat), Refused("unknown instance", "FENCED"), NAME_SERVER)
    rig.granting = True
    rig.settle(5.0)
    assert rig.instance_epoch == before + 1
    assert rig.broker.registration.lease.holds(rig.mono)


def test_q11_a_grant_to_an_old_instance_renews_no_lease() -> None:
    """It was sent under a registration that has ended: what it grants is another's."""
    rig = Rig()
    rig.lead()
    rig.granting = False
    rig.settle(1.0)
    late = rig.ns.take(Heartbeat)
    rig.within(rig.broker.registration.end)
    assert rig.instance_epoch == 2
    lease = rig.broker.registration.lease
    assert not lease.holds(rig.mono)
    rig.reply(late, HeartbeatGranted(0, 60_000, rig.version))
    assert not lease.holds(rig.mono)
    rig.reply(rig.ns.take(Heartbeat), HeartbeatGranted(0, 2_000, rig.version))
    assert lease.until == rig.mono + 2.0


def test_an_answer_that_comes_late_still_counts_from_sending() -> None:
    """The next heartbeat is on its way by then; on a starved machine every answer may be late."""
    rig = Rig()
    rig.lead()
    rig.granting = False
    rig.settle(1.0)
    late, sent_at = rig.ns.take(Heartbeat), rig.mono
    rig.settle(1.2)
    assert rig.ns.count(Heartbeat) == 1, "it is asked again after a second"
    lease = rig.broker.registration.lease
    rig.reply(late, HeartbeatGranted(0, 2_000, rig.version))
    assert lease.until == sent_at + 2.0


def test_a_process_says_which_instance_epoch_it_had() -> None:
    rig = Rig(register=False)
    first = rig.decide(value=3)
    assert isinstance(first, RegisterBroker)
    assert first.former_epoch == -1
    rig.within(rig.broker.registration.end)
    again = rig.decide(code="BROKER_TAKEN")
    assert isinstance(again, RegisterBroker)
    assert again.former_epoch == 3
    # Another store: it may come back once the other process is gone.
    rig.settle(1.1)
    assert isinstance(rig.decide(value=5), RegisterBroker)
    assert rig.broker.registered


def test_what_a_copy_of_its_folder_has_replaced_does_not_come_back() -> None:
    rig = Rig(register=False)
    rig.decide(value=3)
    rig.within(rig.broker.registration.end)
    (proposed, _) = rig.commands.pop(0)
    result = CommandResult(-1, "BROKER_TAKEN", "a copy runs", {"copied": 1})
    rig.reply(proposed, Proposed(0, result))
    assert rig.broker.registration.refusal == "a copy runs"
    rig.settle(30.0)
    assert not rig.commands
    assert rig.broker.registration.figures(rig.mono)["refusal"] == "a copy runs"


def test_a_rival_is_told_once_and_in_stats() -> None:
    rig = Rig()
    rig.granting = False

    def beat(rival: str) -> None:
        rig.settle(1.0)
        rig.reply(rig.ns.take(Heartbeat), HeartbeatGranted(0, 2_000, rig.version, rival))
        assert rig.broker.registration.figures(rig.mono)["rival"] == rival

    for rival in ("c:1", "c:1", "", "c:1"):
        beat(rival)
    told = [each for each in rig.notes if each.event == "broker_id_contested"]
    assert [each.fields["address"] for each in told] == ["c:1", "c:1"]
