"""A consumer's name has one owner: what clients do when leaders say that another process has it."""

from __future__ import annotations

import threading

import pytest

from logboom.client.calls import CoreCall
from logboom.client.subscriptions.reader_pair import ReaderPair
from logboom.client.subscriptions.subscriber_state import CloseSubscriber, SubscriberState
from logboom.wire.errors import GroupError
from logboom.wire.messages import AnyMessage, Failure
from logboom.wire.subscription_messages import Detach, Receive, Subscribe, SubscriptionConfig
from tests.unit.client.groups.scripted_group import fill, numbers
from tests.unit.client.subscriptions.scripted_subscription import Consumer, SubscriptionCluster

TAKEN = Failure(0, "INSTANCE_TAKEN", "another process is it", retryable=False)


class Leaders:
    """Takes down what leaders are asked, and refuses who subscribes in some queues."""

    def __init__(self, cluster: SubscriptionCluster) -> None:
        self.cluster = cluster
        self.taken: set[int] = set()
        """Queues in which the name is another's."""
        self.heard: list[Subscribe | Receive | Detach] = []
        cluster.intercept = self._answer

    def _answer(self, _endpoint: str, message: AnyMessage) -> Failure | bool | None:
        if not isinstance(message, Subscribe | Receive | Detach):
            return None
        self.heard.append(message)
        refused = isinstance(message, Subscribe) and message.queue in self.taken
        return TAKEN if refused else None

    def subscribes(self, queue: int) -> list[Subscribe]:
        """What was subscribed in a queue."""
        asked = [each for each in self.heard if isinstance(each, Subscribe)]
        return [each for each in asked if each.queue == queue]


@pytest.fixture
def leaders() -> Leaders:
    """Two queues of three messages each."""
    cluster = SubscriptionCluster(queues=2)
    for queue in range(2):
        fill(cluster, queue, 0, 3)
    return Leaders(cluster)


def test_a_consumer_waits_for_an_earlier_process_of_its_name_to_be_forgotten(
    leaders: Leaders,
) -> None:
    leaders.taken = {1}
    consumer = Consumer(leaders.cluster, "first")
    leaders.cluster.run(9.0)
    assert not consumer.opening.outcome.done
    # It takes no messages before all leaders know it, so it costs nobody any.
    assert not any(isinstance(message, Receive) for message in leaders.heard)
    leaders.taken = set()
    consumer.opened()
    assert len(numbers(consumer.read(6))) == 6
    assert {(each.owner, each.again) for each in leaders.subscribes(1)} == {
        (consumer.state.owner, False)
    }
    assert consumer.state.owner > 0


def test_a_consumer_whose_name_is_in_use_is_not_opened(leaders: Leaders) -> None:
    leaders.taken = {0}
    begun = leaders.cluster.now
    with pytest.raises(GroupError, match="another process") as caught:
        Consumer(leaders.cluster, "first").opened()
    assert caught.value.code == "INSTANCE_TAKEN"
    # A session, which is over by then if it is nobody's any more, and a little.
    assert 10 < leaders.cluster.now - begun < 16
    leaders.cluster.run(1)
    assert [each.queue for each in leaders.heard if isinstance(each, Detach)] == [1]


def test_who_cannot_wait_so_long_is_told_why(leaders: Leaders) -> None:
    leaders.taken = {0}
    consumer = Consumer(leaders.cluster, "first", timeout=5.0)
    assert leaders.cluster.run(6.0, lambda: consumer.opening.outcome.done)
    with pytest.raises(GroupError, match="another process"):
        consumer.opening.outcome.get()


def test_a_consumer_that_lost_its_name_ends_and_says_so_each_time(leaders: Leaders) -> None:
    consumer = Consumer(leaders.cluster, "first").opened()
    first = consumer.read(1)
    leaders.taken = {1}
    leaders.cluster.fail_over(1)
    assert leaders.cluster.run(30, lambda: consumer.state.ended is not None)
    assert leaders.subscribes(1)[-1].again
    for _ in range(3):
        with pytest.raises(GroupError, match="another process") as caught:
            consumer.reader.take(10)
        assert caught.value.code == "INSTANCE_TAKEN"
    consumer.reader.ack(first)
    assert consumer.flush().error is caught.value
    # The other queue is let go, and nothing is asked any more.
    leaders.cluster.run(1)
    assert [each.queue for each in leaders.heard if isinstance(each, Detach)] == [0]
    asked = len(leaders.heard)
    leaders.cluster.run(30)
    assert len(leaders.heard) == asked
    assert consumer.close() == 0


def test_what_reads_the_retries_ends_with_what_reads_the_topic() -> None:
    class Sink:
        can_delay = True

        def send(self, *_: object) -> None:
            raise AssertionError("nothing is to be sent")

    calls: list[CoreCall] = []
    cluster = SubscriptionCluster()
    options = Consumer(
        cluster, "first", config=SubscriptionConfig(kind="shared", max_attempts=2)
    ).state.options
    pair = ReaderPair(
        options,
        lambda each: SubscriberState(each, lambda: None, threading.RLock()),
        calls.append,
        Sink(),
    )
    topic, retries = pair.subscribers
    topic.end(GroupError("another process is it", "INSTANCE_TAKEN"))
    for _ in range(2):
        assert pair.waiting
        with pytest.raises(GroupError, match="another process"):
            pair.take(1)
    assert any(isinstance(call, CloseSubscriber) and call.subscriber is retries for call in calls)
