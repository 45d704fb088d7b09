"""The check whether a node may be stopped: what a cluster would lose while it is down.

It is pure: a view of the metadata goes in, risks come out. A node is safe to stop if nothing of the
cluster becomes unavailable, and nothing that was acknowledged is left without a second copy.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from logboom.wire.view import QueueView, TopicConfig, View

RiskKind: TypeAlias = Literal["only-copy", "no-leader", "below-min-in-sync"]
REMEDIES: Final[dict[RiskKind, str]] = {
    "only-copy": "wait until another replica is in sync",
    "no-leader": "start the other replicas and wait until one is in sync",
    "below-min-in-sync": "wait until the other replicas are in sync",
}
"""Kind of a risk → what to do about it."""
FEW_REPLICAS: Final = (
    "give the topic more replicas, or accept that the queue waits meanwhile: --accept-unavailable"
)
"""What to do about a risk that no waiting mends."""


class RestartRisk(Struct, frozen=True, array_like=True):
    """What one queue loses while a broker is down."""

    topic: str
    queue: int
    kind: RiskKind
    """only-copy: the broker has the only copy in sync. no-leader: none of the other replicas in sync
    is alive. below-min-in-sync: too few copies remain for a write with acks=all."""
    lasting: bool
    """True if it would be so with all replicas in sync as well: the topic has too few of them."""

    @property
    def remedy(self) -> str:
        """What to do, in words."""
        return FEW_REPLICAS if self.lasting else REMEDIES[self.kind]


def restart_risks(view: View, broker: str) -> list[RestartRisk]:
    """Return what the queues of a cluster lose while a broker is down, by topic and queue.

    A broker that is fenced or unknown serves nothing, so that nothing is lost. A replica outside the
    in-sync ones serves nothing either, so moves to a broker are no risk.

    Args:
        view: The whole metadata, with all topics.
        broker: The broker to be stopped.
    """
    alive = {each.id for each in view.brokers if each.alive}
    if broker not in alive:
        return []
    found = []
    for topic in sorted(view.topics, key=lambda each: each.name):
        for number, queue in enumerate(topic.queues):
            kind = _risk(topic.config, queue, broker, alive - {broker})
            if kind is not None:
                # As it were with every replica alive and in sync.
                whole = queue.replicas
                at_best = _kind(topic.config, queue, broker, whole, {*whole} - {broker})
                found.append(RestartRisk(topic.name, number, kind, at_best is not None))
    return found


def _risk(
    config: TopicConfig, queue: QueueView, broker: str, others: Collection[str]
) -> RiskKind | None:
    if broker not in queue.isr:
        return None
    return _kind(config, queue, broker, queue.isr, others)


def _kind(
    config: TopicConfig,
    queue: QueueView,
    broker: str,
    isr: Collection[str],
    others: Collection[str],
) -> RiskKind | None:
    left = [each for each in isr if each != broker]
    if not left:
        return "only-copy"
    serving = [each for each in left if each in others]
    if not serving:
        return "no-leader"
    if len(serving) < copies_needed(config, queue):
        return "below-min-in-sync"
    return None


def copies_needed(config: TopicConfig, queue: QueueView) -> int:
    """Return the copies that an acks=all write to a queue needs.

    Replicas that are being added do not count yet (see docs/SAFETY.md, Q7 and M3).
    """
    replicas = len(queue.replicas) - len(queue.adding)
    return min(config.min_in_sync or replicas // 2 + 1, replicas)


def majority_remains(members: Collection[str], serving: Collection[str], stopped: str) -> bool:
    """Return True if the name servers that serve, without one of them, are a majority.

    Args:
        members: The ids of all name servers.
        serving: Those that answer and hear the Raft leader.
        stopped: The one to be stopped.
    """
    left = {each for each in serving if each in members and each != stopped}
    return 2 * len(left) > len(members)
