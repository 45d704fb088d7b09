"""Parked batches at a leader: acknowledged like any other, released once at their time, recalled."""

from __future__ import annotations

import random

import pytest

from logboom.nodes.log.keys import Position
from logboom.wire.batch import open_batch, released_from, validate_batch
from logboom.wire.errors import InvalidRequest, NotEnoughReplicas, Unavailable
from logboom.wire.messages import (
    Produce,
    Produced,
    Pulled,
    Replicated,
    Stats,
    StatsResult,
)
from logboom.wire.parking import (
    MAX_DELAY_MS,
    DelayedBatch,
    DelayedListed,
    ListDelayed,
    Recall,
    Recalled,
)
from logboom.wire.view import TopicConfig
from tests.thorough import seeds
from tests.unit.nodes.rig import ME, Peer, Rig, batch, fetch, produce, pull

PAIR = (ME, "broker-2")


def park(rig: Rig, delay_ms: int) -> Produce:
    """A PRODUCE of a batch that is due so much later."""
    return Produce(0, 30_000, "flights", 0, "all", 0, rig.wall_ms + delay_ms)


def recall(place: Produced, wait_ms: int = 30_000) -> Recall:
    """A RECALL of what was parked."""
    return Recall(0, wait_ms, "flights", 0, place.base_offset, place.side)


def alone() -> tuple[Rig, Peer]:
    """A broker that leads a queue of one replica, and a client."""
    rig = Rig()
    rig.lead()
    return rig, rig.client()


def parked(rig: Rig, client: Peer, delay_ms: int, *, sequence: int = -1) -> Produced:
    """Park a batch; the answer."""
    client.ask(park(rig, delay_ms), [numbered(sequence)])
    answer = client.answer()
    assert isinstance(answer, Produced)
    return answer


def numbered(sequence: int) -> bytes:
    """A batch of one message; its producer counts if `sequence` is not negative."""
    if sequence < 0:
        return batch()
    return batch(1, 9, 0, sequence, b"%d" % sequence)


def pass_time(rig: Rig, ms: int) -> None:
    """Let both clocks go on, with a turn whenever the broker wants one."""
    until = rig.mono + ms / 1000
    while rig.mono < until:
        wanted = rig.broker.deadline()
        step = until if wanted is None else min(max(wanted, rig.mono + 0.001), until)
        rig.wall_ms += round((step - rig.mono) * 1000)
        rig.mono = step
        rig.turn()
    rig.settle()


def read(client: Peer, offset: int = 0) -> list[bytes | None]:
    """All values that can be read from an offset on."""
    replies = client.ask(pull(offset))
    assert len(replies) == 1
    assert isinstance(replies[0].message, Pulled)
    return [value for entry in replies[0].batches for value in open_batch(entry).values()]


def test_a_parked_batch_takes_no_offset_and_is_released_at_its_time() -> None:
    rig, client = alone()
    place = parked(rig, client, 5_000, sequence=0)
    assert (place.base_offset, place.side) == (0, 0)
    assert rig.replica().hw == Position(0, 1)
    client.ask(produce(), [batch(2, value=b"now")])
    assert read(client) == [b"now", b"now"]
    pass_time(rig, 4_999)
    assert read(client, 2) == []
    pass_time(rig, 1)
    assert read(client, 2) == [b"0"]
    assert rig.replica().parked.count == 0
    assert rig.storage.content("parked").keys() == {b"\0\0\0\1\0\0\0\0c"}


def test_a_released_batch_names_what_it_was_and_keeps_its_own_time() -> None:
    rig, client = alone()
    due_ms = rig.wall_ms + 10
    parked(rig, client, 10, sequence=0)
    pass_time(rig, 10)
    replies = client.ask(pull(0))
    entry = replies[0].batches[0]
    head = validate_batch(entry)
    assert released_from(entry, head) == (0, 0)
    assert (head.base_offset, head.first_timestamp_ms) == (0, 5)
    assert head.append_time_ms == due_ms


