"""CHECKPARKED and LISTUNENDED: what waits for a decision in the queues that a broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain
from typing import Final

from logboom.nodes.config import BrokerConfig
from logboom.nodes.log.keys import LAST_SIDE, Position
from logboom.nodes.parking.release_scheduler import is_certain, parked_entry
from logboom.nodes.replica import decision_rows, parked_rows
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.leader_lookup import find_led_replica
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.turn import BrokerTurn
from logboom.wire.actor import PeerAddress
from logboom.wire.batch import control_body
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.parking import parked_body
from logboom.wire.routes import Routes
from logboom.wire.transactions import (
    HALF,
    MAX_HANDLES,
    CheckParked,
    EntryPosition,
    ListUndecided,
    ParkedChecked,
    TransactionId,
    UndecidedBatch,
    UndecidedListed,
)

MAX_LISTED: Final = 1_000
"""Batches in one answer."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Of the batches themselves, where they are wanted; the last one may go beyond it."""
_LAST: Final = (1 << 63) - 1


def checks_at(config: BrokerConfig, parked_ms: int, wall_ms: int) -> int:
    """How often the producer group of a half message was to be asked by now: a function of its age,
    so that nothing is written for it."""
    age_ms = wall_ms - parked_ms - config.half_check_after_ms
    if age_ms < 0:
        return 0
    return min(config.half_checks, 1 + age_ms // config.half_check_every_ms)


def described(
    config: BrokerConfig, replica: Replica, standing: parked_rows.ParkedRow, wall_ms: int
) -> UndecidedBatch:
    """What is told of a batch that waits for a decision."""
    assert standing.waits is not None
    transaction, messages = standing.waits
    half = transaction.sequence == HALF
    checks = checks_at(config, standing.due_ms, wall_ms) if half else 0
    place = (replica.topic, replica.topic_id, replica.queue, *standing.first)
    return UndecidedBatch(*place, transaction, standing.due_ms, checks, messages, standing.size)


class UndecidedHandler:
    """Answers both requests."""

    def __init__(
        self,
        config: BrokerConfig,
        queues: ReplicaTable,
        routes: Routes,
        leads: Callable[[], Iterable[Replica]],
        damages: ReplicaRepair,
    ) -> None:
        """`leads` are the queues that this broker leads."""
        self._damages = damages
        self._config = config
        self._queues = queues
        self._routes = routes
        self._leads = leads

    def check(self, address: PeerAddress, message: CheckParked, turn: BrokerTurn) -> None:
        """Which places hold nothing of a transaction."""
        try:
            replica, leading = find_led_replica(
                self._queues, self._routes, self._config.id, message
            )
            if not is_certain(replica, leading) or replica.applied < replica.hw:
                raise Unavailable("what is parked is not in sync yet: ask again", "BUSY")
            unknown = [
                place
                for place in message.places[:MAX_HANDLES]
                if self._standing(replica, place, message.transaction) is None
            ]
            batches = list(self._read(replica, message, turn)) if message.read_bytes > 0 else []
        except DamagedEntry as error:
            self._damages.found(replica, error)
            turn.refuse(address, message.id, self._damages.refusal(replica))
            return
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return
        unknown += message.places[MAX_HANDLES:]
        turn.answer(address, ParkedChecked(message.id, unknown), batches)

    def _read(self, replica: Replica, message: CheckParked, turn: BrokerTurn) -> Iterator[bytes]:
        """The batches of the first places: up to the first that holds none, as many as are wanted."""
        left = min(message.read_bytes, MOST_BYTES)
        for place in message.places[:MAX_HANDLES]:
            at = self._standing(replica, place, message.transaction)
            if at is None or left <= 0:
                return
            batch = bytes(parked_body(control_body(parked_entry(replica, self._queues, at))).batch)
            left -= len(batch)
            turn.read += len(batch)
            yield batch

    def _standing(
        self, replica: Replica, place: EntryPosition, transaction: TransactionId
    ) -> Position | None:
        """Where the batch that was parked at a place for a transaction stands now; None: nowhere.

        Raises:
            DataDamaged: the store cannot be read.
        """
        at = Position(*place)
        if min(at) < 0 or at >= replica.hw or at.side > LAST_SIDE:
            return None
        storage, ids = self._queues.storage, replica.parked.ids
        now_at = parked_rows.place_of(storage, ids, at)
        standing = parked_rows.standing_at(storage, ids, now_at) if now_at is not None else None
        whose = standing.waits if standing is not None else None
        return now_at if whose is not None and whose.transaction == transaction else None

    def tell(self, address: PeerAddress, message: ListUndecided, turn: BrokerTurn) -> None:
        """All that waits for a decision, oldest first."""
        limit = min(max(1, message.limit), MAX_LISTED)
        try:
            found = [self._of(replica, message, limit + 1, turn) for replica in self._leads()]
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return
        oldest = sorted(chain(*found), key=_order_of(message))
        turn.answer(address, UndecidedListed(message.id, oldest[:limit], len(oldest) > limit))

    def _of(
        self, replica: Replica, message: ListUndecided, limit: int, turn: BrokerTurn
    ) -> list[UndecidedBatch]:
        """At least the first `limit` of a queue behind `message.after`, if there are as many."""
        if not replica.parked.undecided:
            return []
        storage, order = self._queues.storage, _order_of(message)
        begin = None if message.after is None else order(message.after)
        found: list[UndecidedBatch] = []
        for at in self._places(replica, message):
            standing = parked_rows.standing_at(storage, replica.parked.ids, at)
            if standing is None:
                continue
            each = described(self._config, replica, standing, turn.now.wall_ms)
            # What was carried stands elsewhere than it is told: among its like it has no order.
            if len(found) >= limit and order(each)[:2] != order(found[-1])[:2]:
                break
            if begin is None or order(each) > begin:
                found.append(each)
        return found

    def _places(self, replica: Replica, message: ListUndecided) -> Iterator[Position]:
        """Where batches wait, in the order that is asked for, from `message.after` on."""
        storage, ids, after = self._queues.storage, replica.parked.ids, message.after
        if message.app_id:
            whose = None if after is None else after.transaction
            since = None if whose is None else (whose.sequence, whose.attempt)
            return decision_rows.waiting_for(storage, ids, message.app_id, since)
        since_ms = 0 if after is None else after.parked_ms
        kinds = (
            decision_rows.by_age(storage, ids, half=half, since_ms=since_ms, until_ms=_LAST)
            for half in (False, True)
        )
        return (at for _, at, _ in merge(*kinds))


def _order_of(message: ListUndecided) -> Callable[[UndecidedBatch], tuple[int, ...]]:
    """By what an answer is sorted: two numbers that the rows are sorted by too, then the place."""
    if message.app_id:
        return lambda each: (each.transaction.sequence, each.transaction.attempt, *_place(each))
    return lambda each: (each.parked_ms, 0, *_place(each))


def _place(each: UndecidedBatch) -> tuple[int, int, int, int]:
    return each.topic_id, each.queue, each.offset, each.side
