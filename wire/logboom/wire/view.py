"""The name servers' view of the cluster, sent by WATCH: brokers, topics, queues.

`gc=False`: none of these can be part of a cycle, and a large cluster has tens of thousands of them.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from logboom.wire.access.access_rules import AccessView
from logboom.wire.group_view import GroupView
from logboom.wire.listeners import ListenerView
from logboom.wire.transactions import DecisionView

RECOVERY_SHIFT: Final = 24
"""Epochs of a queue or an application between two recoveries, as a power of two: none has so many."""
MAX_RECOVERIES: Final = 100
"""Recoveries that leave room for epochs, which have 32 bits."""
DELETE_RETENTION_MS: Final = 86_400_000
"""How long tombstones are kept by default after the log: a day, as in Kafka."""


def first_epoch(recoveries: int) -> int:
    """Return the first leader epoch of a queue, and producer epoch of an application.

    It is above all that were given before the last recovery of the name servers (R15).
    """
    return (min(recoveries, MAX_RECOVERIES) << RECOVERY_SHIFT) + 1


class TopicConfig(Struct, frozen=True, array_like=True, gc=False):
    """Settings of a topic. Zero means "the cluster's default" where stated."""

    min_in_sync: int = 0
    """Copies that an acks=all write needs; 0: a majority of the replicas (1→1, 2→2, 3→2)."""
    retention_ms: int = 7 * 86_400_000
    """Age by append time after which messages are deleted; -1: never."""
    retention_bytes: int = -1
    """Maximum bytes of a queue; -1: no limit."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Largest message (value, key and headers together)."""
    unclean_election: bool = False
    """True if a replica outside the ISR may lead when no other is alive, which loses messages."""
    compaction: bool = False
    """True if brokers keep the latest message of each key for readers of the compacted topic, even
    after retention has deleted it from the log."""
    dispatch_messages_per_s: int = 0
    """Maximum messages per second that each queue delivers to all its subscriptions; 0: no
    limit."""
    dispatch_bytes_per_s: int = 0
    """The same in bytes of stored batches."""
    delete_retention_ms: int = DELETE_RETENTION_MS
    """How long compaction keeps a tombstone after retention has removed it from the log."""


class QueueLoss(Struct, frozen=True, array_like=True, gc=False):
    """An election after which a queue may lack messages that were committed (Q15)."""

    epoch: int
    """Leader epoch from which on another history holds."""
    end: int
    """Offset at which that history begins: positions from before are valid up to here; -1: the
    leader has not reported it yet."""
    time_ms: int
    """Time of the election, by the Raft log's clock; it is no wall time."""


class QueueView(Struct, frozen=True, array_like=True, gc=False):
    """A queue: its replicas, its leader and leader epoch, and its ISR."""

    replicas: list[str]
    leader: str | None
    leader_epoch: int
    version: int
    """Grows with every change of leader, ISR or eligible replicas; AlterIsr compares it."""
    isr: list[str]
    eligible: list[str]
    """Replicas outside the ISR that have all committed messages."""
    adding: list[str] = []
    """Replicas that the queue gets. They are at their places in `replicas`."""
    removing: list[str] = []
    """Replicas that the queue loses once all others are in sync; the last of `replicas`."""
    losses: list[QueueLoss] = []
    """The last elections after which messages may be missing, oldest first."""

    @property
    def loses(self) -> bool:
        """True if a loss is not reported yet: nobody knows which positions are valid."""
        return any(loss.end < 0 for loss in self.losses)

    def valid_from(self) -> int:
        """Return the epoch of the last loss whose end is known; 0 if there is none."""
        return max((loss.epoch for loss in self.losses if loss.end >= 0), default=0)

    def valid_end(self, epoch: int) -> int | None:
        """Return up to where positions are valid that know the losses up to `epoch`; None: all are."""
        ends = [loss.end for loss in self.losses if loss.end >= 0 and loss.epoch > epoch]
        return min(ends, default=None)


class TopicView(Struct, frozen=True, array_like=True, gc=False):
    """A topic and its queues; `id` is never used again after the topic was deleted."""

    name: str
    id: int
    config: TopicConfig
    queues: list[QueueView]
    version: int
    """Metadata version of the topic's last change."""
    owner: str = ""
    """The user who created it, whose limits count it; "" if nobody did."""
    replicas: int = 0
    """Replicas that each queue shall have; 0: an older name server does not say."""
    restoring: str = ""
    """The backup that is being restored into it: it takes and gives no messages; "" if none is."""


class BrokerView(Struct, frozen=True, array_like=True, gc=False):
    """A registered broker."""

    id: str
    endpoint: str
    """host:port that clients and other brokers dial."""
    zone: str
    instance_epoch: int
    alive: bool
    """False if it is fenced, and leads nothing."""
    version: int
    listeners: list[ListenerView] = []
    """Its listeners; empty if it has a single open one, at `endpoint`."""
    keys: list[str] = []
    """Its current public keys."""
    mode: str = "active"
    """A `BrokerMode`."""
    host: str = ""
    """The machine that it shares with other brokers; empty: it has one alone."""


class SettingView(Struct, frozen=True, array_like=True, gc=False):
    """A replicated setting."""

    scope: str
    """"" for the cluster, else the id of a node."""
    name: str
    value: str


class NameServerView(Struct, frozen=True, array_like=True, gc=False):
    """A name server."""

    id: str
    endpoint: str
    """host:port that clients and brokers dial."""
    listeners: list[ListenerView] = []
    """Its listeners for them; empty if it has a single open one, at `endpoint`."""
    keys: list[str] = []
    """Its current public keys."""


class View(Struct, frozen=True, array_like=True, gc=False):
    """The full metadata (`full`) or a delta, at `version`.

    In a delta `topics` and `brokers` contain the changes since the requested version, and `deleted`
    the names of deleted topics (a topic that was deleted and created again is in `topics` only,
    with its new id). `known` False: the answering node has no metadata yet.
    """

    version: int
    full: bool
    cluster_id: str
    brokers: list[BrokerView]
    topics: list[TopicView]
    deleted: list[str]
    deleted_brokers: list[str]
    name_servers: list[NameServerView]
    raft_leader: str | None
    """The answering node's best guess."""
    groups: list[GroupView] = []
    """The requested groups: all, or those that changed."""
    deleted_groups: list[str] = []
    """Names of deleted groups."""
    decisions: list[DecisionView] = []
    """If requested: all decisions that not all queues have reported, or those that changed."""
    ended_decisions: list[int] = []
    """Numbers of decisions that all queues have reported, or whose topics were deleted."""
    access: AccessView | None = None
    """If requested by a node: all users and roles, or those that changed. `full` is as that of the
    view."""
    settings: list[SettingView] | None = None
    """All replicated settings, if the view is full or one of them changed, and if a node asks, or a
    user who may describe the cluster."""
    features: int = 0
    """The features level of the cluster."""
    next_topic_id: int = 0
    """The id of the next topic; 0: an older name server does not say. Of a smaller id that no topic has,
    the topic was deleted, unless `lost_topic_ids` has it."""
    lost_topic_ids: list[tuple[int, int]] = []
    """Ranges [first, end) of ids that may be those of topics that the name servers have lost, when one
    of them went on alone. Brokers keep what they hold of these."""
    recoveries: int = 0
    """How often a name server went on alone."""
