"""The list of connections."""

from __future__ import annotations

from typing import Any

from logboom.client.results import NodeConnections
from logboom.console.pages.connections_page import ConnectionsModel, build_connections
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.messages import ConnectionState


def connection(**fields: Any) -> ConnectionState:
    usual: dict[str, Any] = {
        "endpoint": "10.0.0.9:4000",
        "listener": "",
        "client_id": "app",
        "kind": "client",
        "user": "",
        "key": "",
        "since_ms": 1000,
        "idle_ms": 10,
        "received_bytes": -1,
        "sent_bytes": 7,
        "throttled_ms": 0,
    }
    return ConnectionState(**(usual | fields))


def page(*found: NodeConnections, parameters: str = "") -> ConnectionsModel:
    return build_connections(found, ["name-1", "broker-1"], PageQuery("/connections", parameters))


def test_connections_between_nodes_are_left_out_unless_asked_for() -> None:
    of_node = NodeConnections(
        "broker-1",
        [connection(), connection(kind="broker"), connection(user="node:broker-2")],
        3,
    )
    model = page(of_node)
    assert (len(model.table.rows), model.hidden) == (1, 2)
    assert len(page(of_node, parameters="all=1").table.rows) == 3


def test_without_users_their_columns_are_left_out() -> None:
    names = {head.column.name for head in page(NodeConnections("b", [connection()], 1)).table.heads}
    assert not {"user", "key", "listener", "throttled_ms"} & names
    named = page(NodeConnections("b", [connection(user="alice", key="first")], 1))
    assert {"user", "key"} <= {head.column.name for head in named.table.heads}
    assert named.table.rows[0].source["received_bytes"] is None


def test_those_that_wait_for_a_quota_come_first() -> None:
    model = page(
        NodeConnections(
            "b", [connection(client_id="calm"), connection(client_id="busy", throttled_ms=5)], 2
        )
    )
    assert [row.source["client"] for row in model.table.rows] == ["busy", "calm"]


def test_what_is_not_shown_is_said() -> None:
    model = page(
        NodeConnections("a", [], 0, "no answer in 2 s"), NodeConnections("b", [connection()], 5_000)
    )
    assert model.notices[0].text == "a does not answer: no answer in 2 s"
    assert "5,000 connections" in model.notices[1].text
