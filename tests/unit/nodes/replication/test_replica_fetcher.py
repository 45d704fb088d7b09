"""The follower's side of REPLICATE: one request at a time, and what follows each answer."""

from __future__ import annotations

import pytest

from logboom.nodes.log.keys import Position
from logboom.nodes.replication import replica_fetcher
from logboom.wire.errors import Unavailable
from logboom.wire.messages import FetchStatus, QueueAnswer, Replicate, Replicated
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import ME, Rig, entry
from tests.unit.nodes.test_broker_rules import flowing, replicated

ALL = (ME, "broker-2", "broker-3")


def follower(queues: int = 1, disk: int = 1 << 40) -> Rig:
    """A broker that follows broker-2, on a disk of so many bytes."""
    rig = Rig(SimulatedStorage("store-1", total=disk))
    rig.lead(epoch=2, leader="broker-2", isr=ALL, replicas=ALL, queues=queues)
    return rig


def waiting(rig: Rig) -> int:
    """How many REPLICATEs reached broker-2 since the last look."""
    station = rig.stations["b2:7711"]
    count = station.count(Replicate)
    for _ in range(count):
        station.take(Replicate)
    return count


def test_the_first_request_names_all_queues_and_the_next_only_what_changed() -> None:
    rig = follower(queues=3)
    first = replicated(rig, flowing(2, 0, 1), frames=[entry(0, 2)])
    assert first.number == 0
    assert {q.queue for q in first.queues} == {0, 1, 2}
    second = replicated(rig)
    assert second.number == 1
    assert second.session == first.session
    assert [(q.queue, q.offset) for q in second.queues] == [(0, 1)]


def test_one_request_at_a_time() -> None:
    rig = follower()
    assert waiting(rig) == 1
    rig.settle(0.4)
    assert waiting(rig) == 0


def test_a_held_request_is_replaced_when_a_queue_is_added() -> None:
    rig = follower(queues=1)
    assert waiting(rig) == 1
    rig.lead(epoch=2, leader="broker-2", isr=ALL, replicas=ALL, queues=2)
    request = replicated(rig, flowing(2, 0, 1), frames=[entry(0, 2)])
    assert [q.queue for q in request.queues] == [1]
    assert rig.replica().end == Position(1)


def test_the_answer_to_a_request_that_was_replaced_is_not_taken() -> None:
    rig = follower(queues=1)
    replaced = rig.stations["b2:7711"].take(Replicate)
    rig.lead(epoch=2, leader="broker-2", isr=ALL, replicas=ALL, queues=2)
    assert waiting(rig) == 1
    late = Replicated(0, [flowing(2, 0, 1)])
    rig.reply(replaced, late, [entry(0, 2)], "b2:7711")
    assert rig.replica().end == Position(0)
    assert waiting(rig) == 0, "the one that replaced it is on its way still"


@pytest.mark.parametrize("status", ["STALE", "UNKNOWN", "DAMAGED"])
def test_a_queue_that_is_not_led_there_is_asked_for_again_soon(status: FetchStatus) -> None:
    rig = follower()
    replicated(rig, QueueAnswer(1, 0, 9, status, 0, 0, 0))
    waiting(rig)
    rig.settle(0.06)
    (queue,) = replicated(rig).queues
    assert queue.queue == 0


def test_a_failed_request_begins_a_new_session() -> None:
    rig = follower()
    first = rig.stations["b2:7711"].take(Replicate)
    rig.refuse(first, Unavailable("who?", "CONFLICT"), "b2:7711")
    assert waiting(rig) == 0
    rig.settle(0.03)
    second = replicated(rig)
    assert second.number == 0
    assert second.session != first.session
    assert len(second.queues) == 1


def test_a_leader_that_says_nothing_is_asked_again() -> None:
    rig = follower()
    assert waiting(rig) == 1
    rig.settle(1.6)
    assert waiting(rig) >= 1


def test_a_leader_is_told_of_many_queues_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetcher, "NAMED_AT_ONCE", 2)
    rig = follower(queues=5)
    first = replicated(rig, flowing(2, 0, 1), frames=[entry(0, 2)])
    assert ([q.queue for q in first.queues], first.wait_ms) == ([0, 1], 0), "it is not to be held"
    second = replicated(rig)
    assert second.session == first.session
    assert [(q.queue, q.offset) for q in second.queues] == [(0, 1), (2, 0)], (
        "what is new comes first"
    )
    assert [q.queue for q in replicated(rig).queues] == [3, 4]
    last = replicated(rig)
    assert (last.queues, last.wait_ms) == ([], 500)
    assert last.number == 3


