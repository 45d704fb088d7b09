"""Batches of transactions at a leader: parked, decided, released at once per queue, or dropped."""

from __future__ import annotations

import copy
from collections import Counter

import pytest

from logboom.nodes.log.keys import Position
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica import parked_queue
from logboom.nodes.replica.parked_queue import ApplyResult, ParkedQueue
from logboom.nodes.replica.replica import Replica
from logboom.nodes.transactions.orphan_aborter import (
    LOOKED_PER_TURN,
    SCAN_INTERVAL_S,
    OrphanAborter,
)
from logboom.nodes.turn import BrokerTurn
from logboom.wire.batch import peek, released_from
from logboom.wire.errors import (
    InvalidRequest,
    LogboomError,
    NotLeader,
    TransactionError,
    Unavailable,
)
from logboom.wire.head import ControlKind
from logboom.wire.messages import (
    OffsetForTime,
    OffsetForTimeResult,
    Offsets,
    OffsetsResult,
    Ok,
    Produce,
)
from logboom.wire.parking import Recall
from logboom.wire.transactions import (
    AppliedDecision,
    AwaitDecided,
    CheckParked,
    Decide,
    EntryPosition,
    ListUndecided,
    ParkedBatches,
    ParkedChecked,
    ReportDecided,
    TransactionId,
    UndecidedBatch,
    UndecidedListed,
)
from logboom.wire.view import TopicConfig
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.replica.test_parked_queue import pass_time
from tests.unit.nodes.rig import ME, Peer, Rig, batch, fetch, produce, pull
from tests.unit.nodes.transactions.transactions_rig import (
    abort,
    alone,
    commit,
    letters,
    of,
    park,
    park_request,
    read,
)

PAIR = (ME, "broker-2")


def pair() -> tuple[Rig, Peer, Peer]:
    """A leader of two replicas, a client, and the follower."""
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR)
    return rig, rig.client(), rig.follower()


def synced_park(client: Peer, follower: Peer, number: int, value: bytes) -> EntryPosition:
    """Park a message and let the follower have it; where."""
    client.ask(park_request(of()), [batch(value=value)])
    follower.ask(fetch(number, (Position(0, number + 1), 1)))
    answer = client.answer()
    place: EntryPosition = (answer.base_offset, answer.side)
    return place


def kinds(rig: Rig) -> list[int]:
    """What stands in the log, in order."""
    return [peek(entry).kind for entry in rig.storage.content("log").values()]


def test_what_is_committed_is_released_in_the_listed_order_and_the_rest_dropped() -> None:
    rig, client = alone()
    first, zombie, second = (park(client, value) for value in (b"1", b"x", b"2"))
    older = park(client, b"y", of(attempt=7))
    assert (first, zombie, second, older) == ((0, 0), (0, 1), (0, 2), (0, 3))
    assert read(client) == []
    rig.announce(commit(5, second, first))
    rig.settle()
    assert read(client) == [b"2", b"1"]
    parked = rig.replica().parked
    assert (parked.count, parked.size, parked.undecided, parked.done) == (0, 0, 0, 5)
    assert parked.release is None
    assert letters(rig) == [b"c", b"n", b"x"]
    assert kinds(rig) == [ControlKind.PARKED] * 4 + [
        ControlKind.DECIDED,
        ControlKind.MESSAGES,
        ControlKind.MESSAGES,
    ]


def test_other_applications_and_later_sequences_wait_on() -> None:
    rig, client = alone()
    place = park(client, b"1")
    park(client, b"2", of(sequence=1))
    park(client, b"3", TransactionId("app2", 0, 0))
    park(client, b"4", TransactionId("ap", 0, 0))
    rig.announce(commit(5, place))
    rig.settle()
    assert read(client) == [b"1"]
    assert rig.replica().parked.undecided == 3


def test_a_commit_drops_what_older_sequences_left() -> None:
    rig, client = alone()
    park(client, b"old", of(sequence=3))
    place = park(client, b"new", of(sequence=4))
    rig.announce(commit(5, place, sequence=4))
    rig.settle()
    assert read(client) == [b"new"]
    assert rig.replica().parked.count == 0


