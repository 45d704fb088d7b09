"""Copies to retries and dead letters: a message is acknowledged once its copy is safe, not before."""

from __future__ import annotations

import threading
from collections.abc import Callable

from logboom.client.calls import CoreCall
from logboom.client.results import Message
from logboom.client.subscriptions.subscribed_queue import ReceivedBatch, SubscribedQueue
from logboom.client.subscriptions.subscriber_reader import SubscriberReader
from logboom.client.subscriptions.subscriber_state import SubscriberOptions, SubscriberState
from logboom.wire.batch import encode_batch, stamp, validate_batch
from logboom.wire.columns import Columns
from logboom.wire.copy_receipts import ATTEMPT_HEADER, ORIGIN
from logboom.wire.errors import LogboomError, TimedOut
from logboom.wire.subscription_messages import SubscriptionConfig

Done = Callable[[LogboomError | None], None]


class Sink:
    """Keeps what is sent until the test says what became of it."""

    can_delay = True

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message, dict[str, bytes], int, Done]] = []

    def send(
        self, topic: str, message: Message, headers: dict[str, bytes], delay_ms: int, done: Done
    ) -> None:
        """As `RetrySink` says."""
        self.sent.append((topic, message, headers, delay_ms, done))


class Bench:
    """A reader of topic "orders" or of its retries, with two attempts."""

    def __init__(self, topic: str = "orders") -> None:
        config = SubscriptionConfig(kind="shared", max_attempts=2)
        options = SubscriberOptions(topic, "s", "me", config, window=100)
        self.subscriber = SubscriberState(options, lambda: None, threading.RLock())
        self.calls: list[CoreCall] = []
        self.sink = Sink()
        self.reader = SubscriberReader(self.subscriber, self.calls.append, self.sink, "orders%s")
        self.place = self.subscriber.places[0] = SubscribedQueue(0)
        self.place.renew(1)

    def deliver(
        self, base: int, attempts: dict[int, int], headers: dict[str, bytes] | None = None
    ) -> None:
        """A batch of one message comes."""
        plain = encode_batch([b"v"], headers=None if headers is None else [headers], now_ms=5)
        frame = stamp(plain, base, 1, 5)
        columns = Columns(validate_batch(frame), frame)
        self.subscriber.put(ReceivedBatch(self.place, 1, columns, b"", attempts, len(frame)))


def test_a_dead_letter_is_acknowledged_when_it_is_safe() -> None:
    bench = Bench()
    bench.deliver(7, {7: 1})
    (message,) = bench.reader.take(10)
    assert message.attempt == 2
    bench.reader.nack(message, 0.0, "no use")
    ((topic, _, headers, delay_ms, done),) = bench.sink.sent
    assert (topic, delay_ms, headers[ATTEMPT_HEADER]) == ("%DLQ%orders%s", 0, b"2")
    assert headers[ORIGIN] == b"orders/0/7"
    assert not bench.place.idle
    assert (bench.place.to_ack, bench.place.again) == ([], [])
    done(None)
    assert (bench.place.to_ack, bench.place.done, bench.place.sending) == ([7], {7}, set())


def test_what_cannot_be_copied_is_given_back() -> None:
    bench = Bench()
    bench.deliver(7, {})
    (message,) = bench.reader.take(10)
    bench.reader.retry(message, 3.0, "busy")
    ((topic, _, headers, delay_ms, done),) = bench.sink.sent
    assert (topic, delay_ms, headers[ATTEMPT_HEADER]) == ("%RETRY%orders%s", 3_000, b"2")
    done(TimedOut("nobody answers"))
    assert (bench.place.to_ack, bench.place.again) == ([], [(7, 5_000)])


def test_what_comes_once_more_while_its_copy_is_on_its_way_is_not_handed_out() -> None:
    bench = Bench()
    bench.deliver(7, {7: 2})
    assert bench.reader.take(10) == []
    assert len(bench.sink.sent) == 1
    # Attached anew: the leader delivers it again, as it was not acknowledged.
    bench.subscriber.renew(bench.place, 1)
    bench.deliver(7, {7: 3})
    assert bench.reader.take(10) == []
    assert len(bench.sink.sent) == 1
    bench.sink.sent[0][4](None)
    assert bench.place.to_ack == [7]


def test_deliveries_of_a_retry_count_on() -> None:
    bench = Bench("%RETRY%orders%s")
    headers = {ATTEMPT_HEADER: b"2", ORIGIN: b"orders/3/40"}
    bench.deliver(0, {}, headers)
    (message,) = bench.reader.take(10)
    assert (message.topic, message.queue, message.offset) == ("orders", 3, 40)
    assert (message.attempt, message.read_from) == (2, ("%RETRY%orders%s", 0, 0))
    bench.reader.ack(message)
    assert bench.place.to_ack == [0]
    bench.deliver(1, {1: 1}, headers)
    assert bench.reader.take(10) == []
    assert bench.sink.sent[0][2][ATTEMPT_HEADER] == b"2"
    # What somebody else wrote there is delivered as it is.
    bench.deliver(2, {})
    (other,) = bench.reader.take(10)
    assert (other.topic, other.read_from) == ("%RETRY%orders%s", ("%RETRY%orders%s", 0, 2))


def test_what_came_twice_and_too_often_is_one_dead_letter() -> None:
    bench = Bench()
    bench.deliver(7, {7: 2})
    bench.deliver(7, {7: 3})
    assert bench.reader.take(9) == []
    assert [topic for topic, *_ in bench.sink.sent] == ["%DLQ%orders%s"]
    # It came once more while the letter is on its way, and waits until that is confirmed.
    bench.deliver(7, {7: 4})
    bench.sink.sent[0][-1](None)
    bench.place.confirm([7], -1, [])
    assert bench.reader.take(9) == []
