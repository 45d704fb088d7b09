"""The state as canonical, versioned msgpack.

Tables are sorted, so that equal states give equal bytes however they came about. Derived values are
left out. Queues refer to their replica set by number, because thousands share one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from logboom.metadata.access.access_rows import AccessRow, access_row, restore_access
from logboom.metadata.groups.group_rows import GroupRow, group_rows, restore_groups
from logboom.metadata.raft.journal_store import JournalError
from logboom.metadata.state.proposal_dedup import Dedup, ProposerWindow
from logboom.metadata.tables.change_index import ChangeIndex
from logboom.metadata.tables.cluster_state import (
    BrokerRegistration,
    ClusterState,
    NodeListeners,
    Queue,
    Topic,
)
from logboom.metadata.tables.consumer_groups import EPOCHS
from logboom.metadata.tables.replica_set import (
    Ids,
    ReplicaSet,
    StandingKey,
    Tail,
    intern_replica_set,
)
from logboom.metadata.transactions.transaction_rows import (
    AppRow,
    app_rows,
    decision_rows,
    restore_transactions,
)
from logboom.wire.base import UNDECODABLE
from logboom.wire.features import SUBSCRIPTION_RIGHTS
from logboom.wire.listeners import ListenerView
from logboom.wire.operation_commands import BrokerMode
from logboom.wire.transactions import DecisionView
from logboom.wire.view import QueueLoss, TopicConfig

SNAPSHOT_FORMAT: Final = 8
"""Newest format. Format 1 is without groups, 2 without transactions, 3 without full disks, 4
without hosts that brokers share, 5 without users, access rules, listeners and
owners of topics, 6 without moves of replicas, modes of brokers, settings and the features level, 7
without recoveries; a
cluster that is founded at, or raised to, a features level needs no older one. These are still written while they suffice: older name servers can read them, and
the hash of the state is the same on both."""


class _StandingRow(Struct, frozen=True, array_like=True):
    """`ReplicaSet.key()`: without the last two fields while the queue is not moved."""

    replicas: Ids
    leader: str
    isr: Ids
    eligible: Ids
    suspect: Ids
    damaged: Ids
    lost: Ids
    adding: Ids = ()
    removing: Ids = ()


class _BrokerRow(Struct, frozen=True, array_like=True):
    id: str
    store_id: str
    incarnation: str
    endpoint: str
    zone: str
    instance_epoch: int
    alive: bool
    version: int


class _BrokerRowWithHost(_BrokerRow, frozen=True, array_like=True):
    host: str = ""


class _BrokerRowWithListeners(_BrokerRowWithHost, frozen=True, array_like=True):
    listeners: list[ListenerView] = []


class _TopicRow(Struct, frozen=True, array_like=True):
    name: str
    id: int
    config: msgspec.Raw
    """A `TopicConfig`, see `_config_row`."""
    created_ms: int
    version: int
    queues: list[tuple[int, int, int]]
    """(number of the replica set, leader epoch, version)."""


class _TopicRowWithOwner(_TopicRow, frozen=True, array_like=True):
    owner: str = ""


class _TopicRowWithReplicas(_TopicRowWithOwner, frozen=True, array_like=True):
    replicas: int = 0
    """Replicas that each queue shall have; 0: as many as it has."""
    restoring: str = ""


class _OperationsRow(Struct, frozen=True, array_like=True):
    features: int = 0
    modes: list[tuple[str, BrokerMode]] = []
    """(broker, mode) of those that are not active."""
    filling: list[str] = []
    settings: list[tuple[str, str, str]] = []
    """(scope, name, value)."""
    settings_version: int = 0
    journals: list[tuple[str, str]] = []
    """(name server, id of its journal)."""
    lost_stores: list[tuple[int, int, str]] = []
    """(topic id, queue, store)."""
    losses: list[tuple[int, int, list[QueueLoss]]] = []
    """(topic id, queue, its last losses)."""


class _Snapshot(Struct, frozen=True, array_like=True):
    format: int
    cluster_id: str
    term: int
    raft_leader: str
    clock_ms: int
    version: int
    next_instance_epoch: int
    next_topic_id: int
    next_producer_id: int
    brokers: list[_BrokerRowWithListeners]
    standings: list[_StandingRow]
    topics: list[_TopicRowWithReplicas]
    tails: list[tuple[int, int, list[tuple[str, Tail]]]]
    name_servers: list[tuple[str, str, str]]
    former_name_servers: list[str]
    windows: list[tuple[str, int, list[tuple[int, bytes]]]]
    """Windows of proposers, least recently used first; the order is part of the state."""


class _SnapshotWithGroups(_Snapshot, frozen=True, array_like=True):
    groups: list[GroupRow] = []
    next_group_id: int = 1


class _SnapshotWithTransactions(_SnapshotWithGroups, frozen=True, array_like=True):
    apps: list[AppRow] = []
    decisions: list[DecisionView] = []
    """Decisions that some queues have not reported yet."""


class _SnapshotWithRoom(_SnapshotWithTransactions, frozen=True, array_like=True):
    full: list[str] = []
    """Brokers whose disks accept no writes."""


class _SnapshotWithAccess(_SnapshotWithRoom, frozen=True, array_like=True):
    access: AccessRow = AccessRow()
    listeners: list[tuple[str, list[ListenerView], list[ListenerView]]] = []
    """(name server, its listeners, its Raft listeners)."""


class _SnapshotWithOperations(_SnapshotWithAccess, frozen=True, array_like=True):
    operations: _OperationsRow = _OperationsRow()


class _RecoveryRow(Struct, frozen=True, array_like=True):
    recoveries: int = 0
    lost_topic_ids: list[tuple[int, int]] = []
    doubted: list[tuple[int, int, int]] = []
    """(topic id, queue, reports that are needed)."""
    unheard: list[str] = []


class _SnapshotWithRecoveries(_SnapshotWithOperations, frozen=True, array_like=True):
    recovery: _RecoveryRow = _RecoveryRow()


class _Format(Struct, frozen=True, array_like=True):
    format: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_SnapshotWithRecoveries).decode
_decode_config: Final = msgspec.msgpack.Decoder(TopicConfig).decode
_DEFAULTS: Final = msgspec.structs.astuple(TopicConfig())
_FIRST_SETTINGS: Final = 5
"""Settings that topics had in the first format."""
_decode_format: Final = msgspec.msgpack.Decoder(_Format).decode


def encode_snapshot(cluster: ClusterState, dedup: Dedup) -> bytes:
    """Encode the whole state."""
    standings = {q.standing.key() for topic in cluster.topics.values() for q in topic.queues}
    keys = sorted(standings)
    numbers = {key: number for number, key in enumerate(keys)}
    known: dict[ReplicaSet, int] = {}
    make, newer = _newest_parts(cluster)
    return _encode(
        make(
            cluster.cluster_id,
            cluster.term,
            cluster.raft_leader,
            cluster.clock_ms,
            cluster.version,
            cluster.next_instance_epoch,
            cluster.next_topic_id,
            cluster.next_producer_id,
            [_broker_row(cluster.brokers[name]) for name in sorted(cluster.brokers)],
            keys,
            [
                _topic_row(cluster.topics[name], numbers, known, cluster.features)
                for name in sorted(cluster.topics)
            ],
            [
                (topic_id, queue, sorted(tails.items()))
                for (topic_id, queue), tails in sorted(cluster.tails.items())
                if tails
            ],
            [(name, *where) for name, where in sorted(cluster.name_servers.items())],
            sorted(cluster.former_name_servers),
            [
                (proposer, window.used_ms, list(window.results.items()))
                for proposer, window in dedup.windows.items()
            ],
            *newer,
        )
    )


def _newest_parts(cluster: ClusterState) -> tuple[Callable[..., _Snapshot], tuple[object, ...]]:
    """Return the oldest format that can hold this state, and its parts beyond the first format."""
    groups = (group_rows(cluster), cluster.groups.next_id)
    decided = (app_rows(cluster.transactions), decision_rows(cluster.transactions))
    listening = cluster.listeners or any(broker.listeners for broker in cluster.brokers.values())
    recovered = cluster.recoveries > 0
    if recovered or cluster.features or cluster.access.used or listening or cluster.owned:
        listeners = [(name, *found) for name, found in sorted(cluster.listeners.items())]
        newest = (sorted(cluster.full), access_row(cluster.access), listeners)
        parts = (*groups, *decided, *newest)
        operations = _operations_row(cluster)
        if recovered:
            made = partial(_SnapshotWithRecoveries, SNAPSHOT_FORMAT)
            return made, (*parts, operations, _recovery_row(cluster))
        if cluster.features:
            return partial(_SnapshotWithOperations, 7), (*parts, operations)
        return partial(_SnapshotWithAccess, 6), parts
    shared = any(broker.host for broker in cluster.brokers.values())
    if cluster.full or shared:
        found = 5 if shared else 4
        return partial(_SnapshotWithRoom, found), (*groups, *decided, sorted(cluster.full))
    if cluster.transactions.apps:
        return partial(_SnapshotWithTransactions, 3), (*groups, *decided)
    if cluster.groups.next_id > 1:
        return partial(_SnapshotWithGroups, 2), groups
    return partial(_Snapshot, 1), ()


def _operations_row(cluster: ClusterState) -> _OperationsRow:
    return _OperationsRow(
        cluster.features,
        sorted(cluster.modes.items()),
        sorted(cluster.filling),
        [(*key, value) for key, value in sorted(cluster.settings.items())],
        cluster.settings_version,
        sorted(cluster.journals.items()),
        [(*where, store) for where, store in sorted(cluster.lost_stores.items())],
        [(*where, losses) for where, losses in sorted(cluster.losses.items())],
    )


def _recovery_row(cluster: ClusterState) -> _RecoveryRow:
    return _RecoveryRow(
        cluster.recoveries,
        cluster.lost_topic_ids,
        [(*key, reports) for key, reports in sorted(cluster.doubted.items())],
        sorted(cluster.unheard),
    )


def _broker_row(broker: BrokerRegistration) -> _BrokerRow:
    row = (
        broker.id,
        broker.store_id,
        broker.incarnation,
        broker.endpoint,
        broker.zone,
        broker.instance_epoch,
        broker.alive,
        broker.version,
    )
    if broker.listeners:
        return _BrokerRowWithListeners(*row, broker.host, broker.listeners)
    return _BrokerRowWithHost(*row, broker.host) if broker.host else _BrokerRow(*row)


def _topic_row(
    topic: Topic, numbers: dict[StandingKey, int], known: dict[ReplicaSet, int], features: int
) -> _TopicRow:
    queues: list[tuple[int, int, int]] = []
    for queue in topic.queues:
        number = known.get(queue.standing)
        if number is None:
            number = known[queue.standing] = numbers[queue.standing.key()]
        queues.append((number, queue.epoch, queue.version))
    config = _config_row(topic.config)
    row = (topic.name, topic.id, config, topic.created_ms, topic.version, queues)
    if features:
        return _TopicRowWithReplicas(*row, topic.owner, topic.replicas, topic.restoring)
    return _TopicRowWithOwner(*row, topic.owner) if topic.owner else _TopicRow(*row)


def _config_row(config: TopicConfig) -> msgspec.Raw:
    """Encode a topic's settings, without the newest ones while these have their defaults.

    Name servers that do not know the newest settings can then read the snapshot, and agree on the
    hash of the state.
    """
    values = list(msgspec.structs.astuple(config))
    while len(values) > _FIRST_SETTINGS and values[-1] == _DEFAULTS[len(values) - 1]:
        del values[-1]
    return msgspec.Raw(_encode(values))


def decode_snapshot(data: bytes) -> tuple[ClusterState, Dedup]:
    """Decode a snapshot.

    Raises:
        JournalError: it is malformed or of a newer format.
    """
    try:
        found = _decode_format(data).format
        if found > SNAPSHOT_FORMAT:
            raise JournalError(
                f"the snapshot is of format {found}, this version reads {SNAPSHOT_FORMAT}: "
                "upgrade this name server"
            )
        stored = _decode(data)
        return _cluster(stored), _dedup(stored)
    except (*UNDECODABLE, ValueError, LookupError) as error:
        raise JournalError(f"the snapshot's state is malformed: {error}") from None


def _cluster(stored: _SnapshotWithRecoveries) -> ClusterState:
    cluster = ClusterState()
    cluster.cluster_id = stored.cluster_id
    cluster.term = stored.term
    cluster.raft_leader = stored.raft_leader
    cluster.clock_ms = stored.clock_ms
    cluster.version = stored.version
    cluster.next_instance_epoch = stored.next_instance_epoch
    cluster.next_topic_id = stored.next_topic_id
    cluster.next_producer_id = stored.next_producer_id
    # Deletions before the snapshot are not known here.
    cluster.topic_changes = ChangeIndex(stored.version)
    cluster.broker_changes = ChangeIndex(stored.version)
    for row in stored.brokers:
        cluster.add_broker(
            BrokerRegistration(*(getattr(row, field) for field in row.__struct_fields__))
        )
    standings = [
        intern_replica_set(key[0], key[1] or None, *key[2:])
        for key in map(msgspec.structs.astuple, stored.standings)
    ]
    for topic in stored.topics:
        _add_topic(cluster, topic, standings)
    for changed in sorted(stored.topics, key=lambda row: row.version):
        cluster.topic_changes.touch(changed.name, changed.version)
    for row in sorted(stored.brokers, key=lambda row: row.version):
        cluster.broker_changes.touch(row.id, row.version)
    cluster.tails = {(topic, queue): dict(tails) for topic, queue, tails in stored.tails}
    cluster.name_servers = {name: (where, raft) for name, where, raft in stored.name_servers}
    cluster.full = set(stored.full)
    cluster.listeners = {name: NodeListeners(main, raft) for name, main, raft in stored.listeners}
    cluster.former_name_servers = dict.fromkeys(stored.former_name_servers)
    recovery = stored.recovery
    cluster.recoveries = recovery.recoveries
    cluster.lost_topic_ids = list(recovery.lost_topic_ids)
    cluster.doubted = {(topic, queue): count for topic, queue, count in recovery.doubted}
    cluster.unheard = dict.fromkeys(recovery.unheard)
    cluster.groups.first_epoch = cluster.recoveries * EPOCHS
    restore_groups(cluster, stored.groups, stored.next_group_id)
    restore_transactions(cluster.transactions, stored.apps, stored.decisions, stored.version)
    restore_access(cluster.access, stored.access, stored.version)
    operations = stored.operations
    cluster.features = operations.features
    if cluster.features >= SUBSCRIPTION_RIGHTS:
        cluster.access.book.enforce_subscription_rules(stored.version)
    cluster.modes = dict(operations.modes)
    cluster.filling = set(operations.filling)
    cluster.settings = {(scope, name): value for scope, name, value in operations.settings}
    cluster.settings_version = operations.settings_version
    cluster.journals = dict(operations.journals)
    cluster.lost_stores = {(topic, queue): store for topic, queue, store in operations.lost_stores}
    cluster.losses = {(topic, queue): losses for topic, queue, losses in operations.losses}
    return cluster


def _add_topic(
    cluster: ClusterState, row: _TopicRowWithReplicas, standings: list[ReplicaSet]
) -> None:
    config = _decode_config(row.config)
    topic = Topic(row.name, row.id, config, row.created_ms, row.version, owner=row.owner)
    cluster.add_topic(topic)
    for index, (number, epoch, version) in enumerate(row.queues):
        cluster.add_queue(Queue(topic, index, standings[number], epoch, version))
    topic.replicas = row.replicas or len(topic.queues[0].standing.replicas)
    topic.restoring = row.restoring


def _dedup(stored: _Snapshot) -> Dedup:
    dedup = Dedup()
    for proposer, used_ms, results in stored.windows:
        dedup.put(proposer, ProposerWindow(dict(results), used_ms))
    return dedup
