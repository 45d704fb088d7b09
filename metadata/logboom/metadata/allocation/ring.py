"""Consistent hashing: a member's coming or going moves only what it takes or leaves.

Every member stands at several points of a ring, by the one hash; a queue belongs to the first
point at or after its own hash. It is uneven (that is its price): `sticky` moves as little and is
even, but needs to know what was before.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from logboom.metadata.allocation.inputs import InvalidAllocation, Q, hash_of
from logboom.wire.hashing import murmur3

if TYPE_CHECKING:
    from collections.abc import Sequence

VIRTUAL_NODES: Final = 10
"""Points of a member unless said otherwise (RocketMQ's default)."""
VIRTUAL_NODES_MAX: Final = 1_000
"""More make the ring hardly more even, and slow to build."""


def consistent_hash(
    queues: Sequence[Q], members: Sequence[str], virtual_nodes: int
) -> dict[str, list[Q]]:
    """Each queue to the member whose point follows its hash.

    Where two points coincide the smaller member has it; when that one goes, the other one does.

    Raises:
        InvalidAllocation: `virtual_nodes` is not in 1..`VIRTUAL_NODES_MAX`.
    """
    if not 1 <= virtual_nodes <= VIRTUAL_NODES_MAX:
        raise InvalidAllocation(
            f"virtual_nodes is {virtual_nodes}, choose 1 to {VIRTUAL_NODES_MAX}"
        )
    ring = sorted(
        (murmur3(f"{member}-{node}".encode()), member)
        for member in members
        for node in range(virtual_nodes)
    )
    points = [point for point, _ in ring]
    allocation: dict[str, list[Q]] = {member: [] for member in members}
    for queue in queues:
        at = bisect_left(points, hash_of(queue))
        allocation[ring[at % len(ring)][1]].append(queue)
    return allocation
