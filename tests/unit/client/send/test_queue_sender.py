"""A producer's order holds, without duplicates, whatever the network and the brokers do."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.client.producer_options import ProducerOptions
from logboom.client.send.producer_batch import ProducerBatch
from logboom.client.send.queue_sender import QueueSender
from logboom.client.send.send_buffer import (
    CloseProducer,
    Flush,
    OpenProducer,
    OpenTopic,
    SendBuffer,
)
from logboom.wire.batch import peek
from logboom.wire.errors import (
    ClientClosed,
    InternalError,
    InvalidRequest,
    TimedOut,
    UnknownResource,
)
from logboom.wire.messages import AnyMessage, Failure, Produce, Produced, Throttled
from tests.thorough import examples
from tests.unit.client.scripted import BROKERS, Cluster


class Unlocked:
    """A lock for one thread."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


Sent = tuple[ProducerBatch, int]


def producer(cluster: Cluster, **options: Any) -> SendBuffer[Sent]:
    """An open producer of topic "t"."""
    buffer = SendBuffer[Sent](
        ProducerOptions(**options),
        lambda pile, index: (pile, index),
        Unlocked(),
        lambda: cluster.now,
        lambda: None,
    )
    opened = OpenProducer(buffer, 5.0)
    cluster.call(opened)
    assert cluster.run(5, lambda: opened.outcome.done)
    opened.outcome.get()
    topic = OpenTopic(buffer, "t", 5.0)
    cluster.call(topic)
    assert cluster.run(5, lambda: topic.outcome.done)
    topic.outcome.get()
    return buffer


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_topic("t")
    return made


def number(value: int) -> bytes:
    return b"%06d" % value


def test_a_message_goes_to_its_offset(cluster: Cluster) -> None:
    buffer = producer(cluster)
    piles = [buffer.send("t", number(n))[0] for n in range(3)]
    assert cluster.run(1, lambda: all(pile.done for pile in piles))
    assert cluster.log("t").values() == [number(n) for n in range(3)]
    assert [pile.get() for pile in piles] == [0, 0, 0]
    assert buffer.freed == buffer.added


def test_a_batch_fills_while_one_is_in_flight(cluster: Cluster) -> None:
    buffer = producer(cluster)
    buffer.send("t", number(0))
    cluster.run(0.0005)
    for n in range(1, 100):
        buffer.send("t", number(n))
        cluster.run(0.000001)
    cluster.run(1)
    assert len(cluster.log("t").values()) == 100
    assert len(cluster.log("t").entries) == 2


def test_a_batch_that_the_leader_delays_is_not_sent_again(cluster: Cluster) -> None:
    buffer = producer(cluster)
    late: list[tuple[str, Produce]] = []

    def delay(endpoint: str, message: AnyMessage) -> bool | None:
        if isinstance(message, Produce):
            late.append((endpoint, message))
            return True
        return None

    cluster.intercept = delay
    pile, _ = buffer.send("t", b"x")
    for _ in range(30):
        cluster.run(1.0)
        ((endpoint, message),) = late
        cluster.tell(endpoint, Throttled(0, 1_000, [message.id]))
    cluster.tell(endpoint, Produced(message.id, 0, 0, throttled_ms=30_000))
    assert cluster.run(1, lambda: pile.done)
    assert pile.get() == 0
    assert buffer.throttled_ms == 30_000


def test_a_quota_is_named_when_a_batch_ends_too_late(cluster: Cluster) -> None:
    buffer = producer(cluster, delivery_timeout_s=15.0)
    late: list[tuple[str, Produce]] = []

    def delay(endpoint: str, message: AnyMessage) -> bool | None:
        if isinstance(message, Produce):
            late.append((endpoint, message))
            return True
        return None

    cluster.intercept = delay
    pile, _ = buffer.send("t", b"x")
    begin = cluster.now
    for _ in range(40):
        cluster.run(0.5, lambda: pile.done)
        for endpoint, message in late:
            cluster.tell(endpoint, Throttled(0, 1_000, [message.id]))
    with pytest.raises(TimedOut, match="over its quota"):
        pile.get()
    assert cluster.now >= begin + 15
    assert len(late) == 1


