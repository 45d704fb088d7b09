"""Transactions of a producer: all or nothing, once per sequence, whatever is lost on the way."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from logboom.client.flows import Flow
from logboom.client.promise import Promise
from logboom.client.send.producer_batch import ignored
from logboom.client.send.send_buffer import SendBuffer
from logboom.client.transactions.applications import (
    FRESH_MS,
    Application,
    ApplicationIdPool,
    Applications,
    check_chosen,
    opened,
)
from logboom.client.transactions.transaction_work import TransactionWork
from logboom.wire.errors import InvalidRequest, LogboomError, Refused, TimedOut, TransactionError
from logboom.wire.messages import AnyMessage, Failure, Propose
from logboom.wire.transactions import Decide, OpenApplication
from tests.unit.client.scripted import WALL_MS, Cluster
from tests.unit.client.send.test_queue_sender import Sent, producer


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_topic("t", queues=3)
    return made


def drive(cluster: Cluster, flow: Flow[Any]) -> Any:
    """Run a flow against the scripted nodes."""
    try:
        call = next(flow)
        while True:
            cluster.call(call)
            assert cluster.run(200, partial(_is_done, call.outcome)), call
            try:
                value = call.outcome.get()
            except LogboomError as error:
                call = flow.throw(error)
            else:
                call = flow.send(value)
    except StopIteration as end:
        return end.value


def _is_done(outcome: Promise[Any]) -> bool:
    return outcome.done


class Desk:
    """One client's transactions under the application id "app"."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.cluster = cluster
        self.options = options
        self.applications = Applications()

    def begin(
        self, sequence: int | None = None, app_id: str = "app"
    ) -> tuple[TransactionWork, SendBuffer[Sent]]:
        application = self.open(app_id)
        buffer = producer(self.cluster, linger_ms=1_000, **self.options)
        return TransactionWork(application, sequence, buffer), buffer

    def open(self, app_id: str = "app") -> Application:
        application = self.applications.take(app_id)
        drive(self.cluster, opened(application, WALL_MS, 5))
        self.applications.give_back(application)
        return application

    def commit(self, work: TransactionWork, timeout: float = 10) -> None:
        drive(self.cluster, work.commit(WALL_MS, timeout))

    def abort(self, work: TransactionWork) -> None:
        drive(self.cluster, work.abort(WALL_MS, 10))


@pytest.fixture
def desk(cluster: Cluster) -> Desk:
    return Desk(cluster)


def published(cluster: Cluster) -> list[bytes]:
    return [value for log in cluster.topics["t"] for value in log.values() if value is not None]


def only_decides(keep: bool | Failure | None) -> Any:
    """Every decision is lost (True), its answer is (False), or it fails so."""

    def intercept(_: str, message: AnyMessage) -> bool | Failure | None:
        decides = isinstance(message, Propose) and isinstance(message.command, Decide)
        return keep if decides else None

    return intercept


def test_nothing_is_read_before_the_commit_and_all_after_it(cluster: Cluster, desk: Desk) -> None:
    work, buffer = desk.begin()
    for n in range(6):
        buffer.send("t", b"%d" % n, queue=n % 3)
    cluster.run(5)
    assert len(cluster.decisions.parked) == 3
    assert published(cluster) == []
    buffer.send("t", b"6", queue=0)
    desk.commit(work)
    assert published(cluster) == [b"0", b"3", b"6", b"1", b"4", b"2", b"5"]
    assert (work.state, work.duplicate, work.sequence) == ("committed", False, 0)
    (decided,) = cluster.decisions.decided
    assert [len(each.places) for each in decided.parked] == [2, 1, 1]
    desk.commit(work)  # again: nothing
    assert len(cluster.decisions.decided) == 1
    with pytest.raises(TransactionError, match="has ended"):
        desk.abort(work)


def test_an_abort_drops_everything(cluster: Cluster, desk: Desk) -> None:
    work, buffer = desk.begin()
    parked, _ = buffer.send("t", b"1", queue=0)
    cluster.run(3)
    waiting, _ = buffer.send("t", b"2", queue=0)
    desk.abort(work)
    desk.abort(work)
    assert cluster.decisions.parked == {}
    assert parked.error is None
    assert isinstance(waiting.error, TransactionError)
    with pytest.raises(TransactionError):
        buffer.send("t", b"3")
    with pytest.raises(TransactionError):
        desk.commit(work)
    work, buffer = desk.begin()
    assert work.sequence == 1
    buffer.send("t", b"4")
    desk.commit(work)
    assert published(cluster) == [b"4"]


