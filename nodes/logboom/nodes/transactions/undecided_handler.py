"""CHECKPARKED and LISTUNENDED: the undecided batches of the queues that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final

from msgspec.structs import replace

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import LAST_SIDE, Position
from logboom.nodes.parking.release_scheduler import is_certain, parked_entry
from logboom.nodes.replica import decision_rows, parked_rows
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.leader_lookup import find_led_replica
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.requests.long_requests import (
    BATCH_UNITS,
    LIST_BYTES,
    PART_UNITS,
    QUEUE_UNITS,
    LongRequests,
    Parts,
)
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.batch import control_body
from logboom.wire.errors import Unavailable
from logboom.wire.parking import parked_body
from logboom.wire.settings import LiveSettings
from logboom.wire.sight import Sight
from logboom.wire.transactions import (
    HALF,
    MADE_UP,
    MAX_HANDLES,
    CheckParked,
    EntryPosition,
    ListUndecided,
    ParkedChecked,
    TransactionId,
    UndecidedBatch,
    UndecidedListed,
    hide_made_up,
)

MAX_LISTED: Final = 1_000
"""Batches in one answer."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the returned batches. The last one may exceed the limit."""
PART_PLACES: Final = 32
"""Positions of one part of a CHECKPARKED."""
PLACE_UNITS: Final = 30
"""Units of work (`LongRequests`) to find out about a position, …"""
READ_UNITS: Final = 60
"""… and to read its batch, beside one for each KiB."""
PLACE_BYTES: Final = 128
"""What a position takes of memory while its request waits."""
_LAST: Final = (1 << 63) - 1