def test_a_decision_that_drops_very_much_takes_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parked_queue, "DROPPED_AT_ONCE", 3)
    rig, client = alone()
    left = [park(client, b"x", of(attempt=7)) for _ in range(10)]
    place = park(client, b"1")
    apply, dropped, halfway = ParkedQueue.apply, list[int](), list[SimulatedStorage]()

    def seen(
        self: ParkedQueue, hw: Position, storage: SimulatedStorage, writes: WriteSet
    ) -> ApplyResult:
        if len(dropped) == 2:
            halfway.append(copy.deepcopy(storage))
        applied = apply(self, hw, storage, writes)
        if applied.ended:
            dropped.append(len(applied.ended))
        return applied

    with monkeypatch.context() as patch:
        patch.setattr(ParkedQueue, "apply", seen)
        rig.announce(commit(5, place))
        rig.settle()
    assert dropped == [3, 3, 3, 2], "the last with the release"
    assert read(client) == [b"1"]
    # A process that begins in the middle goes on.
    rows = [key for key in halfway[0].content("parked") if key[8:9] == b"p"]
    assert len(rows) == 11 - 6
    again = Rig(halfway[0], incarnation="two", mono=rig.mono)
    again.lead(epoch=2)
    again.announce(commit(5, place))
    again.settle()
    assert read(again.client()) == [b"1"]
    for each in (rig, again):
        assert each.replica().parked.count == each.replica().parked.undecided == 0
        assert letters(each) == [b"c", b"n", b"x"]
        reader = each.client()
        reader.ask(CheckParked(0, 1_000, "flights", 0, of(attempt=7), left))
        assert reader.answer().unknown == left


def test_an_abort_ends_its_attempt_alone() -> None:
    rig, client = alone()
    park(client, b"1")
    place = park(client, b"2", of(attempt=1))
    rig.announce(abort(5))
    rig.settle()
    assert rig.replica().parked.undecided == 1
    rig.announce(commit(6, place, attempt=1))
    rig.settle()
    assert read(client) == [b"2"]


def test_nothing_is_released_twice_nor_that_is_not_the_transactions() -> None:
    rig, client = alone()
    mine = park(client, b"mine")
    other = park(client, b"other", of(app_id="other"))
    attempt = park(client, b"attempt", of(attempt=3))
    client.ask(produce(), [batch(value=b"plain")])
    listed = (mine, other, mine, attempt, (0, 9), (77, 0), (1, 0))
    rig.announce(commit(5, *listed))
    rig.settle()
    assert read(client) == [b"plain", b"mine"]
    assert rig.replica().parked.undecided == 1
    # What was decided stays decided, if it is told again.
    rig.announce(commit(5, *listed))
    rig.settle()
    assert read(client) == [b"plain", b"mine"]


def test_t1_a_decided_transaction_takes_nothing_more() -> None:
    rig, client = alone()
    rig.announce(commit(5, park(client, b"1", of(sequence=4)), sequence=4), abort(6, 7, 1))
    rig.settle()
    end = rig.replica().end
    for transaction, code in (
        (of(sequence=4), "TRANSACTION_CLOSED"),
        (of(sequence=3, attempt=9), "TRANSACTION_CLOSED"),
        (of(sequence=7, attempt=1), "TRANSACTION_ABORTED"),
    ):
        client.ask(park_request(transaction), [batch()])
        with pytest.raises(TransactionError) as caught:
            client.answer()
        assert caught.value.code == code
    assert rig.replica().end == end
    park(client, b"2", of(sequence=7, attempt=2))


@pytest.mark.parametrize(
    "wrong",
    [
        Produce(0, 1, "flights", 0, "leader", transaction=of()),
        Produce(0, 1, "flights", 0, "all", 0, 1, transaction=of()),
        park_request(of(sequence=-2)),
        park_request(of(attempt=-1)),
        park_request(of(app_id="")),
        park_request(of(app_id="a\0b")),
        park_request(of(app_id="x" * 256)),
    ],
)
def test_what_cannot_be_a_transaction_is_refused(wrong: Produce) -> None:
    rig, client = alone()
    client.ask(wrong, [batch()])
    with pytest.raises(InvalidRequest):
        client.answer()
    assert rig.replica().end == Position(0)


