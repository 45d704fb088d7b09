"""When decisions on transactions go on, and when they wait: full disks, carrying, other leaders."""

from __future__ import annotations

import pytest

from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.transactions import decision_executor
from logboom.wire.batch import peek
from logboom.wire.head import ControlKind
from logboom.wire.messages import Ok
from logboom.wire.transactions import AwaitDecided, DecisionView, EntryPosition, ParkedBatches
from logboom.wire.view import TopicConfig
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.replica.test_parked_queue import pass_time
from tests.unit.nodes.rig import ME, Peer, Rig, batch, fetch, produce
from tests.unit.nodes.transactions.test_transactions import cut
from tests.unit.nodes.transactions.transactions_rig import (
    abort,
    commit,
    of,
    park,
    park_request,
    read,
)

PAIR = (ME, "broker-2")


def pair(config: TopicConfig | None = None) -> tuple[Rig, Peer, Peer]:
    """A leader of two replicas, a client, and the follower."""
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR, config=config)
    return rig, rig.client(), rig.follower()


def decided(rig: Rig) -> int:
    """How many DECIDED entries the log has."""
    entries = rig.storage.content("log").values()
    return sum(peek(entry).kind == ControlKind.DECIDED for entry in entries)


def test_a_decision_that_ended_before_is_not_carried_out() -> None:
    rig = Rig()
    rig.lead(leader="broker-2", isr=PAIR, replicas=PAIR)
    rig.announce(commit(5, (0, 0)), abort(6, 1), abort(7, 2))
    rig.announce(ended=[5, 7])
    assert len(rig.broker.parts.decision_executor) == 1
    rig.lead(epoch=2)
    rig.settle()
    assert rig.replica().parked.done == 6
    assert decided(rig) == 1


def test_decisions_go_on_once_the_disk_has_room_again() -> None:
    storage = SimulatedStorage("store-1")
    rig = Rig(storage)
    rig.lead()
    client = rig.client()
    place = park(client, b"1")
    storage.full = True
    rig.settle(0.3)
    rig.announce(commit(5, place))
    rig.settle(1.0)
    assert decided(rig) == 0
    storage.full = False
    # Nothing else happens that could wake it.
    rig.settle(0.5)
    assert read(client) == [b"1"]


def test_who_leads_no_more_decides_nothing_when_the_disk_has_room_again() -> None:
    for gone in (False, True):
        storage = SimulatedStorage("store-1")
        rig = Rig(storage)
        rig.lead()
        place = park(rig.client(), b"1")
        storage.full = True
        rig.settle(0.3)
        rig.announce(commit(5, place))
        if gone:
            rig.publish()
        else:
            rig.lead(epoch=2, leader="broker-2", isr=PAIR, replicas=PAIR)
        storage.full = False
        rig.settle(0.5)
        assert decided(rig) == 0


def test_a_new_leader_goes_on_with_a_release_of_which_it_has_not_heard() -> None:
    rig, client, follower = pair()
    places = parked(client, follower, 3)
    rig.announce(commit(5, *places))
    rig.settle()
    # Only the first of what was released has come to it, and its name server lags behind.
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2, leader="broker-2", isr=PAIR, replicas=PAIR)
    cut(again, Position(1))
    again.lead(epoch=3)
    again.settle()
    assert len(again.broker.parts.decision_executor) == 0
    assert read(again.client()) == [b"0", b"1", b"2"]
    assert decided(again) == 1


def parked(client: Peer, follower: Peer, count: int) -> list[EntryPosition]:
    """Numbered messages of a transaction, which the follower has; where they are parked."""
    places: list[EntryPosition] = []
    for n in range(count):
        client.ask(park_request(of()), [batch(value=b"%d" % n)])
        follower.ask(fetch(n, (Position(0, n + 1), 1)))
        answer = client.answer()
        places.append((answer.base_offset, answer.side))
    return places


def test_a_release_goes_on_without_the_hw_but_not_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, client, follower = pair()
    places = parked(client, follower, 600)
    monkeypatch.setattr(decision_executor, "MAX_IN_FLIGHT", 500)
    rig.announce(commit(5, *places))
    rig.settle()
    assert rig.replica().hw == Position(0, 600)
    assert rig.replica().end == Position(500)
    rig.settle(0.2)
    assert rig.replica().end == Position(500)
    follower.ask(fetch(600, (Position(300), 1)))
    rig.settle()
    assert rig.replica().end == Position(600)
    follower.ask(fetch(601, (Position(600), 1)))
    rig.settle()
    assert len(read(client)) == 600