def checks_at(settings: LiveSettings, parked_ms: int, wall_ms: int) -> int:
    """Return how many checks of a half message are due by now.

    This is a function of its age, so that nothing has to be written.
    """
    age_ms = wall_ms - parked_ms - settings.half_check_after_ms
    if age_ms < 0:
        return 0
    return min(settings.half_checks, 1 + age_ms // settings.half_check_every_ms)


def described(
    settings: LiveSettings, replica: Replica, row: parked_rows.ParkedRow, wall_ms: int
) -> UndecidedBatch:
    """Return the description of an undecided batch."""
    assert row.waits is not None
    transaction, messages = row.waits
    half = transaction.sequence == HALF
    checks = checks_at(settings, row.due_ms, wall_ms) if half else 0
    place = (replica.topic, replica.topic_id, replica.queue, *row.first)
    return UndecidedBatch(*place, transaction, row.due_ms, checks, messages, row.size)


class UndecidedHandler(Service):
    """Serves CHECKPARKED and LISTUNENDED."""

    def __init__(
        self, context: BrokerContext, repair: ReplicaRepair, requests: LongRequests
    ) -> None:
        self._repair = repair
        self._requests = requests
        self._me = context.me
        self._settings = context.settings
        self._acceptor = context.acceptor
        self._queues = context.queues
        self._routes = context.routes

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of both."""
        return {CheckParked: self.check, ListUndecided: self.tell}

    def check(self, peer: PeerSession, message: CheckParked, turn: BrokerTurn) -> None:
        """Return the positions that hold no batch of a transaction."""
        size = PLACE_BYTES * len(message.places)
        parts = self._checked(peer.address, message)
        self._requests.serve(peer, message, parts, size, turn)

    def _checked(self, address: PeerAddress, message: CheckParked) -> Parts:
        """Answer with the positions that hold none, and with the batches of the first that do.

        Raises:
            LogboomError: this broker does not lead the queue, or cannot tell or read yet.
        """
        turn = yield 0
        places = message.places[:MAX_HANDLES]
        unknown: list[EntryPosition] = []
        batches: list[bytes] = []
        left = min(message.read_bytes, MOST_BYTES)
        replica = self._certain(message)
        for begin in range(0, len(places), PART_PLACES):
            units = 0
            try:
                for place in places[begin : begin + PART_PLACES]:
                    at = self._row(replica, place, message.transaction)
                    units += PLACE_UNITS
                    if at is None:
                        unknown.append(place)
                        left = 0
                    elif left > 0:
                        batch = self._read(replica, at)
                        batches.append(batch)
                        left -= len(batch)
                        turn.read += len(batch)
                        units += READ_UNITS + (len(batch) >> 10)
            except DamagedEntry as error:
                self._repair.found(replica, error)
                raise self._repair.refusal(replica) from None
            turn = yield units
            replica = self._certain(message)
        turn.answer(
            address, ParkedChecked(message.id, unknown + message.places[MAX_HANDLES:]), batches
        )

    def _certain(self, message: CheckParked) -> Replica:
        """Return the replica of the queue, whose parked batches are known here.

        Raises:
            LogboomError: this broker does not lead the queue, or does not know them yet.
        """
        replica, leading = find_led_replica(self._queues, self._routes, self._me, message)
        if not is_certain(replica, leading) or replica.applied < replica.hw:
            raise Unavailable(
                "the parked batches of this queue are not in sync yet: try again", "BUSY"
            )
        return replica

    def _read(self, replica: Replica, at: Position) -> bytes:
        """Return the batch that is parked at a position.

        Raises:
            DamagedEntry: it cannot be read.
        """
        return bytes(parked_body(control_body(parked_entry(replica, self._queues, at))).batch)

    def _row(
        self, replica: Replica, place: EntryPosition, transaction: TransactionId
    ) -> Position | None:
        """Return the current position of the batch that was parked at a position for a transaction.

        None if it is no longer parked.

        Raises:
            DataDamaged: the store cannot be read.
        """
        at = Position(*place)
        if min(at) < 0 or at >= replica.hw or at.side > LAST_SIDE:
            return None
        storage, ids = self._queues.storage, replica.parked.ids
        now_at = parked_rows.place_of(storage, ids, at)
        row = parked_rows.find_row(storage, ids, now_at) if now_at is not None else None
        whose = row.waits if row is not None else None
        return now_at if whose is not None and whose.transaction == transaction else None

    def tell(self, peer: PeerSession, message: ListUndecided, turn: BrokerTurn) -> None:
        """Return the undecided batches, oldest first."""
        self._requests.serve(peer, message, self._listed(peer, message), LIST_BYTES, turn)

    def _listed(self, peer: PeerSession, message: ListUndecided) -> Parts:
        """Answer with the undecided batches of all queues.

        Raises:
            DataDamaged: the store cannot be read.
        """
        turn = yield 0
        limit = min(max(1, message.limit), MAX_LISTED)
        sight, order = self._acceptor.authorizer.sight(peer), _order_of(message)
        oldest: list[UndecidedBatch] = []
        units = 0
        for replica in [*self._queues.led.values()]:
            units += QUEUE_UNITS
            if (
                replica.parked.undecided
                and replica.leading is not None
                and (sight is None or sight.topic(replica.topic))
            ):
                found = self._of(replica, message, limit + 1, sight, turn)
                oldest += found
                units += BATCH_UNITS * len(found)
            if len(oldest) > 4 * MAX_LISTED:
                oldest = sorted(oldest, key=order)[: limit + 1]
            if units >= PART_UNITS:
                turn = yield units
                units = 0
        oldest.sort(key=order)
        turn.answer(peer.address, UndecidedListed(message.id, oldest[:limit], len(oldest) > limit))

    def _of(
        self,
        replica: Replica,
        message: ListUndecided,
        limit: int,
        sight: Sight | None,
        turn: BrokerTurn,
    ) -> list[UndecidedBatch]:
        """Return at least the first `limit` batches of a queue after `message.after`.

        With `sight` only those whose transaction it shows.
        """
        storage, order = self._queues.storage, _order_of(message)
        begin = None if message.after is None else order(message.after)
        found: list[UndecidedBatch] = []
        for at in self._places(replica, message):
            row = parked_rows.find_row(storage, replica.parked.ids, at)
            if row is None:
                continue
            whose = row.waits
            if sight is not None and not (whose and sight.transaction(whose.transaction.app_id)):
                continue
            each = described(self._settings, replica, row, turn.now.wall_ms)
            app_id = each.transaction.app_id
            if sight is not None and app_id.startswith(MADE_UP) and not sight.decides(app_id):
                # Whoever knows it may use it.
                hidden = replace(each.transaction, app_id=hide_made_up(app_id))
                each = replace(each, transaction=hidden)
            # A relocated batch is reported at its first position, so it has no order among others
            # of the same age.
            if len(found) >= limit and order(each)[:2] != order(found[-1])[:2]:
                break
            if begin is None or order(each) > begin:
                found.append(each)
        return found

    def _places(self, replica: Replica, message: ListUndecided) -> Iterator[Position]:
        """Yield the positions of undecided batches, in the requested order."""
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
    """Return the sort key of an answer.

    It is two numbers that order the rows too, then the position.
    """
    if message.app_id:
        return lambda each: (each.transaction.sequence, each.transaction.attempt, *_place(each))
    return lambda each: (each.parked_ms, 0, *_place(each))


def _place(each: UndecidedBatch) -> tuple[int, int, int, int]:
    return each.topic_id, each.queue, each.offset, each.side
