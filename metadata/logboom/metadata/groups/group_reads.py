"""Linearizable reads of consumer groups: a barrier through the log, then the applied tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from logboom.metadata.groups.group_views import (
    offsets_of,
    summaries,
    summary_of,
    whole_view,
)
from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.raft.submissions import OnResult
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import unknown_group
from logboom.wire.acceptor import PeerSession
from logboom.wire.authorizer import Authorizer
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError, error_for
from logboom.wire.group_view import GroupSummary
from logboom.wire.messages import DescribeGroup, GroupDescribed, GroupsListed, ListGroups
from logboom.wire.sight import Sight, shown_group, shown_offsets, shown_summaries
from logboom.wire.survey_messages import (
    MAX_SURVEYED,
    MAX_SURVEYED_OFFSETS,
    GroupsSurveyed,
    GroupSurvey,
    SurveyGroups,
)

Answer: TypeAlias = Callable[[WireMessage | LogboomError], None]
GroupRead: TypeAlias = ListGroups | DescribeGroup | SurveyGroups


class GroupReadsHost(Protocol):
    """The name server, as reads of groups see it."""

    @property
    def cluster(self) -> ClusterState:
        """The applied tables."""

    def barrier(self, on_result: OnResult) -> None:
        """Call back once everything that was committed until now is applied here."""

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Build the error for a submitted command that was not applied, or not known to be."""


class GroupReads:
    """Reads at the Raft leader, answered once everything committed before them is applied there."""

    def __init__(self, node: GroupReadsHost, authorizer: Authorizer) -> None:
        self._node = node
        self._authorizer = authorizer

    def take(self, peer: PeerSession, request: GroupRead, answer: Answer) -> None:
        """Begin a read; name servers that do not lead answer NOT_LEADER."""
        self._node.barrier(partial(self._applied, peer, request, answer))

    def _applied(
        self,
        peer: PeerSession,
        request: GroupRead,
        answer: Answer,
        outcome: SubmitOutcome,
    ) -> None:
        if not outcome.applied:
            answer(self._node.failure(outcome))
            return
        # The rules by now count, since a change of them may have been committed just before.
        refusal = self._authorizer.refusal(peer, request)
        sight = self._authorizer.sight(peer)
        if refusal is not None:
            answer(refusal)
        elif isinstance(request, ListGroups):
            answer(GroupsListed(0, self._list(sight)))
        elif isinstance(request, SurveyGroups):
            answer(self._survey(request, sight))
        else:
            answer(self._describe(request.group, sight))

    def _list(self, sight: Sight | None) -> list[GroupSummary]:
        return self._shown(summaries(self._node.cluster), sight)

    def _shown(self, found: list[GroupSummary], sight: Sight | None) -> list[GroupSummary]:
        cluster = self._node.cluster
        if sight is None:
            return found

        def configured(name: str) -> list[str]:
            chosen = cluster.groups.by_name[name].config.options.config.values()
            return [topic for queues in chosen for topic, _ in queues]

        return shown_summaries(found, sight, configured)

    def _survey(self, request: SurveyGroups, sight: Sight | None) -> GroupsSurveyed:
        """Return the next page of groups: at least one, if there are any."""
        cluster = self._node.cluster
        found: list[GroupSurvey] = []
        count = 0
        limit = min(max(1, request.limit), MAX_SURVEYED)
        for name in sorted(each for each in cluster.groups.by_name if each > request.after):
            group = cluster.groups.by_name[name]
            shown = self._shown([summary_of(group)], sight)
            if not shown:
                continue
            if len(found) == limit or count >= MAX_SURVEYED_OFFSETS:
                return GroupsSurveyed(0, found, more=True)
            offsets = offsets_of(cluster, group)
            if sight is not None:
                offsets = shown_offsets(offsets, sight)
            count += sum(len(each.committed) for each in offsets)
            found.append(GroupSurvey(shown[0], offsets))
        return GroupsSurveyed(0, found, more=False)

    def _describe(self, name: str, sight: Sight | None) -> WireMessage | LogboomError:
        cluster = self._node.cluster
        group = cluster.groups.by_name.get(name)
        if group is None:
            refusal = unknown_group(name)
            return error_for(refusal.code, refusal.text, refusal.fields)
        view, offsets = whole_view(group), offsets_of(cluster, group)
        if sight is not None:
            view = shown_group(view, sight, cluster.name_of_topic)
            offsets = shown_offsets(offsets, sight)
        return GroupDescribed(0, view, offsets, cluster.version)
