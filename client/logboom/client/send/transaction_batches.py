"""The parked batches of one transaction, and their limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logboom.client.delays import Parking
from logboom.client.send.producer_batch import ProducerBatch
from logboom.wire.errors import InvalidRequest, LogboomError, TransactionError
from logboom.wire.parking import AT_ONCE
from logboom.wire.transactions import MAX_HANDLES, ParkedBatches, TransactionId

MAX_TRANSACTION_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of one transaction, counted like `buffer_bytes`."""
LINGER_S: Final = 0.01
LONG_LINGER_S: Final = 1.0
"""Linger of a transaction that has a tenth of the batches allowed."""


class TransactionBatches:
    """All batches that wait for one decision; the buffer adds each new one under its lock."""

    def __init__(self, transaction: TransactionId, limit: int = MAX_HANDLES) -> None:
        self.transaction = transaction
        self.limit = limit
        """Maximum number of batches; 0: any number."""
        self.sealed = False
        """True if it is decided or about to be: nothing more is accepted."""
        self.error: LogboomError | None = None
        """The reason why the transaction can only be aborted."""
        self._batches: list[tuple[int, ProducerBatch]] = []
        """(topic id, batch), in the order in which they were sent."""

    def admit(self, batch: ProducerBatch, topic_id: int) -> None:
        """Add a batch.

        Raises:
            TransactionError: TRANSACTION_CLOSED, after the decision.
            InvalidRequest: TOO_LARGE; or the message is delayed as well.
        """
        if self.sealed:
            raise ended(self.transaction.app_id)
        if batch.due_ms != AT_ONCE:
            text = "a message of a transaction waits for its decision: send it without a delay"
            raise InvalidRequest(text)
        if self.limit and len(self._batches) >= self.limit:
            text = (
                f"a transaction has at most {self.limit} batches: it is aborted; send less at once, "
                "or in larger batches (send_many)"
            )
            self.error = InvalidRequest(text, "TOO_LARGE", limit=self.limit)
            raise self.error
        batch.transaction = self.transaction
        if self.limit:
            self._batches.append((topic_id, batch))

    @property
    def linger_s(self) -> float:
        """Seconds for which a batch may fill.

        Nobody reads it before the commit, which does not wait for batches to fill, and few batches
        make a small decision.
        """
        return LINGER_S if len(self._batches) < self.limit // 10 else LONG_LINGER_S

    def __bool__(self) -> bool:
        return bool(self._batches)

    def check(self) -> None:
        """Check that everything is parked, once all batches are done; raise why something is not."""
        if self.error is not None:
            raise self.error
        for _, batch in self._batches:
            if batch.error is not None:
                raise batch.error

    def parked(self) -> Iterator[Parking]:
        """Yield where each batch is parked, in the order in which they were sent."""
        return (batch.parked for _, batch in self._batches if batch.parked is not None)

    def queues(self) -> list[ParkedBatches]:
        """Return all queues that may hold something, without positions, as an abort names them."""
        found = {(topic_id, batch.queue): None for topic_id, batch in self._batches}
        return [ParkedBatches(topic_id, queue, []) for topic_id, queue in sorted(found)]

    def names(self) -> dict[tuple[int, int], str]:
        """Return (topic id, queue) → topic of these queues."""
        return {(topic_id, batch.queue): batch.topic for topic_id, batch in self._batches}


def listed(parked: Iterator[Parking]) -> list[ParkedBatches]:
    """Group positions by queue, in their order, as a commit names them."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for each in parked:
        found.setdefault((each.topic_id, each.queue), []).append((each.offset, each.side))
    return [ParkedBatches(*queue, places) for queue, places in sorted(found.items())]


def ended(app_id: str) -> TransactionError:
    """Return the error of a send after the end."""
    text = f"this transaction of {app_id!r} has ended: begin another with producer.transaction()"
    return TransactionError(text, "TRANSACTION_CLOSED")
