"""The low-level pair: batches are parked here and decided on elsewhere, as in a Spark job's driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from logboom.client.argument_checks import BytesLike
from logboom.client.send.producer_batch import ProducerBatch
from logboom.client.send.send_buffer import SendBuffer
from logboom.client.send.transaction_batches import TransactionBatches
from logboom.client.transactions.applications import MAX_SEQUENCE
from logboom.client.transactions.decisions import ParkedHandle
from logboom.wire.batch import encode_batch
from logboom.wire.columns import Columns
from logboom.wire.errors import InternalError, InvalidRequest
from logboom.wire.messages import MAX_BATCH_BYTES
from logboom.wire.transactions import TransactionId, check_app_id
from logboom.wire.validation import validate_batch

Payload: TypeAlias = BytesLike | Columns | Sequence[bytes | None]
"""An encoded batch, the columns of one, or values alone."""
ToPark: TypeAlias = tuple[str, int, Payload]
"""(topic, queue, messages)."""
MAX_ATTEMPT: Final = (1 << 63) - 1


def parks_of(app_id: str, attempt: int, sequence: int) -> TransactionBatches:
    """Create the transaction that batches are parked for.

    Raises:
        InvalidRequest: the application id, the attempt or the sequence is invalid.
    """
    check_app_id(app_id)
    for name, given, most in (
        ("attempt", attempt, MAX_ATTEMPT),
        ("sequence", sequence, MAX_SEQUENCE),
    ):
        if type(given) is not int or not 0 <= given <= most:
            raise InvalidRequest(
                f"{name} must be a whole number of 63 bits from 0 on, not {given!r}"
            )
    return TransactionBatches(TransactionId(app_id, sequence, attempt), limit=0)


def encoded(payload: Payload, wall_ms: int) -> tuple[bytes, int]:
    """Encode a batch; return it with its number of messages.

    Raises:
        DamagedBatch: the encoded batch is invalid, or does not come fresh from a producer.
        InvalidRequest: values have a wrong type; TOO_LARGE.
    """
    if isinstance(payload, Columns):
        _, keys, values, tags, headers, _ = zip(*payload.iter_rows(), strict=True)
        batch = encode_batch(values, keys, tags, headers, payload.timestamps(), now_ms=wall_ms)
        count = len(payload)
    elif isinstance(payload, bytes | bytearray | memoryview):
        batch = bytes(payload)
        count = validate_batch(batch, stamped=False).count
    else:
        batch, count = encode_batch(payload, now_ms=wall_ms), len(payload)
    if len(batch) > MAX_BATCH_BYTES:
        text = f"a batch of {len(batch)} bytes; at most {MAX_BATCH_BYTES} are accepted: split it"
        raise InvalidRequest(text, "TOO_LARGE", limit=MAX_BATCH_BYTES)
    return batch, count


def send_all(
    buffer: SendBuffer[Any], batches: Iterable[ToPark], parks: TransactionBatches, wall_ms: int
) -> list[ProducerBatch]:
    """Put batches on their queues."""
    sent = []
    for topic, queue, payload in batches:
        batch, count = encoded(payload, wall_ms)
        sent.append(buffer.send_batch(topic, queue, batch, count, parks))
    return sent


def handle_of(sent: ProducerBatch) -> ParkedHandle:
    """Return the handle of a batch that was acknowledged.

    Raises:
        LogboomError: why it is not parked.
    """
    sent.get()
    parked, whose = sent.parked, sent.transaction
    if parked is None or whose is None:
        raise InternalError("a batch was stored but not parked: please report it")
    return ParkedHandle(
        whose.app_id,
        whose.sequence,
        whose.attempt,
        parked.topic,
        parked.topic_id,
        parked.queue,
        parked.offset,
        parked.side,
        sent.count,
    )