def test_without_acknowledgements_a_quota_makes_a_pause(cluster: Cluster) -> None:
    buffer = producer(cluster, acks="none")
    buffer.send("t", b"first")
    cluster.run(1)
    cluster.tell(BROKERS[0], Throttled(0, 3_000, []))
    cluster.run(0.1)
    began = cluster.now
    pile, _ = buffer.send("t", b"second")
    assert cluster.run(10, lambda: pile.done)
    assert 2.5 < cluster.now - began < 3.1
    cluster.run(1)
    assert cluster.log("t").values() == [b"first", b"second"]


def test_a_leader_without_room_for_late_batches_is_left_alone_for_a_while(
    cluster: Cluster,
) -> None:
    buffer = producer(cluster)
    refused: list[float] = []

    def refuse(_: str, message: AnyMessage) -> Failure | None:
        if isinstance(message, Produce) and len(refused) < 2:
            refused.append(cluster.now)
            return Failure(0, "BUSY", "over its quota", True, {"throttled_ms": 4_000})
        return None

    cluster.intercept = refuse
    began = cluster.now
    pile, _ = buffer.send("t", b"x")
    assert cluster.run(20, lambda: pile.done)
    assert pile.get() == 0
    assert cluster.now - began > 8


def test_linger_lets_a_batch_fill(cluster: Cluster) -> None:
    buffer = producer(cluster, linger_ms=50)
    began = cluster.now
    piles = []
    for n in range(5):
        piles.append(buffer.send("t", number(n))[0])
        cluster.run(0.005)
    assert cluster.run(1, lambda: piles[-1].done)
    assert 0.05 <= cluster.now - began < 0.06
    assert len(cluster.log("t").entries) == 1


def test_flush_does_not_wait_for_linger(cluster: Cluster) -> None:
    buffer = producer(cluster, linger_ms=50_000)
    pile, _ = buffer.send("t", b"x")
    flush = Flush(buffer)
    cluster.call(flush)
    assert cluster.run(0.1, lambda: flush.outcome.done)
    assert pile.done


def test_a_lost_answer_is_answered_again_not_stored_again(cluster: Cluster) -> None:
    buffer = producer(cluster)
    lost: list[AnyMessage] = []

    def lose_first(_: str, message: AnyMessage) -> bool | None:
        if isinstance(message, Produce) and not lost:
            lost.append(message)
            return False
        return None

    cluster.intercept = lose_first
    pile, _ = buffer.send("t", b"once")
    assert cluster.run(30, lambda: pile.done)
    assert pile.get() == 0
    assert cluster.log("t").values() == [b"once"]


def test_a_moved_leader_gets_what_the_old_one_did_not_answer(cluster: Cluster) -> None:
    buffer = producer(cluster)
    cluster.dead.add(BROKERS[0])
    pile, _ = buffer.send("t", b"moved")
    cluster.run(2)
    assert not pile.done
    cluster.move("t", 0, BROKERS[1])
    began = cluster.now
    assert cluster.run(10, lambda: pile.done)
    assert pile.get() == 0
    assert cluster.now - began < 2.0


def test_no_leader_waits_for_one(cluster: Cluster) -> None:
    buffer = producer(cluster)
    cluster.move("t", 0, None)
    cluster.run(2)
    pile, _ = buffer.send("t", b"patience")
    cluster.run(5)
    assert not pile.done
    cluster.move("t", 0, BROKERS[2])
    assert cluster.run(2, lambda: pile.done)
    assert pile.get() == 0


def test_given_up_is_an_error_that_says_why(cluster: Cluster) -> None:
    buffer = producer(cluster, delivery_timeout_s=3)
    refusal = Failure(0, "NOT_ENOUGH_REPLICAS", "1 of 2 in sync", retryable=True)
    cluster.intercept = lambda _, m: refusal if isinstance(m, Produce) else None
    pile, _ = buffer.send("t", b"x")
    assert cluster.run(4, lambda: pile.done)
    assert isinstance(pile.error, TimedOut)
    assert "1 of 2 in sync" in str(pile.error)
    assert buffer.freed == buffer.added


def in_flight(cluster: Cluster, buffer: SendBuffer[Sent], count: int) -> list[ProducerBatch]:
    """So many batches sent one by one, so that none is filled up by the next."""
    piles = []
    for n in range(count):
        piles += buffer.send_many("t", [number(n)] * 40)
        cluster.run(0.000_1)
    return piles


