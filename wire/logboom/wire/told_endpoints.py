"""Which of a node's endpoints somebody is told, and which a node dials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from logboom.wire.listeners import Security, dialled_endpoint, endpoint_for
from logboom.wire.view import BrokerView, NameServerView, View

_Node = TypeVar("_Node", BrokerView, NameServerView)


def endpoints_told(view: View, listener: str, security: Security) -> View:
    """Return the view for a client that came by a listener of this name and security.

    It sees one endpoint of each node, and no others, which it may not reach.
    """

    def told(node: _Node) -> _Node:
        if not node.listeners:
            return node
        endpoint = endpoint_for(node.listeners, listener, security)
        return replace(node, endpoint=endpoint, listeners=[])

    return _with_nodes(view, [told(b) for b in view.brokers], [told(n) for n in view.name_servers])


def endpoints_dialled(view: View, *, encrypt: bool) -> View:
    """Return the view with the endpoints that this node dials; `encrypt`: it has a key pair."""

    def dialled(node: _Node) -> _Node:
        if not node.listeners:
            return node
        known = encrypt and bool(node.keys)
        endpoint = dialled_endpoint(node.endpoint, node.listeners, encrypt=known)
        return replace(node, endpoint=endpoint)

    brokers = [dialled(broker) for broker in view.brokers]
    return _with_nodes(view, brokers, [dialled(server) for server in view.name_servers])


def published_keys(endpoint: str, nodes: Iterable[BrokerView | NameServerView]) -> list[str]:
    """Return the public keys of the nodes that encrypt at an endpoint."""
    return [
        key
        for node in nodes
        for each in node.listeners
        if each.endpoint == endpoint and each.security == "curve"
        for key in node.keys
    ]


def _with_nodes(view: View, brokers: list[BrokerView], servers: list[NameServerView]) -> View:
    if brokers == view.brokers and servers == view.name_servers:
        return view
    return replace(view, brokers=brokers, name_servers=servers)