def test_one_turn_releases_no_more_than_it_may() -> None:
    rig = Rig()
    rig.lead(queues=2)
    client = rig.client()
    places = [park(client, b"%d" % n) for n in range(300)]
    others: list[EntryPosition] = []
    for n in range(100):
        message = park_request(of())
        message.queue = 1
        client.ask(message, [batch(value=b"%d" % n)])
        answer = client.answer()
        others.append((answer.base_offset, answer.side))
    queues = [ParkedBatches(1, 0, places), ParkedBatches(1, 1, others)]
    rig.auto_sync = False
    rig.announce(DecisionView(5, "app", 0, 0, True, queues))
    counters = rig.broker.stats.counters
    assert counters["released_batches"] == 256
    rig.turn()
    assert counters["released_batches"] == 400
    assert counters["decided_commits"] == 2


def test_bytes_of_a_turn_are_bounded_too() -> None:
    rig = Rig()
    rig.lead()
    client = rig.client()
    places = [park(client, bytes(900_000)) for _ in range(5)]
    rig.auto_sync = False
    rig.announce(commit(5, *places))
    assert rig.broker.stats.counters["released_batches"] == 3
    rig.turn()
    assert rig.broker.stats.counters["released_batches"] == 5


def test_nothing_is_decided_while_something_is_carried() -> None:
    # The decision would list where the batch no longer waits, and drop it where it does.
    rig, client, follower = pair(TopicConfig(retention_ms=1_000))
    rig.broker.parts.orphan_aborter.next_at = float("inf")
    (place,) = parked(client, follower, 1)
    for n in range(20):
        client.ask(produce(), [batch(value=b"x" * 100)])
        follower.ask(fetch(1 + n, (Position(n + 1), 1)))
    number = 21
    while not rig.broker.stats.counters["carried_batches"]:
        pass_time(rig, 500)
        follower.ask(fetch(number, (Position(20), 1), wait_ms=0))
        number += 1
        assert number < 1_000
    leading = rig.replica().leading
    assert leading is not None
    assert leading.relocating
    rig.announce(commit(50, place))
    rig.settle()
    assert decided(rig) == 0
    follower.ask(fetch(number, (rig.replica().end, 1), wait_ms=0))
    rig.settle()
    follower.ask(fetch(number + 1, (rig.replica().end, 1), wait_ms=0))
    rig.settle()
    assert read(client, 20) == [b"0"]


def test_an_abort_wakes_followers_and_is_counted() -> None:
    rig, client, follower = pair()
    parked(client, follower, 1)
    assert follower.ask(fetch(1, (Position(0, 1), 1))) == []
    rig.announce(abort(5))
    (reply,) = follower.taken()
    assert len(reply.batches) == 1
    assert rig.broker.stats.counters["decided_aborts"] == 1
    assert rig.broker.stats.counters["decided_commits"] == 0


def test_a_queue_waits_for_what_names_it_among_others_and_for_nothing_else() -> None:
    rig, client, follower = pair()
    (place,) = parked(client, follower, 1)
    queues = [ParkedBatches(1, 1, [(0, 0)]), ParkedBatches(1, 0, [place])]
    elsewhere = [ParkedBatches(1, 1, [(0, 0)])]
    rig.announce(
        DecisionView(50, "app", 0, 0, True, queues),
        DecisionView(51, "other", 0, 0, True, elsewhere),
    )
    assert client.ask(AwaitDecided(0, 5_000, "flights", 0, 50)) == []
    other = rig.client("other")
    for number in (49, 51, rig.version):
        # 51 is of another queue; what is not named any more was carried out.
        other.ask(AwaitDecided(0, 5_000, "flights", 0, number))
        assert isinstance(other.answer(), Ok)
    follower.ask(fetch(1, (rig.replica().end, 1)))
    rig.settle()
    assert isinstance(client.answer(), Ok)


def test_a_listed_batch_that_cannot_be_read_is_damage_and_is_not_passed_over() -> None:
    first = Rig()
    first.lead()
    places = [park(first.client(f"client-{n}"), b"%d" % n) for n in range(3)]
    rig = Rig(first.storage, incarnation="two")
    rig.lead(epoch=2)
    key = log_key(1, 0, *places[1])
    stored = bytearray(rig.storage.content("log")[key])
    stored[-5] ^= 1
    writes = WriteSet()
    writes.put("log", key, bytes(stored))
    rig.storage.write(writes)
    rig.announce(commit(5, *places))
    rig.settle(0.5)
    replica = rig.replica()
    assert replica.damaged_at == Position(*places[1])
    assert replica.end == Position(1)
    assert read(rig.client()) == []
