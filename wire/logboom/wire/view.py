"""What the name server tells of the cluster: brokers, topics, queues (sent by WATCH).

`gc=False`: none of these can be part of a cycle, and a large cluster has tens of thousands of them.
"""

from __future__ import annotations

from msgspec import Struct

from logboom.wire.group_view import GroupView
from logboom.wire.transactions import DecisionView


class TopicConfig(Struct, frozen=True, array_like=True, gc=False):
    """Settings of a topic. Zero means "the cluster's default" where said."""

    min_in_sync: int = 0
    """Copies an acks=all write needs; 0: a majority of the replicas (1→1, 2→2, 3→2)."""
    retention_ms: int = 7 * 86_400_000
    """Age by append time after which messages go; -1: kept for ever."""
    retention_bytes: int = -1
    """Bytes a queue may keep; -1: no bound."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Largest message (value, key and headers together)."""
    unclean_election: bool = False
    """Whether a replica outside the ISR may lead when no other lives: loses messages."""
    compaction: bool = False
    """Whether brokers keep the latest message of each key, for readers who want no more, also when
    retention has taken it out of the log."""
    dispatch_messages_per_s: int = 0
    """Messages per second that each queue delivers to all its subscriptions; 0: no limit."""
    dispatch_bytes_per_s: int = 0
    """The same in bytes of stored batches."""


class QueueView(Struct, frozen=True, array_like=True, gc=False):
    """One queue: its replicas, who leads in which epoch, who is in sync."""

    replicas: list[str]
    leader: str | None
    leader_epoch: int
    version: int
    """Grows with every change of leader, ISR or eligible replicas; AlterIsr compares it."""
    isr: list[str]
    eligible: list[str]
    """Replicas outside the ISR that hold all below the HW (Q7)."""


class TopicView(Struct, frozen=True, array_like=True, gc=False):
    """One topic and its queues; `id` is never used again after a delete."""

    name: str
    id: int
    config: TopicConfig
    queues: list[QueueView]
    version: int
    """Metadata version of the topic's last change."""


class BrokerView(Struct, frozen=True, array_like=True, gc=False):
    """One registered broker."""

    id: str
    endpoint: str
    """host:port that clients and other brokers dial."""
    zone: str
    instance_epoch: int
    alive: bool
    """False: fenced, it leads nothing."""
    version: int


class NameServerView(Struct, frozen=True, array_like=True, gc=False):
    """One name server."""

    id: str
    endpoint: str


class View(Struct, frozen=True, array_like=True, gc=False):
    """A whole (full) or a delta of the metadata, at `version`.

    In a delta `topics` and `brokers` hold what changed since the asked version; `deleted` the
    names of topics that went (a topic deleted and made again is in `topics` only, with its new
    id). `known` False: the answering node has no metadata yet.
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
    """Best guess of the answering node; a hint, not a promise."""
    groups: list[GroupView] = []
    """Of those the asker named: all, or what changed."""
    deleted_groups: list[str] = []
    """Names of groups that went."""
    decisions: list[DecisionView] = []
    """Of those who asked for them: all that not all queues have reported, or what changed."""
    ended_decisions: list[int] = []
    """Numbers of decisions that all queues have reported, or whose topics went."""