def test_releases_come_in_the_order_of_their_due_times() -> None:
    rig, client = alone()
    for sequence, delay_ms in enumerate([300, 100, 200, 100]):
        parked(rig, client, delay_ms, sequence=sequence)
    pass_time(rig, 1_000)
    assert read(client) == [b"1", b"3", b"2", b"0"]


def test_a_time_in_the_past_is_released_at_once() -> None:
    rig, client = alone()
    parked(rig, client, -60_000, sequence=0)
    rig.settle()
    assert read(client) == [b"0"]


@pytest.mark.parametrize("delay_ms", [-1_700_000_000_002, MAX_DELAY_MS + 3_600_000])
def test_a_delay_that_nobody_can_mean_is_refused(delay_ms: int) -> None:
    rig, client = alone()
    client.ask(park(rig, delay_ms), [batch()])
    with pytest.raises(InvalidRequest):
        client.answer()
    assert rig.replica().end == Position(0)


def test_a_retry_parks_nothing_more_and_gets_the_same_place() -> None:
    rig, client = alone()
    first = parked(rig, client, 1_000, sequence=0)
    second = parked(rig, client, 1_000, sequence=1)
    assert (first.side, second.side) == (0, 1)
    again = parked(rig, client, 1_000, sequence=0)
    assert (again.base_offset, again.side) == (0, 0)
    assert rig.replica().end == Position(0, 2)
    pass_time(rig, 2_000)
    # Released, the sequences of these two are old; those that follow go on from them.
    assert parked(rig, client, 1_000, sequence=1).side == 1
    assert parked(rig, client, 0, sequence=2).base_offset == 2
    rig.settle()
    assert read(client) == [b"0", b"1", b"2"]


def test_windows_with_parked_batches_outlive_a_restart() -> None:
    rig, client = alone()
    parked(rig, client, 1_000, sequence=0)
    client.ask(produce(), [numbered(1)])
    parked(rig, client, 1_000, sequence=2)
    again = Rig(rig.storage, incarnation="two")
    again.wall_ms = rig.wall_ms
    again.lead(epoch=2)
    other = again.client()
    assert parked(again, other, 1_000, sequence=0).side == 0
    place = parked(again, other, 1_000, sequence=2)
    assert (place.base_offset, place.side) == (1, 0)
    assert parked(again, other, 1_000, sequence=3).side == 1


def test_an_ack_waits_for_the_isr_and_a_follower_derives_the_same() -> None:
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR)
    client, follower = rig.client(), rig.follower()
    assert client.ask(park(rig, 1_000), [batch()]) == []
    assert rig.replica().parked.count == 0
    follower.ask(fetch(0, (Position(0, 1), 1)))
    answer = client.answer()
    assert isinstance(answer, Produced)
    assert answer.side == 0
    assert rig.replica().parked.count == 1
    # The release is not read before the follower has it.
    pass_time(rig, 1_000)
    assert rig.replica().end == Position(1)
    assert read(client) == []
    follower.ask(fetch(1, (Position(1), 1)))
    assert read(client) == [b"v"]


def test_a_new_leader_releases_nothing_before_its_hw_reached_its_end() -> None:
    # An earlier leader released it, and that is not yet known to be below the HW.
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR)
    client, follower = rig.client(), rig.follower()
    client.ask(park(rig, 100), [batch()])
    follower.ask(fetch(0, (Position(0, 1), 1)))
    pass_time(rig, 200)
    assert rig.replica().end == Position(1)
    again = Rig(rig.storage, incarnation="two")
    again.wall_ms = rig.wall_ms
    again.lead(epoch=2, isr=PAIR, replicas=PAIR)
    pass_time(again, 500)
    assert again.replica().end == Position(1)
    assert again.replica().parked.count == 1
    place = Produced(0, 0, 0, 0)
    later = again.client()
    later.ask(recall(place))
    with pytest.raises(Unavailable):
        later.answer()
    again.follower().ask(fetch(0, (Position(1), 1), epoch=2))
    pass_time(again, 500)
    assert again.replica().end == Position(1)
    assert again.replica().parked.count == 0
    later.ask(recall(place))
    answer = later.answer()
    assert isinstance(answer, Recalled)
    assert not answer.done


