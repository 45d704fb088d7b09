"""Consistent hashing with bounded loads: few queues move when a member joins or leaves.

Each member has several points on a ring, and each queue a hash. A queue belongs to the first point
at or after its hash whose member is below the bound. Without the bound the shares would be uneven
with any number of points: of 64 queues, one of eight members would get 12 or more in six groups of
ten. The bound costs a few more moves. `sticky` moves fewest, but has to know the previous
allocation.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Final

from logboom.metadata.allocation.inputs import InvalidAllocation, Q, hash_of
from logboom.wire.hashing import murmur3

if TYPE_CHECKING:
    from collections.abc import Sequence

VIRTUAL_NODES: Final = 100
"""Points of each member by default."""
VIRTUAL_NODES_MAX: Final = 1_000
"""Upper limit: more points make the ring hardly more even, and slow to build."""
QUARTERS: Final = 5
"""Share of a member, in quarters of the mean, beyond which it gets at most a part of one queue."""


def consistent_hash(
    topics: Sequence[Sequence[Q]], members: Sequence[str], virtual_nodes: int
) -> dict[str, list[Q]]:
    """Assign each queue to the first member after its hash that has room, topic by topic.

    A member gets at most the first whole number above 5/4 of a topic's mean. No member gets none
    while another has two. Where two points coincide, the smaller member comes first.

    Raises:
        InvalidAllocation: `virtual_nodes` is not in 1..`VIRTUAL_NODES_MAX`.
    """
    if not 1 <= virtual_nodes <= VIRTUAL_NODES_MAX:
        raise InvalidAllocation(
            f"virtual_nodes is {virtual_nodes}, choose 1 to {VIRTUAL_NODES_MAX}"
        )
    ring = sorted((point, member) for member in members for point in _points(member, virtual_nodes))
    points = [point for point, _ in ring]
    owners = [member for _, member in ring]
    allocation: dict[str, list[Q]] = {member: [] for member in members}
    for queues in topics:
        for member, own in _around(queues, members, points, owners).items():
            allocation[member] += sorted(own)
    return allocation


def _around(
    queues: Sequence[Q], members: Sequence[str], points: Sequence[int], owners: Sequence[str]
) -> dict[str, list[Q]]:
    """Assign one topic, its queues in the order of their hashes."""
    # Rounded down, small topics would fill every member, and each change would move most queues.
    most = len(queues) * QUARTERS // (4 * len(members)) + 1
    found: dict[str, list[Q]] = {}
    hashed = sorted((hash_of(queue), place) for place, queue in enumerate(queues))
    for hashed_to, place in hashed:
        at = bisect_left(points, hashed_to)
        while len(found.get(owners[at % len(owners)], ())) >= most:
            at += 1
        found.setdefault(owners[at % len(owners)], []).append(queues[place])
    idle = [member for member in members if member not in found] if most > 1 else []
    givers = [(-len(own), member) for member, own in found.items()]
    heapify(givers)
    for member in idle:
        count, giver = givers[0]
        if count > -2:
            break
        found[member] = [found[giver].pop()]
        heapreplace(givers, (count + 1, giver))
    return found


@lru_cache(maxsize=2_000)
def _points(member: str, virtual_nodes: int) -> list[int]:
    """Compute a member's points; cached, because a group is reallocated at each join and leave."""
    return [murmur3(f"{member}-{node}".encode()) for node in range(virtual_nodes)]