def test_a_retry_parks_nothing_more() -> None:
    rig, client = alone()
    for _ in range(2):
        client.ask(park_request(of()), [batch(1, 9, 0, 0)])
        answer = client.answer()
        assert (answer.base_offset, answer.side) == (0, 0)
    assert rig.replica().parked.count == 1


def test_what_waits_for_a_decision_cannot_be_recalled() -> None:
    _, client = alone()
    park(client, b"1")
    client.ask(Recall(0, 1_000, "flights", 0, 0, 0))
    with pytest.raises(InvalidRequest):
        client.answer()


def test_readers_see_nothing_of_a_release_before_all_of_it_is_below_the_hw() -> None:
    rig, client, follower = pair()
    places = [synced_park(client, follower, n, b"%d" % n) for n in range(3)]
    rig.announce(commit(5, *places))
    rig.settle()
    assert rig.replica().end == Position(3)
    client.ask(produce(), [batch(value=b"plain")])
    follower.ask(fetch(3, (Position(2), 1)))
    rig.settle()
    assert rig.replica().hw == Position(2)
    assert rig.replica().readable == Position(0, 3)
    assert read(client) == []
    assert read(client, uncommitted=True) == [b"0", b"1"]
    client.ask(Offsets(0, 1_000, "flights", [0]))
    assert isinstance(answer := client.answer(), OffsetsResult)
    assert answer.offsets == [(0, 0)]
    client.ask(OffsetForTime(0, 1_000, "flights", 0, 0))
    assert isinstance(found := client.answer(), OffsetForTimeResult)
    assert found.offset == 0
    assert found.timestamp_ms == -1
    # A reader that waits is woken once all of it is there.
    reader = rig.client("reader")
    assert reader.ask(pull(0, wait_ms=5_000)) == []
    follower.ask(fetch(4, (Position(4), 1)))
    rig.settle()
    assert len(reader.taken()[0].batches) == 4
    assert read(client) == [b"0", b"1", b"2", b"plain"]


def test_a_pull_by_a_filter_sees_no_part_of_a_release_either() -> None:
    rig, client, follower = pair()
    places = [synced_park(client, follower, n, b"%d" % n) for n in range(2)]
    rig.announce(commit(5, *places))
    rig.settle()
    follower.ask(fetch(2, (Position(1), 1)))
    rig.settle()
    message = pull(0, wait_ms=5_000)
    message.filter = "* WHERE _timestamp >= 0"
    assert client.ask(message) == []
    rig.settle(0.5)
    assert client.taken() == []
    follower.ask(fetch(3, (Position(2), 1)))
    rig.settle()
    assert len(client.taken()[0].batches) > 0


def test_a_follower_shows_no_part_of_a_release() -> None:
    rig, client, follower = pair()
    places = [synced_park(client, follower, n, b"%d" % n) for n in range(2)]
    rig.announce(commit(5, *places))
    rig.settle()
    follower.ask(fetch(2, (Position(1), 1)))
    rig.settle()
    again = Rig(rig.storage, incarnation="two", follower_reads=True)
    again.lead(epoch=2, leader="broker-2", isr=PAIR, replicas=PAIR)
    replica = again.replica()
    assert replica.role == "follower"
    assert replica.hw == Position(1)
    assert replica.readable == Position(0, 2)
    assert read(again.client()) == []
    replica.raise_hw(Position(2))
    assert replica.readable == Position(0, 2)


