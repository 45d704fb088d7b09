"""`logboom subscription`: list, describe, reset, skip, peek and delete subscriptions."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from logboom.cli.confirmation import confirmed
from logboom.cli.connection import open_client
from logboom.cli.message_format import as_row
from logboom.cli.options import when
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import (
    Apply,
    Confirmed,
    Force,
    Output,
    QueueNumbers,
    ResetTarget,
    Servers,
    SubscriptionName,
    TopicName,
)
from logboom.client.admin_flows.subscription_flows import QueueSubscription, SubscriptionReset
from logboom.client.written_values import counted, queue_numbers
from logboom.wire.subscription_messages import SubscriptionConfig

app = App(name="subscription", help="Subscriptions: list, describe, reset, skip, peek, delete.")


@app.command(name="list")
def list_subscriptions(
    topic: TopicName, *, servers: Servers = None, output: Output = "table"
) -> None:
    """List the subscriptions of a topic.

    For example:

        logboom subscription list orders -o json
    """
    with open_client(servers) as boom:
        found = boom.admin.subscriptions.all(topic)
    names = sorted({each.state.name for each in found})
    rows = [_summary(name, [e for e in found if e.state.name == name]) for name in names]
    show(rows, ["name", "type", "queues", "consumers", "unacked", "held"], output)


@app.command
def describe(
    topic: TopicName, name: SubscriptionName, *, servers: Servers = None, output: Output = "table"
) -> None:
    """Show how far a subscription is in each queue, and who consumes.

    For example:

        logboom subscription describe orders billing
    """
    with open_client(servers) as boom:
        found = boom.admin.subscriptions.describe(topic, name)
    if output == "json":
        show_json([_named(each) for each in found])
        return
    consumers = [row for each in found for row in _consumer_rows(each)]
    if consumers:
        columns = ["queue", "consumer", "active", "unacked", "permits", "silent_ms", "slots"]
        show(consumers, columns, output)
    settings = next((e.state.config for e in found if e.state.config is not None), None)
    if settings is not None:
        note(f"{name}: {_settings_text(settings)}")
    columns = ["queue", "floor", "end", "unacked", "held", "waiting", "redelivered", "uncovered"]
    show([_queue_row(each) for each in found], columns, output)


@app.command
def reset(
    topic: TopicName,
    name: SubscriptionName,
    *,
    to: ResetTarget[str],
    queue: QueueNumbers = None,
    force: Force = False,
    yes: Apply = False,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Let a subscription go on from another place. Without --yes it only shows what would be done.

    Messages below that position count as acknowledged, and no others.

    For example:

        logboom subscription reset orders billing --to first
        logboom subscription reset orders billing --to 1h --queue 0,3 --yes
    """
    queues, target = queue_numbers(queue), when(to)
    with open_client(servers) as boom:
        lines = boom.admin.subscriptions.reset(
            topic, name, target, queues=queues, dry_run=not yes, force=force
        )
    _moved(lines, name, output, done=yes)


@app.command
def skip(
    topic: TopicName,
    name: SubscriptionName,
    count: int,
    *,
    queue: QueueNumbers = None,
    force: Force = False,
    yes: Apply = False,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Acknowledge the next messages of each queue. Without --yes it only shows what would be done.

    For example:

        logboom subscription skip orders billing 1 --queue 2 --yes

    Parameters
    ----------
    count
        How many messages, beginning with the first unacknowledged one.
    """
    queues = queue_numbers(queue)
    with open_client(servers) as boom:
        lines = boom.admin.subscriptions.skip(
            topic, name, count, queues=queues, dry_run=not yes, force=force
        )
    _moved(lines, name, output, done=yes)


@app.command
def peek(
    topic: TopicName,
    name: SubscriptionName,
    *,
    queue: Annotated[int, Parameter(name=["--queue", "-q"])] = 0,
    count: Annotated[int, Parameter(name=["--count", "-n"])] = 10,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Show the first messages of a queue that are not acknowledged; nothing changes by it.

    For example:

        logboom subscription peek orders billing --queue 2 --count 1 -o json

    Parameters
    ----------
    queue
        The queue.
    count
        How many messages.
    """
    with open_client(servers) as boom:
        messages = boom.admin.subscriptions.peek(topic, name, queue, count)
    columns = ["queue", "offset", "timestamp_ms", "key", "value"]
    show([as_row(message) for message in messages], columns, output)


@app.command
def delete(
    topic: TopicName,
    name: SubscriptionName,
    *,
    force: Force = False,
    yes: Confirmed = False,
    servers: Servers = None,
) -> None:
    """Forget a subscription with all that it acknowledged.

    For example:

        logboom subscription delete orders billing --yes
    """
    refusal = f"deleting {name} cannot be undone: say --yes to do it"
    question = f"Forget {name} and how far it is?"
    if not (yes or confirmed(question, refusal, "nothing was deleted")):
        return
    with open_client(servers) as boom:
        boom.admin.subscriptions.delete(topic, name, force=force)
    note(f"deleted {name}")


def _summary(name: str, found: list[QueueSubscription]) -> dict[str, Any]:
    states = [each.state for each in found]
    return {
        "name": name,
        "type": next((state.kind for state in states if state.kind), None),
        "queues": len(states),
        "consumers": len({c.name for state in states for c in state.consumers}),
        "unacked": sum(state.unacked for state in states),
        "held": sum(state.held for state in states),
    }


def _queue_row(each: QueueSubscription) -> dict[str, Any]:
    state = each.state
    return {
        "queue": each.queue,
        "floor": state.floor,
        "end": state.end,
        "unacked": state.unacked,
        "held": state.held,
        "waiting": state.waiting,
        "redelivered": len(state.again),
        "uncovered": _slots(state.uncovered),
    }


def _named(each: QueueSubscription) -> dict[str, Any]:
    """Return everything reported about a queue, with named fields."""
    state = each.state
    return {
        "queue": each.queue,
        **msgspec.structs.asdict(state),
        "consumers": [msgspec.structs.asdict(consumer) for consumer in state.consumers],
        "config": None if state.config is None else msgspec.structs.asdict(state.config),
    }


def _settings_text(config: SubscriptionConfig) -> str:
    """Return the settings that differ from their defaults."""
    defaults = msgspec.structs.asdict(SubscriptionConfig())
    given = msgspec.structs.asdict(config)
    said = [f"{key} {value}" for key, value in given.items() if value != defaults[key]]
    return ", ".join([config.kind, *(each for each in said if not each.startswith("kind "))])


def _consumer_rows(each: QueueSubscription) -> list[dict[str, Any]]:
    return [
        {
            "queue": each.queue,
            "consumer": consumer.name,
            "active": consumer.active,
            "unacked": consumer.unacked,
            "permits": consumer.permits,
            "silent_ms": consumer.silent_ms,
            "slots": _slots(consumer.ranges),
        }
        for consumer in each.state.consumers
    ]


def _slots(ranges: list[tuple[int, int]]) -> str | None:
    shown = [f"{first}-{last}" for first, last in ranges[:4]]
    more = [f"and {len(ranges) - 4} more"] * (len(ranges) > 4)
    return ", ".join([*shown, *more]) or None


def _moved(lines: list[SubscriptionReset], name: str, output: str, *, done: bool) -> None:
    rows = [msgspec.structs.asdict(line) for line in lines]
    show(rows, ["queue", "floor", "target", "first", "end"], output)
    if done:
        note(f"moved {counted(len(lines), 'queue')} of {name}")
    else:
        note("nothing was changed: this is the plan; say --yes to carry it out")
