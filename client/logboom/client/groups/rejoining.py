"""A look at a group's subscription, for a member that was out while it was changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from logboom.client.cluster.connections import Connections
from logboom.client.cluster.watching import Watching
from logboom.wire.errors import InternalError, LogboomError, Unavailable
from logboom.wire.messages import DescribeGroup, GroupDescribed
from logboom.wire.session import Reply

LOOK_S: Final = 3.0
"""Seconds that the raft leader gets to answer."""

Looked: TypeAlias = Callable[[tuple[dict[str, str], int] | LogboomError], None]


class GroupLook:
    """Asks the name servers' leader; one try a call."""

    def __init__(self, connections: Connections, watching: Watching) -> None:
        self._connections = connections
        self._watching = watching

    def subscription(self, group: str, looked: Looked) -> None:
        """`looked` gets (subscription, its version) or why it is not known."""
        routes = self._watching.routes
        leader = [s.endpoint for s in routes.name_servers if s.id == routes.raft_leader]
        if not leader:
            looked(Unavailable("no name server is known to lead: is the cluster up?"))
            return

        def answered(reply: Reply) -> None:
            if isinstance(reply.message, GroupDescribed):
                view = reply.message.group
                looked((view.subscription, view.subscription_version))
            else:
                looked(reply.error or InternalError("an empty reply: please report it"))

        message = DescribeGroup(0, int(LOOK_S * 1000), group)
        self._connections.request(leader[0], message, (), answered, LOOK_S)
