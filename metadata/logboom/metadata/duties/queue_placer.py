"""The placement of many new queues by the Raft leader, before their command enters the log.

To choose the replicas of the largest topic among many brokers takes much longer than a turn, and
every name server would have to do it when it applies the command. So the leader chooses them, in a
step a turn, and the command brings them with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from logboom.metadata.raft.log_commands import PlaceQueues, QueuesCommand
from logboom.metadata.state.queue_placement import QueuePlacement, brokers_version
from logboom.metadata.state.topic_commands import begin_placement
from logboom.metadata.tables.cluster_state import ClusterState

OnPlaced: TypeAlias = Callable[[PlaceQueues | QueuesCommand | None], None]
"""Gets what to submit; None: this node leads no longer."""


class QueuePlacerHost(Protocol):
    """The name server, as the placer sees it."""

    @property
    def cluster(self) -> ClusterState:
        """The applied tables."""

    @property
    def serving(self) -> bool:
        """True if this node leads the Raft group and its term has begun in the state."""


class QueuePlacer:
    """The commands whose queues are being placed, one after the other."""

    def __init__(self, node: QueuePlacerHost) -> None:
        self._node = node
        self._waiting: deque[tuple[QueuesCommand, OnPlaced]] = deque()
        self._placement: QueuePlacement | None = None
        """That of the first of them, once it has begun."""
        self._version = 0
        """The version of the brokers that it rests on."""

    def take(self, command: QueuesCommand, on_placed: OnPlaced) -> bool:
        """Take a command; False: its queues are few and may be placed as it is applied."""
        if begin_placement(self._node.cluster, command) is None:
            return False
        self._waiting.append((command, on_placed))
        return True

    def perform(self) -> None:
        """Do a step for the first command, or give it back."""
        if not self._waiting:
            return
        cluster, (command, on_placed) = self._node.cluster, self._waiting[0]
        placed: PlaceQueues | QueuesCommand | None = None
        if self._node.serving:
            version = brokers_version(cluster)
            if self._placement is None or version != self._version:
                self._placement, self._version = begin_placement(cluster, command), version
            placed = command
            if self._placement is not None:
                if self._placement.step():
                    return
                placed = PlaceQueues(command, version, self._placement.places)
        self._placement = None
        self._waiting.popleft()
        on_placed(placed)

    def deadline(self) -> float | None:
        """Return when `perform` is due next."""
        return float("-inf") if self._waiting else None
