"""The placement of queues on the brokers that may get new replicas."""

from __future__ import annotations

from logboom.metadata.state.placement import Candidate, count_hosts, place_replicas
from logboom.metadata.tables.cluster_state import BrokerRegistration, ClusterState, Topic


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


def place_queues(
    cluster: ClusterState, topic: Topic, count: int, replicas: int
) -> list[tuple[str, ...]]:
    """Choose the replicas of more queues of a topic; there must be as many hosts as `replicas`.

    Brokers whose disks are full are avoided where the others suffice.
    """
    candidates = {
        broker.id: Candidate(
            broker.id, broker.zone, broker.preferred, len(broker.queues), host=broker.host
        )
        for broker in receivers(cluster)
    }
    roomy = {name: each for name, each in candidates.items() if name not in cluster.full}
    if count_hosts(each.host for each in roomy.values()) >= replicas:
        candidates = roomy
    for queue in topic.queues:
        _count(candidates, queue.standing.target)
    return place_replicas(list(candidates.values()), count, replicas)


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
