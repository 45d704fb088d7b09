"""What becomes of settlements that a leader answers, or refuses."""

from __future__ import annotations

import random
import threading

import pytest

from logboom.client.cluster.connections import OnReply
from logboom.client.core_context import CoreTurn
from logboom.client.promise import Promise
from logboom.client.subscriptions import attachment
from logboom.client.subscriptions.attachment import Attachment, runs_of, spans_of
from logboom.client.subscriptions.settlements import MAX_SPANS, Settlements
from logboom.client.subscriptions.subscribed_queue import SubscribedQueue
from logboom.client.subscriptions.subscriber_state import SubscriberOptions, SubscriberState
from logboom.wire.actor import Instant
from logboom.wire.base import WireMessage
from logboom.wire.errors import (
    GroupError,
    InvalidRequest,
    LogboomError,
    NotEnoughReplicas,
    Unavailable,
)
from logboom.wire.hello import Identity
from logboom.wire.session import Reply, Session
from logboom.wire.session_table import RequestHandle
from logboom.wire.subscription_messages import (
    MAX_AGAIN,
    Settled,
    SettleMessages,
    SubscriptionConfig,
)


class Bench:
    """One attachment that is open, with its leader played by hand."""

    def __init__(self) -> None:
        options = SubscriberOptions("orders", "s", "me", SubscriptionConfig(kind="shared"))
        subscriber = SubscriberState(options, lambda: None, threading.RLock())
        self.place = subscriber.places[0] = SubscribedQueue(0)
        self.attachment = Attachment(subscriber, self.place, 1, "last")
        self.attachment.open = True
        self.name = id(subscriber)
        self.turn = CoreTurn(Instant(0.0, 0), random.Random(1))
        self.asked: list[tuple[SettleMessages, OnReply]] = []
        self.failed: list[LogboomError | None] = []
        self.session = Session("b1:1", Identity("me"), random.Random(1), 0.0)
        self.settling = Settlements(
            {self.name: {0: self.attachment}},
            self.ask,
            lambda _attachment, error: self.failed.append(error),
            self.turn,
        )

    def ask(
        self, attachment: Attachment, message: WireMessage, on_reply: OnReply, timeout: float
    ) -> RequestHandle:
        """Keep what is asked of the leader."""
        assert isinstance(message, SettleMessages)
        self.asked.append((message, on_reply))
        return RequestHandle(self.session, len(self.asked))

    def answer(self, error: LogboomError | None = None) -> None:
        """The leader answers the oldest question."""
        _, on_reply = self.asked.pop(0)
        on_reply(Reply(None, None if error else Settled(0, []), (), error))

    def acknowledge(self, *offsets: int) -> Promise[None]:
        """The reader has done with messages, and waits until that is confirmed."""
        self.place.done.update(offsets)
        self.place.to_ack += offsets
        outcome: Promise[None] = Promise()
        self.settling.flush(self.name, outcome, 30.0)
        return outcome


def test_a_flush_ends_with_the_confirmation_of_all() -> None:
    bench = Bench()
    outcome = bench.acknowledge(3, 4, 9)
    assert bench.asked[0][0].acked == [(3, 5), (9, 10)]
    bench.place.to_ack.append(11)
    bench.place.done.add(11)
    bench.answer()
    assert not outcome.done
    bench.answer()
    assert outcome.done
    assert bench.place.idle


def test_what_is_refused_for_good_is_waited_for_no_longer() -> None:
    bench = Bench()
    outcome = bench.acknowledge(3)
    bench.answer(InvalidRequest("no such span"))
    assert isinstance(outcome.error, GroupError)
    assert outcome.error.fields["refused"] == [["orders", 0, 3, 4]]
    assert bench.place.idle


def test_a_cumulative_acknowledgement_that_is_refused_for_good_is_waited_for_no_longer() -> None:
    bench = Bench()
    bench.place.done |= {2, 3}
    bench.place.up_to = bench.place.done_to = 3
    outcome: Promise[None] = Promise()
    bench.settling.flush(bench.name, outcome, 30.0)
    bench.answer(InvalidRequest("not of this kind"))
    assert isinstance(outcome.error, GroupError)
    assert outcome.error.fields["refused"] == [["orders", 0, 2, 4]]
    assert bench.place.idle


@pytest.mark.parametrize("error", [NotEnoughReplicas("one copy"), Unavailable("busy", "BUSY")])
def test_what_a_leader_takes_later_is_said_again(error: LogboomError) -> None:
    bench = Bench()
    outcome = bench.acknowledge(3)
    bench.answer(error)
    assert (bench.asked, bench.place.to_ack, outcome.done) == ([], [3], False)
    bench.turn.begin(Instant(30.0 - 1, 0))
    bench.turn.run_timers()
    bench.answer()
    assert outcome.done


@pytest.mark.parametrize("error", [Unavailable("restored"), None])
def test_after_another_failure_the_queue_is_attached_anew(error: LogboomError | None) -> None:
    bench = Bench()
    outcome = bench.acknowledge(3)
    _, on_reply = bench.asked.pop()
    on_reply(Reply(None, None, (), error))
    assert bench.failed == [error]
    assert not outcome.done


def test_a_message_given_back_that_is_refused_for_good_comes_again() -> None:
    bench = Bench()
    bench.place.again.append((3, 1 << 40))
    outcome: Promise[None] = Promise()
    bench.settling.flush(bench.name, outcome, 30.0)
    bench.answer(InvalidRequest("such a delay"))
    assert bench.failed == [None]
    assert outcome.done


def test_spans_are_no_longer_than_a_leader_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "LONGEST_SPAN", 3)
    assert spans_of([9, *range(1, 6)]) == [(1, 4), (4, 6), (9, 10)]


def test_many_acknowledgements_go_in_several_requests() -> None:
    bench = Bench()
    offsets = [2 * each for each in range(2 * MAX_SPANS + 1)]
    bench.turn.rng.shuffle(offsets)
    outcome = bench.acknowledge(*offsets)
    told = []
    while not outcome.done:
        ((message, _),) = bench.asked
        assert len(message.acked) <= MAX_SPANS
        told += message.acked
        bench.answer()
    assert told == [(each, each + 1) for each in sorted(offsets)]
    assert bench.place.idle


def test_many_messages_given_back_go_in_several_requests() -> None:
    bench = Bench()
    given = [(each, 1 + each % 2) for each in range(MAX_AGAIN + 5)]
    bench.place.again += given
    bench.settling.settle(bench.attachment)
    told = []
    while bench.asked:
        assert len(bench.asked[0][0].again) <= MAX_AGAIN
        told += bench.asked[0][0].again
        bench.answer()
    assert told == [(offset, offset + 1, delay_ms) for offset, delay_ms in given]


def test_messages_given_back_together_are_told_together() -> None:
    assert runs_of([(3, 0), (4, 0), (5, 7), (6, 7), (9, 7), (8, 7)]) == [
        (3, 5, 0),
        (5, 7, 7),
        (9, 10, 7),
        (8, 9, 7),
    ]
    assert runs_of([]) == []