def test_an_aborted_sequence_is_tried_again(cluster: Cluster, desk: Desk) -> None:
    for value in (b"first", b"second"):
        work, buffer = desk.begin(sequence=7)
        buffer.send("t", value, queue=0)
        if value == b"first":
            cluster.run(3)
            desk.abort(work)
    desk.commit(work)
    assert published(cluster) == [b"second"]
    commands = [message.command for message in cluster.seen if isinstance(message, Propose)]
    assert commands.count(OpenApplication("app", WALL_MS)) == 1


def test_a_sequence_is_committed_once_by_whoever(cluster: Cluster, desk: Desk) -> None:
    work, buffer = desk.begin(sequence=3)
    buffer.send("t", b"once", queue=0)
    desk.commit(work)
    again, _ = desk.begin(sequence=3)
    assert again.duplicate
    desk.commit(again)
    assert again.state == "committed"
    desk.abort(again)
    assert len(cluster.decisions.decided) == 1
    # Another client that had opened before it: it learns by its own commit.
    late = Application("app")
    late.epoch, late.committed = desk.open().epoch, 2
    buffer = producer(cluster)
    other = TransactionWork(late, 3, buffer)
    buffer.send("t", b"twice", queue=1)
    desk.commit(other)
    assert (other.state, other.duplicate) == ("committed", True)
    assert published(cluster) == [b"once"]
    assert cluster.decisions.parked == {}


def test_a_lost_answer_is_asked_for_again(cluster: Cluster, desk: Desk) -> None:
    work, buffer = desk.begin()
    buffer.send("t", b"x")
    lost: list[AnyMessage] = []

    def lose_first(_: str, message: AnyMessage) -> bool | None:
        if isinstance(message, Propose) and isinstance(message.command, Decide) and not lost:
            lost.append(message)
            return False
        return None

    cluster.intercept = lose_first
    desk.commit(work)
    assert (work.duplicate, published(cluster)) == (False, [b"x"])


@pytest.mark.parametrize("taken", [True, False])
def test_an_unknown_end_can_be_asked_for_again(cluster: Cluster, desk: Desk, taken: bool) -> None:
    work, buffer = desk.begin()
    buffer.send("t", b"x")
    cluster.intercept = only_decides(not taken)
    with pytest.raises(TimedOut) as caught:
        desk.commit(work)
    assert "decided" not in caught.value.fields
    assert (work.state, work.over) == ("unknown", True)
    cluster.intercept = only_decides(None)
    desk.commit(work)
    assert (work.state, work.duplicate, published(cluster)) == ("committed", False, [b"x"])
    assert cluster.decisions.parked == {}


@pytest.mark.parametrize("taken", [True, False])
def test_an_abort_settles_an_unknown_end(cluster: Cluster, desk: Desk, taken: bool) -> None:
    work, buffer = desk.begin()
    buffer.send("t", b"x")
    cluster.intercept = only_decides(not taken)
    with pytest.raises(TimedOut):
        desk.commit(work)
    cluster.intercept = only_decides(None)
    if taken:
        with pytest.raises(TransactionError):
            desk.abort(work)
        assert (work.state, published(cluster)) == ("committed", [b"x"])
    else:
        desk.abort(work)
        assert (work.state, published(cluster)) == ("aborted", [])


def test_whoever_stops_waiting_does_not_know_the_end(cluster: Cluster, desk: Desk) -> None:
    work, buffer = desk.begin()
    buffer.send("t", b"x")
    flow = work.commit(WALL_MS, 10)
    next(flow)
    assert work.state == "deciding"
    flow.close()
    assert (work.state, work.over) == ("unknown", True)
    desk.commit(work)
    assert published(cluster) == [b"x"]


