"""Rules of queues as they hold for compaction, broken on purpose: `tests.sim.broken` says who must
notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logboom.nodes.compaction import compaction_pass as compact_pass
from logboom.nodes.replica.leadership import Leadership
from tests.sim.breaks.queues import Patch

if TYPE_CHECKING:
    from logboom.nodes.log.keys import Position
    from logboom.nodes.replica.replica import Replica


def compaction_runs_ahead(patch: Patch) -> None:
    """Q12: compaction takes messages that are not below the HW."""

    def limit_of(replica: Replica) -> Position:
        return replica.written

    patch.setattr(compact_pass, "limit_of", limit_of)


def copies_are_not_awaited(patch: Patch) -> None:
    """Q3: a follower with a new disk joins the ISR without the copies that compaction keeps."""
    may_join = Leadership.may_join

    def hasty(self: Leadership, broker: str, *rest: Any) -> bool:
        if broker in self.followers:
            self.followers[broker].lacks = False
        return may_join(self, broker, *rest)

    patch.setattr(Leadership, "may_join", hasty)
