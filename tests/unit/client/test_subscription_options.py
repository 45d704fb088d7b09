"""What `subscribe` takes, and what it refuses before anybody is asked."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.client.subscription_options import subscriber_options
from logboom.client.subscriptions.subscriber_state import SubscriberOptions
from logboom.wire.errors import InvalidRequest

LEAST: dict[str, Any] = {
    "tags": None,
    "where": None,
    "start": "last",
    "priority": 0,
    "ranges": None,
    "hashing": "auto_split",
    "window": 100,
    "settings": {},
}


def made(**given: Any) -> SubscriberOptions:
    """The options of a consumer; shared, unless another kind is given."""
    kind = given.pop("kind", "shared")
    return subscriber_options("orders", "billing", kind, "me", **{**LEAST, **given})


def test_what_is_said_is_what_is_asked_for() -> None:
    found = made(
        kind="key_shared",
        tags=["late", "lost"],
        start=1_700_000_000_000,
        priority=2,
        hashing="consistent",
        window=1,
        settings={"ack_timeout_s": 5, "messages_per_s": 10},
    )
    assert (found.topic, found.subscription, found.consumer) == ("orders", "billing", "me")
    assert (found.priority, found.ranges, found.start, found.window) == (
        2,
        None,
        1_700_000_000_000,
        1,
    )
    config = found.config
    assert (config.kind, config.hashing, config.filter) == (
        "key_shared",
        "consistent",
        "late || lost",
    )
    assert (config.ack_timeout_s, config.messages_per_s, config.session_ms) == (5.0, 10, 10_000)


def test_what_is_not_said_is_as_it_was() -> None:
    found = made()
    assert (found.config.kind, found.config.filter, found.start) == ("shared", "", "last")
    assert made(start="first").start == "first"


def test_ranges_make_it_sticky() -> None:
    found = made(kind="key_shared", ranges=[(0, 9), (20, 29)])
    assert (found.config.hashing, found.ranges) == ("sticky", ((0, 9), (20, 29)))
    found = made(kind="exclusive", ranges=[(0, 9)])
    assert (found.config.hashing, found.ranges) == ("auto_split", ((0, 9),))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "queue"}, "no subscription type is called 'queue': there are exclusive"),
        ({"window": 0}, "window must be 1 or more messages, not 0"),
        ({"window": 2.5}, "window must be 1 or more messages, not 2.5"),
        ({"window": True}, "window must be 1 or more messages, not True"),
        ({"ranges": [(0, 9)]}, "ranges require exclusive or key_shared"),
        ({"kind": "failover", "ranges": [(0, 9)]}, "ranges require exclusive or key_shared"),
        ({"kind": "key_shared", "ranges": [5]}, "a setting of the subscription is invalid"),
        ({"settings": {"speed": 3}}, "no setting of a subscription is called 'speed': there are "),
        ({"settings": {"kind": "shared"}}, "no setting of a subscription is called 'kind'"),
        ({"settings": {"most_unacked": "many"}}, "a setting of the subscription is invalid"),
        ({"hashing": "modulo"}, "a setting of the subscription is invalid"),
        ({"start": "yesterday"}, 'start must be "first", "last", or a time: .*, not \'yesterday\''),
        ({"start": True}, "ISO 8601 text such as .*, not True"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        made(**given)


@pytest.mark.parametrize("topic", [["a", "b"], ("a",), None, 3])
def test_a_subscription_is_of_one_topic(topic: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"a subscription has one topic.*subscribe to each"):
        subscriber_options(topic, "billing", "shared", "me", **LEAST)


def test_a_subscription_may_begin_at_a_time_of_day() -> None:
    assert made(start="2026-11-21T10:00:00Z").start == 1_795_255_200_000
