"""The description of many subscriptions is made in parts: no turn of the broker lasts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from logboom.wire.batch import encode_batch
from logboom.wire.subscription_messages import (
    DescribeSubscriptions,
    Subscribe,
    SubscriptionConfig,
    SubscriptionsDescribed,
    SubscriptionType,
)
from logboom.wire.survey_messages import (
    MAX_PLACES,
    AppendTimesFound,
    FindAppendTimes,
    QueuesSurveyed,
    SurveyQueues,
)
from tests.unit.nodes.rig import Rig, answering, asking, batch, produce
from tests.unit.nodes.subscriptions.test_settlement_queue import HELD, holding
from tests.unit.nodes.subscriptions.test_subscription_handler import SHARED, Reader, alone
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
ALL: Final = DescribeSubscriptions(0, 30_000, "flights", 0)
MANY: Final = 300


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def restarted(rig: Rig, queues: int = 1) -> Rig:
    """The same broker with nothing but its log."""
    rig.settle()
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2, queues=queues)
    again.settle()
    return again


def many(kind: SubscriptionType = "shared", messages: int = 400) -> Rig:
    """A queue with many subscriptions, each with as many gaps as are told, and messages given back."""
    rig = alone()
    rig.client("producer").ask(produce(), [batch(messages)])
    for number in range(MANY):
        reader = Reader(rig, f"c{number}", SubscriptionConfig(kind=kind))
        reader.subscription = f"s{number}"
        reader.subscribe()
        reader.receive(messages)
        reader.settle(
            *[(at, at + 1) for at in range(1, messages // 2, 2)],
            again=[(messages // 2, messages, 100_000)],
        )
    return rig


def gaps(kind: SubscriptionType) -> Rig:
    """A subscription of which every second message is acknowledged."""
    rig = alone()
    reader = holding(rig, HELD, kind)
    for first in range(0, HELD, 1_000):
        reader.settle(*[(at, at + 1) for at in range(first + 1, first + 1_000, 2)])
    return rig


def given_back(*, backwards: bool) -> Rig:
    """A subscription whose messages were all given back."""
    rig = alone()
    reader = holding(rig, HELD, "shared")
    firsts = range(0, HELD, 1_000)
    for first in reversed(firsts) if backwards else firsts:
        reader.settle(again=[(first, first + 1_000, 100_000)])
    return rig


CASES: Final[dict[str, Callable[[], Rig]]] = {
    "many": many,
    "many that nobody uses": lambda: restarted(many()),
    "gaps": partial(gaps, "exclusive"),
    "gaps of a shared one": partial(gaps, "shared"),
    "gaps that nobody uses": lambda: restarted(gaps("shared")),
    "given back": partial(given_back, backwards=False),
    "given back backwards": partial(given_back, backwards=True),
}


@pytest.mark.parametrize("case", CASES)
def test_no_turn_lasts(case: str) -> None:
    rig = CASES[case]()
    client = rig.client("asker")
    gc.collect()
    gc.freeze()

    assert longest_ms(lambda: answering(client, ALL), MOST_MS) <= MOST_MS
    answer = client.answer()
    assert isinstance(answer, SubscriptionsDescribed)
    if case.startswith("many"):
        assert len(answer.subscriptions) == MANY
        for state in answer.subscriptions:
            assert state.spans == 100
            assert len(state.acked) == len(state.again) == 16, "fewer than of one alone"
    else:
        (state,) = answer.subscriptions
        assert len(state.acked or state.again) == 100
        assert not state.again or state.again[0][0] == 0


def test_one_of_many_is_described_whole() -> None:
    rig = many()
    client = rig.client("asker")
    client.ask(DescribeSubscriptions(0, 30_000, "flights", 0, "s7"))
    (state,) = client.answer().subscriptions
    assert (state.name, len(state.acked), len(state.again)) == ("s7", 100, 100)
    assert state.again[0] == (200, 1)


def test_what_nobody_uses_is_described_without_being_served() -> None:
    rig = alone()
    rig.client("producer").ask(produce(), [batch(10)])
    reader = Reader(rig, "one", SHARED)
    reader.subscribe()
    reader.receive(10)
    reader.settle((1, 3), again=[(5, 6, 100_000)])
    again = restarted(rig)
    client = again.client("asker")
    client.ask(ALL)
    (state,) = client.answer().subscriptions
    assert (state.floor, state.spans, state.unacked, state.end) == (0, 1, 8, 10)
    assert (state.acked, state.again) == ([(1, 3)], [(5, 1)])
    assert (state.kind, state.consumers, state.config) == ("", [], None)
    assert not again.broker.parts.subscriptions.served


def test_a_survey_of_many_subscriptions_makes_no_turn_last() -> None:
    queues, names = 100, 100
    rig = Rig()
    rig.lead(queues=queues)
    reader = rig.client("reader")
    for queue in range(queues):
        where = [("flights", queue, f"s{name}", "one", 1, SHARED) for name in range(names)]
        rig.turn(*asking(reader, *[Subscribe(0, 30_000, *each) for each in where]))
    rig = restarted(rig, queues)
    client = rig.client("asker")
    found: dict[tuple[int, int], int] = {}

    def begin() -> Callable[[], bool]:
        events = asking(client, SurveyQueues(0, 30_000, (-1, -1)))
        found.clear()

        def turn() -> bool:
            rig.turn(*events)
            events.clear()
            if not client.replies:
                return True
            answer = client.answer()
            assert isinstance(answer, QueuesSurveyed)
            found.update({(each.topic_id, each.queue): len(each.cursors) for each in answer.queues})
            if answer.reached is None:
                return False
            events.extend(asking(client, SurveyQueues(0, 30_000, answer.reached)))
            return True

        return turn

    gc.collect()
    gc.freeze()
    assert longest_ms(begin, MOST_MS) <= MOST_MS
    assert found == {(1, queue): names for queue in range(queues)}


@pytest.mark.parametrize("size", [100, 40_000, 2 << 20, 7 << 20])
def test_append_times_are_found_at_once(size: int) -> None:
    rig = alone()
    producer = rig.client("producer")
    batches = min(MAX_PLACES, (16 << 20) // size)
    for _ in range(batches):
        producer.ask(produce(), [encode_batch([bytes(size)], now_ms=5)])
    rig = restarted(rig)
    client = rig.client("asker")
    places = [(1, 0, at % batches) for at in range(MAX_PLACES)]

    def begin() -> Callable[[], bool]:
        def ask() -> bool:
            client.ask(FindAppendTimes(0, 1_000, places))
            assert isinstance(client.answer(), AppendTimesFound)
            return False

        return ask

    assert longest_ms(begin, MOST_MS) <= MOST_MS
