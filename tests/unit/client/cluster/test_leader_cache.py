"""What is known of the leaders of queues: the metadata, and hints that are newer."""

from __future__ import annotations

import pytest

from logboom.client.cluster.leader_cache import LeaderCache, QueueLeader
from logboom.wire.errors import InvalidRequest, NotLeader, TimedOut, UnknownResource
from logboom.wire.routes import Routes
from logboom.wire.view import BrokerView, QueueView, TopicConfig, TopicView, View


def routes() -> Routes:
    """Three brokers, and one topic of one queue, which the first leads in epoch 3."""
    brokers = [BrokerView(name, f"{name}:1", "", 1, True, 1) for name in "123"]
    topic = TopicView("t", 1, TopicConfig(), [QueueView(["1"], "1", 3, 3, ["1"], [])], 1)
    made = Routes()
    made.update(View(1, True, "c", brokers, [topic], [], [], [], None))
    return made


@pytest.fixture
def leaders() -> LeaderCache:
    return LeaderCache(routes())


@pytest.mark.parametrize(("epoch", "asked"), [(2, "1:1"), (3, "1:1"), (4, "2:1")])
def test_only_a_newer_hint_goes_before_the_metadata(
    leaders: LeaderCache, epoch: int, asked: str
) -> None:
    assert leaders.learn("t", 0, NotLeader("there", epoch=epoch, endpoint="2:1"))
    assert leaders.endpoint("t", 0) == asked


def test_the_metadata_knows_better_where_a_broker_is_reached(leaders: LeaderCache) -> None:
    """A broker has an endpoint for each listener, and the one that refuses may name another."""
    assert leaders.learn("t", 0, NotLeader("there", epoch=4, leader="2", endpoint="inside:1"))
    assert leaders.endpoint("t", 0) == "2:1"


def test_an_older_hint_does_not_replace_a_newer_one(leaders: LeaderCache) -> None:
    leaders.learn("t", 0, NotLeader("there", epoch=5, endpoint="3:1"))
    leaders.learn("t", 0, NotLeader("there", epoch=4, endpoint="2:1"))
    assert leaders.endpoint("t", 0) == "3:1"
    assert QueueLeader(leaders, "t", 0).has_left("1:1")


def test_a_topic_that_a_broker_does_not_know_yet_is_worth_another_try(leaders: LeaderCache) -> None:
    assert leaders.learn("t", 0, UnknownResource("which?", "UNKNOWN_TOPIC"))
    assert not leaders.learn("gone", 0, UnknownResource("which?", "UNKNOWN_TOPIC"))
    assert leaders.learn("t", 0, TimedOut("late"))
    assert not leaders.learn("t", 0, InvalidRequest("never"))