def test_nothing_is_released_while_the_isr_is_too_small() -> None:
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR, config=TopicConfig(retention_ms=-1, min_in_sync=2))
    client, follower = rig.client(), rig.follower()
    client.ask(park(rig, 100), [batch()])
    follower.ask(fetch(0, (Position(0, 1), 1)))
    rig.lead(isr=[ME], replicas=PAIR, config=TopicConfig(retention_ms=-1, min_in_sync=2))
    pass_time(rig, 1_000)
    assert rig.replica().end == Position(0, 1)
    client.ask(park(rig, 100), [batch()])
    with pytest.raises(NotEnoughReplicas):
        client.answer()
    rig.lead(isr=PAIR, replicas=PAIR, config=TopicConfig(retention_ms=-1, min_in_sync=2))
    pass_time(rig, 200)
    assert rig.replica().end == Position(1)


def test_retention_stops_at_the_oldest_parked_batch() -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=1_000))
    client = rig.client()
    client.ask(produce(), [batch(2)])
    parked(rig, client, 500_000)
    client.ask(produce(), [batch(3)])
    pass_time(rig, 120_000)
    assert rig.replica().start == 2
    pass_time(rig, 381_000)
    pass_time(rig, 120_000)
    assert rig.replica().start == 6


def carried() -> tuple[Rig, Peer, list[Produced]]:
    """Three parked batches, carried to the end of a log whose messages have expired."""
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=1_000))
    client = rig.client()
    places = [parked(rig, client, 500_000 + at, sequence=at) for at in range(3)]
    for at in range(20):
        client.ask(produce(), [numbered(3 + at)])
    pass_time(rig, 200_000)
    assert rig.broker.stats.counters["carried_batches"] == 3
    assert rig.replica().start == 20
    assert rig.replica().end == Position(20, 3)
    assert rig.replica().parked.count == 3
    return rig, client, places


def test_what_is_parked_long_is_carried_to_the_end_and_released_once() -> None:
    rig, client, _ = carried()
    parked(rig, client, 600_000, sequence=23)
    pass_time(rig, 300_010)
    assert read(client, 20) == [b"0", b"1", b"2"]
    replies = client.ask(pull(20))
    entry = replies[0].batches[0]
    assert released_from(entry) == (20, 0)
    pass_time(rig, 400_000)
    assert rig.replica().parked.count == rig.replica().parked.size == 0
    assert [key[8:9] for key in rig.storage.content("parked")] == [b"c"]


def test_what_was_carried_is_recalled_by_its_first_place() -> None:
    rig, client, places = carried()
    for _ in range(2):
        client.ask(recall(places[1]))
        answer = client.answer()
        assert isinstance(answer, Recalled)
        assert answer.done
    pass_time(rig, 300_010)
    assert read(client, 20) == [b"0", b"2"]
    client.ask(recall(places[0]))
    answer = client.answer()
    assert isinstance(answer, Recalled)
    assert not answer.done


def test_a_restart_in_the_middle_of_carrying_changes_nothing() -> None:
    rig, _, places = carried()
    again = Rig(rig.storage, incarnation="two", mono=rig.mono)
    again.wall_ms = rig.wall_ms
    again.lead(epoch=2)
    client = again.client()
    client.ask(recall(places[2]))
    answer = client.answer()
    assert isinstance(answer, Recalled)
    assert answer.done
    pass_time(again, 400_000)
    assert read(client, 20) == [b"0", b"1"]


