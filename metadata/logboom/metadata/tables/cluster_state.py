"""The replicated tables: brokers, topics, queues, name servers, and the versions of their changes.

They are plain data, with the few primitives that keep derived indexes correct: the queues of a
broker, the topics and brokers changed since a version, and the queues that are not led by their
preferred replica. The rules are in the `*_commands` modules.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from logboom.metadata.tables.access_table import AccessTable
from logboom.metadata.tables.change_index import ChangeIndex
from logboom.metadata.tables.consumer_groups import ConsumerGroup, ConsumerGroups
from logboom.metadata.tables.placement_notes import Placement, is_visible, notes_on
from logboom.metadata.tables.replica_set import NO_TAILS, Ids, ReplicaSet, Tail, may_lack
from logboom.metadata.tables.transaction_table import TransactionTable
from logboom.wire.access.access_rules import node_user
from logboom.wire.actor import Note, note
from logboom.wire.event_table import Plain
from logboom.wire.listeners import ListenerView
from logboom.wire.operation_commands import BrokerMode
from logboom.wire.view import (
    BrokerView,
    QueueLoss,
    QueueView,
    SettingView,
    TopicConfig,
    TopicView,
    first_epoch,
)

VERSIONS: Final = 1 << 40
"""Metadata versions that a recovery passes over: those of seven years of 5,000 commands a second."""


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
    listeners: list[ListenerView] = field(default_factory=list)
    """Its listeners; empty if it has a single open one, at `endpoint`."""
    preferred: int = 0
    """Queues whose placement it comes first in (derived)."""
    queues: dict[Queue, None] = field(default_factory=dict)
    """Queues of which it has a replica (derived)."""


class NodeListeners(NamedTuple):
    """The listeners of a name server."""

    main: list[ListenerView]
    """Those for clients and brokers."""
    raft: list[ListenerView]
    """Those for the other name servers."""


MAX_NOTES: Final = 200
"""Events of one command from which on the number of changed queues is told alone."""
MAX_LOSSES: Final = 8
"""Losses of one queue that are remembered."""
OPEN: Final = NodeListeners([], [])
"""One open listener of each kind, at the endpoints of `name_servers`."""


@dataclass(slots=True)
class OwnedTopics:
    """How much one user has created of what still exists."""

    topics: int = 0
    queues: int = 0


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

    @property
    def need(self) -> int:
        """Copies that the HW needs to advance: min(min_in_sync, replicas) (Q7).

        Replicas that a move adds or removes change nothing before it is done (M3).
        """
        s = self.standing
        return needed_copies(self.topic.config, len(s.replicas) - len(s.adding))


@dataclass(slots=True, eq=False)
class Topic:
    """One topic."""

    name: str
    id: int
    config: TopicConfig
    created_ms: int
    version: int
    queues: list[Queue] = field(default_factory=list)
    owner: str = ""
    """The user who created it; empty if that was nobody in particular."""
    replicas: int = 0
    """Replicas that each queue shall have; while they are moved, a queue has more or fewer."""
    restoring: str = ""
    """The backup that is being restored into it; "" if none is."""
    view: TopicView | None = None
    """The cached view of this version."""


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
        self.owned: dict[str, OwnedTopics] = {}
        """User → what it owns, for owners of a topic only (derived)."""
        self.tails: dict[tuple[int, int], dict[str, Tail]] = {}
        """(topic id, queue) → broker → tail, reported by suspect brokers."""
        self.lost_stores: dict[tuple[int, int], str] = {}
        """(topic id, queue) → the store that held all of it when its last ISR member came back with
        another one: if it returns, the queue is led again (Q3)."""
        self.losses: dict[tuple[int, int], list[QueueLoss]] = {}
        """(topic id, queue) → its last elections after which messages may be missing (Q15)."""
        self.name_servers: dict[str, tuple[str, str]] = {}
        """Name servers that were added: id → (endpoint, Raft endpoint)."""
        self.listeners: dict[str, NodeListeners] = {}
        """Listeners of the name servers that do not have one open one of each kind."""
        self.journals: dict[str, str] = {}
        """Name server → id of the journal that counts under its Raft id (R9)."""
        self.former_name_servers: dict[str, None] = {}
        """Name servers that were removed; their ids are not reused (R9)."""
        self.alive: set[str] = set()
        """Brokers that are not fenced (derived)."""
        self.full: set[str] = set()
        """Live brokers whose disks accept no writes."""
        self.features = 0
        """Features level; 0 until a cluster of before there were levels is raised."""
        self.modes: dict[str, BrokerMode] = {}
        """Modes of the brokers that are not active."""
        self.filling: set[str] = set()
        """Brokers that came new into a cluster with replicas, until they hold their share."""
        self.settings: dict[tuple[str, str], str] = {}
        """(scope, name) → value of the replicated settings; scope "" is the cluster."""
        self.settings_version = 0
        """Version of the last change of a setting, or of the features level."""
        self.recoveries = 0
        """How often a name server went on alone."""
        self.lost_topic_ids: list[tuple[int, int]] = []
        """Ranges [first, end) of ids that topics may have had which were lost by that."""
        self.doubted: dict[tuple[int, int], int] = {}
        """(topic id, queue) whose replica set may have changed in what was lost → replicas that have to
        report their log ends before one of them leads (R15)."""
        self.unheard: dict[str, None] = {}
        """Brokers whose log ends were not reported since."""
        self.displaced: dict[Queue, None] = {}
        """Queues that are not led by their preferred replica (derived)."""
        self.leaderless: dict[Queue, None] = {}
        """Queues that have no leader (derived)."""
        self.topic_changes: ChangeIndex[str] = ChangeIndex()
        self.broker_changes: ChangeIndex[str] = ChangeIndex()
        self.groups = ConsumerGroups(self.bump, self._coordinated)
        """Consumer groups."""
        self.transactions = TransactionTable(self.bump)
        """Decisions on transactions."""
        self.access = AccessTable(self.bump)
        """Users, roles and access rules."""
        self.elections = 0
        """Leader changes applied since this process started (a counter for STATS)."""
        self.unclean_elections = 0
        """Those of them whose leader may lack acknowledged messages."""
        self.notes: list[Note] | None = None
        """What the command that is being applied has changed, for the log of the Raft leader; None:
        nobody asks. It is no part of the state."""
        self._untold: list[bool] = []
        """For each queue that the command has changed beyond `MAX_NOTES`: whether its epoch is new."""
        self._next_version = 1

    @property
    def first_epoch(self) -> int:
        """The first leader epoch of a queue, and producer epoch of an application."""
        return first_epoch(self.recoveries)

    @property
    def recovered_at(self) -> int:
        """A version that is below all since the last recovery (R15), and above those before it."""
        return self.recoveries * VERSIONS

    @property
    def elected_last(self) -> Collection[str]:
        """Brokers that lead and coordinate only where no other can: full, or not active (M6)."""
        return self.full | self.modes.keys() if self.modes else self.full

    # ── versions ────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Begin a command: what it changes gets the next version."""
        self._next_version = self.version + 1

    def tell(self, event: str, **fields: Plain) -> None:
        """Note an event of `wire.event_table`, if somebody asks; what brought it about is added."""
        if self.notes is not None:
            self.notes.append(Note(event, fields))

    def take_notes(self) -> list[Note]:
        """Return what was noted, and note nothing more."""
        notes = self.notes or []
        if self._untold:
            queues, elections = len(self._untold), sum(self._untold)
            notes.append(note("more_queues_changed", queues=queues, elections=elections))
        self.notes = None
        self._untold = []
        return notes

    def bump(self) -> int:
        """Note a visible change, and return the command's version."""
        self.version = self._next_version
        return self.version

    def skip_to(self, version: int) -> None:
        """Let the next version be above `version`, of which nothing may be known elsewhere."""
        self._next_version = max(self._next_version, version + 1)
        self.bump()

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

    def touch_settings(self) -> None:
        """Note that a setting, or the features level, was changed."""
        self.settings_version = self.bump()

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
        self.unheard.pop(broker.id, None)
        self.alive.discard(broker.id)
        self.modes.pop(broker.id, None)
        self.filling.discard(broker.id)
        self.broker_changes.drop(broker.id, self.bump())

    def add_topic(self, topic: Topic) -> None:
        """Add a topic without queues to the tables."""
        self.topics[topic.name] = topic
        self.topics_by_id[topic.id] = topic
        if topic.owner:
            self.owned.setdefault(topic.owner, OwnedTopics()).topics += 1

    def add_queue(self, queue: Queue) -> None:
        """Add a topic's next queue to the tables."""
        queue.topic.queues.append(queue)
        if queue.topic.owner:
            self.owned[queue.topic.owner].queues += 1
        replicas = queue.standing.replicas
        for replica in replicas:
            self.brokers[replica].queues[queue] = None
        self.brokers[replicas[0]].preferred += 1
        if queue.standing.displaced:
            self.displaced[queue] = None
        if queue.standing.leader is None:
            self.leaderless[queue] = None

    def drop_topic(self, topic: Topic) -> None:
        """Remove a topic and its queues from the tables."""
        self.tell("topic_deleted", topic=topic.name, queues=len(topic.queues))
        for queue in topic.queues:
            for replica in queue.standing.replicas:
                del self.brokers[replica].queues[queue]
            self.brokers[queue.standing.replicas[0]].preferred -= 1
            self.displaced.pop(queue, None)
            self.leaderless.pop(queue, None)
            self.tails.pop((topic.id, queue.index), None)
            self.lost_stores.pop((topic.id, queue.index), None)
            self.doubted.pop((topic.id, queue.index), None)
            self.losses.pop((topic.id, queue.index), None)
            self.transactions.queue_gone((topic.id, queue.index))
        del self.topics[topic.name]
        del self.topics_by_id[topic.id]
        if topic.owner:
            owned = self.owned[topic.owner]
            owned.topics -= 1
            owned.queues -= len(topic.queues)
            if not owned.topics:
                del self.owned[topic.owner]
        self.topic_changes.drop(topic.name, self.bump())
        # Each queue names its topic: this circle would live until a collection of everything.
        topic.queues = []

    def tails_of(self, queue: Queue) -> dict[str, Tail]:
        """Return the tails reported by a queue's suspect replicas; do not modify it."""
        found = self.tails.get((queue.topic.id, queue.index))
        return found if found is not None else dict(NO_TAILS)

    def place(
        self, queue: Queue, after: ReplicaSet, *, anew: bool = False, lacks: bool | None = None
    ) -> None:
        """Give a queue its next replica set.

        Args:
            queue: the queue.
            after: the replica set.
            anew: the same leader leads in a new epoch (Q2).
            lacks: whether a new leader may lack what was committed (Q15); None: that follows from
                the replica set that the queue has had.
        """
        before = queue.standing
        moved = after.leader != before.leader or (anew and after.leader is not None)
        # Interned sets are mostly the same object. That alone must not decide: the interning of one
        # process may have been emptied, and of another not.
        if not moved and (after is before or after.equals(before)):
            return
        queue.standing = after
        queue.version += 1
        if after.replicas != before.replicas:
            self._rehome(queue, before.replicas, after.replicas)
        if moved:
            queue.epoch += 1
            self.elections += 1
            if lacks or (lacks is None and after.leader not in before.certain):
                # Where the log ends of the replicas decide, the longest one leads (R15).
                lacks = lacks or (
                    (queue.topic.id, queue.index) not in self.doubted and may_lack(before, after)
                )
                self.unclean_elections += lacks
                if lacks:
                    self.note_loss(queue, queue.epoch)
            if after.leader is None:
                self.leaderless[queue] = None
            else:
                self.leaderless.pop(queue, None)
        if moved or after.replicas != before.replicas:
            if after.displaced:
                self.displaced[queue] = None
            else:
                self.displaced.pop(queue, None)
        if self.tails or self.doubted or self.lost_stores:
            self._forget_reports(queue, after)
        self.touch_topic(queue.topic)
        if self.notes is not None and (moved or is_visible(before, after)):
            if len(self.notes) < MAX_NOTES:
                topic, index = queue.topic.name, queue.index
                placed = Placement(
                    topic, index, queue.epoch, queue.need, before, after, moved, bool(lacks)
                )
                self.notes += notes_on(placed)
            else:
                # A broker may have thousands of queues, and elections must not wait for their log.
                self._untold.append(moved)

    def note_loss(self, queue: Queue, epoch: int) -> None:
        """Note that who leads a queue from an epoch on may lack what was committed (Q15)."""
        if not self.features:
            return  # older name servers would show other metadata
        losses = self.losses.get((queue.topic.id, queue.index), [])
        losses = [*losses, QueueLoss(epoch, -1, self.clock_ms)][-MAX_LOSSES:]
        self.losses[queue.topic.id, queue.index] = losses
        self.touch_topic(queue.topic)

    def _forget_reports(self, queue: Queue, after: ReplicaSet) -> None:
        """Forget what was noted about a queue's logs once that is decided."""
        where = (queue.topic.id, queue.index)
        if not after.suspect:
            self.tails.pop(where, None)
        if after.leader is not None:
            self.doubted.pop(where, None)
        if not after.lost:
            self.lost_stores.pop(where, None)

    def _coordinated(self, group: ConsumerGroup, was: str) -> None:
        """Note that a group has a coordinator in a new epoch."""
        self.tell(
            "coordinator_changed",
            group=group.name,
            coordinator=group.coordinator or None,
            was=was or None,
            epoch=group.coordinator_epoch,
        )

    def _rehome(self, queue: Queue, before: Ids, after: Ids) -> None:
        """Let the indexes of brokers follow a queue's other replicas."""
        for replica in before:
            if replica not in after:
                del self.brokers[replica].queues[queue]
        for replica in after:
            if replica not in before:
                self.brokers[replica].queues[queue] = None
        self.brokers[before[0]].preferred -= 1
        self.brokers[after[0]].preferred += 1

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
            broker.listeners,
            self.access.book.public_keys_of(node_user(broker.id)),
            self.modes.get(broker.id, "active"),
            broker.host,
        )

    def setting_views(self) -> list[SettingView]:
        """Return the views of all replicated settings."""
        return [SettingView(*key, value) for key, value in sorted(self.settings.items())]

    def name_of_topic(self, topic_id: int) -> str | None:
        """Return the name of a topic, or None if there is none of this id."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_view(self, topic: Topic) -> TopicView:
        """Return the view of a topic that WATCH sends, cached until its next change."""
        if topic.view is None:
            queues: list[QueueView] = []
            for q in topic.queues:
                replicas, isr, eligible, adding, removing = q.standing.shown
                leader = q.standing.leader
                queues.append(
                    QueueView(replicas, leader, q.epoch, q.version, isr, eligible, adding, removing)
                )
            for index in range(len(queues)) if self.losses else ():
                losses = self.losses.get((topic.id, index))
                if losses:
                    queues[index] = msgspec.structs.replace(queues[index], losses=[*losses])
            topic.view = TopicView(
                topic.name,
                topic.id,
                topic.config,
                queues,
                topic.version,
                topic.owner,
                topic.replicas,
                topic.restoring,
            )
        return topic.view


def needed_copies(config: TopicConfig, replicas: int) -> int:
    """Return min(min_in_sync, replicas), where min_in_sync 0 means a majority (1→1, 2→2, 3→2)."""
    return min(config.min_in_sync or replicas // 2 + 1, replicas)


def find_queue(cluster: ClusterState, topic_id: int, index: int) -> Queue | None:
    """Return a queue, or None if there is none."""
    topic = cluster.topics_by_id.get(topic_id)
    if topic is None or not 0 <= index < len(topic.queues):
        return None
    return topic.queues[index]


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
