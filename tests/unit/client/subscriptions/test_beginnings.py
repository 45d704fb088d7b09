"""Where a subscription begins in queues that do not know it."""

from __future__ import annotations

import pytest

from logboom.wire.messages import AnyMessage, Failure
from logboom.wire.subscription_messages import Subscribe
from tests.unit.client.groups.scripted_group import fill, numbers
from tests.unit.client.subscriptions.scripted_subscription import Consumer, SubscriptionCluster


@pytest.fixture
def cluster() -> SubscriptionCluster:
    return filled()


def filled() -> SubscriptionCluster:
    """Two queues of three messages."""
    made = SubscriptionCluster(queues=2)
    fill(made, 0, 0, 3)
    fill(made, 1, 100, 3)
    return made


def add_queues(cluster: SubscriptionCluster, *firsts: int) -> None:
    """One queue more for each number, which has messages from there on."""
    for first in firsts:
        cluster.grow("t")
        fill(cluster, len(cluster.topics["t"]) - 1, first, 3)
    cluster.run(1)  # the client sees them


def test_a_new_subscription_begins_where_it_is_told(cluster: SubscriptionCluster) -> None:
    consumer = Consumer(cluster).opened()
    assert consumer.read(1, 1) == []
    assert sorted(cluster.begun) == [(0, "last"), (1, "last")]


def test_p10_added_queues_are_read_whole() -> None:
    """Also if they are added while the subscription has no consumer."""
    cluster = filled()
    Consumer(cluster).opened().close()
    add_queues(cluster, 200, 300)
    again = Consumer(cluster).opened()
    assert sorted(numbers(again.read(6))) == [200, 201, 202, 300, 301, 302]
    assert cluster.begun[2:] == [(2, "first"), (3, "first")]


def test_queues_added_while_it_has_a_consumer_are_read_from_their_first_message(
    cluster: SubscriptionCluster,
) -> None:
    consumer = Consumer(cluster).opened()
    add_queues(cluster, 200)
    assert numbers(consumer.read(3)) == [200, 201, 202]


def test_a_creation_that_was_cut_short_is_finished_as_it_was_begun(
    cluster: SubscriptionCluster,
) -> None:
    """The highest queue is the first to know of a subscription: those below did not come later."""
    add_queues(cluster, 200)
    lost = [0]

    def lose(_endpoint: str, message: AnyMessage) -> Failure | bool | None:
        if isinstance(message, Subscribe) and message.create and message.queue in lost:
            return True
        return None

    cluster.intercept = lose
    cut_short = Consumer(cluster)
    cluster.run(3)
    assert set(cluster.served) == {1, 2}
    assert not cut_short.opening.outcome.done
    cut_short.close(0)
    lost.clear()
    cluster.run(15)
    add_queues(cluster, 300)
    again = Consumer(cluster, start="last").opened()
    assert sorted(numbers(again.read(4, 2))) == [300, 301, 302]
    assert sorted(cluster.begun) == [(0, "last"), (1, "last"), (2, "last"), (3, "first")]


def test_added_queues_begin_in_their_order_so_that_none_is_taken_for_an_older_one(
    cluster: SubscriptionCluster,
) -> None:
    Consumer(cluster).opened().close()
    add_queues(cluster, 200, 300, 400)
    silent = [3]

    def lose(_endpoint: str, message: AnyMessage) -> Failure | bool | None:
        if isinstance(message, Subscribe) and message.create and message.queue in silent:
            return True
        return None

    cluster.intercept = lose
    cut_short = Consumer(cluster)
    cluster.run(3)
    assert set(cluster.served) == {0, 1, 2}
    cut_short.close(0)
    silent.clear()
    cluster.run(15)
    again = Consumer(cluster).opened()
    assert sorted(numbers(again.read(9))) == [n + k for n in (200, 300, 400) for k in range(3)]
