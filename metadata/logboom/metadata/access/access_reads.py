"""Linearizable reads of users and access rules: a barrier through the log, then the tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.raft.submissions import OnResult
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import unknown_user
from logboom.wire.acceptor import PeerSession
from logboom.wire.access.access_rules import CLUSTER
from logboom.wire.base import WireMessage
from logboom.wire.errors import Forbidden, LogboomError, Unauthenticated, error_for
from logboom.wire.messages import AccessDescribed, DescribeAccess

AccessAnswer: TypeAlias = Callable[[WireMessage | LogboomError], None]


class AccessReadsHost(Protocol):
    """The name server, as reads of users and rules see it."""

    @property
    def cluster(self) -> ClusterState:
        """The applied tables."""

    def barrier(self, on_result: OnResult) -> None:
        """Call back once everything that was committed until now is applied here."""

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Build the error for a submitted command that was not applied, or not known to be."""


class AccessReads:
    """Reads at the Raft leader, answered once everything committed before them is applied there."""

    def __init__(self, node: AccessReadsHost) -> None:
        self._node = node

    def take(self, peer: PeerSession, request: DescribeAccess, answer: AccessAnswer) -> None:
        """Begin a read; name servers that do not lead answer NOT_LEADER."""
        self._node.barrier(partial(self._applied, peer, request, answer))

    def _applied(
        self,
        peer: PeerSession,
        request: DescribeAccess,
        answer: AccessAnswer,
        outcome: SubmitOutcome,
    ) -> None:
        if not outcome.applied:
            answer(self._node.failure(outcome))
            return
        answer(_refusal(self._node.cluster, peer, request.user) or self._describe(request.user))

    def _describe(self, name: str) -> WireMessage | LogboomError:
        cluster = self._node.cluster
        table = cluster.access
        users, roles = list(table.users.values()), list(table.roles.values())
        if name:
            user = table.users.get(name)
            if user is None:
                refusal = unknown_user(name)
                return error_for(refusal.code, refusal.text, refusal.fields)
            users, roles = [user], [table.roles[role] for role in user.roles]
        users.sort(key=lambda user: user.name)
        roles.sort(key=lambda role: role.name)
        found = users, roles, table.default_quota
        return AccessDescribed(0, *found, cluster.version, cluster.features)


def _refusal(cluster: ClusterState, peer: PeerSession, name: str) -> LogboomError | None:
    """Return why a peer may not see a user, or all, or None: users may see themselves."""
    if peer.principal is None or peer.kind != "client":
        if peer.proven:
            return None
        text = "users and rules are told to who has the cluster key: say --key-file FILE"
        return Unauthenticated(text)
    if name and peer.user == name:
        return None
    if cluster.access.book.decide(peer.user, "admin", "cluster", CLUSTER).allowed:
        return None
    text = (
        f"user {peer.user!r} may not see other users and their rules: ask an administrator for "
        f"`logboom acl add user:{peer.user} allow admin cluster {CLUSTER}`"
    )
    return Forbidden(text, verb="admin", kind="cluster", name=CLUSTER)
