"""Subscriptions: their list, one of them, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logboom.client.admin_flows.subscription_flows import SubscriptionReset
from logboom.client.results import Message
from logboom.client.written_values import counted, queue_numbers, reset_target
from logboom.console.pages.subscriptions_page import (
    SubscriptionModel,
    SubscriptionsModel,
    build_subscription,
    build_subscriptions,
    moved_facts,
    moved_table,
    subscription_url,
)
from logboom.console.site import (
    ActionDone,
    ActionPreview,
    ConsoleAction,
    FormField,
    NavigationEntry,
    PageRequest,
    PageRoute,
    Subject,
)
from logboom.console.widgets.page_query import FormValues
from logboom.wire.errors import InvalidRequest

PEEKED: Final = 20
"""Messages that a page shows of a queue."""
TOPIC: Final = FormField("topic", kind="hidden", required=True)
NAME: Final = FormField("subscription", kind="hidden", required=True)
FORCE: Final = FormField(
    "force", "Cut off its consumers", "checkbox", hint="They attach again by themselves."
)
QUEUES: Final = FormField("queues", "Only these queues", placeholder="0,3 or 2-5")


async def load_subscriptions(request: PageRequest) -> SubscriptionsModel:
    """Return the list, from the newest survey: no queue is asked by itself."""
    return build_subscriptions(await request.cluster.consumers.survey(), request.query)


async def load_subscription(request: PageRequest) -> SubscriptionModel:
    """Ask for one subscription."""
    topic, name = request.parts["topic"], request.parts["subscription"]
    admin = request.cluster.boom.admin.subscriptions
    found = await request.cluster.cached(
        f"subscription {topic} {name}", lambda: admin.describe(topic, name)
    )
    peeked: list[Message] | None = None
    queue = request.query.number("peek", -1)
    if queue in [each.queue for each in found]:
        peeked = await admin.peek(topic, name, queue, PEEKED)
    survey = await request.cluster.consumers.survey()
    dead = survey.dead.get(f"{topic}%{name}")
    return build_subscription(
        topic,
        name,
        found,
        request.cluster.consumers.history,
        None if dead is None else dead.open,
        peeked,
        request.query,
    )


def _words(values: FormValues) -> list[str]:
    """Return the words that reset and skip share."""
    words = ["--queue", values.text("queues")] if values.text("queues") else []
    return [*words, *(["--force"] if values.flag("force") else []), "--yes"]


def reset_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom subscription reset`."""
    to = values.text("to") or "first"
    who = (values.text("topic"), values.text("subscription"))
    return ("subscription", "reset", *who, "--to", to, *_words(values))


async def _reset(
    request: PageRequest, values: FormValues, *, dry_run: bool
) -> list[SubscriptionReset]:
    return await request.cluster.boom.admin.subscriptions.reset(
        values.text("topic"),
        values.text("subscription"),
        reset_target(values.text("to") or "first", request.now_ms),
        queues=queue_numbers(values.text("queues") or None),
        dry_run=dry_run,
        force=values.flag("force"),
    )


async def preview_reset(request: PageRequest, values: FormValues) -> ActionPreview:
    """Return the plan of a reset."""
    return _plan(request, await _reset(request, values, dry_run=True))


def _plan(request: PageRequest, lines: Sequence[SubscriptionReset]) -> ActionPreview:
    facts, warning = moved_facts(lines)
    return ActionPreview(facts, moved_table(lines, request.query), warning)


def _moved(values: FormValues, lines: Sequence[SubscriptionReset]) -> ActionDone:
    topic, name = values.text("topic"), values.text("subscription")
    return ActionDone(
        f"{counted(len(lines), 'queue')} of {name} were moved.", subscription_url(topic, name)
    )


async def reset_subscription(request: PageRequest, values: FormValues) -> ActionDone:
    """Let a subscription go on from another place."""
    return _moved(values, await _reset(request, values, dry_run=False))


