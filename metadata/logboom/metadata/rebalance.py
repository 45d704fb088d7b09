"""Leadership goes home: queues return to their preferred replica once it is safely back.

Soft state of the raft leader. Without it the broker restarted last would lead nothing.
"""

from __future__ import annotations

from typing import Final

from logboom.metadata.cluster import Cluster, Queue
from logboom.wire.commands import ElectLeader

PERIOD: Final = 1.0
"""Seconds between two looks."""
MAX_MOVES: Final = 500
"""Queues that move in one look, so that not all producers turn at once."""


class Rebalance:
    """Since when each displaced queue's preferred replica has been fit to lead."""

    def __init__(self, after_s: float) -> None:
        self._after = after_s
        self._since: dict[Queue, float] = {}
        self._look_at = 0.0

    def restart(self, now: float) -> None:
        """A leadership of the raft group begins: nothing is known of before."""
        self._since.clear()
        self._look_at = now + PERIOD

    def take_moves(self, cluster: Cluster, now: float, time_ms: int) -> list[ElectLeader]:
        """The moves that are due; looks at most once in a `PERIOD`."""
        if not self._after or now < self._look_at:
            return []
        self._look_at = now + PERIOD
        since: dict[Queue, float] = {}
        moves: list[ElectLeader] = []
        for queue in cluster.displaced:
            if not _is_fit(cluster, queue):
                continue
            fit_since = self._since.get(queue, now)
            if now - fit_since >= self._after and len(moves) < MAX_MOVES:
                moves.append(ElectLeader(queue.topic.name, queue.index, None, time_ms))
            else:
                since[queue] = fit_since
        self._since = since
        return moves

    def deadline(self, cluster: Cluster) -> float | None:
        """When the next look is wanted."""
        return self._look_at if self._after and cluster.displaced else None


def _is_fit(cluster: Cluster, queue: Queue) -> bool:
    s = queue.standing
    preferred = s.replicas[0]
    return (
        preferred in cluster.alive
        and preferred in s.isr
        and preferred not in s.suspect
        and preferred not in s.damaged
        and preferred not in s.lost
    )
