"""Undecided transactions, half messages and delayed messages, and how people end them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logboom.client.admin_flows.open_transactions import (
    OpenTransaction,
    OpenTransactions,
    find_attempt,
    find_halves,
)
from logboom.client.results import Message, messages_of
from logboom.client.written_values import counted
from logboom.console.pages.transactions_page import (
    DelayedModel,
    OpenTransactionModel,
    TransactionsModel,
    build_delayed,
    build_open,
    build_transactions,
    find_open,
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
from logboom.console.widgets.formats import span_text
from logboom.console.widgets.page_query import FormValues
from logboom.wire.errors import InvalidRequest, LogboomError

LISTED: Final = 20_000
"""Parked batches that the list reads."""
DELAYED_LISTED: Final = 2_000
CONTENT_MESSAGES: Final = 20
"""Messages of a transaction that its page shows."""


async def open_transactions(request: PageRequest) -> OpenTransactions:
    """Return all that waits for a decision."""
    admin = request.cluster.boom.admin
    return await request.cluster.cached(
        "transactions", lambda: admin.transactions(most=LISTED), 5.0
    )


async def load_transactions(request: PageRequest) -> TransactionsModel:
    """Ask for what waits for a decision."""
    found = await open_transactions(request)
    return build_transactions(found, request.cluster.history, request.now_ms, request.query)


async def load_open(request: PageRequest) -> OpenTransactionModel:
    """Ask for one transaction, and for the first of what is parked."""
    app_id = request.query.text("app")
    found = await request.cluster.boom.admin.transactions(app_id, most=LISTED)
    each = find_open(found, request.query)
    content: list[Message] = []
    unread = ""
    try:
        content = await _content(request, each)
    except LogboomError as error:
        # Whoever may not write the topic may still see that something waits.
        unread = error.text or str(error)
    return build_open(each, content, unread, request.query)


async def _content(request: PageRequest, each: OpenTransaction) -> list[Message]:
    """Return the first messages of a transaction."""
    content: list[Message] = []
    for topic, queue in each.queues:
        handles = [one for one in each.handles() if (one.topic, one.queue) == (topic, queue)]
        for columns in await request.cluster.boom.read_parked(handles[:CONTENT_MESSAGES]):
            content += messages_of(topic, queue, columns)
            if len(content) >= CONTENT_MESSAGES:
                return content[:CONTENT_MESSAGES]
    return content


async def load_delayed(request: PageRequest) -> DelayedModel:
    """Ask for the delayed messages that wait."""
    topic = request.query.text("topic")
    admin = request.cluster.boom.admin
    found = await request.cluster.cached(
        f"delayed {topic}", lambda: admin.delayed(topic, most=DELAYED_LISTED), 5.0
    )
    return build_delayed(found, topic, request.cluster.history, request.now_ms, request.query)


# ── decisions ───────────────────────────────────────────────────────────────────────────────────

FIELDS: Final = (
    FormField("app", kind="hidden", required=True),
    FormField("sequence", kind="hidden"),
    FormField("attempt", kind="hidden"),
    FormField("half", kind="hidden"),
)


def decide_command(word: str, values: FormValues) -> Sequence[str]:
    """Return the words of `logboom transaction commit` or `abort`."""
    if half := values.text("half"):
        return ("transaction", word, values.text("app"), "--half", half, "--yes")
    attempt = ("--attempt", values.text("attempt")) if values.text("attempt") else ()
    sequence = values.text("sequence")
    return ("transaction", word, values.text("app"), "--sequence", sequence, *attempt, "--yes")


async def _chosen(request: PageRequest, values: FormValues) -> OpenTransaction:
    """Return the transaction that a form names.

    Raises:
        UnknownResource: it is decided.
        InvalidRequest: more of it waits than is listed.
    """
    app_id = values.text("app")
    found = await request.cluster.boom.admin.transactions(app_id)
    if half := values.text("half"):
        return find_halves(found.transactions, app_id, half)[0]
    if found.more:
        text = f"more batches of {app_id!r} wait than are listed at once: let its producer decide"
        raise InvalidRequest(text)
    attempt = values.number("attempt") if values.text("attempt") else None
    return find_attempt(found.transactions, app_id, values.number("sequence"), attempt)


async def preview_decision(request: PageRequest, values: FormValues) -> ActionPreview:
    """Return what is decided on."""
    chosen = await _chosen(request, values)
    places = [f"{topic}/{queue}" for topic, queue in chosen.queues]
    rest = f" and {len(places) - 8} more" if len(places) > 8 else ""
    facts = (
        ("Messages", f"{chosen.messages:,}"),
        ("Queues", ", ".join(places[:8]) + rest),
        ("Waits for", span_text(max(0, request.now_ms - chosen.since_ms))),
    )
    return ActionPreview(facts)


async def _decide(request: PageRequest, values: FormValues, *, commit: bool) -> ActionDone:
    chosen = await _chosen(request, values)
    boom = request.cluster.boom
    word = "published" if commit else "dropped"
    if chosen.is_half:
        outcome = await boom.admin.end_half(chosen.half, commit=commit)
        same = outcome == ("committed" if commit else "aborted")
    else:
        decision = await boom.decide(
            chosen.app_id, chosen.sequence, chosen.handles(), commit=commit
        )
        same = decision.outcome == ("commit" if commit else "abort")
        same = same and not (commit and decision.again)
    if not same:
        return ActionDone("It was decided otherwise meanwhile.", "/transactions")
    return ActionDone(f"{counted(chosen.messages, 'message')} were {word}.", "/transactions")


async def commit_transaction(request: PageRequest, values: FormValues) -> ActionDone:
    """Publish what is parked."""
    return await _decide(request, values, commit=True)


async def abort_transaction(request: PageRequest, values: FormValues) -> ActionDone:
    """Drop what is parked."""
    return await _decide(request, values, commit=False)


COMMIT: Final = ConsoleAction(
    name="transaction.commit",
    title="Commit for a producer",
    button="Publish the messages",
    fields=FIELDS,
    command=lambda values: decide_command("commit", values),
    question=lambda values: (
        f"Publish what {values.text('app')} has parked? "
        + (
            "Its producer group was not sure about it."
            if values.text("half")
            else "Its producer may still be sending: what it parks later is dropped."
        )
    ),
    preview=preview_decision,
    run=commit_transaction,
    danger=True,
)
ABORT: Final = ConsoleAction(
    name="transaction.abort",
    title="Abort for a producer",
    button="Drop the messages",
    fields=FIELDS,
    command=lambda values: decide_command("abort", values),
    question=lambda values: f"Drop what {values.text('app')} has parked? Nobody will ever read it.",
    preview=preview_decision,
    run=abort_transaction,
    danger=True,
)


async def recall_delayed(request: PageRequest, values: FormValues) -> ActionDone:
    """Take a delayed batch back."""
    place = values.text("place")
    done = await request.cluster.boom.admin.recall(place)
    return ActionDone(f"{place} is taken back." if done else f"{place} was delivered before.")


RECALL: Final = ConsoleAction(
    name="delayed.recall",
    title="Take a delayed message back",
    button="Take it back",
    fields=(FormField("place", kind="hidden", required=True),),
    command=lambda values: ("message", "recall", values.text("place"), "--yes"),
    question=lambda values: (
        f"Take back what waits at {values.text('place')}? Nobody will ever read it."
    ),
    run=recall_delayed,
    danger=True,
)

SUBJECT: Final = Subject(
    pages=(
        PageRoute("/transactions", load_transactions, "transactions.html"),
        PageRoute("/transactions/open", load_open, "transaction.html"),
        PageRoute("/delayed", load_delayed, "delayed.html"),
    ),
    actions=(COMMIT, ABORT, RECALL),
    navigation=(NavigationEntry("Transactions", "/transactions", 60),),
)