@pytest.mark.parametrize("end", [Position(0, 4), Position(1), Position(2), Position(3)])
def test_t3_a_new_leader_goes_on_where_the_last_one_came_to(end: Position) -> None:
    rig, client, follower = pair()
    places = [synced_park(client, follower, n, b"%d" % n) for n in range(3)]
    rig.announce(commit(5, *places))
    rig.settle()
    # A part of what was appended comes to the next leader, which does not know that it is in sync.
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2, leader="broker-2", isr=PAIR, replicas=PAIR)
    replica = again.replica()
    cut(again, end)
    again.lead(epoch=3, isr=PAIR, replicas=PAIR)
    again.announce(commit(5, *places))
    again.settle()
    assert replica.end == end, "nothing is appended before the HW reached the end at election"
    after = again.follower()
    after.ask(fetch(0, (end, 1), epoch=3))
    again.settle()
    after.ask(fetch(1, (again.replica().end, 3), epoch=3))
    again.settle()
    assert read(again.client()) == [b"0", b"1", b"2"]
    assert again.replica().parked.count == 0


def cut(rig: Rig, end: Position) -> None:
    """The rig's queue is cut, as by a new leader's comparison."""
    writes = WriteSet()
    replica = rig.replica()
    if end < replica.end:
        replica.cut(end, writes, rig.storage)
        replica.stage_record(writes)
        rig.storage.write(writes)
        replica.written = replica.synced = replica.end


def test_who_waits_is_answered_once_it_is_below_the_hw_and_it_is_reported_once() -> None:
    rig, client, follower = pair()
    place = synced_park(client, follower, 0, b"1")
    assert client.ask(AwaitDecided(0, 5_000, "flights", 0, 5)) == []
    rig.announce(commit(5, place))
    rig.settle()
    assert client.taken() == []
    assert rig.commands == []
    follower.ask(fetch(1, (Position(1), 1)))
    rig.settle()
    assert isinstance(client.answer(), Ok)
    command = rig.decide()
    assert isinstance(command, ReportDecided)
    assert command.done == [AppliedDecision(5, 1, 0)]
    rig.announce(ended=[5])
    rig.settle()
    assert rig.commands == []
    client.ask(AwaitDecided(0, 5_000, "flights", 0, 5))
    assert isinstance(client.answer(), Ok)


def test_a_refused_report_is_repeated() -> None:
    rig, client = alone()
    rig.announce(commit(5, park(client, b"1")))
    rig.settle()
    assert isinstance(rig.decide("FENCED_BROKER"), ReportDecided)
    assert rig.commands == []
    rig.settle(1.0)
    assert isinstance(rig.decide(), ReportDecided)


def test_t3_a_new_leader_reports_again_what_it_finds_done() -> None:
    rig, client = alone()
    place = park(client, b"1")
    rig.announce(commit(5, place))
    rig.settle()
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2)
    again.settle()
    assert again.commands == []
    again.announce(commit(5, place))
    again.settle()
    command = again.decide()
    assert isinstance(command, ReportDecided)
    assert command.done == [AppliedDecision(5, 1, 0)]
    assert read(again.client()) == [b"1"]


def test_who_waits_at_a_leader_that_is_none_any_more_is_sent_on() -> None:
    rig, client, _ = pair()
    assert client.ask(AwaitDecided(0, 5_000, "flights", 0, 99)) == []
    rig.lead(epoch=2, leader="broker-2", isr=PAIR, replicas=PAIR)
    rig.settle()
    with pytest.raises(NotLeader):
        client.answer()
    assert client.ask(AwaitDecided(0, 5_000, "flights", 0, 99)) != []
    with pytest.raises(NotLeader):
        client.answer()


def test_who_waits_too_long_is_told_to_ask_again() -> None:
    rig, client = alone()
    assert client.ask(AwaitDecided(0, 1_000, "flights", 0, 99)) == []
    rig.settle(1.1)
    with pytest.raises(LogboomError) as caught:
        client.answer()
    assert caught.value.retryable


def test_decisions_are_carried_out_in_their_order_whenever_they_are_heard_of() -> None:
    rig, client = alone()
    one = park(client, b"1")
    two = park(client, b"2", of(sequence=1))
    rig.announce(commit(9, two, sequence=1), commit(5, one))
    rig.settle()
    assert read(client) == [b"1", b"2"]
    assert rig.replica().parked.done == 9


