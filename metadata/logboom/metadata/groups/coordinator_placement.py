"""Which broker coordinates which group: whoever has fewest, in an epoch that is new each time.

A broker that is fenced or steps down gives its groups away; one that registers again begins anew
with those it still has, since it remembers nothing of them (R13).
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.metadata.tables.consumer_groups import ConsumerGroup

NOBODY: Final = ""


def assign_coordinators(cluster: ClusterState, groups: list[ConsumerGroup]) -> None:
    """Give these groups to the live brokers that coordinate fewest, or to nobody."""
    coordinated = cluster.groups.coordinated
    least = [(len(coordinated.get(broker, ())), broker) for broker in cluster.alive]
    heapify(least)
    # By name: the tables of a restored name server may be in another order.
    for group in sorted(groups, key=lambda group: group.name):
        if not least:
            if group.coordinator != NOBODY:
                cluster.groups.coordinate(group, NOBODY)
            continue
        count, broker = least[0]
        cluster.groups.coordinate(group, broker)
        heapreplace(least, (count + 1, broker))


def broker_gone(cluster: ClusterState, broker: str) -> None:
    """A broker is not alive any more."""
    assign_coordinators(cluster, list(cluster.groups.coordinated.get(broker, ())))


def broker_came(cluster: ClusterState, broker: str) -> None:
    """A broker's process begins."""
    for group in list(cluster.groups.coordinated.get(broker, ())):
        cluster.groups.coordinate(group, broker)
    assign_coordinators(cluster, list(cluster.groups.coordinated.get(NOBODY, ())))