def test_while_the_leader_refuses_one_batch_asks_for_all(cluster: Cluster) -> None:
    buffer = producer(cluster, max_batch_bytes=1024)
    refusal = Failure(0, "NOT_ENOUGH_REPLICAS", "1 of 2 in sync", retryable=True)
    cluster.intercept = lambda _, m: refusal if isinstance(m, Produce) else None
    piles = in_flight(cluster, buffer, 8)
    cluster.run(0.01)
    cluster.seen.clear()
    began = cluster.now
    cluster.run(3)
    tried = sum(isinstance(message, Produce) for message in cluster.seen)
    assert 3 <= tried <= 20  # once for each pause, not five times
    cluster.intercept = lambda *_: None
    cluster.seen.clear()
    assert cluster.run(1, lambda: all(pile.done for pile in piles))
    assert cluster.now - began < 3.8  # one pause of at most 0.75 s
    assert sum(isinstance(message, Produce) for message in cluster.seen) == len(piles)
    assert cluster.log("t").values() == [number(n) for n in range(8) for _ in range(40)]


def test_those_behind_one_that_asks_keep_their_own_deadlines(cluster: Cluster) -> None:
    buffer = producer(cluster, max_batch_bytes=1024, delivery_timeout_s=3)
    refusal = Failure(0, "BUSY", "too much at once", retryable=True)
    cluster.intercept = lambda _, m: refusal if isinstance(m, Produce) else None
    piles = in_flight(cluster, buffer, 8)
    assert cluster.run(3.01, lambda: all(pile.done for pile in piles[:5]))
    assert cluster.run(1, lambda: all(pile.done for pile in piles))  # a pause may stand between
    assert all(isinstance(pile.error, TimedOut) for pile in piles)
    assert buffer.freed == buffer.added


def test_after_an_unknown_outcome_given_up_the_epoch_is_new(cluster: Cluster) -> None:
    """SAFETY Q9: nobody may take the sequence of a batch that may still be stored."""
    buffer = producer(cluster, delivery_timeout_s=3)
    cluster.intercept = lambda _, m: True if isinstance(m, Produce) else None
    lost, _ = buffer.send("t", b"lost")
    assert cluster.run(4, lambda: lost.done)
    cluster.intercept = lambda *_: None
    cluster.seen.clear()
    kept, _ = buffer.send("t", b"kept")
    assert cluster.run(4, lambda: kept.done)
    assert sum(isinstance(message, Produce) for message in cluster.seen) == 1
    head = peek(cluster.log("t").entries[0])
    assert (head.producer_epoch, head.base_sequence) == (1, 0)
    assert cluster.log("t").values() == [b"kept"]


def test_a_refused_batch_fails_and_the_next_goes_on(cluster: Cluster) -> None:
    buffer = producer(cluster)
    first: list[AnyMessage] = []

    def refuse_first(_: str, message: AnyMessage) -> Failure | None:
        if isinstance(message, Produce) and not first:
            first.append(message)
            return Failure(0, "TOO_LARGE", "too large", retryable=False)
        return None

    cluster.intercept = refuse_first
    bad, _ = buffer.send("t", b"bad")
    assert cluster.run(1, lambda: bad.done)
    assert getattr(bad.error, "code", "") == "TOO_LARGE"
    cluster.seen.clear()
    good, _ = buffer.send("t", b"good")
    assert cluster.run(1, lambda: good.done)
    assert good.error is None
    assert sum(isinstance(message, Produce) for message in cluster.seen) == 1
    assert cluster.log("t").values() == [b"good"]


def test_a_deleted_topic_fails_what_waits(cluster: Cluster) -> None:
    buffer = producer(cluster)
    cluster.move("t", 0, None)
    cluster.run(2)
    pile, _ = buffer.send("t", b"x")
    cluster.run(0.1)
    cluster.drop_topic("t")
    assert cluster.run(3, lambda: pile.done)
    with pytest.raises(UnknownResource, match="was deleted before this message was stored"):
        pile.get()
    with pytest.raises(UnknownResource):
        buffer.send("t", b"y")


