"""Reads of the cluster's moves and loads: a barrier through the log, then tables and soft state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from logboom.metadata.duties.move_planner import MovePlanner
from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.raft.submissions import OnResult
from logboom.wire.acceptor import PeerSession
from logboom.wire.authorizer import Authorizer
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError
from logboom.wire.operation_messages import BalancePlanned, DescribeCluster, PlanBalance

Answer: TypeAlias = Callable[[WireMessage | LogboomError], None]


class ClusterReadsHost(Protocol):
    """The name server, as these reads see it."""

    def barrier(self, on_result: OnResult) -> None:
        """Call back once everything that was committed until now is applied here."""

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Build the error for a submitted command that was not applied, or not known to be."""


class ClusterReads:
    """Reads at the Raft leader, answered once everything committed before them is applied there."""

    def __init__(
        self, node: ClusterReadsHost, authorizer: Authorizer, planner: MovePlanner
    ) -> None:
        self._node = node
        self._authorizer = authorizer
        self._planner = planner

    def take(
        self, peer: PeerSession, request: DescribeCluster | PlanBalance, answer: Answer
    ) -> None:
        """Begin a read; name servers that do not lead answer NOT_LEADER."""
        self._node.barrier(partial(self._applied, peer, request, answer))

    def _applied(
        self,
        peer: PeerSession,
        request: DescribeCluster | PlanBalance,
        answer: Answer,
        outcome: SubmitOutcome,
    ) -> None:
        if not outcome.applied:
            answer(self._node.failure(outcome))
            return
        # The rules by now count, since a change of them may have been committed just before.
        refusal = self._authorizer.refusal(peer, request)
        if refusal is not None:
            answer(refusal)
            return
        sight = self._authorizer.sight(peer)
        shown = (lambda _: True) if sight is None else sight.topic
        if isinstance(request, DescribeCluster):
            self._planner.describe(shown, request.sizes_of, answer)
            return

        def planned(plan: BalancePlanned | LogboomError) -> None:
            if isinstance(plan, BalancePlanned):
                plan.moves = [move for move in plan.moves if shown(move.topic)]
            answer(plan)

        self._planner.plan_balance(request, planned)
