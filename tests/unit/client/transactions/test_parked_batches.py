"""The low-level pair: batches are parked in one place and decided on in another."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest

from logboom.client.transactions.applications import take_over
from logboom.client.transactions.decisions import (
    Decision,
    ParkedHandle,
    decide_handles,
    read_parked,
)
from logboom.client.transactions.parked_batches import Payload, handle_of, parks_of, send_all
from logboom.wire.batch import encode_batch, open_batch
from logboom.wire.columns import Columns
from logboom.wire.errors import DamagedBatch, InvalidRequest, Refused, TransactionError
from tests.unit.client.scripted import WALL_MS, Cluster
from tests.unit.client.send.test_queue_sender import producer
from tests.unit.client.transactions.test_transactions import drive, published


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_topic("t", queues=3)
    return made


def park(
    cluster: Cluster, batches: list[tuple[str, int, Payload]], attempt: int = 1, sequence: int = 5
) -> list[ParkedHandle]:
    piles = send_all(producer(cluster), batches, parks_of("job", attempt, sequence), WALL_MS)
    assert cluster.run(10, lambda: all(pile.done for pile in piles))
    return [handle_of(pile) for pile in piles]


def decide(
    cluster: Cluster,
    handles: list[ParkedHandle],
    sequence: int = 5,
    *,
    commit: bool = True,
    epoch: int | None = None,
) -> Decision:
    flow = decide_handles("job", sequence, handles, WALL_MS, 5, commit=commit, epoch=epoch)
    result: Decision = drive(cluster, flow)
    return result


def test_handles_decide_wherever_they_go(cluster: Cluster) -> None:
    whole = encode_batch([b"c", b"d"], [b"k", None], now_ms=7)
    handles = park(cluster, [("t", 0, [b"a", b"b"]), ("t", 1, whole), ("t", 0, [b"e"])])
    assert published(cluster) == []
    assert [each.count for each in handles] == [2, 2, 1]
    handles = pickle.loads(pickle.dumps(handles))
    handles = msgspec.json.decode(msgspec.json.encode(handles), type=list[ParkedHandle])
    handles = msgspec.msgpack.decode(msgspec.msgpack.encode(handles), type=list[ParkedHandle])
    decision = decide(cluster, handles)
    assert (decision.outcome, decision.again) == ("commit", False)
    assert published(cluster) == [b"a", b"b", b"e", b"c", b"d"]
    assert decide(cluster, handles).again
    assert published(cluster) == [b"a", b"b", b"e", b"c", b"d"]


def test_what_is_on_its_way_is_held_once_and_then_no_more(cluster: Cluster) -> None:
    batches: list[tuple[str, int, Payload]] = [("t", 0, [b"a" * 1_000]) for _ in range(20)]
    piles = send_all(producer(cluster), batches, parks_of("job", 1, 5), WALL_MS)
    assert cluster.run(10, lambda: all(pile.done for pile in piles))
    assert [pile.encoded for pile in piles] == [b""] * 20


def test_a_batch_that_waits_for_nothing_is_stored(cluster: Cluster) -> None:
    batch = encode_batch([b"a", b"b"], now_ms=7)
    pile = producer(cluster).send_batch("t", 0, batch, 2, None)
    assert cluster.run(10, lambda: pile.done)
    assert (pile.get(), pile.parked, pile.count) == (0, None, 2)
    assert published(cluster) == [b"a", b"b"]


def test_columns_keep_all_that_they_have(cluster: Cluster) -> None:
    columns = open_batch(
        encode_batch([b"a", None], [b"k", None], ["x", None], [{"h": b"1"}, None], [3, 4], now_ms=7)
    )
    decide(cluster, park(cluster, [("t", 0, columns.slice(0, 1)), ("t", 0, columns)]))
    stored = [row[1:] for e in cluster.log("t").entries for row in open_batch(e).iter_rows()]
    first, second = (row[1:] for row in columns.iter_rows())
    assert stored == [first, first, second]


def test_a_commit_drops_what_it_does_not_list(cluster: Cluster) -> None:
    failed = park(cluster, [("t", 0, [b"failed task"])])
    again = park(cluster, [("t", 0, [b"its second try"])])
    zombie = park(cluster, [("t", 1, [b"older run"])], attempt=0)
    assert failed != again
    decide(cluster, again)
    assert published(cluster) == [b"its second try"]
    assert cluster.decisions.parked == {}
    assert decide(cluster, zombie).again
    with pytest.raises(TransactionError) as caught:
        park(cluster, [("t", 0, [b"late"])])
    assert caught.value.code == "TRANSACTION_CLOSED"


def test_who_was_taken_over_from_publishes_nothing_more(cluster: Cluster) -> None:
    older, committed = drive(cluster, take_over("job", WALL_MS, 5))
    assert committed == -1
    assert not decide(cluster, park(cluster, [("t", 0, [b"a"])]), epoch=older).again
    newer, committed = drive(cluster, take_over("job", WALL_MS, 5))
    assert (newer, committed) == (older + 1, 5)
    handles = park(cluster, [("t", 0, [b"b"])], sequence=6)
    for sequence, of_it in ((6, handles), (5, [])):
        with pytest.raises(Refused) as caught:
            decide(cluster, of_it, sequence, epoch=older)
        assert caught.value.code == "FENCED"
    assert published(cluster) == [b"a"]
    # Who may not commit may still drop what is his.
    assert decide(cluster, handles, 6, commit=False, epoch=older).outcome == "abort"
    assert decide(cluster, [], 5, epoch=newer).again


def test_what_is_parked_can_be_read_and_parked_again_as_one(cluster: Cluster) -> None:
    handles = park(cluster, [("t", 0, [b"%d" % n, b"x"]) for n in range(5)])
    cluster.decisions.at_once = 2
    parts: list[Columns] = []
    while len(parts) < 5:
        more: list[Columns] = drive(cluster, read_parked(handles[len(parts) :], 5))
        assert len(more) <= 2
        parts += more
    values = [value for part in parts for value in part.values()]
    assert values == [each for n in range(5) for each in (b"%d" % n, b"x")]
    decide(cluster, park(cluster, [("t", 0, values)]))
    assert published(cluster) == values
    with pytest.raises(TransactionError, match="5 of the handles") as caught:
        drive(cluster, read_parked(handles, 5))
    assert caught.value.code == "UNKNOWN_HANDLES"


def test_a_broker_that_cannot_send_what_is_parked_says_so(cluster: Cluster) -> None:
    handles = park(cluster, [("t", 0, [b"a"])])
    cluster.decisions.older = True
    with pytest.raises(Refused, match="does not send what is parked: upgrade it"):
        drive(cluster, read_parked(handles, 5))


def test_an_abort_drops(cluster: Cluster) -> None:
    handles = park(cluster, [("t", 0, [b"a"])])
    assert decide(cluster, handles, commit=False).outcome == "abort"
    assert (published(cluster), cluster.decisions.parked) == ([], {})
    with pytest.raises(TransactionError) as caught:
        decide(cluster, handles)
    assert caught.value.code == "UNKNOWN_HANDLES"


def test_unknown_handles_publish_nothing_at_all(cluster: Cluster) -> None:
    handles = park(cluster, [("t", 0, [b"a"]), ("t", 1, [b"b"])])
    wrong = msgspec.structs.replace(handles[1], side=999)
    with pytest.raises(TransactionError, match="1 of the handles") as caught:
        decide(cluster, [handles[0], wrong])
    assert caught.value.code == "UNKNOWN_HANDLES"
    assert published(cluster) == []


def test_an_empty_decision_closes_its_sequence(cluster: Cluster) -> None:
    assert not decide(cluster, []).again
    assert decide(cluster, []).again


def test_handles_of_another_transaction_are_refused(cluster: Cluster) -> None:
    handles = park(cluster, [("t", 0, [b"a"])])
    with pytest.raises(InvalidRequest, match="belongs to"):
        decide(cluster, handles, sequence=6)
    with pytest.raises(InvalidRequest, match="2 attempts"):
        decide(cluster, [*handles, *park(cluster, [("t", 0, [b"b"])], attempt=2)])
    assert cluster.decisions.decided == []


def test_too_many_handles_decide_nothing(cluster: Cluster) -> None:
    (one,) = park(cluster, [("t", 0, [b"a"])])
    many = [msgspec.structs.replace(one, side=n) for n in range(3_001)]
    with pytest.raises(InvalidRequest) as caught:
        decide(cluster, many)
    assert caught.value.code == "TOO_LARGE"
    assert cluster.decisions.decided == []
    assert not decide(cluster, [one]).again


@pytest.mark.parametrize(
    ("attempt", "sequence"), [(-1, 0), (0, -1), (1 << 63, 0), (0, 1 << 63), ("1", 0), (0, True)]
)
def test_attempts_and_sequences_are_whole_numbers(attempt: Any, sequence: Any) -> None:
    with pytest.raises(InvalidRequest):
        parks_of("job", attempt, sequence)


@pytest.mark.parametrize("payload", [b"", b"garbage" * 30, [], ["text"]])
def test_what_is_no_batch_is_refused(cluster: Cluster, payload: Any) -> None:
    with pytest.raises((DamagedBatch, InvalidRequest)):
        park(cluster, [("t", 0, payload)])