@pytest.mark.parametrize("broken", [False, True])
def test_a_client_that_ends_fails_all_that_waits_with_its_cause(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    buffer = producer(cluster)
    cluster.intercept = lambda _endpoint, message: isinstance(message, Produce) or None
    flying, _ = buffer.send("t", b"1")
    cluster.run(0.01)
    topic = buffer.topics["t"]
    filling, _ = buffer.send("t", b"2")
    cause = InternalError("the client failed")
    if broken:

        def fail(*_args: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(QueueSender, "_give_up", fail)
    cluster.core.close(cause)
    assert [flying.done, flying.error] == [True, cause]
    if not broken:
        assert filling.error is cause
    # A send that found its topic before that comes too late: its future would never be done.
    buffer.topics["t"] = topic
    for late in (
        lambda: buffer.send("t", b"3"),
        lambda: buffer.send_many("t", [b"4"]),
        lambda: buffer.send_batch("t", 0, b"", 1, None),
    ):
        with pytest.raises(InternalError, match="the client failed"):
            late()


def test_a_closed_producer_fails_what_waits(cluster: Cluster) -> None:
    buffer = producer(cluster)
    cluster.move("t", 0, None)
    cluster.run(2)
    pile, _ = buffer.send("t", b"x")
    cluster.call(CloseProducer(buffer))
    assert isinstance(pile.error, ClientClosed)


def test_acks_none_is_not_numbered_and_not_answered(cluster: Cluster) -> None:
    buffer = producer(cluster, acks="none")
    pile, _ = buffer.send("t", b"x")
    assert cluster.run(1, lambda: pile.done)
    assert pile.get() == -1
    cluster.run(0.1)
    assert cluster.log("t").values() == [b"x"]
    assert peek(cluster.log("t").entries[0]).producer_id == -1


def test_acks_none_waits_for_the_connection_without_asking_again_and_again(
    cluster: Cluster,
) -> None:
    buffer = producer(cluster, acks="none")
    cluster.move("t", 0, BROKERS[1])
    cluster.dead.add(BROKERS[1])
    cluster.run(3)
    turns = cluster.turns
    pile, _ = buffer.send("t", b"x")
    cluster.run(90)  # longer than an idle connection is kept
    assert not pile.done
    assert cluster.turns - turns < 1_500  # polling every 10 ms would be 9,000
    cluster.dead.clear()
    assert cluster.run(4, lambda: pile.done)
    cluster.run(0.1)
    assert cluster.log("t").values() == [b"x"]


def test_at_most_five_batches_are_in_doubt(cluster: Cluster) -> None:
    buffer = producer(cluster, max_batch_bytes=1024)
    cluster.intercept = lambda _, m: False if isinstance(m, Produce) else None
    for n in range(20):
        buffer.send_many("t", [number(n)] * 20)
    cluster.run(5)
    assert len(cluster.log("t").entries) == 5


def test_small_batches_that_wait_become_one_in_the_log(cluster: Cluster) -> None:
    buffer = producer(cluster)
    parts = [buffer.send_many("t", [number(n), number(n)])[0] for n in range(5)]
    cluster.run(0.0005)
    parts += [buffer.send_many("t", [number(n), number(n)])[0] for n in range(5, 30)]
    flush = Flush(buffer)
    cluster.call(flush)
    assert cluster.run(1, lambda: flush.outcome.done)
    assert [part.get() for part in parts] == list(range(0, 60, 2))
    assert len(cluster.log("t").entries) < 10
    assert buffer.freed == buffer.added


def test_a_batch_that_cannot_be_encoded_fails_alone(cluster: Cluster) -> None:
    buffer = producer(cluster)
    headers: dict[str, Any] = {"a": b"b"}
    good = buffer.send_many("t", [b"good"])
    bad = buffer.send_many("t", [b"bad"], headers=[headers])
    good += buffer.send_many("t", [b"good"])
    headers["a"] = "changed after it was checked"
    flush = Flush(buffer)
    cluster.call(flush)
    assert cluster.run(1, lambda: flush.outcome.done)
    assert [part.get() for part in good] == [0, 1]
    with pytest.raises(InvalidRequest):
        bad[0].get()
    assert cluster.log("t").values() == [b"good", b"good"]
    assert buffer.freed == buffer.added


def test_a_joined_batch_that_is_refused_fails_in_all_its_parts(cluster: Cluster) -> None:
    buffer = producer(cluster)
    cluster.intercept = lambda _, m: (
        Failure(0, "TOO_LARGE", "too large", retryable=False) if isinstance(m, Produce) else None
    )
    parts = [buffer.send_many("t", [number(n)])[0] for n in range(3)]
    assert cluster.run(1, lambda: all(part.done for part in parts))
    assert [getattr(part.error, "code", "") for part in parts] == ["TOO_LARGE"] * 3


def test_a_new_topic_of_the_same_name_begins_anew(cluster: Cluster) -> None:
    buffer = producer(cluster)
    first, _ = buffer.send("t", b"old")
    assert cluster.run(1, lambda: first.done)
    cluster.drop_topic("t")
    cluster.add_topic("t")
    cluster.run(3)
    opened = OpenTopic(buffer, "t", 5.0)
    cluster.call(opened)
    assert cluster.run(5, lambda: opened.outcome.done)
    again, _ = buffer.send("t", b"new")
    assert cluster.run(2, lambda: again.done)
    assert again.get() == 0
    assert cluster.log("t").values() == [b"new"]


class Trouble:
    """Random faults from one seed; they end at `until`."""

    def __init__(self, cluster: Cluster, seed: int, until: float, queues: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.until = until
        self.queues = queues
        cluster.intercept = self.strike
        cluster.delay = lambda: self.rng.choice((0.0005, 0.001, 0.02, 0.3))

    def strike(self, _: str, message: AnyMessage) -> Failure | bool | None:
        if self.cluster.now > self.until:
            return None
        roll = self.rng.random()
        if roll < 0.02:
            broker = self.rng.choice(BROKERS)
            self.cluster.move("t", self.rng.randrange(self.queues), broker)
        if not isinstance(message, Produce):
            return None
        if roll < 0.1:
            return True
        if roll < 0.25:
            return False
        if roll < 0.35:
            return Failure(0, "NOT_ENOUGH_REPLICAS", "too few", retryable=True)
        return None


def send_in_trouble(
    seed: int, delivery_timeout_s: float
) -> tuple[Cluster, list[list[ProducerBatch]]]:
    """Send 60 messages to two queues while all goes wrong; then let it heal."""
    cluster = Cluster(seed)
    cluster.add_topic("t", 2)
    buffer = producer(cluster, delivery_timeout_s=delivery_timeout_s, max_batch_bytes=1024)
    trouble = Trouble(cluster, seed, cluster.now + 20, 2)
    piles: list[list[ProducerBatch]] = [[], []]
    for _ in range(60):
        queue = trouble.rng.randrange(2)
        text = number(len(piles[queue]))
        if trouble.rng.random() < 0.3:
            piles[queue] += buffer.send_many("t", [text], queue=queue)
        else:
            piles[queue].append(buffer.send("t", text, queue=queue)[0])
        cluster.run(trouble.rng.choice((0.0, 0.001, 0.05, 0.5)))
    every = [pile for queue in piles for pile in queue]
    assert cluster.run(200, lambda: all(pile.done for pile in every))
    return cluster, piles


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 32))
def test_all_are_stored_once_and_in_order(seed: int) -> None:
    cluster, piles = send_in_trouble(seed, 190)
    for queue in range(2):
        assert [pile.error for pile in piles[queue]] == [None] * len(piles[queue])
        expected = [number(n) for n in range(len(piles[queue]))]
        log = cluster.log("t", queue).values()
        assert log == expected
        for n, pile in enumerate(piles[queue]):
            assert number(n) in log[pile.get() : pile.get() + pile.count]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 32))
def test_what_is_given_up_doubles_and_reorders_nothing(seed: int) -> None:
    cluster, piles = send_in_trouble(seed, 4)
    for queue in range(2):
        values = cluster.log("t", queue).values()
        assert values == sorted(set(values))  # type: ignore[type-var]  # no tombstones were sent
        for n, pile in enumerate(piles[queue]):
            if pile.error is None:
                assert number(n) in values


def test_a_producer_learns_of_queues_that_its_topic_got(cluster: Cluster) -> None:
    buffer = producer(cluster)
    cluster.grow("t")
    with pytest.raises(UnknownResource, match="queues 0 to 0"):
        buffer.send("t", b"x", queue=1)  # the pure buffer does not wait: its skins do
    again = OpenTopic(buffer, "t", 5.0, 2)
    cluster.call(again)
    assert cluster.run(5, lambda: again.outcome.done)
    pile, _ = buffer.send("t", b"x", queue=1)
    assert cluster.run(5, lambda: pile.done)
    assert cluster.log("t", 1).values() == [b"x"]
