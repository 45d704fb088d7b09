"""The questions of monitoring at a broker: all led queues by pages, and append times."""

from __future__ import annotations

import random

import pytest

from logboom.nodes.broker import Broker
from logboom.nodes.config import BrokerConfig
from logboom.wire.messages import Ok
from logboom.wire.subscription_messages import SettleMessages, Subscribe, SubscriptionConfig
from logboom.wire.survey_messages import (
    AppendTimesFound,
    CursorSurvey,
    FindAppendTimes,
    QueuesSurveyed,
    QueueSurvey,
    SurveyQueues,
)
from logboom.wire.view import TopicConfig
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import Peer, Rig, batch, produce
from tests.unit.nodes.test_users_at_brokers import alice, allow, topic


def surveyed(client: Peer, limit: int = 500) -> list[QueueSurvey]:
    """All pages."""
    found: list[QueueSurvey] = []
    after: tuple[int, int] | None = (-1, -1)
    while after is not None:
        client.ask(SurveyQueues(0, 1_000, after, limit))
        answer = client.answer()
        assert isinstance(answer, QueuesSurveyed)
        assert len(answer.queues) <= limit
        found += answer.queues
        after = answer.reached
    return found


def times(client: Peer, *places: tuple[int, int, int]) -> list[int]:
    client.ask(FindAppendTimes(0, 1_000, list(places)))
    answer = client.answer()
    assert isinstance(answer, AppendTimesFound)
    return answer.times_ms


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 500])
def test_all_led_queues_are_told_page_by_page(limit: int) -> None:
    rig = Rig()
    rig.lead(queues=5)
    client = rig.client()
    for queue in range(5):
        client.ask(produce(queue=queue), [batch(queue + 1)])
    found = surveyed(client, limit)
    assert [(each.queue, each.start, each.end) for each in found] == [
        (queue, 0, queue + 1) for queue in range(5)
    ]
    assert all(each.size_bytes == rig.replica(each.queue).size for each in found)


def test_append_times_ahead_of_the_clock_are_told() -> None:
    rig = Rig()
    rig.lead(queues=2)
    client = rig.client()
    client.ask(produce(queue=0), [batch(1)])
    rig.wall_ms += 400_000
    client.ask(produce(queue=1), [batch(1)])
    rig.wall_ms -= 300_000
    assert [each.ahead_ms for each in surveyed(client)] == [0, 300_000]


def test_queues_that_others_lead_are_not_told() -> None:
    rig = Rig()
    rig.lead(leader="broker-2", replicas=("broker-1", "broker-2"), isr=("broker-1", "broker-2"))
    assert surveyed(rig.client()) == []


def test_without_a_lease_no_end_is_told() -> None:
    rig = Rig()
    rig.lead()
    client = rig.client()
    rig.granting = False
    rig.mono += 60.0
    rig.turn()
    assert surveyed(client) == []


def test_retention_and_subscriptions_show() -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=-1))
    client = rig.client()
    for _ in range(4):
        client.ask(produce(), [batch()])
    shared = SubscriptionConfig(kind="shared")
    client.ask(Subscribe(0, 30_000, "flights", 0, "s", "c", 1, shared, start="first"))
    client.answer()
    rig.settle()
    (found,) = surveyed(client)
    assert found.cursors == [CursorSurvey("s", 0, 4, 0, ["c"])]
    # What is acknowledged without having been delivered is refused, so this changes nothing.
    client.ask(SettleMessages(0, 30_000, "flights", 0, "s", "c", 1, [(1, 2)]))
    assert not isinstance(client.answer(), Ok)
    assert surveyed(client)[0].cursors == found.cursors


def test_a_subscription_that_nobody_serves_yet_is_told_from_its_cursor() -> None:
    rig = Rig()
    rig.lead()
    client = rig.client()
    for _ in range(3):
        client.ask(produce(), [batch()])
    shared = SubscriptionConfig(kind="shared")
    client.ask(Subscribe(0, 30_000, "flights", 0, "s", "c", 1, shared, start="first"))
    client.answer()
    rig.settle()
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2)
    again.settle()
    (found,) = surveyed(again.client())
    assert found.cursors == [CursorSurvey("s", 0, 3, 0, [])]
    assert not again.broker.parts.subscriptions.served


def test_append_times_are_those_of_the_batches() -> None:
    rig = Rig()
    rig.lead(queues=2)
    client = rig.client()
    stored = []
    for _ in range(3):
        rig.wall_ms += 1_000
        stored.append(rig.wall_ms)
        client.ask(produce(), [batch(2)])
    rig.settle()
    places = [(1, 0, offset) for offset in (0, 1, 2, 5, 6, -1)]
    assert times(client, *places) == [stored[0], stored[0], stored[1], stored[2], -1, -1]
    assert times(client, (1, 1, 0), (1, 7, 0), (9, 0, 0)) == [-1, -1, -1]


def test_one_answer_reads_a_bounded_number_of_bytes() -> None:
    rig = Rig(cache_bytes=0)
    rig.lead()
    client = rig.client()
    for _ in range(3):
        client.ask(produce(), [batch(value=bytes(3 << 20))])
    rig.settle()
    found = times(client, (1, 0, 0), (1, 0, 1), (1, 0, 2))
    assert len(found) == 2
    assert -1 not in found


def test_a_damaged_batch_has_no_time_and_is_reported() -> None:
    rig = Rig()
    rig.lead()
    client = rig.client()
    client.ask(produce(), [batch()])
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2)
    client = again.client()
    assert rig.storage.flip(random.Random(1), lambda _: True)
    assert times(client, (1, 0, 0)) == [-1]
    assert again.replica().damage is not None


def test_a_user_is_told_of_its_topics_only() -> None:
    rig = Rig()
    rig.lead()
    rig.publish(topic("flights", 1, 8), topic("hidden", 2, 8), topic("trains", 3, 8))
    allow(rig, ("describe", "topic", "flights"), ("read", "topic", "trains"))
    client = alice(rig)
    writer = rig.client()
    for name in ("flights", "hidden", "trains"):
        writer.ask(produce(topic=name), [batch()])
    rig.settle()
    for limit in (1, 2, 500):
        assert [each.topic_id for each in surveyed(client, limit)] == [1, 3]
    assert times(client, (2, 0, 0)) == [-1]
    assert times(client, (1, 0, 0)) == times(writer, (1, 0, 0))
    assert times(writer, (2, 0, 0)) != [-1]


def test_a_broker_that_had_no_turn_yet_tells_its_figures() -> None:
    config = BrokerConfig(id="broker-1", advertise="b1:7711", name_servers=["ns:7701"])
    broker = Broker(config, SimulatedStorage("store-1"), random.Random(1), "one", b"key")
    figures = {name: value for part in broker.figure_steps(1_000.0) for name, value in part.items()}
    assert figures["parked_late_seconds"] == 0.0
