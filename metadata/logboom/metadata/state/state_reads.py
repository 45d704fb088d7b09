"""The replicated state for a backup: a barrier through the log, then the applied tables.

It is encoded once, in the turn that answers, and nothing of it is kept. So it is of one version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

import msgspec

from logboom.metadata.groups.group_views import head_view, offsets_of
from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.raft.submissions import OnResult
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.transaction_table import decision_view
from logboom.wire.acceptor import PeerSession
from logboom.wire.access.access_rules import is_node_user
from logboom.wire.authorizer import Authorizer
from logboom.wire.backup_messages import (
    ApplicationView,
    ClusterSnapshot,
    GroupState,
    ReadState,
    StateRead,
)
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError
from logboom.wire.view import NameServerView

FRAME_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the state in one frame: a frame has at most 64 MiB, and a large state may be larger."""

StateAnswer: TypeAlias = Callable[[WireMessage | LogboomError, Sequence[bytes]], None]


class StateReadsHost(Protocol):
    """The name server, as reads of its state see it."""

    @property
    def cluster(self) -> ClusterState:
        """The applied tables."""

    def barrier(self, on_result: OnResult) -> None:
        """Call back once everything that was committed until now is applied here."""

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Build the error for a submitted command that was not applied, or not known to be."""

    def name_server_views(self) -> list[NameServerView]:
        """Return the views of all name servers."""


class StateReads:
    """Reads at the Raft leader, answered once everything committed before them is applied there."""

    def __init__(self, node: StateReadsHost, authorizer: Authorizer) -> None:
        self._node = node
        self._authorizer = authorizer

    def take(self, peer: PeerSession, request: ReadState, answer: StateAnswer) -> None:
        """Begin a read; name servers that do not lead answer NOT_LEADER."""
        self._node.barrier(partial(self._applied, peer, request, answer))

    def _applied(
        self, peer: PeerSession, request: ReadState, answer: StateAnswer, outcome: SubmitOutcome
    ) -> None:
        if not outcome.applied:
            answer(self._node.failure(outcome), ())
            return
        # The rules by now count, since a change of them may have been committed just before.
        refusal = self._authorizer.refusal(peer, request)
        if refusal is not None:
            answer(refusal, ())
            return
        snapshot = snapshot_of(self._node.cluster, self._node.name_server_views())
        encoded = msgspec.msgpack.encode(snapshot)
        frames = [encoded[at : at + FRAME_BYTES] for at in range(0, len(encoded), FRAME_BYTES)]
        answer(StateRead(0, snapshot.version, len(encoded)), frames)


def snapshot_of(cluster: ClusterState, name_servers: list[NameServerView]) -> ClusterSnapshot:
    """Return everything that a backup keeps of the tables, in an order that depends on them alone."""
    access = cluster.access
    groups = sorted(cluster.groups.by_name.items())
    return ClusterSnapshot(
        version=cluster.version,
        cluster_id=cluster.cluster_id,
        clock_ms=cluster.clock_ms,
        next_topic_id=cluster.next_topic_id,
        next_producer_id=cluster.next_producer_id,
        next_instance_epoch=cluster.next_instance_epoch,
        topics=[cluster.topic_view(topic) for _, topic in sorted(cluster.topics.items())],
        groups=[GroupState(head_view(group), offsets_of(cluster, group)) for _, group in groups],
        next_group_id=cluster.groups.next_id,
        applications=[
            ApplicationView(
                app_id, app.epoch, app.committed, sorted(app.aborted), app.used_ms, app.owner
            )
            for app_id, app in sorted(cluster.transactions.apps.items())
        ],
        decisions=[decision_view(each) for each in cluster.transactions.decisions.values()],
        users=sorted(
            (user for user in access.users.values() if not is_node_user(user.name)),
            key=lambda user: user.name,
        ),
        roles=sorted(access.roles.values(), key=lambda role: role.name),
        default_quota=access.default_quota,
        brokers=[cluster.broker_view(broker) for _, broker in sorted(cluster.brokers.items())],
        name_servers=name_servers,
        settings=cluster.setting_views(),
        features=cluster.features,
    )