def test_a_queue_that_is_late_does_not_undo_the_commit(cluster: Cluster, desk: Desk) -> None:
    work, buffer = desk.begin()
    buffer.send("t", b"x")
    cluster.decisions.late = True
    with pytest.raises(TimedOut, match="nothing is to be repeated") as caught:
        desk.commit(work)
    assert caught.value.fields["decided"] == "commit"
    assert (work.state, published(cluster)) == ("committed", [b"x"])


def test_a_newer_producer_fences_for_good(cluster: Cluster, desk: Desk) -> None:
    work, buffer = desk.begin()
    buffer.send("t", b"old", queue=0)
    newer = Desk(cluster)
    newer.open()
    with pytest.raises(Refused) as caught:
        desk.commit(work)
    assert caught.value.code == "FENCED"
    assert (work.state, published(cluster), cluster.decisions.parked) == ("aborted", [], {})
    with pytest.raises(Refused):
        desk.applications.take("app")
    work, buffer = newer.begin()
    buffer.send("t", b"new", queue=0)
    newer.commit(work)
    assert published(cluster) == [b"new"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_fenced_producer_does_not_take_anothers_commit_for_its_own(
    cluster: Cluster, desk: Desk, taken: bool
) -> None:
    """Both number their transactions themselves, and get to the same sequence."""
    work, buffer = desk.begin()
    buffer.send("t", b"old", queue=0)
    cluster.intercept = only_decides(not taken)
    if taken:
        cluster.run(3)
    else:
        with pytest.raises(TimedOut):
            desk.commit(work)
    cluster.intercept = only_decides(None)
    newer = Desk(cluster)
    other, buffer = newer.begin()
    buffer.send("t", b"new", queue=0)
    newer.commit(other)
    assert other.sequence == work.sequence
    with pytest.raises(Refused) as caught:
        desk.commit(work)
    assert caught.value.code == "FENCED"
    assert published(cluster) == [b"new"]
    assert work.state == ("aborted" if taken else "unknown")
    with pytest.raises(Refused):
        desk.applications.take("app")


def test_a_queue_that_knows_of_the_commit_refuses_in_time(cluster: Cluster, desk: Desk) -> None:
    for sequence, error in ((None, TransactionError), (0, None)):
        cluster.decisions.committed.clear()
        work, buffer = desk.begin(sequence)
        work_sequence = work.sequence
        cluster.decisions.committed["app"] = work_sequence
        buffer.send("t", b"late", queue=0)
        if error is None:
            work.application.committed = -1
            desk.commit(work)
            assert work.duplicate
        else:
            with pytest.raises(error) as caught:
                desk.commit(work)
            assert caught.value.code == "TRANSACTION_CLOSED"
    assert published(cluster) == []


def test_what_the_brokers_gave_up_cannot_commit(cluster: Cluster, desk: Desk) -> None:
    work, buffer = desk.begin()
    buffer.send("t", b"1", queue=0)
    cluster.run(3)
    whose = work.parks.transaction
    orphaned = Decide(whose.app_id, -1, whose.sequence, whose.attempt, False, [], [], 0)
    cluster.decisions.apply(cluster, orphaned)
    buffer.send("t", b"2", queue=0)
    with pytest.raises(TransactionError, match="aborted"):
        desk.commit(work)
    assert (work.state, published(cluster)) == ("aborted", [])


def test_one_application_has_one_open_transaction(desk: Desk) -> None:
    taken = desk.applications.take("app")
    with pytest.raises(InvalidRequest, match="is open"):
        desk.applications.take("app")
    assert desk.applications.take("other") is not taken
    desk.applications.give_back(taken)
    assert desk.applications.take("app") is taken


@pytest.mark.parametrize("app_id", ["", "x" * 256, "a\0b", "a\nb"])
def test_a_name_that_no_entry_could_hold_is_refused(desk: Desk, app_id: str) -> None:
    with pytest.raises(InvalidRequest):
        desk.applications.take(app_id)


@pytest.mark.parametrize("sequence", [-1, True, 1.5, 1 << 63, "1"])
def test_a_sequence_is_a_whole_number(desk: Desk, sequence: Any) -> None:
    with pytest.raises(InvalidRequest):
        desk.begin(sequence)


def test_too_many_batches_abort(cluster: Cluster, desk: Desk) -> None:
    work, buffer = desk.begin()
    work.parks.limit = 2
    for n in range(2):
        buffer.send_many("t", [b"x"], queue=n)
    with pytest.raises(InvalidRequest) as caught:
        buffer.send_many("t", [b"x"], queue=2)
    assert caught.value.code == "TOO_LARGE"
    with pytest.raises(InvalidRequest):
        desk.commit(work)
    assert (work.state, published(cluster), cluster.decisions.parked) == ("aborted", [], {})
    assert [each.commit for each in cluster.decisions.decided] == [False]


def test_too_many_bytes_abort(
    cluster: Cluster, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.client.transactions.transaction_work.MAX_TRANSACTION_BYTES", 100)
    work, buffer = desk.begin()
    work.check_room()
    buffer.send("t", b"x" * 200)
    with pytest.raises(InvalidRequest, match="100 bytes"):
        work.check_room()
    with pytest.raises(InvalidRequest):
        desk.commit(work)
    assert (work.state, published(cluster)) == ("aborted", [])


def test_batches_fill_longer_the_more_there_are(cluster: Cluster) -> None:
    buffer = producer(cluster)
    work = TransactionWork(Desk(cluster).open(), None, buffer)
    work.parks.limit = 50
    for n in range(10):
        buffer.send("t", b"x", queue=0)
        cluster.run(0.02)
        assert len(cluster.decisions.parked) == min(n + 1, 4)
    cluster.run(1.0)
    assert len(cluster.decisions.parked) == 5
    drive(cluster, work.commit(WALL_MS, 5))
    assert len(published(cluster)) == 10


def test_a_message_of_a_transaction_does_not_wait_for_a_time_too(desk: Desk) -> None:
    _, buffer = desk.begin()
    with pytest.raises(InvalidRequest, match="delay"):
        buffer.send_many("t", [b"x"], deliver_at=WALL_MS)


def test_a_message_that_cannot_be_sent_aborts(cluster: Cluster) -> None:
    desk = Desk(cluster, delivery_timeout_s=3)
    work, buffer = desk.begin()
    buffer.send("t", b"fine", queue=0)
    buffer.send("t", b"nowhere", queue=1)
    cluster.move("t", 1, None)
    with pytest.raises(TimedOut):
        desk.commit(work)
    assert (work.state, published(cluster), cluster.decisions.parked) == ("aborted", [], {})


def test_an_empty_transaction_closes_its_sequence(cluster: Cluster, desk: Desk) -> None:
    work, _ = desk.begin(sequence=4)
    desk.commit(work)
    assert cluster.decisions.committed == {"app": 4}
    own = TransactionWork(desk.open("own"), None, producer(cluster), own=True)
    desk.commit(own)
    assert "own" not in cluster.decisions.committed


def test_what_is_ignored_is_done_at_once() -> None:
    pile = ignored("t", None, 5)
    assert (pile.done, pile.get(), pile.count, pile.queue) == (True, -1, 5, -1)


def test_names_of_ones_own_are_used_again_while_they_are_fresh() -> None:
    made = iter("abcdef")
    names = ApplicationIdPool(lambda: next(made))
    first, gone = names.take(0)
    second, _ = names.take(0)
    assert (first, second, gone) == ("%OWN%a", "%OWN%b", [])
    names.give_back(first, 5)
    names.give_back("chosen", 5)
    assert names.take(5 + FRESH_MS - 1) == (first, [])
    names.give_back(first, 5)
    names.give_back(second, 5)
    assert names.take(5 + FRESH_MS) == ("%OWN%c", [second, first])
    assert first not in names
    assert second not in names


def test_a_name_whose_last_use_a_clock_puts_into_the_future_is_not_taken_for_fresh() -> None:
    made = iter("ab")
    names = ApplicationIdPool(lambda: next(made))
    first, _ = names.take(0)
    names.give_back(first, 400 * FRESH_MS)
    assert names.take(5) == ("%OWN%b", [first])


def test_nobody_chooses_an_id_that_is_not_kept() -> None:
    with pytest.raises(InvalidRequest, match="choose another"):
        check_chosen("%OWN%mine")
    check_chosen("mine%OWN%")