def test_a_request_is_not_replaced_for_queues_that_wait_for_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_fetcher, "NAMED_AT_ONCE", 1)
    rig = follower(queues=3)
    assert waiting(rig) == 1
    rig.settle(0.3)
    assert waiting(rig) == 0


def test_a_request_that_is_answered_too_late_ends_no_session_and_the_next_waits_longer() -> None:
    rig = follower(queues=2)
    station = rig.stations["b2:7711"]
    first = asked = station.take(Replicate)
    wait_s = first.wait_ms / 1000
    assert len(first.queues) == 2
    for grace_s in (1, 2, 4, 8, 8):
        assert asked.timeout_ms == first.wait_ms + 1000 * grace_s
        rig.settle(wait_s + grace_s - 0.01)
        assert station.count(Replicate) == 0, "it is still waited for"
        while not station.count(Replicate):
            rig.mono = min(rig.mono + 1.0, rig.broker.deadline() or rig.mono)
            rig.turn()
        asked, before = station.take(Replicate), asked
        assert (asked.session, asked.number) == (first.session, before.number + 1)
        assert asked.queues == [], "they were named"
        assert asked.heard == first.heard, "the leader sends again what was not taken"
    rig.reply(asked, Replicated(0, []), endpoint="b2:7711")
    assert station.take(Replicate).timeout_ms == first.timeout_ms, "the leader keeps up again"


def test_the_hw_follows_the_leader_up_to_the_own_end() -> None:
    rig = follower()
    replicated(rig, flowing(2, 50, 1), frames=[entry(0, 2, 3)])
    assert rig.replica().hw == Position(3)
    replicated(rig, flowing(2, 2, 1), frames=[entry(3, 2, 3)])
    assert rig.replica().hw == Position(3)


def test_frames_that_do_not_match_the_answers_are_not_taken() -> None:
    rig = follower()
    station = rig.stations["b2:7711"]
    rig.reply(station.take(Replicate), Replicated(0, [flowing(2, 0, 2)]), [entry(0, 2)], "b2:7711")
    assert rig.replica().end == Position(0)
    rig.settle(0.05)
    assert replicated(rig).number == 0


def test_a_new_leader_hears_first_what_reached_the_disk() -> None:
    rig = follower()
    rig.auto_sync = False
    replicated(rig, flowing(2, 0, 1), frames=[entry(0, 2, 3)])
    rig.lead(epoch=3, leader="broker-3", isr=ALL, replicas=ALL)
    assert rig.stations["b3:7711"].count(Replicate) == 0
    rig.sync()
    (queue,) = rig.stations["b3:7711"].take(Replicate).queues
    assert (queue.leader_epoch, queue.offset, queue.last_epoch) == (3, 3, 2)


def test_a_follower_on_a_small_disk_fetches() -> None:
    rig = follower(disk=500 << 20)
    assert waiting(rig) == 1
    assert not rig.broker.context.space.full


def test_a_full_disk_stops_fetching_and_recovers() -> None:
    rig = follower()
    waiting(rig)
    rig.storage.full = True
    rig.settle(3.0)
    assert waiting(rig) <= 2
    assert rig.broker.context.space.full
    rig.storage.full = False
    rig.settle(1.0)
    assert waiting(rig) >= 1


def test_a_queue_that_is_asked_for_again_is_not_said_to_be_gone_in_one_breath() -> None:
    rig = follower()
    rig.storage.full = True
    # The request is on its way still, and the next look at the disk is due.
    rig.settle(1.1)
    damaged = bytearray(entry(0, 2))
    damaged[len(damaged) // 2] ^= 16
    replicated(rig, flowing(2, 0, 1), frames=[bytes(damaged)])
    # No room to ask meanwhile: what it would have said is out of date by then.
    rig.settle(3.0)
    assert rig.broker.context.space.full
    rig.storage.full = False
    rig.settle(1.0)
    request = rig.stations["b2:7711"].take(Replicate)
    assert [queue.queue for queue in request.queues] == [0]
    assert request.gone == []


@pytest.mark.parametrize(("start", "below"), [(0, 1), (2, 1), (3, 0), (7, 0)])
def test_a_queue_that_begins_anew_below_its_hw_is_counted(start: int, below: int) -> None:
    rig = follower()
    replicated(rig, flowing(2, 50, 1), frames=[entry(0, 2, 3)])
    assert rig.replica().hw == Position(3)
    snapshot = rig.replica().snapshot(Position(start))
    replicated(rig, QueueAnswer(1, 0, 2, "RESET", start, 0, start, 0, -1, start, 0, snapshot))
    assert rig.replica().hw == Position(start)
    assert rig.broker.stats.counters.get("cuts_below_hw", 0) == below