def test_a_log_that_holds_little_else_is_not_carried_round_and_round() -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_bytes=500, retention_ms=-1))
    client = rig.client()
    for sequence in range(30):
        parked(rig, client, 5_000_000, sequence=sequence)
    client.ask(produce(), [batch(3)])
    pass_time(rig, 600_000)
    assert rig.broker.stats.counters["carried_batches"] == 0
    for sequence in range(30, 400):
        client.ask(produce(), [numbered(sequence)])
    pass_time(rig, 600_000)
    assert rig.broker.stats.counters["carried_batches"] == 30
    assert rig.replica().size < 3 * rig.replica().parked.size
    pass_time(rig, 600_000)
    assert rig.broker.stats.counters["carried_batches"] == 30


def test_what_is_parked_is_recalled_once_and_never_delivered() -> None:
    rig, client = alone()
    place, other = (parked(rig, client, 1_000, sequence=at) for at in range(2))
    client.ask(recall(place))
    answer = client.answer()
    assert isinstance(answer, Recalled)
    assert answer.done
    client.ask(recall(place))
    answer = client.answer()
    assert isinstance(answer, Recalled)
    assert answer.done
    pass_time(rig, 2_000)
    assert read(client) == [b"1"]
    client.ask(recall(other))
    answer = client.answer()
    assert isinstance(answer, Recalled)
    assert not answer.done
    assert rig.replica().parked.count == 0


def parked_at_two() -> tuple[Rig, Peer, Peer, Produced]:
    """A leader and its follower, which both have a batch that is due in 100 ms, and its place."""
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR)
    client, follower = rig.client(), rig.follower()
    client.ask(park(rig, 100), [batch()])
    follower.ask(fetch(0, (Position(0, 1), 1)))
    place = client.answer()
    assert isinstance(place, Produced)
    return rig, client, follower, place


def test_a_recall_is_answered_when_the_isr_knows_and_beats_the_release() -> None:
    rig, client, follower, place = parked_at_two()
    assert client.ask(recall(place)) == []
    pass_time(rig, 1_000)
    assert rig.replica().end == Position(0, 2)
    follower.ask(fetch(1, (Position(0, 2), 1)))
    answer = client.answer()
    assert isinstance(answer, Recalled)
    assert answer.done


def test_a_recall_is_not_answered_by_a_release_that_may_still_be_lost() -> None:
    rig, client, follower, place = parked_at_two()
    pass_time(rig, 200)
    assert rig.replica().end == Position(1)
    client.ask(recall(place))
    with pytest.raises(Unavailable, match="is being released"):
        client.answer()
    follower.ask(fetch(1, (Position(1), 1)))
    client.ask(recall(place))
    answer = client.answer()
    assert isinstance(answer, Recalled)
    assert not answer.done


@pytest.mark.parametrize(("offset", "side"), [(0, 1), (9, 0), (-1, 0), (0, -1), (0, 1 << 40)])
def test_a_recall_of_a_place_that_is_none_is_refused(offset: int, side: int) -> None:
    rig, client = alone()
    parked(rig, client, 1_000)
    client.ask(Recall(0, 5_000, "flights", 0, offset, side))
    with pytest.raises(InvalidRequest):
        client.answer()


def test_many_that_are_due_at_once_are_released_in_bounded_turns() -> None:
    rig, client = alone()
    for sequence in range(600):
        parked(rig, client, 60_000, sequence=sequence)
    rig.wall_ms += 60_000
    rig.auto_sync = False
    rig.turn()
    assert rig.replica().end == Position(256)
    rig.auto_sync = True
    rig.settle(1.0)
    assert rig.replica().end == Position(600)


def test_stats_tell_how_many_wait_and_until_when() -> None:
    rig, client = alone()
    parked(rig, client, 2_000)
    parked(rig, client, 1_000)
    client.ask(Stats(0, 1_000))
    answer = client.answer()
    assert isinstance(answer, StatsResult)
    assert answer.counters["parked"] == 2
    assert answer.counters["parked_oldest_due_ms"] == rig.wall_ms + 1_000


