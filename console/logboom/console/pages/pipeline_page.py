"""Spark jobs, as far as the cluster knows of them; pure.

Spark keeps the position of a query in its checkpoint, and the cluster is not told of queries. What
it does know: who is connected, what a query commits for a group (`commitGroup`), and what its
exactly-once writes have parked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.admin_flows.open_transactions import OpenTransaction
from logboom.client.results import NodeConnections
from logboom.console.consumer_survey import ConsumerHistory, ConsumerSurvey
from logboom.console.pages.transactions_page import transaction_url, who_wrote
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.transactions import MADE_UP

SPARK_CLIENT: Final = "spark-"
"""How the client ids of Spark's processes begin."""
SPARK_APPLICATIONS: Final = ("spark-", f"{MADE_UP}spark-")
"""How the application ids begin that Spark's queries and writes have without a txnAppId."""
UNKNOWN: Final = (
    (
        "Whether a query runs, and its checkpoint: only Spark knows. A query that is not connected may "
        "still have a checkpoint from which it goes on."
    ),
    "What a query has read, unless it commits for a group (the option commitGroup of the source).",
    (
        "Micro-batches that were published: each leaves its messages, and nothing that could be listed. "
        "What is listed was parked and is not decided yet."
    ),
    (
        "Writes under a txnAppId are not told from those of other applications, and with "
        "delivery=at-least-once not from those of any producer."
    ),
    (
        "A group without members that moves is most likely that of a query. A reset of offsets by hand "
        "looks the same."
    ),
    "Commits before this console was started.",
)


@dataclass(frozen=True, slots=True)
class PipelineModel:
    """What is known of Spark jobs."""

    readers: TableModel
    writers: TableModel
    processes: TableModel
    since_s: float | None
    """From when on commits were watched; None: not yet."""
    connected: int
    unanswered: tuple[str, ...]
    """Nodes that did not tell their connections, with the reason."""
    unknown: tuple[str, ...] = UNKNOWN


def _state_tone(row: Row) -> Tone:
    return "ok" if row["state"] == "commits" else ""


READER_COLUMNS: Final = (
    TableColumn("group", "Group", "code", href=lambda row: path_of("groups", row["group"])),
    TableColumn("state", "State", "badge", tone=_state_tone),
    TableColumn("lag", "Lag", "count"),
    TableColumn("age_ms", "Oldest", "span", hint="How long the oldest unread message waits"),
    TableColumn("commit_ms", "Last commit", "time", hint="When the console saw it"),
    TableColumn("topics", "Topics", wide_only=True),
    TableColumn("command", "Command", "code", wide_only=True),
)
WRITER_COLUMNS: Final = (
    TableColumn("app_id", "Application", "code", href=lambda row: row["url"]),
    TableColumn("who", "Written by", wide_only=True),
    TableColumn("sequence", "Micro-batch", "count"),
    TableColumn("messages", "Messages", "count"),
    TableColumn("bytes", "Size", "bytes", wide_only=True),
    TableColumn("age_ms", "Open for", "span"),
)
PROCESS_COLUMNS: Final = (
    TableColumn("client", "Process", "code"),
    TableColumn("node", "Connected to", "code"),
    TableColumn("endpoint", "From", "code", wide_only=True),
    TableColumn("user", "User", wide_only=True),
    TableColumn("since_ms", "For", "span"),
    TableColumn("idle_ms", "Silent for", "span"),
    TableColumn("sent", "Read from the node", "bytes", wide_only=True),
    TableColumn("received", "Written to it", "bytes", wide_only=True),
)


def build_pipeline(
    survey: ConsumerSurvey,
    history: ConsumerHistory,
    transactions: Sequence[OpenTransaction],
    connections: Sequence[NodeConnections],
    now_ms: int,
    query: PageQuery,
) -> PipelineModel:
    """Return what is known of Spark jobs."""
    readers: list[dict[str, Any]] = []
    for name, group in survey.groups.items():
        summary = group.summary
        if summary.member_count or summary.paused or summary.mode != "clustering":
            continue
        at_s = history.committed_at_s(name)
        readers.append(
            {
                "group": name,
                "state": "commits" if at_s is not None else "no commit seen",
                "lag": group.lag,
                "age_ms": group.age_ms,
                "commit_ms": None if at_s is None else at_s * 1000,
                "topics": summary.topics,
                "command": f"logboom pipeline lag --group {name}",
            }
        )
    readers.sort(key=lambda row: (row["commit_ms"] is None, str(row["group"])))
    writers = [
        {
            "app_id": each.app_id,
            "who": who_wrote(each.app_id),
            "sequence": each.sequence,
            "messages": each.messages,
            "bytes": each.size,
            "age_ms": max(0, now_ms - each.since_ms),
            "url": transaction_url(each),
        }
        for each in transactions
        if not each.is_half and each.app_id.startswith(SPARK_APPLICATIONS)
    ]
    processes = [
        {
            "client": each.client_id,
            "node": node.node,
            "endpoint": each.endpoint,
            "user": each.user or None,
            "since_ms": each.since_ms,
            "idle_ms": each.idle_ms,
            "sent": None if each.sent_bytes < 0 else each.sent_bytes,
            "received": None if each.received_bytes < 0 else each.received_bytes,
        }
        for node in connections
        for each in node.connections
        if each.client_id.startswith(SPARK_CLIENT)
    ]
    return PipelineModel(
        readers=build_table(
            READER_COLUMNS,
            readers,
            query,
            title="Groups without members, for which queries may commit",
            empty="There are none. A stream commits for a group with the option commitGroup.",
        ),
        writers=build_table(
            WRITER_COLUMNS,
            writers,
            query,
            name="writers",
            title="Writes that are not decided yet",
            sort="-age_ms",
            empty="No write of Spark is under way.",
        ),
        processes=build_table(
            PROCESS_COLUMNS,
            processes,
            query,
            name="processes",
            title="Connected processes of Spark",
            sort="client",
            empty="No process of Spark is connected.",
        ),
        since_s=history.since_s,
        connected=len({row["client"] for row in processes}),
        unanswered=tuple(f"{node.node}: {node.error}" for node in connections if node.error),
    )
