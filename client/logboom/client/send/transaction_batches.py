"""What one transaction has parked: its piles, and how many it may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logboom.client.delays import Parking
from logboom.client.send.producer_batch import ProducerBatch
from logboom.wire.errors import InvalidRequest, LogboomError, TransactionError
from logboom.wire.parking import AT_ONCE
from logboom.wire.transactions import MAX_HANDLES, ParkedBatches, TransactionId

MAX_TRANSACTION_BYTES: Final = 256 * 1024 * 1024
"""What one transaction of a producer may hold, counted as `buffer_bytes` are."""
LINGER_S: Final = 0.01
LONG_LINGER_S: Final = 1.0
"""Of a transaction that has a tenth of the batches that it may have."""


class TransactionBatches:
    """All piles that wait for one decision; the buffer asks, under its lock, for each new one."""

    def __init__(self, transaction: TransactionId, limit: int = MAX_HANDLES) -> None:
        self.transaction = transaction
        self.limit = limit
        """Batches that it may have; 0: any number."""
        self.sealed = False
        """It was decided, or is about to be: nothing more may come."""
        self.error: LogboomError | None = None
        """Why it can only be aborted."""
        self._piles: list[tuple[int, ProducerBatch]] = []
        """(topic id, pile), in the order of the sends."""

    def admit(self, pile: ProducerBatch, topic_id: int) -> None:
        """One more pile.

        Raises:
            TransactionError: TRANSACTION_CLOSED, after the decision.
            InvalidRequest: TOO_LARGE; or a message that also waits for a time.
        """
        if self.sealed:
            raise ended(self.transaction.app_id)
        if pile.due_ms != AT_ONCE:
            text = "a message of a transaction waits for its decision: send it without a delay"
            raise InvalidRequest(text)
        if self.limit and len(self._piles) >= self.limit:
            text = (
                f"a transaction has at most {self.limit} batches: it is aborted; send less at once, "
                "or in larger batches (send_many)"
            )
            self.error = InvalidRequest(text, "TOO_LARGE", limit=self.limit)
            raise self.error
        pile.transaction = self.transaction
        if self.limit:
            self._piles.append((topic_id, pile))

    @property
    def linger_s(self) -> float:
        """Seconds that a batch may fill: nobody reads it before the commit, which waits for no batch
        to fill; and few batches make a small decision."""
        return LINGER_S if len(self._piles) < self.limit // 10 else LONG_LINGER_S

    def __bool__(self) -> bool:
        return bool(self._piles)

    def check(self) -> None:
        """Raises why not everything is parked, once all piles are done."""
        if self.error is not None:
            raise self.error
        for _, pile in self._piles:
            if pile.error is not None:
                raise pile.error

    def parked(self) -> Iterator[Parking]:
        """Where each batch is parked, in the order of the sends."""
        return (pile.parked for _, pile in self._piles if pile.parked is not None)

    def queues(self) -> list[ParkedBatches]:
        """All queues that may hold something, without places: what an abort names."""
        found = {(topic_id, pile.queue): None for topic_id, pile in self._piles}
        return [ParkedBatches(topic_id, queue, []) for topic_id, queue in sorted(found)]

    def names(self) -> dict[tuple[int, int], str]:
        """Topics of these queues by (topic id, queue)."""
        return {(topic_id, pile.queue): pile.topic for topic_id, pile in self._piles}


def listed(parked: Iterator[Parking]) -> list[ParkedBatches]:
    """Places by queue, in their order: what a commit names."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for each in parked:
        found.setdefault((each.topic_id, each.queue), []).append((each.offset, each.side))
    return [ParkedBatches(*queue, places) for queue, places in sorted(found.items())]


def ended(app_id: str) -> TransactionError:
    """The error of a send after the end."""
    text = f"this transaction of {app_id!r} has ended: begin another with producer.transaction()"
    return TransactionError(text, "TRANSACTION_CLOSED")