def listed(client: Peer, *asked: object) -> DelayedListed:
    """The answer to a LISTDELAYED with these arguments."""
    client.ask(ListDelayed(0, 1_000, *asked))  # type: ignore[arg-type]  # of several types
    answer = client.answer()
    assert isinstance(answer, DelayedListed)
    return answer


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
def test_what_is_delayed_is_listed_page_by_page_the_next_due_first(at_once: int) -> None:
    rig, client = alone()
    for n in range(20):
        parked(rig, client, 60_000 + (n * 7) % 5 * 1_000)
    found: list[DelayedBatch] = []
    more = True
    while more:
        answer = listed(client, "flights", at_once, found[-1] if found else None)
        assert len(answer.delayed) == at_once or not answer.more
        found += answer.delayed
        more = answer.more
    order = [(each.due_ms, each.side) for each in found]
    assert order == sorted(order)
    assert len(set(order)) == 20
    assert {each.topic for each in found} == {"flights"}
    assert all(each.size > 90 for each in found)
    assert listed(client, "others").delayed == []


def test_what_is_recalled_or_released_is_not_listed_any_more() -> None:
    rig, client = alone()
    first, second = parked(rig, client, 1_000), parked(rig, client, 60_000)
    third = parked(rig, client, 50_000)
    assert [each.side for each in listed(client).delayed] == [first.side, third.side, second.side]
    client.ask(recall(third))
    client.answer()
    pass_time(rig, 1_500)
    assert [each.side for each in listed(client).delayed] == [second.side]


def test_a_follower_that_begins_anew_finds_all_that_is_parked_in_the_log() -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=1_000))
    client = rig.client()
    client.ask(produce(), [batch(2)])
    parked(rig, client, 500_000)
    pass_time(rig, 120_000)
    assert rig.replica().start == 2
    follower = rig.follower()
    config = TopicConfig(retention_ms=1_000)
    rig.lead(isr=[ME], replicas=PAIR, config=config)
    replies = follower.ask(fetch(0, (Position(0), -1), broker="broker-2"))
    told = replies[0].message
    assert isinstance(told, Replicated)
    assert told.answers[0].status == "RESET"
    assert told.answers[0].cut_offset == 2
    replies = follower.ask(fetch(1, (Position(2), told.answers[0].leader_epoch)))
    assert any(validate_batch(frame).is_control for frame in replies[0].batches)


@pytest.mark.parametrize("seed", seeds(40))
def test_whatever_crashes_each_is_released_once_and_none_before_its_time(seed: int) -> None:
    rng = random.Random(seed)
    rig = Rig()
    rig.auto_sync = False
    rig.lead()
    client, epoch, sent = rig.client(), 1, 0
    due: dict[bytes, int] = {}
    """Values of acknowledged batches, and when they are due."""
    waiting: dict[int, tuple[bytes, int]] = {}
    for _ in range(60):
        match rng.randrange(6):
            case 0 | 1:
                message = park(rig, rng.randrange(2_000))
                value = b"%d" % sent
                sent += 1
                client.ask(message, [batch(value=value)])
                waiting[len(waiting)] = (value, message.due_ms)
            case 2 | 3:
                client.replies = []
                rig.sync()
                rig.turn()
                due.update(waiting.values())
                waiting.clear()
            case 4:
                rig.wall_ms += (step := rng.randrange(800))
                rig.mono += step / 1000
                rig.turn()
            case _:
                rig.storage.crash(rng)
                waiting.clear()
                epoch += 1
                older = rig
                rig = Rig(older.storage, incarnation=f"run {epoch}", mono=older.mono)
                rig.wall_ms = older.wall_ms
                rig.auto_sync = False
                rig.lead(epoch=epoch)
                client = rig.client()
    rig.auto_sync = True
    rig.sync()
    pass_time(rig, 3_000)
    rig.settle(1.0)
    found: dict[bytes | None, int] = {}
    offset = 0
    while batches := client.ask(pull(offset))[0].batches:
        for entry in batches:
            head = validate_batch(entry)
            [content] = open_batch(entry).values()
            assert content not in found, f"{content!r} twice"
            found[content] = head.append_time_ms
            offset = head.next_offset
    for value, due_ms in due.items():
        assert found[value] >= due_ms
    assert rig.replica().parked.count == 0
