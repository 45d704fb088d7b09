"""Elections in the replicated state: what a change of a queue's replica set brings with it.

After every change of an ISR, or of the soundness of a replica, a leader is elected where there is
none, leaderships leave brokers that are not active (M6), and a move whose target is in sync ends (M2).
"""

from __future__ import annotations

from logboom.metadata.tables.cluster_state import ClusterState, Queue
from logboom.metadata.tables.replica_moves import finish_move
from logboom.metadata.tables.replica_set import (
    NOT_IN_DOUBT,
    ReplicaSet,
    Reports,
    elect,
    hand_over,
    relieve,
)


def elected(
    cluster: ClusterState, queue: Queue, s: ReplicaSet, last: str | None = None
) -> ReplicaSet:
    """Elect the leader that is best now, or none; `last` leads only where no other can."""
    return elect(
        s,
        cluster.alive,
        queue.need,
        elected_last=cluster.elected_last,
        unclean=queue.topic.config.unclean_election,
        last=last,
        tails=cluster.tails_of(queue),
        reports=_reports(cluster, queue) if cluster.doubted else NOT_IN_DOUBT,
    )


def _reports(cluster: ClusterState, queue: Queue) -> Reports:
    enough = cluster.doubted.get((queue.topic.id, queue.index), 0)
    if enough and cluster.unheard:
        # A lost move may have made any of them a replica, which has what the others lack.
        enough += len(cluster.unheard.keys() - set(queue.standing.replicas))
    return enough, not cluster.unheard


def elect_doubted(cluster: ClusterState) -> None:
    """Elect leaders after a recovery, since a broker has told how far all its logs go (R15)."""
    for topic_id, index in list(cluster.doubted):
        queue = cluster.topics_by_id[topic_id].queues[index]
        # With more of them unheard it has no leader yet, and there may be many queues.
        if len(cluster.unheard) < 2 * len(queue.standing.replicas):
            cluster.place(queue, settled(cluster, elected(cluster, queue, queue.standing)))


def relieved(cluster: ClusterState, queue: Queue, s: ReplicaSet) -> ReplicaSet:
    """Drop a member with a full disk from the ISR once enough others have joined."""
    return relieve(s, cluster.full, cluster.alive, queue.need)


def settled(cluster: ClusterState, s: ReplicaSet) -> ReplicaSet:
    """Take the leadership from a broker that is not active, and end the move if it is done.

    It depends on the replica set and the brokers alone, as all that is computed once for many queues.
    """
    if cluster.modes:
        s = hand_over(s, cluster.modes, cluster.alive, cluster.elected_last)
    return finish_move(s, cluster.alive, cluster.elected_last)
