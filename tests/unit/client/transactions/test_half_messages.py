"""Half messages: published once the local transaction says so; in doubt, the group is asked."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.client.delays import Parking, recall_call
from logboom.client.results import SendResult
from logboom.client.transactions.half_check_poller import CloseChecks, HalfMessageQueue, OpenChecks
from logboom.client.transactions.half_messages import (
    Resolution,
    check_outcome,
    end_half,
    half_message,
    half_parks,
    message_of,
    parked_of,
    place_of_half,
    resolution_of,
)
from logboom.wire.errors import InternalError, InvalidRequest, TransactionError
from logboom.wire.messages import Failure
from logboom.wire.transactions import HALF, CheckHalves
from tests.unit.client.scripted import BROKERS, Cluster
from tests.unit.client.send.test_queue_sender import producer
from tests.unit.client.transactions.test_transactions import drive


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_topic("t")
    return made


def park(cluster: Cluster, *values: bytes) -> list[Parking]:
    """Half messages of producer group "p"."""
    buffer = producer(cluster, linger_ms=1_000)
    buffer.parks, buffer.alone = half_parks("p"), True
    piles = [
        buffer.send("t", v, key=b"k", tag="x", headers={"h": b"1"}, timestamp_ms=5)[0]
        for v in values
    ]
    assert cluster.run(0.5, lambda: all(pile.done for pile in piles))  # nothing lingers
    return [pile.parked for pile in piles if pile.parked is not None]


def test_each_is_parked_alone_and_decided_alone(cluster: Cluster) -> None:
    first, second = park(cluster, b"1", b"2")
    assert drive(cluster, end_half(second, commit=True, timeout=5)) == "committed"
    assert drive(cluster, end_half(first, commit=False, timeout=5)) == "aborted"
    assert drive(cluster, end_half(first, commit=True, timeout=5)) == "unknown"
    assert cluster.log("t").values() == [b"2"]


def test_it_cannot_be_recalled_like_a_delayed_one(cluster: Cluster) -> None:
    (parked,) = park(cluster, b"1")
    with pytest.raises(InvalidRequest, match="decision"):
        recall_call(parked, 5)


def test_every_broker_is_asked_for_what_is_in_doubt(cluster: Cluster) -> None:
    (parked,) = park(cluster, b"in doubt")
    rings: list[int] = []
    checks = HalfMessageQueue("p", lambda: rings.append(1))
    others = HalfMessageQueue("q", lambda: None)
    cluster.call(OpenChecks(checks))
    cluster.call(OpenChecks(others))
    cluster.run(1)
    asked = [m.producer_group for m in cluster.seen if isinstance(m, CheckHalves)]
    assert sorted(asked) == ["p"] * len(BROKERS) + ["q"] * len(BROKERS)
    assert not checks.arrivals
    cluster.decisions.doubt(cluster)
    assert cluster.run(60, lambda: bool(checks.arrivals))
    assert rings
    assert not others.arrivals
    half, batch = checks.arrivals.popleft()
    message = half_message(half, batch)
    assert (message.topic, message.queue, message.offset) == ("t", 0, -1)
    assert (message.key, message.value, message.tag) == (b"k", b"in doubt", "x")
    assert (message.headers, message.timestamp_ms) == ({"h": b"1"}, 5)
    assert place_of_half(half) == parked
    assert half.transaction.sequence == HALF
    cluster.call(CloseChecks(checks))
    cluster.run(1)
    cluster.seen.clear()
    cluster.run(60)
    assert {m.producer_group for m in cluster.seen if isinstance(m, CheckHalves)} == {"q"}


def test_a_broker_that_comes_back_is_asked_too(cluster: Cluster) -> None:
    cluster.dead.add(BROKERS[2])
    cluster.version += 1
    park(cluster, b"1")
    checks = HalfMessageQueue("p", lambda: None)
    cluster.call(OpenChecks(checks))
    cluster.run(5)
    cluster.dead.clear()
    cluster.version += 1
    cluster.seen.clear()
    cluster.run(3)
    assert any(isinstance(message, CheckHalves) for message in cluster.seen)


def test_a_broker_that_refuses_is_asked_again(cluster: Cluster) -> None:
    refusal = Failure(0, "BUSY", "later", retryable=True)
    cluster.intercept = lambda _, m: refusal if isinstance(m, CheckHalves) else None
    park(cluster, b"1")
    checks = HalfMessageQueue("p", lambda: None)
    cluster.call(OpenChecks(checks))
    cluster.run(2)
    cluster.decisions.doubt(cluster)
    cluster.intercept = lambda *_: None
    assert cluster.run(5, lambda: bool(checks.arrivals))


@pytest.mark.parametrize(
    ("said", "resolution"),
    [
        ("commit", Resolution.COMMIT),
        (Resolution.ROLLBACK, Resolution.ROLLBACK),
        ("unknown", Resolution.UNKNOWN),
    ],
)
def test_the_words_are_those_of_rocketmq(said: object, resolution: Resolution) -> None:
    assert resolution_of(said, "a check") is resolution


@pytest.mark.parametrize("said", [None, True, "COMMIT", 1, [], b"commit"])
def test_other_words_are_refused(said: object) -> None:
    with pytest.raises(InvalidRequest, match='"commit", "rollback", "unknown"'):
        resolution_of(said, "a check")


@pytest.mark.parametrize(
    ("resolution", "outcome", "fine"),
    [
        (Resolution.COMMIT, "committed", True),
        (Resolution.COMMIT, "aborted", False),
        (Resolution.COMMIT, "unknown", True),
        (Resolution.ROLLBACK, "aborted", True),
        (Resolution.ROLLBACK, "committed", False),
    ],
)
def test_another_decision_that_came_first_is_told(
    resolution: Resolution, outcome: Any, fine: bool
) -> None:
    place = Parking("t", 0, 1, 2, -1, 3)
    if fine:
        check_outcome(resolution, outcome, place)
        return
    with pytest.raises(TransactionError) as caught:
        check_outcome(resolution, outcome, place)
    assert caught.value.code == "TRANSACTION_CLOSED"


def test_a_local_transaction_sees_the_whole_message() -> None:
    sent = SendResult("t", 2, -1, 7, Parking("t", 2, 0, 0, -1, 1))
    message = message_of(sent, memoryview(b"v"), bytearray(b"k"), "tag", {"h": b"1"})
    assert (message.queue, message.offset, message.timestamp_ms) == (2, -1, 7)
    assert (message.key, message.value) == (b"k", b"v")
    assert message_of(sent, None, None, None, None).value is None
    assert parked_of(sent).queue == 2
    with pytest.raises(InternalError):
        parked_of(SendResult("t", 2, 9, 7))


@pytest.mark.parametrize("group", ["", "x" * 256, "a\0b"])
def test_a_producer_group_has_a_name(group: str) -> None:
    with pytest.raises(InvalidRequest):
        half_parks(group)
