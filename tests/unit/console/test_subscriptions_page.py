"""Subscriptions: their list and one of them, from plain data."""

from __future__ import annotations

from logboom.client.admin_flows.subscription_flows import QueueSubscription, SubscriptionReset
from logboom.client.results import Message
from logboom.console.consumer_survey import (
    ConsumerHistory,
    ConsumerSurvey,
    SubscriptionProgress,
)
from logboom.console.pages.subscriptions_page import (
    build_subscription,
    build_subscriptions,
    moved_facts,
    moved_table,
    slots_text,
)
from logboom.console.routes.subscription_routes import delete_command, reset_command, skip_command
from logboom.console.widgets.page_query import FormValues, PageQuery
from logboom.wire.subscription_messages import (
    ConsumerState,
    SubscriptionConfig,
    SubscriptionState,
)


def progress(topic: str, name: str, unacked: int, *consumers: str) -> SubscriptionProgress:
    return SubscriptionProgress(topic, name, 2, unacked, 1, consumers)


def test_those_that_nobody_serves_are_found() -> None:
    found = [
        progress("orders", "mail", 5, "a"),
        progress("orders", "old", 9),
        progress("clicks", "done", 0),
    ]
    survey = ConsumerSurvey(1.0, {}, {(each.topic, each.name): each for each in found}, {})

    def shown(parameters: str) -> list[str]:
        model = build_subscriptions(survey, PageQuery("/subscriptions", parameters))
        return [row.source["name"] for row in model.table.rows]

    assert shown("") == ["old", "mail", "done"]
    assert shown("state=alone") == ["old"]
    assert shown("state=served") == ["mail"]
    assert shown("topic=clicks") == ["done"]


def state(queue: int, *consumers: ConsumerState, unacked: int = 4) -> QueueSubscription:
    kind, config = ("shared", SubscriptionConfig("shared")) if consumers else ("", None)
    return QueueSubscription(
        queue,
        SubscriptionState(
            "mail",
            3,
            0,
            unacked,
            7,
            kind,
            2,
            1,
            list(consumers),
            [(0, 9)] if consumers else [],
            [],
            [(3, 2)],
            [],
            config,
        ),
    )


def test_the_page_of_a_subscription() -> None:
    consumer = ConsumerState("printer", 0, 100, 9_999, 2, True, 50, [(10, 65_535)])
    peeked = [Message("orders", 0, 3, b"k", b"v", None, None, 5)]
    model = build_subscription(
        "orders",
        "mail",
        [state(0, consumer), state(1)],
        ConsumerHistory(),
        3,
        peeked,
        PageQuery("/subscriptions/orders/mail", "peek=0"),
    )
    assert (model.kind, model.unacked, model.held, model.waiting) == ("shared", 8, 4, 2)
    assert (model.consumer_count, model.redelivered, model.uncovered) == (1, 2, "0-9")
    (row,) = model.consumers.rows
    assert (row.source["permits"], row.source["slots"]) == (100, "10-65535")
    assert model.again.rows[0].source["url"] == "/topics/orders/0/3"
    assert model.settings is not None
    assert [r.source["name"] for r in model.settings.rows if r.source["changed"]] == ["kind"]
    assert model.peeked is not None
    assert model.peeked.rows[0].source["offset"] == 3
    assert (model.dead_letters, model.dead_letters_url) == (3, "/dead-letters/orders%25mail")


def test_without_consumers_there_are_no_settings() -> None:
    query = PageQuery("/subscriptions/orders/mail")
    model = build_subscription("orders", "mail", [state(1)], ConsumerHistory(), None, None, query)
    assert (model.settings, model.peeked, model.kind) == (None, None, "")


def test_slots_are_told_shortly() -> None:
    assert slots_text([]) == ""
    assert slots_text([(n, n) for n in range(6)]) == "0-0, 1-1, 2-2, 3-3 and 2 more"


def test_a_plan_says_what_it_comes_to() -> None:
    lines = [SubscriptionReset(0, 5, 9, 0, 9), SubscriptionReset(1, 8, 2, 0, 9)]
    facts, warning = moved_facts(lines)
    assert [text for _, text in facts] == ["2", "6", "4"]
    assert warning
    assert not moved_facts(lines[1:])[1]
    changes = [row.source["change"] for row in moved_table(lines, PageQuery("/")).rows]
    assert changes == [4, -6]


def test_commands_do_the_same() -> None:
    form = FormValues(
        [("topic", "t"), ("subscription", "s"), ("to", "1h"), ("queues", "0,3"), ("force", "on")]
    )
    assert list(reset_command(form)) == [
        *("subscription", "reset", "t", "s", "--to", "1h", "--queue", "0,3", "--force", "--yes")
    ]
    assert list(
        skip_command(FormValues([("topic", "t"), ("subscription", "s"), ("count", "2")]))
    ) == [*("subscription", "skip", "t", "s", "2", "--yes")]
    assert list(delete_command(FormValues([("topic", "t"), ("subscription", "s")]))) == [
        *("subscription", "delete", "t", "s", "--yes")
    ]
