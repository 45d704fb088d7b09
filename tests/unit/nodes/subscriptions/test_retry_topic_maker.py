"""The topics of a subscription's retries and dead letters, which the leader of its queue creates."""

from __future__ import annotations

import pytest

from logboom.wire.commands import CreateTopic
from logboom.wire.errors import InvalidRequest, NotLeader, Refused, Unavailable, UnknownResource
from logboom.wire.messages import Ok
from logboom.wire.subscription_messages import MakeRetryTopics
from logboom.wire.view import QueueView, TopicConfig, TopicView
from tests.unit.nodes.rig import ME, Peer, Rig
from tests.unit.nodes.test_users_at_brokers import leading, refused

NAMES = ["%DLQ%flights%s", "%RETRY%flights%s"]


def ask(peer: Peer, topic: str = "flights", subscription: str = "s") -> None:
    """Have the topics created."""
    assert peer.ask(MakeRetryTopics(0, 9_000, topic, 0, subscription)) == []


def proposed(rig: Rig) -> list[CreateTopic]:
    return [command for _, command in rig.commands if isinstance(command, CreateTopic)]


def test_both_are_created_on_account_of_the_user_in_the_shape_of_the_system() -> None:
    rig, peer = leading(("read", "topic", "flights"))
    ask(peer)
    commands = proposed(rig)
    assert [command.name for command in commands] == NAMES
    for command in commands:
        shape = (command.queues, command.replicas, command.config, command.owner)
        assert shape == (1, 0, TopicConfig(), "alice")
    rig.decide(value=2)
    assert peer.taken() == []
    rig.decide("TOPIC_EXISTS")  # another consumer was faster
    assert isinstance(peer.answer(), Ok)


def test_what_exists_is_not_created_again() -> None:
    rig, peer = leading(("read", "topic", "flights"))
    assert rig.view is not None
    queue = QueueView([ME], ME, 1, rig.version + 1, [ME], [])
    known = [
        TopicView(name, number, TopicConfig(), [queue], rig.version + 1)
        for number, name in enumerate(NAMES, 2)
    ]
    rig.publish(*rig.view.topics, *known)
    peer.ask(MakeRetryTopics(0, 9_000, "flights", 0, "s"))
    assert isinstance(peer.answer(), Ok)
    assert proposed(rig) == []


def test_a_quota_that_is_full_is_told_and_the_other_result_changes_nothing() -> None:
    rig, peer = leading(("read", "topic", "flights"))
    ask(peer)
    rig.decide("QUOTA_EXCEEDED")
    (reply,) = peer.taken()
    assert isinstance(reply.error, Refused)
    rig.decide()
    assert peer.taken() == []


@pytest.mark.parametrize("subscription", ["", "a%b", "%", "ü", "x" * 120])
def test_a_name_that_makes_no_topic_is_refused(subscription: str) -> None:
    rig, peer = leading(("read", "topic", "flights"))
    error = refused(peer, MakeRetryTopics(0, 9_000, "flights", 0, subscription))
    assert isinstance(error, InvalidRequest)
    assert proposed(rig) == []


def test_it_needs_the_right_to_read_and_a_queue_that_is_led_here() -> None:
    rig, peer = leading(("describe", "topic", "flights"))
    assert refused(peer, MakeRetryTopics(0, 9_000, "flights", 0, "s")).code == "FORBIDDEN"
    rig, peer = leading(("read", "topic", "*"))
    for topic, queue in (("flights", 7), ("nowhere", 0)):
        error = refused(peer, MakeRetryTopics(0, 9_000, topic, queue, "s"))
        assert isinstance(error, NotLeader | UnknownResource)
    assert proposed(rig) == []


def test_who_waits_is_told_when_the_broker_has_to_register_again() -> None:
    rig, peer = leading(("read", "topic", "flights"))
    ask(peer)
    rig.within(rig.broker.parts.on_fenced)
    (reply,) = peer.taken()
    assert isinstance(reply.error, Unavailable)
