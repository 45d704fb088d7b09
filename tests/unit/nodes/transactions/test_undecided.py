"""What waits for a decision, at the edges: who is asked for it, and how much at once."""

from __future__ import annotations

import pytest

from logboom.nodes.log.keys import Position
from logboom.wire.batch import open_batch
from logboom.wire.errors import TransactionError, Unavailable
from logboom.wire.messages import Produced
from logboom.wire.transactions import (
    HALF,
    MAX_HANDLES,
    CheckHalves,
    CheckParked,
    Decide,
    EndHalf,
    EntryPosition,
    HalfEnded,
    HalvesToCheck,
    ParkedBatches,
    ParkedChecked,
    TransactionId,
)
from tests.unit.nodes.replica.test_parked_queue import pass_time
from tests.unit.nodes.rig import ME, Peer, Rig, batch, fetch, produce
from tests.unit.nodes.transactions.transactions_rig import alone, of, park, park_request

PAIR = (ME, "broker-2")
SHOP = TransactionId("shop", HALF, 0)


def pair_with_half() -> tuple[Rig, Peer, Peer]:
    """A leader of two replicas with a half message at 0.0, a client, and the follower."""
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR)
    client, follower = rig.client(), rig.follower()
    client.ask(park_request(SHOP), [batch()])
    follower.ask(fetch(0, (Position(0, 1), 1)))
    assert isinstance(client.answer(), Produced)
    return rig, client, follower


def ask(client: Peer) -> list[EntryPosition]:
    """The half messages that a group is asked for now."""
    client.ask(CheckHalves(0, 60_000, "shop", 0))
    client.rig.settle()
    answer = client.answer()
    assert isinstance(answer, HalvesToCheck)
    return [(half.offset, half.side) for half in answer.halves]


def aborts(rig: Rig) -> list[Decide]:
    """The aborts that are proposed."""
    return [command for _, command in rig.commands if isinstance(command, Decide)]


# ── half messages ───────────────────────────────────────────────────────────────────────────────


def test_a_half_message_that_is_being_dropped_is_not_published() -> None:
    rig, client, follower = pair_with_half()
    assert client.ask(EndHalf(0, 5_000, "flights", 0, 0, 0, False)) == []
    other = rig.client("other")
    other.ask(EndHalf(0, 5_000, "flights", 0, 0, 0, True))
    with pytest.raises(Unavailable):
        other.answer()
    pass_time(rig, 7_000)
    assert ask(other) == []
    follower.ask(fetch(1, (rig.replica().end, 1)))
    other.ask(EndHalf(0, 5_000, "flights", 0, 0, 0, True))
    answer = other.answer()
    assert isinstance(answer, HalfEnded)
    assert answer.outcome == "aborted"
    assert rig.replica().end.offset == 0


def test_a_half_message_that_is_being_published_is_not_asked_for() -> None:
    rig, client, _ = pair_with_half()
    assert client.ask(EndHalf(0, 60_000, "flights", 0, 0, 0, True)) == []
    pass_time(rig, 7_000)
    assert ask(rig.client("group")) == []


@pytest.mark.parametrize("place", [(-1, 0), (0, -1), (0, 1 << 40), (0, 0)])
def test_no_half_message_stands_where_none_can(place: EntryPosition) -> None:
    _, client = alone()
    delayed = produce()
    delayed.due_ms = 1_700_000_600_000
    for request in (delayed, produce()):
        client.ask(request, [batch()])
        client.answer()
    client.ask(EndHalf(0, 5_000, "flights", 0, *place, True))
    with pytest.raises(TransactionError) as caught:
        client.answer()
    assert caught.value.code == "UNKNOWN_HANDLES"


def test_a_group_is_asked_for_so_many_at_once_and_the_rest_next() -> None:
    rig, client = alone()
    places = [park(client, b"%d" % n, SHOP) for n in range(40)]
    pass_time(rig, 7_000)
    assert ask(client) == places[:32]
    pass_time(rig, 1_000)
    assert ask(client) == places[32:]


def test_a_group_is_asked_for_so_many_bytes_at_once() -> None:
    rig, client = alone()
    places = [park(client, bytes(600_000), SHOP) for _ in range(5)]
    pass_time(rig, 7_000)
    for part in (places[:2], places[2:4], places[4:]):
        assert ask(client) == part
        pass_time(rig, 1_000)


