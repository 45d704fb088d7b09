"""Linearizable reads of consumer groups: a barrier through the log, then the applied tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from logboom.metadata.groups.group_views import offsets_of, summaries, whole_view
from logboom.metadata.raft.log_commands import AnyLogCommand
from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.raft.submissions import OnResult
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import unknown_group
from logboom.wire.base import WireMessage
from logboom.wire.commands import Barrier
from logboom.wire.errors import LogboomError, error_for
from logboom.wire.messages import DescribeGroup, GroupDescribed, GroupsListed, ListGroups

Answer: TypeAlias = Callable[[WireMessage | LogboomError], None]


class GroupReadsHost(Protocol):
    """The name server, as reads of groups see it."""

    @property
    def cluster(self) -> ClusterState:
        """The applied tables."""

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Submit a command of this node's own to the log."""

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Build the error for a submitted command that was not applied, or not known to be."""


class GroupReads:
    """Reads at the Raft leader, answered once everything committed before them is applied there."""

    def __init__(self, node: GroupReadsHost) -> None:
        self._node = node

    def take(self, request: ListGroups | DescribeGroup, answer: Answer) -> None:
        """Begin a read; name servers that do not lead answer NOT_LEADER."""
        self._node.submit(Barrier(), partial(self._applied, request, answer))

    def _applied(
        self, request: ListGroups | DescribeGroup, answer: Answer, outcome: SubmitOutcome
    ) -> None:
        if not outcome.applied:
            answer(self._node.failure(outcome))
        elif isinstance(request, ListGroups):
            answer(GroupsListed(0, summaries(self._node.cluster)))
        else:
            answer(self._describe(request.group))

    def _describe(self, name: str) -> WireMessage | LogboomError:
        cluster = self._node.cluster
        group = cluster.groups.by_name.get(name)
        if group is None:
            refusal = unknown_group(name)
            return error_for(refusal.code, refusal.text, refusal.fields)
        return GroupDescribed(0, whole_view(group), offsets_of(cluster, group), cluster.version)
