"""Half messages at a leader: ended by their producer, or asked for at its producer group."""

from __future__ import annotations

import pytest

from logboom.nodes.log.keys import Position
from logboom.wire.batch import open_batch
from logboom.wire.errors import InvalidRequest, NotEnoughReplicas, TransactionError, Unavailable
from logboom.wire.messages import Produced
from logboom.wire.transactions import (
    HALF,
    CheckHalves,
    EndHalf,
    EntryPosition,
    HalfEnded,
    HalvesToCheck,
    ListUndecided,
    TransactionId,
    UndecidedListed,
)
from logboom.wire.view import TopicConfig
from tests.unit.nodes.replica.test_parked_queue import pass_time
from tests.unit.nodes.rig import ME, Peer, Rig, batch, fetch, produce
from tests.unit.nodes.transactions.transactions_rig import (
    alone,
    commit,
    of,
    park,
    park_request,
    read,
)

PAIR = (ME, "broker-2")
SHOP = TransactionId("shop", HALF, 0)


def end(client: Peer, place: EntryPosition, *, commit: bool) -> str:
    """Decide on a half message; what became of it."""
    client.ask(EndHalf(0, 5_000, "flights", 0, *place, commit))
    answer = client.answer()
    assert isinstance(answer, HalfEnded)
    return answer.outcome


def checked(client: Peer) -> list[tuple[int, int]]:
    """(side, how often it was to be asked for) of the half messages in the answers that came."""
    found = []
    for reply in client.taken():
        assert isinstance(reply.message, HalvesToCheck)
        assert len(reply.batches) == len(reply.message.halves)
        found += [(half.side, half.checks) for half in reply.message.halves]
    return found


def test_the_first_decision_counts_whatever_comes_later() -> None:
    rig, client = alone()
    good, bad = park(client, b"good", SHOP), park(client, b"bad", SHOP)
    assert read(client) == []
    assert end(client, good, commit=True) == "committed"
    assert end(client, bad, commit=False) == "aborted"
    for asked in (True, False):
        assert end(client, good, commit=asked) == "committed"
        assert end(client, bad, commit=asked) == "aborted"
    assert read(client) == [b"good"]
    assert rig.replica().parked.count == rig.replica().parked.undecided == 0


def test_what_became_of_a_half_message_outlives_a_restart() -> None:
    rig, client = alone()
    good, bad = park(client, b"good", SHOP), park(client, b"bad", SHOP)
    end(client, good, commit=True)
    end(client, bad, commit=False)
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2)
    other = again.client()
    assert end(other, good, commit=False) == "committed"
    assert end(other, bad, commit=True) == "aborted"


def test_a_decision_is_answered_once_it_is_below_the_hw_and_counts_once() -> None:
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR)
    client, follower = rig.client(), rig.follower()
    client.ask(park_request(SHOP), [batch()])
    follower.ask(fetch(0, (Position(0, 1), 1)))
    assert isinstance(client.answer(), Produced)
    message = EndHalf(0, 5_000, "flights", 0, 0, 0, True)
    assert client.ask(message) == []
    other = rig.client("other")
    other.ask(EndHalf(0, 5_000, "flights", 0, 0, 0, False))
    with pytest.raises(Unavailable):
        other.answer()
    follower.ask(fetch(1, (Position(1), 1)))
    assert client.answer().outcome == "committed"
    assert end(other, (0, 0), commit=False) == "committed"
    assert rig.replica().end == Position(1)


def test_decisions_need_the_copies_that_acks_all_needs() -> None:
    rig, client = alone()
    place = park(client, b"1", SHOP)
    config = TopicConfig(retention_ms=-1, min_in_sync=2)
    rig.lead(isr=[ME], replicas=PAIR, config=config)
    client.ask(EndHalf(0, 5_000, "flights", 0, *place, True))
    with pytest.raises((NotEnoughReplicas, Unavailable)):
        client.answer()
    assert rig.replica().parked.count == 1


def test_places_of_something_else_are_refused() -> None:
    rig, client = alone()
    park(client, b"1", of())
    client.ask(produce(), [batch()])
    places = ((0, 0), (0, 1), (1, 0), (9, 9), (0, 1 << 31))
    for place in places:
        client.ask(EndHalf(0, 5_000, "flights", 0, *place, True))
        with pytest.raises(TransactionError) as caught:
            client.answer()
        assert caught.value.code == "UNKNOWN_HANDLES"
    assert rig.replica().parked.undecided == 1


