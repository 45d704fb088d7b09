"""The choice of a coordinator for each group: the broker that has fewest, in a new epoch each time.

A broker that is fenced or steps down gives its groups away. One that registers again keeps its
groups, and starts over with them in a new epoch, because it has lost its memory of them (R13). One
that is not active, as in maintenance, gets none where another can.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.metadata.tables.consumer_groups import ConsumerGroup

NOBODY: Final = ""


def assign_coordinators(cluster: ClusterState, groups: list[ConsumerGroup]) -> None:
    """Assign these groups to the live brokers that coordinate fewest, or to none."""
    coordinated = cluster.groups.coordinated
    # A broker that is not active coordinates only where no other can (M6).
    fit = cluster.alive - cluster.modes.keys() or cluster.alive
    least = [(len(coordinated.get(broker, ())), broker) for broker in fit]
    heapify(least)
    # By name, because a restored name server may hold its tables in another order.
    for group in sorted(groups, key=lambda group: group.name):
        if not least:
            if group.coordinator != NOBODY:
                cluster.groups.coordinate(group, NOBODY)
            continue
        count, broker = least[0]
        cluster.groups.coordinate(group, broker)
        heapreplace(least, (count + 1, broker))


def broker_gone(cluster: ClusterState, broker: str) -> None:
    """Reassign the groups of a broker that is no longer alive."""
    assign_coordinators(cluster, list(cluster.groups.coordinated.get(broker, ())))


def broker_came(cluster: ClusterState, broker: str) -> None:
    """Restart a broker's groups in new epochs, and assign those that have no coordinator."""
    for group in list(cluster.groups.coordinated.get(broker, ())):
        cluster.groups.coordinate(group, broker)
    assign_coordinators(cluster, list(cluster.groups.coordinated.get(NOBODY, ())))
