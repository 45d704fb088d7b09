"""Decisions on transactions, carried out in their order by the leader of each queue (T3).

For each decision on a queue the leader appends a DECIDED entry, which drops the batches that are
not listed. Right after it, the leader releases the listed batches in their order, over as many
turns as they need. The decision is done when all of this has been applied below the HW
(`parked.ParkedQueue.done`). A new leader continues where its log ends, once its HW has reached its
log end at election. Until then, an earlier leader may have released a batch that is still parked
here.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position
from logboom.nodes.parking.release_scheduler import (
    MAX_IN_FLIGHT,
    ReleaseBudget,
    ReleaseScheduler,
    is_certain,
)
from logboom.nodes.replica import parked_rows
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.turn import BrokerTurn, Figures, Service
from logboom.wire.errors import DataDamaged
from logboom.wire.head import ControlKind
from logboom.wire.transactions import HALF, DecidedBody, DecisionView, TransactionId, encode_decided

RETRY_DELAY_S: Final = 0.1
"""Seconds before a queue that cannot continue is tried again, unless something moves before."""


class DecisionExecutor(Service):
    """Carries out the decisions on all queues that this broker leads."""

    def __init__(
        self,
        context: BrokerContext,
        release_scheduler: ReleaseScheduler,
        appended: Callable[[Replica], None],
        on_damage: Callable[[Replica, DamagedEntry], None],
    ) -> None:
        """Create an executor.

        Args:
            appended: is called when a queue's log grew.
            on_damage: is called when a parked batch cannot be read.
        """
        self._queues = context.queues
        self._routes = context.routes
        self._space = context.space
        self._stats = context.stats
        self._release_scheduler = release_scheduler
        self._appended = appended
        self._on_damage = on_damage
        self._known: dict[int, list[QueueKey]] = {}
        """The known decisions, and the queues that each names."""
        self._numbers: dict[QueueKey, list[int]] = {}
        """The decisions that name a queue, in their order."""
        self._work: dict[QueueKey, None] = {}
        self._blocked: dict[QueueKey, None] = {}
        self._again_at = float("inf")

    def __len__(self) -> int:
        return len(self._known)

    def figures(self, now: float) -> Figures:
        """Return how many decisions are known."""
        return {"decisions": len(self._known)}

    def take_new(self) -> dict[QueueKey, int]:
        """Follow the metadata, and return the queues with new decisions and the first of each."""
        current = self._routes.decisions
        for number in self._known.keys() - current.keys():
            self._forget(number)
        fresh: dict[QueueKey, int] = {}
        for number in sorted(current.keys() - self._known.keys()):
            keys = list(dict.fromkeys((p.topic_id, p.queue) for p in current[number].queues))
            self._known[number] = keys
            for key in keys:
                insort(self._numbers.setdefault(key, []), number)
                fresh.setdefault(key, number)
        return fresh

    def _forget(self, number: int) -> None:
        for key in self._known.pop(number):
            self._numbers[key].remove(number)
            if not self._numbers[key]:
                del self._numbers[key]

    def on(self, key: QueueKey) -> list[int]:
        """Return the decisions that name a queue, in their order."""
        return self._numbers.get(key, [])

    def concerns(self, key: QueueKey, number: int) -> bool:
        """True if a decision still waits for a queue, or is not known yet."""
        if number > self._routes.version:
            return True
        view = self._routes.decisions.get(number)
        return view is not None and any((p.topic_id, p.queue) == key for p in view.queues)

    def arm(self, replica: Replica) -> None:
        """Schedule a queue in which decisions may continue.

        A decision came, the HW moved, or a leadership began.
        """
        leading = replica.leading
        if leading is not None and self._has_work(replica, leading):
            self._work[replica.key] = None

    def _has_work(self, replica: Replica, leading: Leadership) -> bool:
        parked = replica.parked
        if leading.to_release is not None:
            return True
        if parked.release is not None and leading.decided < parked.release.number:
            return True
        numbers = self._numbers.get(replica.key, [])
        return bool(numbers) and numbers[-1] > max(parked.done, leading.decided)

    def deadline(self) -> float:
        """Return when `step` is wanted next."""
        return float("-inf") if self._work else self._again_at

    def step(self, turn: BrokerTurn) -> None:
        """Continue with the decisions, within the turn's limits.

        This comes before the turn applies anything.
        """
        if self._blocked and turn.mono >= self._again_at:
            self._work.update(self._blocked)
            self._blocked.clear()
        room = ReleaseBudget()
        work, self._work = self._work, {}
        for key in work:
            replica = self._queues.replicas.get(key)
            if replica is None or replica.leading is None:
                continue
            if room.spent:
                self._work[key] = None
            elif not self._go_on(replica, replica.leading, room, turn):
                self._blocked[key] = None
        self._again_at = turn.mono + RETRY_DELAY_S if self._blocked else float("inf")

    def _go_on(
        self, replica: Replica, leading: Leadership, room: ReleaseBudget, turn: BrokerTurn
    ) -> bool:
        """Continue with one queue. Return False if it is blocked by more than the turn's limits."""
        if (
            not is_certain(replica, leading)
            or replica.applied < replica.hw  # the rows do not contain all that is parked yet
            or leading.relocating
            or self._space.check(turn.mono)
        ):
            return False
        _resume(replica, leading)
        try:
            while self._has_work(replica, leading):
                if leading.to_release is None:
                    self._decide(replica, leading, turn)
                elif not self._release(replica, leading, leading.to_release, room, turn):
                    return False
                elif leading.to_release is not None:
                    self._work[replica.key] = None
                    return True
        except DamagedEntry as error:
            self._on_damage(replica, error)
            return False
        except DataDamaged as error:
            self._on_damage(replica, DamagedEntry(error.text, Position(replica.start)))
            return False
        return True

    def _release(
        self,
        replica: Replica,
        leading: Leadership,
        places: deque[Position],
        room: ReleaseBudget,
        turn: BrokerTurn,
    ) -> bool:
        """Release the batches that a decision lists, within the turn's limits.

        Return False if too many are in flight.
        """
        while places:
            if len(leading.releasing) >= MAX_IN_FLIGHT:
                return False
            if room.spent:
                return True
            size = self._release_scheduler.release(replica, leading, places[0], turn)
            places.popleft()
            room.batches -= 1
            room.size -= size
        leading.to_release = None
        return True

    def _decide(self, replica: Replica, leading: Leadership, turn: BrokerTurn) -> None:
        """Append the entry of the next decision."""
        numbers = self._numbers[replica.key]
        last = max(replica.parked.done, leading.decided)
        view = self._routes.decisions[numbers[bisect_right(numbers, last)]]
        places = self._places(replica, leading, view)
        whose = (view.app_id, view.sequence, view.attempt)
        body = encode_decided(DecidedBody(view.number, *whose, view.commit, list(places)))
        replica.append_control(
            ControlKind.DECIDED, body, turn.now.wall_ms, turn.writes, self._queues.cache
        )
        self._queues.touch(replica)
        self._appended(replica)
        self._stats.count("decided_commits" if view.commit else "decided_aborts")
        leading.decided = view.number
        leading.to_release = deque(places) if places else None

    def _places(
        self, replica: Replica, leading: Leadership, view: DecisionView
    ) -> Iterable[Position]:
        """Return the current position of each batch that a decision lists.

        A batch that is not found was released before, or was never parked.
        """
        if not view.commit or view.sequence == HALF:
            return []
        transaction = TransactionId(view.app_id, view.sequence, view.attempt)
        storage, ids = self._queues.storage, replica.parked.ids
        found: dict[Position, None] = {}
        listed = [
            Position(*place)
            for parked in view.queues
            if (parked.topic_id, parked.queue) == replica.key
            for place in parked.places
        ]
        for first in listed:
            at = parked_rows.place_of(storage, ids, first)
            row = parked_rows.find_row(storage, ids, at) if at is not None else None
            whose = row.waits if row is not None else None
            if at is None or whose is None or whose.transaction != transaction:
                self._stats.count("decided_missing")
            elif at not in leading.releasing and at not in leading.recalling:
                found[at] = None
        return found


def _resume(replica: Replica, leading: Leadership) -> None:
    """Continue the release that an earlier leader began, once per epoch.

    All that it appended is applied here, so the list of remaining batches is exact.
    """
    release = replica.parked.release
    if release is not None and leading.decided < release.number:
        leading.decided = release.number
        leading.to_release = deque(release.left)
