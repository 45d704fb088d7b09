"""`logboom connections`: who is connected to which node, and how to disconnect somebody."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from cyclopts import App, Parameter
from msgspec.structs import asdict

from logboom.cli.connection import open_client, open_operator_client
from logboom.cli.options import check_count
from logboom.cli.output import note, note_errors, show
from logboom.cli.parameters import OperatorServers, Output, Servers
from logboom.client.written_values import bytes_text

app = App(name="connections", help="Connections to the nodes: list, kick.")

COLUMNS = [
    "node",
    "address",
    "user",
    "key",
    "client",
    "kind",
    "since_s",
    "idle_s",
    "received",
    "sent",
    "throttled_ms",
]
Node: TypeAlias = Annotated[str, Parameter(help="The id of the node.")]


@app.command(name="list")
def list_connections(
    *,
    node: Annotated[str, Parameter(name=["--node", "-n"], help="Only of this node.")] = "",
    user: Annotated[str, Parameter(name=["--user", "-u"], help="Only of this user.")] = "",
    limit: Annotated[int, Parameter(help="At most this many of each node.")] = 1_000,
    servers: Servers = None,
    output: Output = "table",
) -> int:
    """List the connections of all nodes, those first that have waited longest for a quota.

    For example:

        logboom connections list --node broker-1 --limit 10
        logboom connections list --user alice
    """
    check_count(limit, "--limit")
    with open_client(servers) as boom:
        found = boom.admin.connections(node, user=user, limit=limit)
    rows: list[dict[str, Any]] = []
    for each in found:
        for connection in each.connections:
            row = {"node": each.node, **asdict(connection)}
            row["address"], row["client"] = row.pop("endpoint"), row.pop("client_id")
            row["since_s"], row["idle_s"] = row["since_ms"] // 1000, row["idle_ms"] // 1000
            for way in ("received", "sent"):
                count = row[f"{way}_bytes"]
                row[way] = None if count < 0 else bytes_text(count)
            rows.append(row)
    errors = {each.node: each.error for each in found if each.error}
    if len(errors) < len(found):
        show(rows, COLUMNS, output)
    note_errors(errors)
    if len(errors) == len(found):
        return 1
    for each in found:
        if each.total > len(each.connections):
            note(f"{each.node} has {each.total} connections: see more with --limit")
    return 0


@app.command
def kick(
    node: Node,
    address: Annotated[str, Parameter(help="host:port of the peer, as `list` prints it.")],
    *,
    servers: OperatorServers = None,
) -> None:
    """Reset a connection to a node. Its program connects again, unless its user is disabled.

    For example:

        logboom connections kick broker-1 10.0.0.9:41544
    """
    with open_operator_client(servers) as boom:
        boom.admin.kick_connection(node, address)
    note(f"reset the connection from {address} to {node}")
