"""The replicated tables of transactions: decisions, and the queues that have not executed them yet.

They are plain data, with the primitives that keep it consistent. For each application the tables
keep its highest committed sequence for ever (see docs/SAFETY.md, T1), and the aborted attempts of
the sequences above it. An application id that a producer made up expires a week after its last use,
because its producer has taken another one by then. A decision lives until all its queues have
reported or were deleted (T3). The rules are in `transactions.decision_commands`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from logboom.metadata.tables.change_index import ChangeIndex
from logboom.wire.group_view import QueueKey
from logboom.wire.transactions import MADE_UP, DecisionView, EntryPosition, ParkedBatches

NONE_COMMITTED: Final = -1
"""In place of a sequence: the application has committed nothing yet."""

MADE_UP_KEPT_MS: Final = 7 * 86_400_000
"""Time for which a made-up application id is kept after its last use."""
ENDED_AT_ONCE: Final = 100
"""Application ids that one command lets expire."""

Attempt: TypeAlias = tuple[int, int]
"""(sequence, attempt)."""


@dataclass(slots=True, eq=False)
class ApplicationState:
    """The state of one application id."""

    epoch: int = 0
    """Epoch of the producer that opened it last; 0 if nobody has."""
    committed: int = NONE_COMMITTED
    """The highest committed sequence; all sequences up to it are closed."""
    aborted: dict[Attempt, None] = field(default_factory=dict)
    """Aborted attempts of sequences above the committed one."""
    used_ms: int = 0
    """Last use by the state's clock, for ids that a producer made up; 0 for others."""
    owner: str = ""
    """Who numbers its sequences (`OpenApplication.owner`); "": nobody in particular."""
    open: dict[int, PendingDecision] = field(default_factory=dict)
    """Its open decisions by number (derived)."""


@dataclass(slots=True, eq=False)
class PendingDecision:
    """A decision that some queues have not reported yet."""

    number: int
    app_id: str
    sequence: int
    attempt: int
    commit: bool
    queues: dict[QueueKey, list[EntryPosition]]
    """Those queues, in the order of the command."""


class TransactionTable:
    """All applications and open decisions, indexed so that a report costs only what it names."""

    def __init__(self, bump: Callable[[], int]) -> None:
        """Create empty tables; `bump` notes a visible change and returns its metadata version."""
        self.apps: dict[str, ApplicationState] = {}
        self.decisions: dict[int, PendingDecision] = {}
        """By number, in increasing order."""
        self.changes: ChangeIndex[int] = ChangeIndex()
        self.waiting = 0
        """Queues that have not reported, summed over all open decisions (derived)."""
        self.named = 0
        """Parked batches that open decisions are to release (derived)."""
        self._by_queue: dict[QueueKey, dict[int, PendingDecision]] = {}
        self._made_up: list[tuple[int, str]] = []
        """A heap of (a use, application id): each made-up id once, with a use no later than its
        last."""
        self._bump = bump

    def app(self, app_id: str) -> ApplicationState:
        """Return the application of this id, creating it if necessary."""
        found = self.apps.get(app_id)
        if found is None:
            found = ApplicationState()
            self.put(app_id, found)
        return found

    def put(self, app_id: str, app: ApplicationState) -> None:
        """Add an application that did not exist."""
        self.apps[app_id] = app
        if app_id.startswith(MADE_UP):
            heapq.heappush(self._made_up, (app.used_ms, app_id))

    def used(self, app_id: str, now_ms: int) -> ApplicationState:
        """Return the application of this id, and note that it is in use now."""
        app = self.app(app_id)
        if app_id.startswith(MADE_UP):
            app.used_ms = max(app.used_ms, now_ms)
        return app

    def end_unused(self, now_ms: int) -> None:
        """Forget some made-up ids, least recently used first.

        Which ones depends on the tables alone: an id that was used since is put back into the heap
        before any id with a later use comes up.
        """
        ended = 0
        while self._made_up and self._made_up[0][0] + MADE_UP_KEPT_MS <= now_ms:
            use, app_id = self._made_up[0]
            app = self.apps[app_id]
            if app.open and app.used_ms == use:
                app.used_ms = now_ms  # Some queues have not executed its decisions yet.
            if app.used_ms > use:
                heapq.heapreplace(self._made_up, (app.used_ms, app_id))
                continue
            if ended == ENDED_AT_ONCE:
                return
            heapq.heappop(self._made_up)
            del self.apps[app_id]
            ended += 1

    def close(self, app: ApplicationState, sequence: int) -> None:
        """Close a committed sequence, and all below it, for ever."""
        app.committed = sequence
        if app.aborted:
            app.aborted = {key: None for key in app.aborted if key[0] > sequence}

    def decide(
        self,
        app_id: str,
        sequence: int,
        attempt: int,
        parked: Iterable[ParkedBatches],
        *,
        commit: bool,
    ) -> int:
        """Add a decision that queues have to execute; return its number, 0 if there is no queue."""
        queues = {(p.topic_id, p.queue): p.places if commit else [] for p in parked}
        if not queues:
            return 0
        number = self._bump()
        self.add(PendingDecision(number, app_id, sequence, attempt, commit, queues))
        return number

    def add(self, decision: PendingDecision) -> None:
        """Add a decision, the newest of all, to the tables."""
        number = decision.number
        self.decisions[number] = decision
        self.app(decision.app_id).open[number] = decision
        for key, places in decision.queues.items():
            self._by_queue.setdefault(key, {})[number] = decision
            self.waiting += 1
            self.named += len(places)
        self.changes.touch(number, number)

    def reported(self, number: int, key: QueueKey) -> None:
        """Note that a queue has executed a decision; ignore decisions that are not known."""
        decision = self.decisions.get(number)
        places = None if decision is None else decision.queues.pop(key, None)
        if decision is None or places is None:
            return
        self.waiting -= 1
        self.named -= len(places)
        waiting = self._by_queue[key]
        del waiting[number]
        if not waiting:
            del self._by_queue[key]
        if not decision.queues:
            del self.decisions[number]
            del self.apps[decision.app_id].open[number]
            self.changes.drop(number, self._bump())

    def queue_gone(self, key: QueueKey) -> None:
        """Forget a deleted queue, where nothing will be executed any more."""
        for number in list(self._by_queue.get(key, ())):
            self.reported(number, key)


def decision_view(decision: PendingDecision) -> DecisionView:
    """Return the view of a decision that WATCH sends."""
    return DecisionView(
        decision.number,
        decision.app_id,
        decision.sequence,
        decision.attempt,
        decision.commit,
        [ParkedBatches(*key, places) for key, places in decision.queues.items()],
    )
