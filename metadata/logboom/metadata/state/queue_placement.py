"""The placement of queues on the brokers that may get new replicas."""

from __future__ import annotations

from typing import Final

from logboom.metadata.state.placement import Candidate, count_hosts, place_replicas
from logboom.metadata.tables.cluster_state import BrokerRegistration, ClusterState, Topic

COMPARED_AT_ONCE: Final = 10_000
"""Brokers that are compared for the replicas of new queues in one step; some 3 ms."""


def receivers(cluster: ClusterState) -> list[BrokerRegistration]:
    """Return the brokers that may get new replicas: those that are live and active (M6)."""
    return [b for b in cluster.brokers.values() if b.alive and b.id not in cluster.modes]


def receiving_hosts(cluster: ClusterState) -> int:
    """Return the number of machines on which brokers may get new replicas."""
    return count_hosts(broker.host for broker in receivers(cluster))


def lasting_hosts(cluster: ClusterState) -> int:
    """Return the number of machines of brokers that are to stay, whether they are live or not."""
    stay = (
        b
        for b in cluster.brokers.values()
        if cluster.modes.get(b.id) not in ("draining", "drained")
    )
    return count_hosts(broker.host for broker in stay)


def brokers_version(cluster: ClusterState) -> int:
    """Return the version of the last change of a broker that may get new replicas, or might have."""
    return max((broker.version for broker in cluster.brokers.values()), default=0)


def receiver_ids(cluster: ClusterState) -> list[str]:
    """Return the ids of the brokers that may get new replicas, in order."""
    return sorted(broker.id for broker in receivers(cluster))


def are_many(cluster: ClusterState, count: int, replicas: int) -> bool:
    """Return True if so many queues are placed in more than one step."""
    return count * replicas * len(receivers(cluster)) > COMPARED_AT_ONCE


class QueuePlacement:
    """The choice of the replicas of more queues of a topic, in steps of some milliseconds.

    There must be as many hosts as `replicas`. Brokers whose disks are full are avoided where the
    others suffice.
    """

    def __init__(
        self, cluster: ClusterState, topic: Topic | None, count: int, replicas: int
    ) -> None:
        self._candidates = _candidates(cluster, topic, replicas)
        self._count, self._replicas = count, replicas
        self._numbers = {broker: number for number, broker in enumerate(receiver_ids(cluster))}
        self.places: list[list[int]] = []
        """What was chosen so far: numbers of brokers in `receiver_ids`."""

    def step(self) -> bool:
        """Place some more queues; return False if all are placed already."""
        if len(self.places) == self._count:
            return False
        at_once = max(1, COMPARED_AT_ONCE // (len(self._candidates) * self._replicas))
        count = min(at_once, self._count - len(self.places))
        for place in place_replicas(self._candidates, count, self._replicas):
            self.places.append([self._numbers[broker] for broker in place])
        return True


def place_queues(
    cluster: ClusterState, topic: Topic, count: int, replicas: int
) -> list[tuple[str, ...]]:
    """Choose the replicas of more queues of a topic at once."""
    return place_replicas(_candidates(cluster, topic, replicas), count, replicas)


def _candidates(cluster: ClusterState, topic: Topic | None, replicas: int) -> list[Candidate]:
    """Return the brokers that new queues of a topic may be placed on; None: it has none yet."""
    candidates = {
        broker.id: Candidate(
            broker.id, broker.zone, broker.preferred, len(broker.queues), host=broker.host
        )
        for broker in receivers(cluster)
    }
    roomy = {name: each for name, each in candidates.items() if name not in cluster.full}
    if count_hosts(each.host for each in roomy.values()) >= replicas:
        candidates = roomy
    for queue in topic.queues if topic is not None else ():
        _count(candidates, queue.standing.target)
    return list(candidates.values())


def _count(candidates: dict[str, Candidate], replicas: tuple[str, ...]) -> None:
    """Count what the topic has already towards the placement of its new queues."""
    for position, broker in enumerate(replicas):
        candidate = candidates.get(broker)
        if candidate is None:
            continue
        candidate.topic_held += 1
        if position == 0:
            candidate.topic_preferred += 1
            for second in replicas[1:2]:
                candidate.seconds[second] = candidate.seconds.get(second, 0) + 1
