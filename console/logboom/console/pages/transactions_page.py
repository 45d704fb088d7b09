"""What waits: undecided transactions, half messages, and delayed messages; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.admin_flows.delayed_flows import DelayedBatches, delayed_place
from logboom.client.admin_flows.open_transactions import (
    OpenTransaction,
    OpenTransactions,
    place_text,
)
from logboom.client.results import Message
from logboom.console.cluster_history import ClusterHistory
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.page_query import PageQuery, link, path_of
from logboom.console.widgets.value_views import preview, short_bytes, shown_headers
from logboom.wire.errors import UnknownResource
from logboom.wire.transactions import MADE_UP

LATE_MS: Final = 300_000
"""The age of an undecided transaction from which it is shown as a warning."""


@dataclass(frozen=True, slots=True)
class ParkedFigures:
    """What the brokers count."""

    parked: float | None
    parked_bytes: float | None
    undecided: float | None


@dataclass(frozen=True, slots=True)
class TransactionsModel:
    """What waits for a decision."""

    table: TableModel
    figures: ParkedFigures
    transactions: int
    halves: int
    oldest_ms: int | None
    """Age of the oldest."""
    more: bool

    @property
    def is_late(self) -> bool:
        """True if the oldest waits for so long that somebody should look."""
        return (self.oldest_ms or 0) >= LATE_MS


@dataclass(frozen=True, slots=True)
class OpenTransactionModel:
    """One undecided transaction or half message."""

    app_id: str
    is_half: bool
    sequence: int
    attempt: int
    half: str
    """Where a half message is parked; "" for a transaction."""
    title: str
    facts: tuple[tuple[str, str], ...]
    since_ms: int
    batches: TableModel
    messages: TableModel
    unread: str
    """Why its content is not shown; ""."""
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DelayedModel:
    """Delayed messages that wait."""

    table: TableModel
    topic: str
    more: bool
    figures: ParkedFigures


def transaction_url(each: OpenTransaction) -> str:
    """Return where an undecided transaction is shown."""
    pairs = {"app": each.app_id}
    if each.is_half:
        pairs["half"] = place_text(each)
    else:
        pairs |= {"sequence": str(each.sequence), "attempt": str(each.attempt)}
    return link("/transactions/open", pairs)


def _age_tone(row: Row) -> Tone:
    return "warning" if row["age_ms"] >= LATE_MS else ""


COLUMNS: Final = (
    TableColumn("app_id", "Application or producer group", "code", href=lambda row: row["url"]),
    TableColumn("kind", "Kind", "badge", tone=lambda row: "info" if row["kind"] == "half" else ""),
    TableColumn("sequence", "Sequence", "count", wide_only=True),
    TableColumn("attempt", "Attempt", "count", wide_only=True),
    TableColumn("messages", "Messages", "count"),
    TableColumn("bytes", "Size", "bytes", wide_only=True),
    TableColumn("age_ms", "Age", "span", tone=_age_tone),
    TableColumn("queues", "Queues", wide_only=True),
    TableColumn(
        "checks", "Checks", "count", wide_only=True, hint="How often its producer group was asked"
    ),
)


def transaction_row(each: OpenTransaction, now_ms: int) -> dict[str, Any]:
    """Return what the list says of a transaction."""
    return {
        "app_id": each.app_id,
        "kind": "half" if each.is_half else "transaction",
        "sequence": None if each.is_half else each.sequence,
        "attempt": None if each.is_half else each.attempt,
        "messages": each.messages,
        "bytes": each.size,
        "age_ms": max(0, now_ms - each.since_ms),
        "queues": [place_text(each)]
        if each.is_half
        else [f"{topic}/{queue}" for topic, queue in each.queues],
        "checks": each.checks if each.is_half else None,
        "url": transaction_url(each),
    }


def figures_of(history: ClusterHistory) -> ParkedFigures:
    """Return what the brokers counted last."""
    told: dict[str, float | None] = {}
    for counter in ("parked", "parked_bytes", "undecided"):
        newest = history.newest
        values = [] if newest is None else [n.counters.get(counter) for n in newest.nodes.values()]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        told[counter] = sum(numbers) if numbers else None
    return ParkedFigures(told["parked"], told["parked_bytes"], told["undecided"])


def build_transactions(
    found: OpenTransactions, history: ClusterHistory, now_ms: int, query: PageQuery
) -> TransactionsModel:
    """Return what waits for a decision."""
    listed = found.transactions
    oldest = min((each.since_ms for each in listed), default=None)
    return TransactionsModel(
        table=build_table(
            COLUMNS,
            [transaction_row(each, now_ms) for each in listed],
            query,
            sort="-age_ms",
            empty="Nothing waits for a decision.",
        ),
        figures=figures_of(history),
        transactions=sum(not each.is_half for each in listed),
        halves=sum(each.is_half for each in listed),
        oldest_ms=None if oldest is None else max(0, now_ms - oldest),
        more=found.more,
    )


def find_open(found: OpenTransactions, query: PageQuery) -> OpenTransaction:
    """Return the transaction that a URL names.

    Raises:
        UnknownResource: it is decided, or there was none.
    """
    for each in found.transactions:
        if transaction_url(each) == link(
            "/transactions/open",
            {
                name: query.text(name)
                for name in ("app", "half", "sequence", "attempt")
                if query.text(name)
            },
        ):
            return each
    raise UnknownResource(
        f"nothing of {query.text('app')!r} waits there any more: it was decided", "UNKNOWN_HANDLES"
    )


BATCH_COLUMNS: Final = (
    TableColumn("topic", "Topic", "code", href=lambda row: path_of("topics", row["topic"])),
    TableColumn("queue", "Queue", "count"),
    TableColumn("place", "Parked at", "code", hint="Offset and side in the queue's log"),
    TableColumn("messages", "Messages", "count"),
    TableColumn("bytes", "Size", "bytes"),
    TableColumn("parked_ms", "Since", "time", wide_only=True),
)
MESSAGE_COLUMNS: Final = (
    TableColumn("place", "Topic/queue", "code"),
    TableColumn("key", "Key", "code"),
    TableColumn("value", "Value", "code"),
    TableColumn("headers", "Headers", wide_only=True),
    TableColumn("time_ms", "Message time", "time", wide_only=True),
)


def who_wrote(app_id: str) -> str:
    """Return what an application id says of its program; "" if nothing."""
    if app_id.startswith(f"{MADE_UP}spark-write-"):
        return "a batch write of Spark without a txnAppId"
    if app_id.startswith(f"{MADE_UP}spark-run-"):
        return "the note of a run of a Spark query"
    if app_id.startswith(MADE_UP):
        return "a producer that made its own id up"
    if app_id.startswith("spark-"):
        return "a Spark query; its id is that of its checkpoint, and the sequence its micro-batch"
    return ""


def build_open(
    each: OpenTransaction, content: Sequence[Message], unread: str, query: PageQuery
) -> OpenTransactionModel:
    """Return one transaction."""
    half = place_text(each) if each.is_half else ""
    batches = [
        {
            "topic": batch.topic,
            "queue": batch.queue,
            "place": f"{batch.offset}.{batch.side}",
            "messages": batch.count,
            "bytes": batch.size,
            "parked_ms": batch.parked_ms,
        }
        for batch in each.parked
    ]
    messages = [
        {
            "place": f"{message.topic}/{message.queue}",
            "key": short_bytes(message.key) or None,
            "value": preview(message.value),
            "headers": [name for name, _ in shown_headers(message.headers)],
            "time_ms": message.timestamp_ms,
        }
        for message in content
    ]
    facts = [("Messages", f"{each.messages:,}"), ("Bytes", f"{each.size:,}")]
    if each.is_half:
        facts.append(("Parked at", half))
        facts.append(("Times its producer group was asked", str(each.checks)))
    else:
        facts += [("Sequence", f"{each.sequence:,}"), ("Attempt", f"{each.attempt:,}")]
    if who := who_wrote(each.app_id):
        facts.append(("Written by", who))
    return OpenTransactionModel(
        app_id=each.app_id,
        is_half=each.is_half,
        sequence=each.sequence,
        attempt=each.attempt,
        half=half,
        title="Half message" if each.is_half else "Transaction",
        facts=tuple(facts),
        since_ms=each.since_ms,
        batches=build_table(BATCH_COLUMNS, batches, query, title="Parked batches"),
        messages=build_table(
            MESSAGE_COLUMNS, messages, query, name="messages", title="Its first messages"
        ),
        unread=unread,
        command=(
            "transaction",
            "show",
            each.app_id,
            *(() if each.is_half else ("--sequence", str(each.sequence))),
        ),
    )


DELAYED_COLUMNS: Final = (
    TableColumn("place", "Where it waits", "code"),
    TableColumn("topic", "Topic", "code", href=lambda row: path_of("topics", row["topic"])),
    TableColumn("due_in_ms", "Due in", "span"),
    TableColumn("due_ms", "Due", "time", wide_only=True),
    TableColumn("bytes", "Size", "bytes", wide_only=True),
)


def build_delayed(
    found: DelayedBatches, topic: str, history: ClusterHistory, now_ms: int, query: PageQuery
) -> DelayedModel:
    """Return the delayed batches that wait."""
    rows = [
        {
            "place": delayed_place(each),
            "topic": each.topic,
            "due_in_ms": max(0, each.due_ms - now_ms),
            "due_ms": each.due_ms,
            "bytes": each.size,
        }
        for each in found.batches
    ]
    table = build_table(
        DELAYED_COLUMNS, rows, query, sort="due_in_ms", empty="No delayed message waits."
    )
    return DelayedModel(table, topic, found.more, figures_of(history))