def test_a_release_larger_than_a_turn_takes_several_and_is_seen_at_once() -> None:
    rig, client = alone()
    places = [park(client, b"%d" % n) for n in range(600)]
    reader = rig.client("reader")
    assert reader.ask(pull(0, wait_ms=60_000)) == []
    rig.announce(commit(5, *places))
    rig.settle()
    assert len(reader.taken()[0].batches) == 600
    assert rig.broker.stats.counters["released_batches"] == 600


def test_t2_nobody_drops_by_its_own_clock() -> None:
    rig, client = alone()
    place = park(client, b"1")
    park(client, b"2")
    park(client, b"3", of(sequence=8, attempt=4))
    pass_time(rig, 59_000)
    assert rig.commands == []
    pass_time(rig, 2_000)
    aborts = [rig.decide() for _ in range(2)]
    assert [isinstance(command, Decide) for command in aborts] == [True, True]
    assert {
        (c.sequence, c.attempt, c.commit, c.epoch) for c in aborts if isinstance(c, Decide)
    } == {(0, 0, False, -1), (8, 4, False, -1)}
    assert all(c.parked == [ParkedBatches(1, 0, [])] for c in aborts if isinstance(c, Decide))
    pass_time(rig, 3_000)
    assert rig.replica().parked.undecided == 3
    assert rig.commands == []
    # The commit had been decided before.
    rig.announce(commit(50, place))
    rig.settle()
    assert read(client) == [b"1"]
    # What nobody answers is asked again.
    assert isinstance(rig.decide(), ReportDecided)
    pass_time(rig, 11_000)
    last = rig.decide()
    assert isinstance(last, Decide)
    assert (last.sequence, last.attempt) == (8, 4)


def test_handles_are_checked() -> None:
    rig, client = alone()
    mine = park(client, b"1")
    other = park(client, b"2", of(sequence=1))
    client.ask(produce(), [batch()])
    asked: list[EntryPosition] = [mine, other, (0, 2), (1, 0), (900, 5), (0, 1 << 31)]
    client.ask(CheckParked(0, 1_000, "flights", 0, of(), asked))
    answer = client.answer()
    assert isinstance(answer, ParkedChecked)
    assert answer.unknown == asked[1:]
    rig.announce(commit(5, mine))
    rig.settle()
    client.ask(CheckParked(0, 1_000, "flights", 0, of(), [mine]))
    assert isinstance(later := client.answer(), ParkedChecked)
    assert later.unknown == [mine]


def test_handles_of_which_this_leader_is_not_certain_are_checked_later() -> None:
    _, client, _ = pair()
    client.ask(park_request(of()), [batch()])
    again = Rig(incarnation="two")
    again.lead(isr=PAIR, replicas=PAIR)
    other = again.client()
    other.ask(produce("leader"), [batch()])
    again.lead(epoch=2, isr=PAIR, replicas=PAIR)
    other.ask(CheckParked(0, 1_000, "flights", 0, of(), [(0, 0)]))
    with pytest.raises(Unavailable):
        other.answer()


def test_what_waits_is_listed_oldest_first() -> None:
    rig, client = alone()
    park(client, b"1")
    rig.wall_ms += 1_000
    park(client, b"12", of(app_id="other"))
    rig.wall_ms += 1_000
    park(client, b"3", of(sequence=2))
    client.ask(ListUndecided(0, 1_000))
    answer = client.answer()
    assert isinstance(answer, UndecidedListed)
    found = [(u.transaction.app_id, u.transaction.sequence, u.side) for u in answer.parked]
    assert found == [("app", 0, 0), ("other", 0, 1), ("app", 2, 2)]
    assert [u.count for u in answer.parked] == [1, 1, 1]
    assert answer.parked[1].parked_ms - answer.parked[0].parked_ms == 1_000
    assert not answer.more
    client.ask(ListUndecided(0, 1_000, "app", 1))
    assert isinstance(later := client.answer(), UndecidedListed)
    assert [u.side for u in later.parked] == [0]
    assert later.more


