"""The lookup of the replica that a request to a queue's leader names."""

from __future__ import annotations

from typing import Protocol

from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.replica.request_errors import check_restored, check_topic, not_leader
from logboom.wire.routes import Routes


class QueueRequest(Protocol):
    """A request that names a queue."""

    topic: str
    queue: int
    topic_id: int


def find_led_replica(
    queues: ReplicaTable, routes: Routes, me: str, message: QueueRequest
) -> tuple[Replica, Leadership]:
    """Find the replica that a request names, which this broker must lead.

    Raises:
        NotLeader: it does not lead the queue.
        Unavailable: this broker has no metadata yet, or the topic is being restored.
        UnknownResource: the topic was deleted.
    """
    replica = queues.by_name.get((message.topic, message.queue))
    leading = replica.leading if replica is not None else None
    if replica is None or leading is None:
        raise not_leader(routes, message.topic, message.queue, me, message.topic_id)
    check_topic(replica, message.topic_id)
    check_restored(replica)
    return replica, leading