def uncertain() -> Rig:
    """A new leader of what another has parked, whose HW has not reached its end at election."""
    first, client, follower = pair_with_half()
    client.ask(park_request(of()), [batch()])
    follower.ask(fetch(1, (Position(0, 2), 1)))
    client.ask(produce(), [batch()])
    rig = Rig(first.storage, incarnation="two", transaction_timeout_ms=60_000)
    rig.wall_ms = first.wall_ms
    rig.lead(epoch=2, isr=PAIR, replicas=PAIR)
    return rig


def test_who_is_not_certain_of_what_waits_asks_nobody_for_it() -> None:
    rig = uncertain()
    follower, group = rig.follower(), rig.client("group")
    for number in range(70):
        follower.ask(fetch(number, (Position(0, 1), 1), epoch=2, wait_ms=0))
        pass_time(rig, 1_000)
    assert ask(group) == []
    assert aborts(rig) == []
    follower.ask(fetch(70, (Position(1), 1), epoch=2))
    pass_time(rig, 2_000)
    assert len(aborts(rig)) == 1


# ── orphans ─────────────────────────────────────────────────────────────────────────────────────


def test_orphans_of_every_queue_are_found() -> None:
    rig = Rig(transaction_timeout_ms=60_000)
    rig.lead(queues=3)
    client = rig.client()
    message = park_request(of(sequence=4))
    message.queue = 2
    client.ask(message, [batch()])
    assert isinstance(client.answer(), Produced)
    pass_time(rig, 62_000)
    assert [each.parked for each in aborts(rig)] == [[ParkedBatches(1, 2, [])]]


def test_many_orphans_end_in_turn() -> None:
    rig, client = alone()
    for n in range(40):
        park(client, b"", of(sequence=n))
    pass_time(rig, 62_000)
    seen = {each.sequence for each in aborts(rig)}
    assert len(seen) == 32
    while rig.commands:
        rig.decide()
    pass_time(rig, 2_000)
    seen |= {each.sequence for each in aborts(rig)}
    assert seen == set(range(40))


# ── handles ─────────────────────────────────────────────────────────────────────────────────────


def test_handles_that_cannot_be_are_unknown() -> None:
    _, client = alone()
    mine = park(client, b"1")
    client.ask(produce(), [batch()])
    asked: list[EntryPosition] = [(-1, 0), (0, -1), mine, (0, 1 << 40), (1 << 60, 0)]
    client.ask(CheckParked(0, 1_000, "flights", 0, of(), asked))
    answer = client.answer()
    assert isinstance(answer, ParkedChecked)
    assert answer.unknown == [place for place in asked if place != mine]


def test_what_is_parked_is_sent_along_where_it_is_wanted() -> None:
    _, client = alone()
    mine = [park(client, b"%d" % n) for n in range(3)]
    missing = (mine[-1][0], mine[-1][1] + 1)
    for places, most, count in (
        (mine, 1 << 20, 3),
        (mine, 1, 1),
        (mine, 150, 2),
        ([mine[2], mine[0]], 1 << 20, 2),
        ([mine[0], missing, mine[1]], 1 << 20, 1),
        ([missing, mine[0]], 1 << 20, 0),
        (mine, 0, 0),
    ):
        (reply,) = client.ask(CheckParked(0, 1_000, "flights", 0, of(), places, 0, most))
        answer, batches = reply.message, reply.batches
        assert isinstance(answer, ParkedChecked)
        assert answer.unknown == [place for place in places if place == missing]
        wanted = [mine.index(place) for place in places if place != missing][:count]
        assert [open_batch(each).values() for each in batches] == [[b"%d" % n] for n in wanted]


def test_more_handles_than_are_taken_are_unknown() -> None:
    rig, client = alone()
    mine = park(client, b"1")
    client.ask(CheckParked(0, 1_000, "flights", 0, of(), [mine] * (MAX_HANDLES + 2)))
    rig.settle()
    answer = client.answer()
    assert isinstance(answer, ParkedChecked)
    assert answer.unknown == [mine] * 2
