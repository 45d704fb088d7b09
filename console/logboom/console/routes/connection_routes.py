"""Connections to the nodes, and how to disconnect somebody."""

from __future__ import annotations

from logboom.console.pages.connections_page import (
    CONNECTIONS_OF_NODE,
    ConnectionsModel,
    build_connections,
)
from logboom.console.site import (
    ActionDone,
    ConsoleAction,
    FormField,
    NavigationEntry,
    PageRequest,
    PageRoute,
    Subject,
)
from logboom.console.widgets.page_query import FormValues


async def load_connections(request: PageRequest) -> ConnectionsModel:
    """Ask for the list."""
    admin, cached = request.cluster.boom.admin, request.cluster.cached
    node, user = request.query.text("node"), request.query.text("user")
    found = await cached(
        f"connections {node} {user}",
        lambda: admin.connections(node, user=user, limit=CONNECTIONS_OF_NODE),
    )
    brokers = await cached("brokers", admin.brokers)
    servers = await cached("name-servers", admin.name_servers)
    nodes = [*(each.id for each in servers), *(each.id for each in brokers)]
    return build_connections(found, nodes, request.query)


async def kick(request: PageRequest, values: FormValues) -> ActionDone:
    """Reset a connection to a node."""
    node, address = values.text("node"), values.text("address")
    await request.cluster.boom.admin.kick_connection(node, address)
    return ActionDone(f"The connection from {address} to {node} is reset.")


KICK = ConsoleAction(
    name="connections.kick",
    title="Reset a connection",
    button="Reset the connection",
    fields=(
        FormField("node", kind="hidden", required=True),
        FormField("address", kind="hidden", required=True),
    ),
    command=lambda values: ("connections", "kick", values.text("node"), values.text("address")),
    question=lambda values: (
        f"Reset the connection from {values.text('address')} to {values.text('node')}? Its program "
        "connects again, unless its user is disabled."
    ),
    run=kick,
)
SUBJECT = Subject(
    pages=(PageRoute("/connections", load_connections, "connections.html"),),
    actions=(KICK,),
    navigation=(NavigationEntry("Connections", "/connections", 76),),
)
