"""Status of a cluster from what each of its nodes reports now, pure.

The metadata alone is not enough. The name servers replicate it, so while most of them are down it
names leaders and in-sync replicas that are down too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from logboom.wire.messages import StatsResult
from logboom.wire.restart_check import copies_needed
from logboom.wire.view import QueueView, TopicConfig, View

RAFT_LEADER: Final = "raft leader"
"""The role of a leading name server. Without a majority it steps down within a second."""


@dataclass(frozen=True)
class ClusterStatus:
    """The newest metadata that any node has, and the answer of each node."""

    view: View
    stats: Mapping[str, StatsResult]
    """Answers by node id. Nodes that do not answer are left out."""

    def answers(self, node: str) -> bool:
        """True if the node answers."""
        return node in self.stats

    @property
    def name_servers(self) -> list[str]:
        """The name servers that answer."""
        return [server.id for server in self.view.name_servers if self.answers(server.id)]

    @property
    def majority(self) -> int:
        """The number of name servers that form a majority."""
        return len(self.view.name_servers) // 2 + 1

    @property
    def raft_leader(self) -> str | None:
        """The name server that reports to lead the Raft group, if a majority answers."""
        if len(self.name_servers) < self.majority:
            return None
        return next((name for name in self.name_servers if leads(self.stats[name])), None)

    def serves(self, broker: str | None) -> bool:
        """True if a broker can lead queues: it answers, and has registered since it started."""
        stats = self.stats.get(broker or "")
        return stats is not None and stats.counters.get("registered") != 0

    @cached_property
    def serving(self) -> frozenset[str]:
        """The brokers that can lead queues."""
        return frozenset(name for name in self.stats if self.serves(name))

    def leader(self, queue: QueueView) -> str | None:
        """Return the broker that leads the queue and serves it."""
        return queue.leader if self.serves(queue.leader) else None

    def in_sync(self, queue: QueueView) -> list[str]:
        """Return the in-sync replicas that serve."""
        return [broker for broker in queue.isr if self.serves(broker)]

    def is_whole(self, queue: QueueView) -> bool:
        """True if the queue's leader and all its replicas are in sync and serve."""
        if len(queue.isr) < len(queue.replicas) or queue.leader is None:
            return False
        serving = self.serving
        return queue.leader in serving and serving.issuperset(queue.isr)

    def takes_writes(self, config: TopicConfig, queue: QueueView) -> bool:
        """True if an acks=all write to the queue can be acknowledged."""
        here = self.in_sync(queue)
        if self.leader(queue) is None or len(here) < copies_needed(config, queue):
            return False
        # Only the Raft leader removes a dead broker from the ISR; until then writes wait for it.
        return len(here) == len(queue.isr) or self.raft_leader is not None


def leads(stats: StatsResult) -> bool:
    """True if a name server reports that it leads."""
    return stats.role == RAFT_LEADER
