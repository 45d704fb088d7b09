"""What `flush` and `close` say of settlements that leaders refused, and that they end."""

from __future__ import annotations

import pytest

from logboom.wire.errors import GroupError
from logboom.wire.messages import AnyMessage, Failure
from logboom.wire.subscription_messages import SettleMessages, SubscriptionConfig
from tests.unit.client.groups.scripted_group import fill, numbers
from tests.unit.client.scripted import BROKERS
from tests.unit.client.subscriptions.scripted_subscription import Consumer, SubscriptionCluster


@pytest.fixture
def cluster() -> SubscriptionCluster:
    return filled()


def filled() -> SubscriptionCluster:
    """A queue of six messages, and its leader."""
    made = SubscriptionCluster()
    fill(made, 0, 0, 6)
    return made


def settling_is_lost(_endpoint: str, message: AnyMessage) -> Failure | bool | None:
    """What a leader does that dies with what it was told."""
    return True if isinstance(message, SettleMessages) else None


def fail_over(cluster: SubscriptionCluster) -> None:
    """The leader dies, and its successor delivers everything to another consumer."""
    cluster.move("t", 0, BROKERS[1])
    cluster.fail_over(0)
    other = cluster.served[0]
    other.sessions["other"] = 1
    other.held.update(dict.fromkeys(range(6), "other"))
    cluster.intercept = lambda *_: None


def test_p10_a_flush_tells_of_acknowledgements_that_a_new_leader_refused() -> None:
    cluster = filled()
    consumer = Consumer(cluster, "first").opened()
    messages = consumer.read(6)
    cluster.intercept = settling_is_lost
    consumer.reader.ack(messages[:4])
    cluster.run(0.1)
    # The consumer is paused while its leader is stopped and killed.
    fail_over(cluster)
    outcome = consumer.flush()
    assert cluster.served[0].acked == set()
    assert isinstance(outcome.error, GroupError), "nobody has confirmed these acknowledgements"
    assert outcome.error.code == "ACK_REFUSED"
    assert outcome.error.fields == {"messages": 4, "refused": [["t", 0, 0, 4]]}
    # It is told once, and the other consumer's acknowledgements are not ours.
    assert consumer.flush().error is None


def test_a_flush_tells_of_a_cumulative_acknowledgement_that_was_refused(
    cluster: SubscriptionCluster,
) -> None:
    consumer = Consumer(cluster, "first", config=SubscriptionConfig(kind="failover")).opened()
    messages = consumer.read(6)
    cluster.refused = {2}
    cluster.intercept = lambda _e, message: (
        Failure(0, "INVALID_ARGUMENT", "no", retryable=False)
        if isinstance(message, SettleMessages)
        else None
    )
    consumer.reader.ack_cumulative(messages[2])
    error = consumer.flush().error
    assert isinstance(error, GroupError)
    assert error.fields["refused"] == [["t", 0, 0, 3]]


def test_what_was_refused_and_accepted_later_is_confirmed(cluster: SubscriptionCluster) -> None:
    consumer = Consumer(cluster, "first").opened()
    messages = consumer.read(6)
    cluster.refused = {1}
    consumer.reader.ack(messages)
    cluster.run(0.1)
    assert cluster.served[0].acked == {0, 2, 3, 4, 5}
    # It is delivered again, to this consumer, and acknowledged without being handed out.
    cluster.refused = set()
    cluster.served[0].held.clear()
    assert cluster.run(15, lambda: 1 in cluster.served[0].acked)
    assert consumer.flush().error is None
    assert consumer.read(1, 1) == []


@pytest.mark.parametrize("kind", ["shared", "failover"])
def test_a_message_given_back_that_did_not_count_holds_up_neither_flush_nor_close(
    kind: str, cluster: SubscriptionCluster
) -> None:
    """Another consumer has the turn by now, or retention has removed the message."""
    config = SubscriptionConfig(kind="failover" if kind == "failover" else "shared")
    consumer = Consumer(cluster, "first", config=config).opened()
    messages = consumer.read(6)
    cluster.refused = {5}
    consumer.reader.nack(messages[5], 60.0)
    assert consumer.flush(5).done
    consumer.reader.ack(messages[:1])
    consumer.reader.nack(messages[4], 60.0)
    assert consumer.close() < 1


def test_a_leader_that_does_not_answer_to_a_message_given_back_holds_up_no_flush(
    cluster: SubscriptionCluster,
) -> None:
    consumer = Consumer(cluster, "first").opened()
    messages = consumer.read(6)
    cluster.intercept = settling_is_lost
    consumer.reader.nack(messages[5], 60.0)
    cluster.run(0.1)
    cluster.move("t", 0, BROKERS[1])
    cluster.fail_over(0)
    cluster.intercept = lambda *_: None
    outcome = consumer.flush(12)
    assert outcome.done
    assert outcome.error is None
    assert numbers(consumer.read(6)) == list(range(6))


def test_a_flush_of_a_topic_made_anew_ends(cluster: SubscriptionCluster) -> None:
    consumer = Consumer(cluster, "first").opened()
    messages = consumer.read(6)
    cluster.intercept = settling_is_lost
    consumer.reader.ack(messages)
    cluster.run(0.1)
    cluster.drop_topic("t")
    cluster.served.clear()
    cluster.add_topic("t", 1)
    cluster.intercept = lambda *_: None
    assert consumer.flush(12).done


def test_a_close_fails_the_flushes_that_wait(cluster: SubscriptionCluster) -> None:
    consumer = Consumer(cluster, "first").opened()
    messages = consumer.read(6)
    cluster.intercept = settling_is_lost
    consumer.reader.ack(messages)
    waiting = consumer.flush(0.1)
    assert not waiting.done
    consumer.close(1.0)
    assert waiting.done
    assert waiting.error is not None
