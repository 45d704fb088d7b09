"""LISTDELAYED: the batches that wait for their due times in the queues that this broker leads."""

from __future__ import annotations

from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica import parked_rows
from logboom.nodes.replica.replica import Replica
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
from logboom.wire.parking import DelayedBatch, DelayedListed, ListDelayed

MAX_LISTED: Final = 1_000
"""Batches in one answer."""


class DelayedHandler(Service):
    """Serves LISTDELAYED."""

    def __init__(self, context: BrokerContext, requests: LongRequests) -> None:
        self._requests = requests
        self._acceptor = context.acceptor
        self._queues = context.queues

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of LISTDELAYED."""
        return {ListDelayed: self.tell}

    def tell(self, peer: PeerSession, message: ListDelayed, turn: BrokerTurn) -> None:
        """Return the delayed batches that the user may see, the next due first."""
        self._requests.serve(peer, message, self._listed(peer, message), LIST_BYTES, turn)

    def _listed(self, peer: PeerSession, message: ListDelayed) -> Parts:
        """Answer with the delayed batches of all queues.

        Raises:
            DataDamaged: the store cannot be read.
        """
        turn = yield 0
        limit = min(max(1, message.limit), MAX_LISTED)
        sight = self._acceptor.authorizer.sight(peer)
        next_due: list[DelayedBatch] = []
        units = 0
        for replica in [*self._queues.led.values()]:
            units += QUEUE_UNITS
            if (
                replica.parked.count > replica.parked.undecided
                and replica.leading is not None
                and message.topic in ("", replica.topic)
                and (sight is None or sight.topic(replica.topic))
            ):
                found = self._of(replica, message.after, limit + 1)
                next_due += found
                units += BATCH_UNITS * len(found)
            if len(next_due) > 4 * MAX_LISTED:
                next_due = sorted(next_due, key=_order)[: limit + 1]
            if units >= PART_UNITS:
                turn = yield units
                units = 0
        next_due.sort(key=_order)
        turn.answer(
            peer.address, DelayedListed(message.id, next_due[:limit], len(next_due) > limit)
        )

    def _of(self, replica: Replica, after: DelayedBatch | None, limit: int) -> list[DelayedBatch]:
        """Return at least the first `limit` batches of a queue after `after`."""
        found: list[DelayedBatch] = []
        since_ms = 0 if after is None else max(0, after.due_ms)
        place = (replica.topic, replica.topic_id, replica.queue)
        rows = parked_rows.delayed_from(self._queues.storage, replica.parked.ids, since_ms)
        for _, row in rows:
            each = DelayedBatch(*place, *row.first, row.due_ms, row.size)
            # A relocated batch is reported at its first position, so it has no order among others
            # that are due at the same time.
            if len(found) >= limit and each.due_ms != found[-1].due_ms:
                break
            if after is None or _order(each) > _order(after):
                found.append(each)
        return found


def _order(each: DelayedBatch) -> tuple[int, int, int, int, int]:
    return each.due_ms, each.topic_id, each.queue, each.offset, each.side
