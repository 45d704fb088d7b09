"""Checks of PRODUCE in a transaction: refuses batches that could never be published."""

from __future__ import annotations

from typing import Final

from logboom.nodes.log.storage import Storage
from logboom.nodes.replica import decision_rows as rows
from logboom.nodes.replica.replica import Replica
from logboom.wire.errors import InvalidRequest, TransactionError
from logboom.wire.messages import Produce
from logboom.wire.parking import AT_ONCE
from logboom.wire.transactions import HALF, TransactionId, check_app_id

_GREATEST: Final = (1 << 63) - 1


def check_transaction(transaction: TransactionId, message: Produce) -> None:
    """Check that the transaction is valid, and that the batch asks for full replication.

    Raises:
        InvalidRequest: it is not.
    """
    check_app_id(transaction.app_id)
    if message.acks != "all":
        text = f"a batch of a transaction needs acks=all, not {message.acks}"
        raise InvalidRequest(text)
    if message.due_ms != AT_ONCE:
        raise InvalidRequest("a batch can wait for a time or for a transaction, not for both")
    good = HALF <= transaction.sequence < _GREATEST and 0 <= transaction.attempt < _GREATEST
    if not good:
        numbers = f"sequence {transaction.sequence}, attempt {transaction.attempt}"
        raise InvalidRequest(f"{numbers}: each must be from 0 to 2^63 - 2")


def check_open(storage: Storage, replica: Replica, transaction: TransactionId) -> None:
    """Refuse a batch of a transaction that this queue knows to be decided (T1).

    The batch of any other one becomes an orphan.

    Raises:
        TransactionError: TRANSACTION_CLOSED or TRANSACTION_ABORTED.
        DataDamaged: the store cannot be read.
    """
    if transaction.sequence == HALF:
        return
    known = rows.closed(storage, replica.parked.ids, transaction.app_id)
    if transaction.sequence <= known.committed:
        text = (
            f"sequence {transaction.sequence} of {transaction.app_id!r} is too late: "
            f"{known.committed} was committed; go on with {known.committed + 1}"
        )
        raise TransactionError(text, "TRANSACTION_CLOSED", committed=known.committed)
    if (transaction.sequence, transaction.attempt) in known.aborted:
        text = f"this attempt at sequence {transaction.sequence} of {transaction.app_id!r}"
        raise TransactionError(f"{text} was aborted: begin it again")
