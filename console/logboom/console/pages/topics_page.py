"""The list of topics, pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logboom.console.consumer_survey import TopicStock
from logboom.console.pages.topic_page import is_in_sync
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.names import is_reserved
from logboom.wire.view import TopicView


@dataclass(frozen=True, slots=True)
class TopicsModel:
    """The list of topics."""

    table: TableModel
    shows_hidden: bool
    """True if topics of the system (%RETRY%…, %DLQ%…) are among them."""
    hidden: int
    toggle_url: str


def _leaderless_tone(row: Row) -> Tone:
    return "failed" if row["leaderless"] else ""


def _behind_tone(row: Row) -> Tone:
    return "warning" if row["out_of_sync"] else ""


COLUMNS = (
    TableColumn("name", "Topic", "code", href=lambda row: path_of("topics", row["name"])),
    TableColumn("messages", "Messages", "count"),
    TableColumn("size_bytes", "Size", "bytes", hint="Bytes of one replica."),
    TableColumn("queues", "Queues", "count"),
    TableColumn("replicas", "Replicas", "count", wide_only=True),
    TableColumn("leaderless", "No leader", "count", tone=_leaderless_tone),
    TableColumn("out_of_sync", "Out of sync", "count", tone=_behind_tone),
    TableColumn("retention_ms", "Retention", "kept", wide_only=True),
    TableColumn("compaction", "Compaction", wide_only=True),
    TableColumn("owner", "Owner", wide_only=True),
)


def topic_row(topic: TopicView, stock: TopicStock | None = None) -> dict[str, Any]:
    """Return what the list says of a topic.

    Args:
        stock: None: not known.
    """
    queues = topic.queues
    return {
        "name": topic.name,
        "messages": None if stock is None else stock.messages,
        "size_bytes": None if stock is None else stock.size_bytes,
        "queues": len(queues),
        "replicas": topic.replicas or max((len(queue.replicas) for queue in queues), default=0),
        "leaderless": sum(queue.leader is None for queue in queues),
        "out_of_sync": sum(not is_in_sync(queue) for queue in queues),
        "retention_ms": topic.config.retention_ms,
        "compaction": "on" if topic.config.compaction else "off",
        "owner": topic.owner,
    }


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The rows of all topics, by name: what viewers share."""

    own: Sequence[Row]
    hidden: Sequence[Row]
    """Those of the system."""


def topic_rows(topics: Sequence[TopicView], stocks: Mapping[str, TopicStock]) -> TopicRows:
    """Return the rows of topics.

    Args:
        stocks: by topic, as far as they are known.
    """
    own: list[Row] = []
    hidden: list[Row] = []
    for topic in topics:
        (hidden if is_reserved(topic.name) else own).append(
            topic_row(topic, stocks.get(topic.name))
        )
    return TopicRows(own, hidden)


def build_topics(rows: TopicRows, query: PageQuery) -> TopicsModel:
    """Return the part of the list that a URL asks for."""
    shows_hidden = query.text("hidden") == "1"
    shown = [*rows.own, *rows.hidden] if shows_hidden else rows.own
    table = build_table(
        COLUMNS, shown, query, sort="name", empty="There are no topics yet. Create the first one."
    )
    return TopicsModel(
        table,
        shows_hidden,
        len(rows.hidden),
        query.url(hidden=None if shows_hidden else "1", page=None),
    )
