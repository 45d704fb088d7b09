"""Leadership goes home: queues return to their preferred replica once it is safely back.

Soft state of the raft leader. Without it the broker restarted last would lead nothing. No queue
goes to a broker that does not hear, or is not heard by, its other replicas: a new leader waits a
full period before it does without them, on top of what the old one has waited already. Nor to one
whose disk was full a moment ago: it may fill up again as soon as it leads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logboom.metadata.tables.cluster_state import ClusterState, Queue
from logboom.wire.commands import ElectLeader

SCAN_INTERVAL_S: Final = 1.0
"""Seconds between two looks."""
ROOM_S: Final = 60.0
"""Seconds for which a broker must have had room before queues go home to it."""
MAX_MOVES: Final = 500
"""Queues that move in one look, so that not all producers turn at once."""


class LeaderBalancer:
    """Since when each displaced queue's preferred replica has been fit to lead."""

    def __init__(self, after_s: float) -> None:
        self._after = after_s
        self._since: dict[Queue, float] = {}
        self._look_at = 0.0
        self._unheard: dict[str, frozenset[str]] = {}
        """Broker → those that should replicate from it and are silent, as it said last."""

        self._full_at: dict[str, float] = {}
        """Broker → when its disk was last seen full."""

    def heard(self, broker: str, unheard: Iterable[str]) -> None:
        """A broker's heartbeat said who is silent."""
        self._unheard[broker] = frozenset(unheard)

    def restart(self, now: float) -> None:
        """A leadership of the raft group begins: nothing is known of before."""
        self._since.clear()
        self._unheard.clear()
        self._full_at.clear()
        self._look_at = now + SCAN_INTERVAL_S

    def take_moves(self, cluster: ClusterState, now: float, time_ms: int) -> list[ElectLeader]:
        """The moves that are due; looks at most once in a `SCAN_INTERVAL_S`."""
        if not self._after or now < self._look_at:
            return []
        self._look_at = now + SCAN_INTERVAL_S
        self._full_at = {
            broker: at for broker, at in self._full_at.items() if now - at < ROOM_S
        } | dict.fromkeys(cluster.full, now)
        since: dict[Queue, float] = {}
        moves: list[ElectLeader] = []
        for queue in cluster.displaced:
            if not _is_fit(cluster, queue) or self._is_cut_off(queue):
                continue
            if queue.standing.replicas[0] in self._full_at:
                continue
            fit_since = self._since.get(queue, now)
            if now - fit_since >= self._after and len(moves) < MAX_MOVES:
                moves.append(ElectLeader(queue.topic.name, queue.index, None, time_ms))
            else:
                since[queue] = fit_since
        self._since = since
        return moves

    def _is_cut_off(self, queue: Queue) -> bool:
        """Whether the preferred replica and another do not hear each other, as far as known."""
        preferred = queue.standing.replicas[0]
        silent = self._unheard.get(preferred, frozenset())
        return any(
            other in silent or preferred in self._unheard.get(other, frozenset())
            for other in queue.standing.isr
        )

    def deadline(self, cluster: ClusterState) -> float | None:
        """When the next look is wanted."""
        return self._look_at if self._after and cluster.displaced else None


def _is_fit(cluster: ClusterState, queue: Queue) -> bool:
    s = queue.standing
    preferred = s.replicas[0]
    return (
        preferred in cluster.alive
        and preferred in s.isr
        and preferred not in s.suspect
        and preferred not in s.damaged
        and preferred not in s.lost
    )