RESET: Final = ConsoleAction(
    name="subscription.reset",
    title="Reset a subscription",
    button="Reset the subscription",
    fields=(
        TOPIC,
        NAME,
        FormField(
            "to",
            "To",
            default="first",
            required=True,
            hint="first, last, a message time such as 2026-11-21T10:00:00Z, or 1h for an hour ago.",
        ),
        QUEUES,
        FORCE,
    ),
    command=reset_command,
    question=lambda values: (
        f"Let {values.text('subscription')} go on from there? Exactly the messages below count as "
        "acknowledged then."
    ),
    preview=preview_reset,
    run=reset_subscription,
    danger=True,
)


def skip_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom subscription skip`."""
    who = (values.text("topic"), values.text("subscription"))
    return ("subscription", "skip", *who, values.text("count") or "1", *_words(values))


async def _skip(
    request: PageRequest, values: FormValues, *, dry_run: bool
) -> list[SubscriptionReset]:
    return await request.cluster.boom.admin.subscriptions.skip(
        values.text("topic"),
        values.text("subscription"),
        values.number("count", 1),
        queues=queue_numbers(values.text("queues") or None),
        dry_run=dry_run,
        force=values.flag("force"),
    )


async def preview_skip(request: PageRequest, values: FormValues) -> ActionPreview:
    """Return the plan of a skip."""
    return _plan(request, await _skip(request, values, dry_run=True))


async def skip_messages(request: PageRequest, values: FormValues) -> ActionDone:
    """Acknowledge the next messages of each queue."""
    return _moved(values, await _skip(request, values, dry_run=False))


SKIP: Final = ConsoleAction(
    name="subscription.skip",
    title="Skip messages of a subscription",
    button="Skip the messages",
    fields=(
        TOPIC,
        NAME,
        FormField("count", "Messages of each queue", "number", default="1", required=True),
        QUEUES,
        FORCE,
    ),
    command=skip_command,
    question=lambda values: (
        f"Acknowledge these messages for {values.text('subscription')}? It never gets them."
    ),
    preview=preview_skip,
    run=skip_messages,
    danger=True,
)


def delete_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom subscription delete`."""
    force = ["--force"] if values.flag("force") else []
    who = (values.text("topic"), values.text("subscription"))
    return ("subscription", "delete", *who, *force, "--yes")


async def preview_delete(request: PageRequest, values: FormValues) -> ActionPreview:
    """Return what would be forgotten."""
    found = await request.cluster.boom.admin.subscriptions.describe(
        values.text("topic"), values.text("subscription")
    )
    unacked = sum(each.state.unacked for each in found)
    consumers = {consumer.name for each in found for consumer in each.state.consumers}
    warning = ""
    if consumers and not values.flag("force"):
        warning = (
            f"It has {counted(len(consumers), 'consumer')}: the deletion is refused without force."
        )
    facts = (
        ("Queues", f"{len(found):,}"),
        ("Messages that are not acknowledged", f"{unacked:,}"),
        ("Consumers", f"{len(consumers):,}"),
    )
    return ActionPreview(facts, warning=warning)


async def delete_subscription(request: PageRequest, values: FormValues) -> ActionDone:
    """Forget a subscription."""
    topic, name = values.text("topic"), values.text("subscription")
    if not name:
        raise InvalidRequest("give the name of a subscription")
    await request.cluster.boom.admin.subscriptions.delete(topic, name, force=values.flag("force"))
    return ActionDone(f"{name} of {topic} is deleted.", "/subscriptions")


DELETE: Final = ConsoleAction(
    name="subscription.delete",
    title="Delete a subscription",
    button="Delete the subscription",
    fields=(TOPIC, NAME, FORCE),
    command=delete_command,
    question=lambda values: (
        f"Forget {values.text('subscription')} of {values.text('topic')}, with all that it "
        "acknowledged?"
    ),
    preview=preview_delete,
    run=delete_subscription,
    danger=True,
)

SUBJECT: Final = Subject(
    pages=(
        PageRoute("/subscriptions", load_subscriptions, "subscriptions.html"),
        PageRoute("/subscriptions/{topic}/{subscription}", load_subscription, "subscription.html"),
    ),
    actions=(RESET, SKIP, DELETE),
    navigation=(NavigationEntry("Subscriptions", "/subscriptions", 40),),
)
