"""The return of leaderships to preferred replicas, once these are safely in sync again.

Without it, the broker that restarted last would lead nothing. The state is the Raft leader's own
and not replicated. A queue does not return to a broker that lacks contact with one of its other
replicas in either direction: a new leader waits a full period before it drops a silent follower, in
addition to the time that the old leader has waited already. Nor does it return to a broker whose
disk was full a moment ago, because the disk may fill up again as soon as the broker leads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logboom.metadata.tables.cluster_state import ClusterState, Queue
from logboom.wire.commands import ElectLeader
from logboom.wire.settings import LiveSettings

SCAN_INTERVAL_S: Final = 1.0
"""Seconds between two scans."""
ROOM_S: Final = 60.0
"""Seconds for which a broker must have had disk space before queues return to it."""
MAX_MOVES: Final = 500
"""Queues that move in one scan, so that not all producers are redirected at once."""


class LeaderBalancer:
    """The time since which each displaced queue's preferred replica has been fit to lead."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings
        self._since: dict[Queue, float] = {}
        self._look_at = 0.0
        self._unheard: dict[str, frozenset[str]] = {}
        """Broker → replicas that should fetch from it and are silent, as in its last heartbeat."""

        self._full_at: dict[str, float] = {}
        """Broker → when its disk was last seen full."""

    def heard(self, broker: str, unheard: Iterable[str]) -> None:
        """Take from a broker's heartbeat the list of silent replicas."""
        self._unheard[broker] = frozenset(unheard)

    def restart(self, now: float) -> None:
        """Forget everything, when a new leadership of the Raft group begins."""
        self._since.clear()
        self._unheard.clear()
        self._full_at.clear()
        self._look_at = now + SCAN_INTERVAL_S

    def take_moves(self, cluster: ClusterState, now: float, time_ms: int) -> list[ElectLeader]:
        """Return the moves that are due; scan at most once per `SCAN_INTERVAL_S`."""
        if not self._settings.rebalance_after_s or now < self._look_at:
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
            if queue.standing.replicas[0] in self._full_at.keys() | cluster.modes.keys():
                continue
            fit_since = self._since.get(queue, now)
            if now - fit_since >= self._settings.rebalance_after_s and len(moves) < MAX_MOVES:
                moves.append(ElectLeader(queue.topic.name, queue.index, None, time_ms))
            else:
                since[queue] = fit_since
        self._since = since
        return moves

    def _is_cut_off(self, queue: Queue) -> bool:
        """Return True if the preferred replica and another one are known not to hear each other."""
        preferred = queue.standing.replicas[0]
        silent = self._unheard.get(preferred, frozenset())
        return any(
            other in silent or preferred in self._unheard.get(other, frozenset())
            for other in queue.standing.isr
        )

    def deadline(self, cluster: ClusterState) -> float | None:
        """Return when the next scan is due."""
        return self._look_at if self._settings.rebalance_after_s and cluster.displaced else None


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
