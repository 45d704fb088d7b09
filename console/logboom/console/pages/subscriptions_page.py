"""Subscriptions: the list of all topics', and one with its consumers; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from logboom.client.admin_flows.subscription_flows import QueueSubscription, SubscriptionReset
from logboom.client.results import Message
from logboom.console.consumer_survey import ConsumerHistory, ConsumerSurvey, SubscriptionProgress
from logboom.console.widgets.chart_data import ChartModel, ChartSeries
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.filter_chips import FilterChip, state_chip
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.console.widgets.value_views import preview, short_bytes
from logboom.wire.subscription_messages import SubscriptionConfig

SLOTS_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class SubscriptionsModel:
    """The list of subscriptions."""

    table: TableModel
    choices: tuple[FilterChip, ...]
    topic: str
    all_url: str
    silent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscriptionModel:
    """One subscription."""

    topic: str
    name: str
    kind: str
    """"" without consumers."""
    unacked: int
    held: int
    waiting: int
    redelivered: int
    consumer_count: int
    uncovered: str
    """Key slots that nobody has; ""."""
    chart: ChartModel
    queues: TableModel
    consumers: TableModel
    again: TableModel
    """Messages that were delivered before and came back."""
    settings: TableModel | None
    peeked: TableModel | None
    peeked_queue: int
    peek_urls: tuple[tuple[int, str], ...]
    dead_letters: int | None
    dead_letters_url: str
    command: tuple[str, ...]


def subscription_url(topic: str, name: str) -> str:
    """Return where a subscription is shown."""
    return path_of("subscriptions", topic, name)


def _alone_tone(row: Row) -> Tone:
    return "failed" if not row["consumers"] and row["unacked"] else ""


COLUMNS: Final = (
    TableColumn(
        "name", "Subscription", "code", href=lambda row: subscription_url(row["topic"], row["name"])
    ),
    TableColumn("topic", "Topic", "code", href=lambda row: path_of("topics", row["topic"])),
    TableColumn("unacked", "Not acknowledged", "count", hint="Messages, delivered or not"),
    TableColumn("held", "Pending", "count", hint="Messages that consumers hold"),
    TableColumn("consumers", "Consumers", "count", tone=_alone_tone),
    TableColumn("queues", "Queues", "count", wide_only=True),
    TableColumn("names", "Who", wide_only=True),
)


def _row(each: SubscriptionProgress) -> dict[str, Any]:
    return {
        "name": each.name,
        "topic": each.topic,
        "unacked": each.unacked,
        "held": each.held,
        "consumers": len(each.consumers),
        "queues": each.queues,
        "names": each.consumers,
    }


def build_subscriptions(survey: ConsumerSurvey, query: PageQuery) -> SubscriptionsModel:
    """Return the part of the list that a URL asks for."""
    topic, asked = query.text("topic"), query.text("state")
    found = [each for each in survey.subscriptions.values() if topic in ("", each.topic)]
    alone = [each for each in found if not each.consumers and each.unacked]
    served = [each for each in found if each.consumers]
    chosen = {"alone": alone, "served": served}.get(asked, found)

    choices = [state_chip(query, "All", "", len(found))]
    if alone:
        choices.append(state_chip(query, "Behind without consumers", "alone", len(alone), "failed"))
    if served:
        choices.append(state_chip(query, "With consumers", "served", len(served), "ok"))
    table = build_table(
        COLUMNS,
        [_row(each) for each in chosen],
        query,
        sort="-unacked",
        empty="There are none. A subscription begins when its first consumer subscribes.",
    )
    return SubscriptionsModel(
        table, tuple(choices), topic, query.url(topic=None, page=None), survey.silent
    )


QUEUE_COLUMNS: Final = (
    TableColumn("queue", "Queue", "count"),
    TableColumn("unacked", "Not acknowledged", "count"),
    TableColumn("floor", "Floor", "count", hint="All below is acknowledged", wide_only=True),
    TableColumn("end", "End", "count", wide_only=True),
    TableColumn("held", "Pending", "count", hint="Messages that consumers hold"),
    TableColumn("waiting", "Waiting", "count", hint="Read, and waiting for a consumer"),
    TableColumn(
        "redelivered", "Redelivered", "count", hint="Delivered before, at most 100 counted"
    ),
    TableColumn("consumers", "Consumers", "count"),
    TableColumn("uncovered", "Slots of nobody", wide_only=True),
)
CONSUMER_COLUMNS: Final = (
    TableColumn("consumer", "Consumer", "code"),
    TableColumn("queue", "Queue", "count"),
    TableColumn(
        "active", "Active", "badge", tone=lambda row: "ok" if row["active"] == "active" else ""
    ),
    TableColumn("unacked", "Pending", "count"),
    TableColumn(
        "permits", "Permits", "count", hint="Messages more that it takes; 0: it does not keep up"
    ),
    TableColumn("silent_ms", "Last heard", "span", wide_only=True),
    TableColumn("priority", "Priority", "count", wide_only=True),
    TableColumn("slots", "Key slots", "code", wide_only=True),
)
AGAIN_COLUMNS: Final = (
    TableColumn("place", "Message", "code", href=lambda row: row["url"]),
    TableColumn("deliveries", "Failed deliveries", "count"),
)
SETTING_COLUMNS: Final = (
    TableColumn("name", "Setting", "code"),
    TableColumn("value", "Value", tone=lambda row: "info" if row["changed"] else ""),
    TableColumn("default", "Default"),
)
PEEK_COLUMNS: Final = (
    TableColumn("offset", "Offset", "count"),
    TableColumn("key", "Key", "code"),
    TableColumn("value", "Value", "code"),
    TableColumn("time_ms", "Message time", "time", wide_only=True),
)
RESET_COLUMNS: Final = (
    TableColumn("queue", "Queue", "count"),
    TableColumn("floor", "Floor", "count"),
    TableColumn("target", "New floor", "count"),
    TableColumn(
        "change", "Change", "count", tone=lambda row: "warning" if row["change"] > 0 else ""
    ),
    TableColumn("first", "First", "count", wide_only=True),
    TableColumn("end", "End", "count", wide_only=True),
)


def slots_text(ranges: Sequence[tuple[int, int]]) -> str:
    """Return key slots in the form 0-99, 300-499 and 3 more."""
    shown = [f"{first}-{last}" for first, last in ranges[:SLOTS_SHOWN]]
    text = ", ".join(shown)
    rest = len(ranges) - SLOTS_SHOWN
    return f"{text} and {rest} more" if rest > 0 else text


def _setting_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if value != "" else "none"


def build_subscription(
    topic: str,
    name: str,
    found: Sequence[QueueSubscription],
    history: ConsumerHistory,
    dead_letters: int | None,
    peeked: Sequence[Message] | None,
    query: PageQuery,
) -> SubscriptionModel:
    """Return one subscription.

    Args:
        peeked: its first messages in the queue `peek` of the URL; None: nobody asked.
    """
    states = [(each.queue, each.state) for each in found]
    queues = [
        {
            "queue": queue,
            "unacked": state.unacked,
            "floor": state.floor,
            "end": state.end,
            "held": state.held,
            "waiting": state.waiting,
            "redelivered": len(state.again),
            "consumers": len(state.consumers),
            "uncovered": slots_text(state.uncovered) or None,
        }
        for queue, state in states
    ]
    consumers = [
        {
            "consumer": consumer.name,
            "queue": queue,
            "active": "active" if consumer.active else "stands by",
            "unacked": consumer.unacked,
            "permits": consumer.permits,
            "silent_ms": consumer.silent_ms,
            "priority": consumer.priority,
            "slots": slots_text(consumer.ranges) or None,
        }
        for queue, state in states
        for consumer in state.consumers
    ]
    again = [
        {
            "place": f"{queue}/{offset}",
            "deliveries": count,
            "url": path_of("topics", topic, queue, offset),
        }
        for queue, state in states
        for offset, count in state.again
    ]
    config = next((state.config for _, state in states if state.config is not None), None)
    uncovered = next((slots_text(state.uncovered) for _, state in states if state.uncovered), "")
    return SubscriptionModel(
        topic=topic,
        name=name,
        kind=next((state.kind for _, state in states if state.kind), ""),
        unacked=sum(state.unacked for _, state in states),
        held=sum(state.held for _, state in states),
        waiting=sum(state.waiting for _, state in states),
        redelivered=len(again),
        consumer_count=len({each["consumer"] for each in consumers}),
        uncovered=uncovered,
        chart=ChartModel(
            "unacked",
            "Messages that are not acknowledged",
            "count",
            history.times_s(),
            [ChartSeries("not acknowledged", history.unacked(topic, name))],
        ),
        queues=build_table(QUEUE_COLUMNS, queues, query, title="Queues", sort="queue"),
        consumers=build_table(
            CONSUMER_COLUMNS,
            consumers,
            query,
            name="consumers",
            title="Consumers",
            sort="consumer",
            empty="Nobody consumes. The subscription keeps its place.",
        ),
        again=build_table(
            AGAIN_COLUMNS,
            again,
            query,
            name="again",
            title="Redeliveries",
            sort="-deliveries",
            empty="No message came back.",
        ),
        settings=None if config is None else _settings(config, query),
        peeked=None
        if peeked is None
        else build_table(
            PEEK_COLUMNS,
            [
                {
                    "offset": message.offset,
                    "key": short_bytes(message.key) or None,
                    "value": preview(message.value),
                    "time_ms": message.timestamp_ms,
                }
                for message in peeked
            ],
            query,
            name="peeked",
            title="Its next messages",
            empty="Everything in this queue is acknowledged.",
        ),
        peeked_queue=query.number("peek", -1),
        peek_urls=tuple((queue, query.url(peek=str(queue))) for queue, _ in states),
        dead_letters=dead_letters,
        dead_letters_url=path_of("dead-letters", f"{topic}%{name}"),
        command=("subscription", "describe", topic, name),
    )


def _settings(config: SubscriptionConfig, query: PageQuery) -> TableModel:
    values = msgspec.structs.asdict(config)
    defaults = msgspec.structs.asdict(SubscriptionConfig())
    rows = [
        {
            "name": name,
            "value": _setting_text(value),
            "default": _setting_text(defaults[name]),
            "changed": value != defaults[name],
        }
        for name, value in values.items()
    ]
    return build_table(SETTING_COLUMNS, rows, query, name="settings", title="Settings")


def moved_table(lines: Sequence[SubscriptionReset], query: PageQuery) -> TableModel:
    """Return the plan of a reset or of a skip."""
    rows = [{**msgspec.structs.asdict(line), "change": line.target - line.floor} for line in lines]
    return build_table(RESET_COLUMNS, rows, query, name="plan", empty="No queue would be moved.")


def moved_facts(lines: Sequence[SubscriptionReset]) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return what a plan comes to, and a warning, or ""."""
    forward = sum(max(0, line.target - line.floor) for line in lines)
    back = sum(max(0, line.floor - line.target) for line in lines)
    facts = (
        ("Queues", f"{len(lines):,}"),
        ("Offsets that are delivered again", f"{back:,}"),
        ("Offsets that are passed over", f"{forward:,}"),
    )
    warning = (
        "What is passed over counts as acknowledged, and is never delivered." if forward else ""
    )
    return facts, warning
