"""A consumer of a subscription between core and reader: what is handed out, settled, and void."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from logboom.client.calls import CoreCall
from logboom.client.subscription_options import subscriber_options
from logboom.client.subscriptions import subscriber_state
from logboom.client.subscriptions.attachment import spans_of
from logboom.client.subscriptions.subscribed_queue import ReceivedBatch, SubscribedQueue
from logboom.client.subscriptions.subscriber_reader import SubscriberReader
from logboom.client.subscriptions.subscriber_state import (
    SubscriberOptions,
    SubscriberState,
    WakeSubscriber,
)
from logboom.wire.batch import encode_batch, stamp, validate_batch
from logboom.wire.columns import Columns
from logboom.wire.errors import InvalidRequest, Unavailable
from logboom.wire.subscription_messages import SubscriptionConfig, SubscriptionType


class Bench:
    """A subscriber of one queue, with the core played by hand."""

    def __init__(self, kind: SubscriptionType = "shared", window: int = 4) -> None:
        config = SubscriptionConfig(kind=kind)
        options = SubscriberOptions("orders", "s", "me", config, window=window)
        self.rings = 0
        self.subscriber = SubscriberState(options, self.ring, threading.RLock())
        self.calls: list[CoreCall] = []
        self.reader = SubscriberReader(self.subscriber, self.calls.append)
        self.place = self.subscriber.places[0] = SubscribedQueue(0)
        self.place.renew(1)

    def ring(self) -> None:
        """The bell."""
        self.rings += 1

    def deliver(
        self,
        base: int,
        count: int,
        chosen: Sequence[int] = (),
        attempts: dict[int, int] | None = None,
        session: int = 1,
    ) -> None:
        """A batch comes; only the messages `chosen` (all, if empty) are meant."""
        frame = stamp(encode_batch([b"v"] * count, now_ms=5), base, 1, 5)
        bits = sum(1 << n for n in chosen)
        packed = bits.to_bytes(-(-count // 8), "little") if chosen else b""
        columns = Columns(validate_batch(frame), frame)
        parcel = ReceivedBatch(self.place, session, columns, packed, attempts or {}, len(frame))
        self.subscriber.put(parcel)

    def offsets(self, most: int = 100) -> list[int]:
        """What the reader gets."""
        return [message.offset for message in self.reader.take(most)]


def test_only_what_is_meant_is_handed_out_and_counted() -> None:
    bench = Bench()
    bench.subscriber.wanted = True
    bench.deliver(10, 4, chosen=[0, 3], attempts={13: 2})
    assert bench.rings == 1
    taken = bench.reader.take(5)
    assert [(message.offset, message.attempt) for message in taken] == [(10, 1), (13, 3)]
    assert bench.place.freed == 2
    assert [type(call) for call in bench.calls] == [WakeSubscriber]


def test_acknowledgements_are_of_what_was_handed_out() -> None:
    bench = Bench()
    bench.deliver(0, 3)
    first, second, _ = bench.reader.take(3)
    bench.reader.ack([first, second])
    assert (bench.place.to_ack, bench.place.done) == ([0, 1], {0, 1})
    for wrong in (first, second):
        with pytest.raises(InvalidRequest, match="settled already"):
            bench.reader.ack(wrong)
    with pytest.raises(InvalidRequest, match="ack_cumulative"):
        bench.reader.ack_cumulative(first)
    # The leader did not have the second for us any more: should it come again, it is done.
    bench.place.to_ack = []
    bench.place.confirm([0, 1], -1, [(1, 2)])
    assert bench.place.done == set()
    assert bench.place.refused == {1}
    bench.deliver(1, 2)
    assert bench.offsets() == [2]
    assert bench.place.to_ack == [1]


def test_a_new_session_makes_void_what_came_and_says_again_what_is_done() -> None:
    bench = Bench()
    bench.deliver(0, 2)
    bench.deliver(2, 2)
    bench.reader.ack(bench.reader.take(1))
    bench.subscriber.renew(bench.place, 2)
    assert bench.place.to_ack == [0]
    assert bench.offsets() == []
    bench.deliver(0, 2, session=1)
    assert bench.offsets() == []
    bench.deliver(0, 2, session=2)
    assert bench.offsets() == [1]


def test_what_is_given_back_in_order_brings_all_that_follow_again() -> None:
    bench = Bench("exclusive")
    bench.deliver(0, 2)
    bench.deliver(2, 2)
    first, second = bench.reader.take(2)
    bench.reader.ack_cumulative(first)
    bench.reader.nack(second, 1.5)
    assert bench.place.again == [(1, 1_500)]
    # What was under way is void, until something before it comes.
    bench.deliver(4, 2)
    assert bench.offsets() == []
    assert bench.place.freed == 6
    bench.deliver(0, 2, chosen=[1])
    bench.deliver(2, 2)
    assert bench.offsets() == [1, 2, 3]
    bench.place.confirm([], 0, [])
    assert bench.place.done == set()
    for delay in (-1.0, float("nan")):
        with pytest.raises(InvalidRequest, match="delay"):
            bench.reader.nack([], delay)


def test_after_a_rewind_it_goes_on_behind_what_another_has_done_meanwhile() -> None:
    bench = Bench("failover")
    bench.deliver(0, 2)
    first, _ = bench.reader.take(2)
    bench.reader.nack(first, 0.0)
    bench.place.confirm([], -1, [])
    bench.deliver(2, 1)
    assert bench.offsets() == []
    bench.place.again.clear()  # it is sent
    bench.place.confirm([], -1, [])
    # Another was active, has acknowledged all of it, and is gone.
    bench.deliver(6, 2)
    assert bench.offsets() == [6, 7]


def test_what_is_settled_while_it_came_once_more_is_not_handed_out_again() -> None:
    bench = Bench()
    bench.deliver(0, 4)
    messages = bench.reader.take(4)
    bench.deliver(0, 4, attempts={0: 1})
    again = bench.reader.take(1)
    bench.deliver(4, 1)
    assert [message.attempt for message in again] == [2]
    bench.reader.ack(messages[1])
    bench.reader.nack(messages[2], 0.0)
    # Confirmed, and so forgotten, before the copy is looked at.
    bench.place.confirm([1], -1, [])
    assert bench.offsets() == [3, 4]


def test_what_comes_in_a_new_session_is_not_void_with_what_came_before() -> None:
    bench = Bench()
    bench.deliver(0, 2)
    messages = bench.reader.take(1)
    bench.subscriber.renew(bench.place, 2)
    bench.deliver(0, 4, session=2)
    bench.reader.ack(messages[0])
    assert bench.offsets() == [1, 2, 3]


def test_all_before_is_settled_in_copies_too() -> None:
    bench = Bench("failover")
    bench.deliver(0, 4)
    messages = bench.reader.take(4)
    bench.deliver(0, 4)
    bench.reader.ack_cumulative(messages[2])
    bench.place.confirm([], 2, [])
    assert bench.offsets() == [3]
    assert bench.place.waiting == set()


def test_what_was_acknowledged_in_vain_is_not_handed_out_when_it_comes_again() -> None:
    bench = Bench("exclusive")
    bench.deliver(0, 3)
    messages = bench.reader.take(3)
    bench.reader.ack_cumulative(messages[1])
    bench.place.up_to = -1
    # The leader had taken all of it back.
    bench.place.confirm([], 1, [(1, 2)])
    assert bench.place.done == set()
    bench.deliver(0, 3)
    assert bench.offsets() == [2]
    assert bench.place.to_ack == [0, 1]


def test_what_came_before_its_acknowledgement_was_confirmed_is_not_handed_out() -> None:
    bench = Bench("key_shared")
    bench.deliver(0, 4, chosen=[0, 1])
    bench.reader.ack(bench.reader.take(2))
    # The other half of the batch is nobody's copy.
    bench.deliver(0, 4, chosen=[2])
    assert bench.place.known == set()
    bench.deliver(0, 4, chosen=[1, 3], attempts={1: 1})
    bench.place.confirm([0, 1], -1, [])
    assert bench.offsets() == [2, 3]


def test_what_came_twice_before_it_was_handed_out_is_settled_once_for_all() -> None:
    bench = Bench()
    bench.deliver(0, 2)
    bench.deliver(0, 2, attempts={0: 1})
    bench.deliver(0, 2, attempts={0: 2})
    first, _ = bench.reader.take(2)
    bench.reader.ack(first)
    bench.place.confirm([0], -1, [])
    assert bench.offsets() == [1]


@pytest.mark.parametrize(
    ("kind", "order"), [("key_shared", [0, 1, 2, 3]), ("failover", [2, 0, 1, 3])]
)
def test_one_poll_has_no_message_twice(kind: SubscriptionType, order: list[int]) -> None:
    """A program acknowledges what one poll returned; a second copy would be settled already."""
    bench = Bench(kind)
    bench.deliver(0, 2)
    bench.deliver(2, 1)
    # A request to give the first back was repeated on a new connection, so it came once more.
    bench.deliver(0, 2, attempts={0: 1})
    bench.deliver(3, 1)
    messages = bench.reader.take(100)
    assert [message.offset for message in messages] == order
    # The newest copy knows how often it was delivered.
    assert {message.offset: message.attempt for message in messages} == {0: 2, 1: 1, 2: 1, 3: 1}
    bench.reader.ack(messages)
    assert bench.place.waiting == bench.place.out == set()
    assert bench.place.copies == {}


def test_what_came_twice_after_its_acknowledgement_is_not_handed_out() -> None:
    bench = Bench()
    bench.deliver(0, 1)
    bench.reader.ack(bench.reader.take(1))
    bench.deliver(0, 1, attempts={0: 1})
    bench.deliver(5, 1)
    bench.deliver(0, 1, attempts={0: 2})
    assert bench.offsets(1) == [5]
    bench.place.confirm([0, 0], -1, [])
    assert bench.offsets() == []


def test_what_waits_below_a_cumulative_acknowledgement_is_not_handed_out() -> None:
    bench = Bench("exclusive")
    bench.deliver(0, 4)
    messages = bench.reader.take(4)
    bench.reader.nack(messages[0], 0.0)
    bench.deliver(0, 4)
    bench.reader.ack_cumulative(messages[2])
    # It goes back once more, before the answer.
    bench.deliver(0, 4, attempts={0: 1})
    bench.place.confirm([], 2, [])
    assert bench.offsets() == [3]


def test_a_parcel_of_which_all_is_done_gives_its_permits_back() -> None:
    bench = Bench()
    bench.deliver(0, 2)
    bench.reader.ack(bench.reader.take(2))
    freed, bench.subscriber.wanted = bench.place.freed, True
    bench.deliver(0, 2)
    assert (bench.rings, bench.reader.waiting) == (0, False)
    assert (bench.place.freed, bench.place.to_ack) == (freed + 2, [0, 1, 0, 1])


@pytest.mark.parametrize(("window_bytes", "woken"), [(8 << 20, 0), (400, 1)])
def test_permits_go_back_when_half_of_the_bytes_are_free(
    monkeypatch: pytest.MonkeyPatch, window_bytes: int, woken: int
) -> None:
    """Of large batches with one message each for this consumer, bytes are used up long before the
    thousand messages are: until they went back it was sent nothing more."""
    monkeypatch.setattr(subscriber_state, "WINDOW_BYTES", window_bytes)
    bench = Bench(kind="key_shared", window=1_000)
    for base in range(0, 4, 2):
        bench.deliver(base, 2, chosen=[0])
    assert len(bench.reader.take(2)) == 2
    assert 200 <= bench.place.freed_bytes < 1_000
    assert bench.calls.count(WakeSubscriber(bench.subscriber)) == woken


def test_an_error_is_raised_once() -> None:
    bench = Bench()
    bench.subscriber.wanted = True
    bench.subscriber.fail(Unavailable("no leader"))
    assert bench.rings == 1
    with pytest.raises(Unavailable):
        bench.reader.take(1)
    assert bench.offsets() == []


def test_queues_share_the_window() -> None:
    bench = Bench(window=1_000)
    assert bench.subscriber.window() == 1_000
    bench.subscriber.places.update({queue: SubscribedQueue(queue) for queue in range(100)})
    assert bench.subscriber.window() == 500


def test_offsets_become_spans() -> None:
    assert spans_of([]) == []
    assert spans_of([3, 1, 2, 7, 2]) == [(1, 4), (7, 8)]


def test_settings_become_a_configuration() -> None:
    options = subscriber_options(
        "orders",
        "s",
        "key_shared",
        "me",
        tags="late",
        where="price > 3",
        start="first",
        priority=1,
        ranges=[(0, 9)],
        hashing="auto_split",
        window=10,
        settings={"most_unacked": 5, "ack_timeout_s": 2},
    )
    config = options.config
    assert (config.kind, config.hashing, config.most_unacked) == ("key_shared", "sticky", 5)
    assert (config.filter, config.ack_timeout_s) == ("late WHERE price > 3", 2.0)
    assert (options.ranges, options.ordered) == (((0, 9),), False)


def test_q15_what_was_known_of_lost_messages_is_not_said_of_those_that_get_their_offsets() -> None:
    bench = Bench()
    bench.deliver(0, 4)
    messages = bench.reader.take(4)
    bench.reader.ack(messages)
    assert bench.place.done == {0, 1, 2, 3}
    bench.subscriber.cut(bench.place, 2)
    assert bench.place.to_ack == [0, 1]
    bench.deliver(2, 2)
    assert [each.offset for each in bench.reader.take(4)] == [2, 3]
