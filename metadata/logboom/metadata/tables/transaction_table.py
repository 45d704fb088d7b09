"""The replicated tables of transactions: what is decided, and which queues have still to hear of it.

Plain data and the primitives that keep it true. Of an application the highest committed sequence is
kept for ever (SAFETY T1), and of the sequences above it which attempts were aborted. An application
id that a producer made up ends a week after its last use: by then its producer has taken another.
A decision lives until all its queues have reported, or went (T3). The rules are in
`transactions.commands`.
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
"""Instead of a sequence: the application has committed nothing yet."""

MADE_UP_KEPT_MS: Final = 7 * 86_400_000
"""What is known of an application id that a producer made up is kept for so long after its last use."""
ENDED_AT_ONCE: Final = 100
"""Application ids that one command lets end."""

Attempt: TypeAlias = tuple[int, int]
"""(sequence, attempt)."""


@dataclass(slots=True, eq=False)
class ApplicationState:
    """What is known of one application id."""

    epoch: int = 0
    """Of the producer that opened it last; 0: nobody has."""
    committed: int = NONE_COMMITTED
    """The highest committed sequence: all up to it are closed."""
    aborted: dict[Attempt, None] = field(default_factory=dict)
    """Of sequences above the committed one."""
    used_ms: int = 0
    """By the state's clock; of those that a producer made up, else 0."""
    open: dict[int, PendingDecision] = field(default_factory=dict)
    """Its decisions that not all queues have reported, by number (derived)."""


@dataclass(slots=True, eq=False)
class PendingDecision:
    """A decision that not all queues have reported."""

    number: int
    app_id: str
    sequence: int
    attempt: int
    commit: bool
    queues: dict[QueueKey, list[EntryPosition]]
    """The queues that have not, in the order of the command."""


class TransactionTable:
    """All applications and open decisions, and the indexes that let a report cost what it says."""

    def __init__(self, bump: Callable[[], int]) -> None:
        """`bump` says that something visible changes, and in which metadata version."""
        self.apps: dict[str, ApplicationState] = {}
        self.decisions: dict[int, PendingDecision] = {}
        """By number, in growing order."""
        self.changes: ChangeIndex[int] = ChangeIndex()
        self.waiting = 0
        """Queues that have not reported, summed over all open decisions (derived)."""
        self.named = 0
        """Parked batches that these are to release (derived)."""
        self._by_queue: dict[QueueKey, dict[int, PendingDecision]] = {}
        self._made_up: list[tuple[int, str]] = []
        """A heap of (a use, application id): each that is made up once, and no use after its last."""
        self._bump = bump

    def app(self, app_id: str) -> ApplicationState:
        """The application of this id, which from now on exists."""
        found = self.apps.get(app_id)
        if found is None:
            found = ApplicationState()
            self.put(app_id, found)
        return found

    def put(self, app_id: str, app: ApplicationState) -> None:
        """An application that there was not."""
        self.apps[app_id] = app
        if app_id.startswith(MADE_UP):
            heapq.heappush(self._made_up, (app.used_ms, app_id))

    def used(self, app_id: str, now_ms: int) -> ApplicationState:
        """The application of this id, which somebody uses now."""
        app = self.app(app_id)
        if app_id.startswith(MADE_UP):
            app.used_ms = max(app.used_ms, now_ms)
        return app

    def end_unused(self, now_ms: int) -> None:
        """Forget some that producers made up, the longest unused first.

        Which ones depends on the tables alone: what was used since is put back before any that was
        used later comes up.
        """
        ended = 0
        while self._made_up and self._made_up[0][0] + MADE_UP_KEPT_MS <= now_ms:
            use, app_id = self._made_up[0]
            app = self.apps[app_id]
            if app.open and app.used_ms == use:
                app.used_ms = now_ms  # queues have still to hear of it
            if app.used_ms > use:
                heapq.heapreplace(self._made_up, (app.used_ms, app_id))
                continue
            if ended == ENDED_AT_ONCE:
                return
            heapq.heappop(self._made_up)
            del self.apps[app_id]
            ended += 1

    def close(self, app: ApplicationState, sequence: int) -> None:
        """A sequence is committed: with all below it, it is closed for ever."""
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
        """Queues have to hear of a decision; its number, 0 if there is no queue."""
        queues = {(p.topic_id, p.queue): p.places if commit else [] for p in parked}
        if not queues:
            return 0
        number = self._bump()
        self.add(PendingDecision(number, app_id, sequence, attempt, commit, queues))
        return number

    def add(self, decision: PendingDecision) -> None:
        """Put a decision, the newest of all, into the tables."""
        number = decision.number
        self.decisions[number] = decision
        self.app(decision.app_id).open[number] = decision
        for key, places in decision.queues.items():
            self._by_queue.setdefault(key, {})[number] = decision
            self.waiting += 1
            self.named += len(places)
        self.changes.touch(number, number)

    def reported(self, number: int, key: QueueKey) -> None:
        """A queue has carried a decision out; of what is not known (any more) nothing is done."""
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
        """A queue is deleted: nobody will carry anything out there."""
        for number in list(self._by_queue.get(key, ())):
            self.reported(number, key)


def decision_view(decision: PendingDecision) -> DecisionView:
    """What WATCH tells of a decision."""
    return DecisionView(
        decision.number,
        decision.app_id,
        decision.sequence,
        decision.attempt,
        decision.commit,
        [ParkedBatches(*key, places) for key, places in decision.queues.items()],
    )
