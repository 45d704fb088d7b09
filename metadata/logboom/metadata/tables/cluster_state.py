"""The replicated tables: brokers, topics, queues, name servers, and the versions of their changes.

They are plain data, with the few primitives that keep derived indexes correct: the queues of a
broker, the topics and brokers changed since a version, and the queues that are not led by their
preferred replica. The rules are in the `*_commands` modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from logboom.metadata.tables.change_index import ChangeIndex
from logboom.metadata.tables.consumer_groups import ConsumerGroups
from logboom.metadata.tables.replica_set import NO_TAILS, ReplicaSet, Tail
from logboom.metadata.tables.transaction_table import TransactionTable
from logboom.wire.view import BrokerView, QueueView, TopicConfig, TopicView


@dataclass(slots=True)
class BrokerRegistration:
    """One registered broker."""

    id: str
    store_id: str
    incarnation: str
    endpoint: str
    zone: str
    instance_epoch: int
    alive: bool
    version: int
    host: str = ""
    """The machine that it shares with other brokers; empty: it has one alone."""
    preferred: int = 0
    """Queues whose placement it comes first in (derived)."""
    queues: dict[Queue, None] = field(default_factory=dict)
    """Queues of which it has a replica (derived)."""


@dataclass(slots=True, eq=False)
class Queue:
    """One queue of a topic."""

    topic: Topic
    index: int
    standing: ReplicaSet
    epoch: int = 1
    """Leader epoch."""
    version: int = 1
    """Grows with every change of the replica set, of the epoch, or of the rule that moves the HW.
    """


@dataclass(slots=True, eq=False)
class Topic:
    """One topic."""

    name: str
    id: int
    config: TopicConfig
    created_ms: int
    version: int
    queues: list[Queue] = field(default_factory=list)
    need: int = 1
    """Copies that the HW needs to advance: min(min_in_sync, replicas) (Q7; derived)."""
    view: TopicView | None = None
    """The cached view of this version."""

    @property
    def replicas(self) -> int:
        """The number of replicas of each queue."""
        return len(self.queues[0].standing.replicas)


class ClusterState:
    """Everything that the name servers agree on, except the results kept for retries."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.term = 0
        """Term of the last `NewTerm`."""
        self.raft_leader = ""
        """Leader of that term."""
        self.clock_ms = 0
        """The latest time that any command carried."""
        self.version = 0
        self.next_instance_epoch = 1
        self.next_topic_id = 1
        self.next_producer_id = 1
        self.brokers: dict[str, BrokerRegistration] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[int, Topic] = {}
        self.tails: dict[tuple[int, int], dict[str, Tail]] = {}
        """(topic id, queue) → broker → tail, reported by suspect brokers."""
        self.name_servers: dict[str, tuple[str, str]] = {}
        """Name servers that were added: id → (endpoint, Raft endpoint)."""
        self.former_name_servers: dict[str, None] = {}
        """Name servers that were removed; their ids are not reused (R9)."""
        self.alive: set[str] = set()
        """Brokers that are not fenced (derived)."""
        self.full: set[str] = set()
        """Live brokers whose disks accept no writes."""
        self.displaced: dict[Queue, None] = {}
        """Queues that are not led by their preferred replica (derived)."""
        self.topic_changes: ChangeIndex[str] = ChangeIndex()
        self.broker_changes: ChangeIndex[str] = ChangeIndex()
        self.groups = ConsumerGroups(self.bump)
        """Consumer groups."""
        self.transactions = TransactionTable(self.bump)
        """Decisions on transactions."""
        self.elections = 0
        """Leader changes applied since this process started (a counter for STATS)."""
        self._next_version = 1

    # ── versions ────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Begin a command: what it changes gets the next version."""
        self._next_version = self.version + 1

    def bump(self) -> int:
        """Note a visible change, and return the command's version."""
        self.version = self._next_version
        return self.version

    def touch_topic(self, topic: Topic) -> None:
        """Note that a topic was created or changed."""
        if topic.version != self._next_version or topic.view is not None:
            topic.version = self.bump()
            topic.view = None
            self.topic_changes.touch(topic.name, topic.version)

    def touch_broker(self, broker: BrokerRegistration) -> None:
        """Note that a broker was added or changed."""
        broker.version = self.bump()
        self.broker_changes.touch(broker.id, broker.version)

    # ── tables ──────────────────────────────────────────────────────────────────────────────────

    def add_broker(self, broker: BrokerRegistration) -> None:
        """Add a broker to the tables."""
        self.brokers[broker.id] = broker
        if broker.alive:
            self.alive.add(broker.id)

    def set_alive(self, broker: BrokerRegistration, alive: bool) -> None:
        """Fence a broker, or mark it live."""
        broker.alive = alive
        # A new process reports again whether its disk is full.
        self.full.discard(broker.id)
        (self.alive.add if alive else self.alive.discard)(broker.id)

    def drop_broker(self, broker: BrokerRegistration) -> None:
        """Remove a broker that has no replicas."""
        del self.brokers[broker.id]
        self.alive.discard(broker.id)
        self.broker_changes.drop(broker.id, self.bump())

    def add_topic(self, topic: Topic) -> None:
        """Add a topic without queues to the tables."""
        self.topics[topic.name] = topic
        self.topics_by_id[topic.id] = topic

    def add_queue(self, queue: Queue) -> None:
        """Add a topic's next queue to the tables."""
        queue.topic.queues.append(queue)
        replicas = queue.standing.replicas
        for replica in replicas:
            self.brokers[replica].queues[queue] = None
        self.brokers[replicas[0]].preferred += 1
        if queue.standing.displaced:
            self.displaced[queue] = None

    def drop_topic(self, topic: Topic) -> None:
        """Remove a topic and its queues from the tables."""
        for queue in topic.queues:
            for replica in queue.standing.replicas:
                del self.brokers[replica].queues[queue]
            self.brokers[queue.standing.replicas[0]].preferred -= 1
            self.displaced.pop(queue, None)
            self.tails.pop((topic.id, queue.index), None)
            self.transactions.queue_gone((topic.id, queue.index))
        del self.topics[topic.name]
        del self.topics_by_id[topic.id]
        self.topic_changes.drop(topic.name, self.bump())

    def tails_of(self, queue: Queue) -> dict[str, Tail]:
        """Return the tails reported by a queue's suspect replicas; do not modify it."""
        found = self.tails.get((queue.topic.id, queue.index))
        return found if found is not None else dict(NO_TAILS)

    def place(self, queue: Queue, after: ReplicaSet, *, anew: bool = False) -> None:
        """Give a queue its next replica set.

        With `anew` the same leader leads in a new epoch (Q2).
        """
        before = queue.standing
        moved = after.leader != before.leader or (anew and after.leader is not None)
        if after is before and not moved:
            return
        queue.standing = after
        queue.version += 1
        if moved:
            queue.epoch += 1
            self.elections += 1
            if after.displaced:
                self.displaced[queue] = None
            else:
                self.displaced.pop(queue, None)
        if self.tails and not after.suspect:
            self.tails.pop((queue.topic.id, queue.index), None)
        self.touch_topic(queue.topic)

    # ── views ───────────────────────────────────────────────────────────────────────────────────

    def broker_view(self, broker: BrokerRegistration) -> BrokerView:
        """Return the view of a broker that WATCH sends."""
        return BrokerView(
            broker.id,
            broker.endpoint,
            broker.zone,
            broker.instance_epoch,
            broker.alive,
            broker.version,
        )

    def topic_view(self, topic: Topic) -> TopicView:
        """Return the view of a topic that WATCH sends, cached until its next change."""
        if topic.view is None:
            queues: list[QueueView] = []
            for q in topic.queues:
                replicas, isr, eligible = q.standing.shown
                leader = q.standing.leader
                queues.append(QueueView(replicas, leader, q.epoch, q.version, isr, eligible))
            topic.view = TopicView(topic.name, topic.id, topic.config, queues, topic.version)
        return topic.view


def needed_copies(config: TopicConfig, replicas: int) -> int:
    """Return min(min_in_sync, replicas), where min_in_sync 0 means a majority (1→1, 2→2, 3→2)."""
    return min(config.min_in_sync or replicas // 2 + 1, replicas)


def find_registration(
    cluster: ClusterState, broker_id: str, instance_epoch: int
) -> BrokerRegistration | None:
    """Return a broker if this is its current registration and it is not fenced, else None.

    A process that registered earlier may no longer speak for the broker (see docs/SAFETY.md, Q6).
    """
    broker = cluster.brokers.get(broker_id)
    if broker is None or not broker.alive or broker.instance_epoch != instance_epoch:
        return None
    return broker