@pytest.mark.parametrize("app_id", ["", "app"])
@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
def test_all_that_waits_is_listed_page_by_page(app_id: str, at_once: int) -> None:
    rig, client = alone()
    for n in range(20):
        park(client, b"%d" % n, of(sequence=20 - n // 3, attempt=n % 2))
        park(client, b"%d" % n, of(app_id="other"))
        rig.wall_ms += n % 4
    found: list[UndecidedBatch] = []
    more = True
    while more:
        after = found[-1] if found else None
        client.ask(ListUndecided(0, 1_000, app_id, at_once, after))
        answer = client.answer()
        assert isinstance(answer, UndecidedListed)
        assert len(answer.parked) == at_once or not answer.more
        found += answer.parked
        more = answer.more
    if app_id:
        order = [(u.transaction.sequence, u.transaction.attempt, u.side) for u in found]
    else:
        order = [(u.parked_ms, 0, u.side) for u in found]
    assert order == sorted(order)
    assert len(set(order)) == len(found) == (20 if app_id else 40)


def test_retention_and_carrying_leave_transactions_whole() -> None:
    rig = Rig(transaction_timeout_ms=10_000_000)
    rig.lead(config=TopicConfig(retention_ms=1_000))
    client = rig.client()
    places = [park(client, b"%d" % n) for n in range(3)]
    for _ in range(20):
        client.ask(produce(), [batch(value=b"x" * 100)])
    pass_time(rig, 200_000)
    assert rig.broker.stats.counters["carried_batches"] == 3
    assert rig.replica().start == 20
    client.ask(CheckParked(0, 1_000, "flights", 0, of(), places))
    assert client.answer().unknown == []
    rig.announce(commit(50, *reversed(places)))
    rig.settle()
    assert read(client, 20) == [b"2", b"1", b"0"]
    assert rig.replica().parked.count == rig.replica().parked.undecided == 0
    replies = client.ask(pull(20))
    assert [released_from(entry) for entry in replies[0].batches] == [(20, 2), (20, 1), (20, 0)]


def test_what_is_parked_for_a_transaction_outlives_a_restart() -> None:
    rig, client = alone()
    places = [park(client, b"%d" % n) for n in range(2)]
    again = Rig(rig.storage, incarnation="two")
    again.wall_ms = rig.wall_ms
    again.lead(epoch=2)
    assert again.replica().parked.undecided == 2
    again.announce(commit(5, *places))
    again.settle()
    assert read(again.client()) == [b"0", b"1"]
    third = Rig(again.storage, incarnation="three")
    third.lead(epoch=3)
    assert third.replica().parked.done == 5
    assert third.replica().parked.undecided == 0


def test_orphans_of_a_clock_that_was_ahead_end_too() -> None:
    rig, client = alone()
    rig.wall_ms += 3_600_000
    park(client, b"1")
    rig.wall_ms -= 3_600_000
    pass_time(rig, 59_000)
    assert rig.commands == []
    pass_time(rig, 3_000)
    assert isinstance(rig.decide(), Decide)


def test_what_took_minutes_can_be_committed() -> None:
    # A Spark micro-batch whose executors died: what runs again has the same attempt, and what the
    # dead have parked must not have ended it.
    rig = Rig()
    rig.lead()
    client = rig.client()
    park(client, b"of a dead task")
    pass_time(rig, 10 * 60_000)
    place = park(client, b"again")
    assert rig.commands == []
    rig.announce(commit(5, place))
    rig.settle()
    assert read(client) == [b"again"]


def test_a_turn_looks_for_orphans_in_some_queues_and_those_after_it_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queues = 5 * LOOKED_PER_TURN
    rig = Rig(transaction_timeout_ms=60_000)
    rig.lead(queues=queues)
    client = rig.client()
    for queue in range(queues):
        request = park_request(of(sequence=queue))
        request.queue = queue
        client.ask(request, [batch(value=b"v")])
        client.answer()
    looked: list[tuple[BrokerTurn, int]] = []

    def look(_self: object, replica: Replica, _before: object, turn: BrokerTurn) -> None:
        looked.append((turn, replica.queue))

    monkeypatch.setattr(OrphanAborter, "_look", look)
    rig.settle(SCAN_INTERVAL_S)
    assert {queue for _, queue in looked} == set(range(queues))
    assert max(Counter(id(turn) for turn, _ in looked).values()) == LOOKED_PER_TURN
