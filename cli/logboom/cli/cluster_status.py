"""Status of a cluster, asked of each of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logboom.client.checks.cluster_health import ClusterStatus
from logboom.deploy.node_client import NodeClient
from logboom.wire.view import View

ASK_S: Final = 2.0
"""Seconds that a node has to answer, each time that it is asked."""


def read_cluster_status(
    node_client: NodeClient, ends: Sequence[str]
) -> tuple[ClusterStatus | None, list[str]]:
    """Ask the nodes at these endpoints for all nodes, and then each of them.

    Return the status (None if no node knows it), and the endpoints that did not answer.
    """
    views = node_client.views(list(ends), ASK_S, topics=[])
    silent = [end for end in ends if end not in views]
    known = max(views.values(), key=lambda view: view.version, default=None)
    if known is None or not known.cluster_id:
        return None, silent
    nodes = _nodes(known)
    stats = node_client.stats(list(nodes), ASK_S)
    # The first nodes may be partitioned, and any node may have the newest metadata. Only nodes that
    # answered are asked again, so that dead ones cost one timeout.
    views |= node_client.views([end for end in stats if end not in views], ASK_S, topics=[])
    order = sorted(views, key=lambda end: views[end].version, reverse=True)
    view = next(iter(node_client.views(order[:1], ASK_S).values()), known)
    newer = _nodes(view)
    stats |= node_client.stats([end for end in newer if end not in nodes], ASK_S)
    answers = {newer[end]: answer for end, answer in stats.items() if end in newer}
    return ClusterStatus(view, answers), silent


def _nodes(view: View) -> dict[str, str]:
    """Return the id of every node by its endpoint."""
    servers = {server.endpoint: server.id for server in view.name_servers}
    return servers | {broker.endpoint: broker.id for broker in view.brokers}