def test_no_decision_of_the_name_servers_touches_a_half_message() -> None:
    rig, client = alone()
    place = park(client, b"1", SHOP)
    rig.announce(commit(5, place, sequence=3, app_id="shop"))
    rig.announce(commit(6, place, sequence=HALF, app_id="shop"))
    rig.settle()
    assert rig.replica().parked.undecided == 1
    assert read(client) == []
    assert end(client, place, commit=True) == "committed"
    assert read(client) == [b"1"]


def test_a_group_is_asked_after_six_seconds_and_every_thirty_fifteen_times() -> None:
    rig, client = alone()
    park(client, b"1", SHOP)
    begun = rig.mono
    group = rig.client("group")
    asked: list[tuple[int, float]] = []
    while rig.mono < begun + 600:
        group.ask(CheckHalves(0, 60_000, "shop", 5_000))
        while not (replies := group.taken()):
            pass_time(rig, 250)
        answer = replies[0].message
        assert isinstance(answer, HalvesToCheck)
        asked += [(half.checks, rig.mono - begun) for half in answer.halves]
    assert [checks for checks, _ in asked] == list(range(1, 16))
    late = [at - 6 - 30 * (checks - 1) for checks, at in asked]
    assert min(late) >= 0
    assert max(late) < 1
    client.ask(ListUndecided(0, 1_000))
    assert isinstance(listed := client.answer(), UndecidedListed)
    assert [(u.transaction, u.checks) for u in listed.parked] == [(SHOP, 15)]
    assert rig.commands == []


def test_a_half_message_of_a_clock_that_was_ahead_is_asked_for_too() -> None:
    rig, client = alone()
    rig.wall_ms += 400 * 86_400_000
    park(client, b"1", SHOP)
    rig.wall_ms -= 400 * 86_400_000
    begun = rig.mono
    group = rig.client("group")
    asked: list[tuple[int, float]] = []
    while rig.mono < begun + 60:
        group.ask(CheckHalves(0, 60_000, "shop", 5_000))
        while not (replies := group.taken()):
            pass_time(rig, 250)
        answer = replies[0].message
        assert isinstance(answer, HalvesToCheck)
        asked += [(half.checks, rig.mono - begun) for half in answer.halves]
    assert [checks for checks, _ in asked] == [1, 2]
    assert [round(at) for _, at in asked] == [6, 36]


def test_groups_are_asked_for_their_own_in_turn_with_the_batch() -> None:
    rig, client = alone()
    park(client, b"mine", SHOP)
    park(client, b"other", TransactionId("others", HALF, 0))
    one, two = rig.client("one"), rig.client("two")
    for peer in (one, two):
        assert peer.ask(CheckHalves(0, 60_000, "shop", 60_000)) == []
    pass_time(rig, 7_000)
    (reply,) = one.replies
    assert [list(open_batch(entry).values()) for entry in reply.batches] == [[b"mine"]]
    assert checked(one) == [(0, 1)]
    assert checked(two) == []
    one.ask(CheckHalves(0, 60_000, "shop", 60_000))
    pass_time(rig, 30_000)
    assert checked(two) == [(0, 2)]
    assert checked(one) == []


def test_a_check_without_anything_is_answered_in_time() -> None:
    rig, client = alone()
    park(client, b"1", SHOP)
    assert client.ask(CheckHalves(0, 60_000, "shop", 1_000)) == []
    rig.settle(1.0)
    assert isinstance(answer := client.answer(), HalvesToCheck)
    assert answer.halves == []
    client.ask(CheckHalves(0, 60_000, "", 1_000))
    with pytest.raises(InvalidRequest):
        client.answer()


def test_what_was_ended_is_asked_for_no_more() -> None:
    rig, client = alone()
    places = [park(client, b"%d" % n, SHOP) for n in range(3)]
    end(client, places[0], commit=True)
    end(client, places[2], commit=False)
    client.ask(CheckHalves(0, 60_000, "shop", 60_000))
    pass_time(rig, 7_000)
    assert checked(client) == [(1, 1)]


def test_a_half_message_that_waits_long_is_carried_and_keeps_its_place() -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=1_000))
    client = rig.client()
    places = [park(client, b"%d" % n, SHOP) for n in range(2)]
    for _ in range(20):
        client.ask(produce(), [batch(value=b"x" * 100)])
    pass_time(rig, 200_000)
    assert rig.broker.stats.counters["carried_batches"] == 2
    client.ask(ListUndecided(0, 1_000, "shop"))
    assert isinstance(listed := client.answer(), UndecidedListed)
    assert [(u.offset, u.side) for u in listed.parked] == places
    assert end(client, places[0], commit=True) == "committed"
    assert end(client, places[1], commit=False) == "aborted"
    assert end(client, places[1], commit=False) == "aborted"
    assert read(client, 20) == [b"0"]
    # Released below the log's start: nobody remembers.
    assert end(client, places[0], commit=True) == "unknown"
