"""The connections to all nodes; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.results import NodeConnections
from logboom.console.pages.brokers_page import PageNotice, known
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.access.access_rules import is_node_user
from logboom.wire.messages import ConnectionState

CONNECTIONS_OF_NODE: Final = 1_000
"""Connections that each node is asked for, those first that waited longest for a quota."""


@dataclass(frozen=True, slots=True)
class ConnectionsModel:
    """The connections."""

    notices: tuple[PageNotice, ...]
    table: TableModel
    node: str
    user: str
    nodes: tuple[str, ...]
    """All nodes, for the filter."""
    hides_nodes: bool
    """True if connections between nodes are left out."""
    hidden: int
    toggle_url: str


def _throttled_tone(row: Row) -> Tone:
    return "warning" if row["throttled_ms"] else ""


def _user_url(row: Row) -> str:
    return path_of("users", row["user"]) if row["user"] else ""


COLUMNS: Final = (
    TableColumn("node", "Node", "code"),
    TableColumn("address", "Address", "code"),
    TableColumn("user", "User", "code", href=_user_url),
    TableColumn("key", "Key", wide_only=True, hint="Label of the key that it was opened with"),
    TableColumn("client", "Client", hint="What the client calls itself"),
    TableColumn("kind", "Kind", "badge"),
    TableColumn("listener", "Listener", wide_only=True),
    TableColumn("since_ms", "Open for", "span"),
    TableColumn("idle_ms", "Idle for", "span", wide_only=True),
    TableColumn("received_bytes", "Received", "bytes", hint="By the node"),
    TableColumn("sent_bytes", "Sent", "bytes", hint="By the node"),
    TableColumn(
        "throttled_ms", "Throttled", "span", tone=_throttled_tone, hint="Total wait for a quota"
    ),
)


def build_connections(
    found: Sequence[NodeConnections], nodes: Sequence[str], query: PageQuery
) -> ConnectionsModel:
    """Return the page that a URL asks for."""
    rows: list[dict[str, Any]] = []
    notices = []
    for each in found:
        if each.error:
            notices.append(PageNotice(f"{each.node} does not answer: {each.error}", "warning"))
        elif each.total > len(each.connections):
            text = (
                f"{each.node} has {each.total:,} connections: shown are {len(each.connections):,}, "
                "those first that have waited longest for a quota"
            )
            notices.append(PageNotice(text, "info"))
        rows += [_row(each.node, connection) for connection in each.connections]
    shows_nodes = query.text("all") == "1"
    of_clients = [row for row in rows if not _is_of_node(row)]
    columns = [
        column
        for column in COLUMNS
        # Of a cluster without users these say nothing.
        if column.name not in ("user", "key", "listener", "throttled_ms")
        or any(row[column.name] for row in rows)
    ]
    return ConnectionsModel(
        notices=tuple(notices),
        table=build_table(
            columns,
            rows if shows_nodes else of_clients,
            query,
            sort="-throttled_ms" if any(row["throttled_ms"] for row in rows) else "node",
            empty="No client is connected.",
        ),
        node=query.text("node"),
        user=query.text("user"),
        nodes=tuple(nodes),
        hides_nodes=not shows_nodes,
        hidden=len(rows) - len(of_clients),
        toggle_url=query.url(all=None if shows_nodes else "1", page=None),
    )


def _row(node: str, connection: ConnectionState) -> dict[str, Any]:
    return {
        "node": node,
        "address": connection.endpoint,
        "user": connection.user,
        "key": connection.key,
        "client": connection.client_id,
        "kind": connection.kind,
        "listener": connection.listener,
        "since_ms": connection.since_ms,
        "idle_ms": connection.idle_ms,
        "received_bytes": known(connection.received_bytes),
        "sent_bytes": known(connection.sent_bytes),
        "throttled_ms": connection.throttled_ms or None,
    }


def _is_of_node(row: Row) -> bool:
    return row["kind"] != "client" or is_node_user(row["user"])
