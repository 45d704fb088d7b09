"""Half messages (RocketMQ's transactional messages), as far as threads and asyncio share them.

A half message is parked. Its producer runs a local transaction, and then commits or rolls back the
message. If the outcome stays unknown, the brokers ask the `check` function of the producer group.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from logboom.client.argument_checks import BytesLike
from logboom.client.calls import Answer, AskLeader
from logboom.client.delays import Parking
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import Flow
from logboom.client.results import Message, SendResult
from logboom.client.send.transaction_batches import TransactionBatches
from logboom.wire.base import WireMessage
from logboom.wire.columns import Columns
from logboom.wire.errors import InternalError, InvalidRequest, TransactionError
from logboom.wire.frames import Frame
from logboom.wire.transactions import (
    HALF,
    EndHalf,
    HalfEnded,
    TransactionId,
    UndecidedBatch,
    check_app_id,
)
from logboom.wire.validation import validate_batch

NO_OFFSET: Final = -1
"""A half message has no offset yet."""

HalfOutcome: TypeAlias = Literal["committed", "aborted", "unknown"]


class Resolution(StrEnum):
    """The outcome of a local transaction, in RocketMQ's words."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """Not known yet: the brokers ask again later."""


class HalfSendResult(Struct, frozen=True, gc=False):
    """The result of sending one half message."""

    topic: str
    queue: int
    resolution: Resolution
    """What the local transaction returned."""
    outcome: HalfOutcome
    """The outcome of the message; unknown: a check or a person decides later."""
    parked: Parking


def resolution_of(said: object, whose: str) -> Resolution:
    """Convert the result of `local` or `check`.

    Raises:
        InvalidRequest: it is none of the three words.
    """
    for each in Resolution:
        if said == each:
            return each
    words = ", ".join(f'"{each}"' for each in Resolution)
    raise InvalidRequest(f"{whose} must return one of {words}, not {said!r}")


def end_half(parked: Parking, *, commit: bool, timeout: float) -> Flow[HalfOutcome]:
    """Decide on one half message at its queue's leader; the first decision counts and is returned.

    Raises:
        TimedOut: the leader did not answer.
    """

    def message(left: int) -> WireMessage:
        place = (parked.topic, parked.queue, parked.offset, parked.side)
        return EndHalf(0, left, *place, commit, parked.topic_id)

    answer: Answer = yield AskLeader(parked.topic, parked.queue, message, timeout)
    if not isinstance(answer[0], HalfEnded):
        raise unexpected(answer[0])
    return answer[0].outcome


def check_outcome(resolution: Resolution, outcome: HalfOutcome, parked: Parking) -> None:
    """Check that no other decision came first, such as that of a check.

    Raises:
        TransactionError: one did.
    """
    wanted = "committed" if resolution is Resolution.COMMIT else "aborted"
    if outcome not in (wanted, "unknown"):
        text = (
            f"the half message in {parked.topic}/{parked.queue} was {outcome} before, though its "
            f"local transaction says {resolution}: its check function said otherwise, or a person"
        )
        raise TransactionError(text, "TRANSACTION_CLOSED")


def half_message(half: UndecidedBatch, batch: Frame) -> Message:
    """Return the message of a half that has to be checked; it has no offset yet."""
    columns = Columns(validate_batch(batch, stamped=False), bytes(batch))
    _, key, value, tag, headers, time_ms = next(columns.iter_rows())
    return Message(half.topic, half.queue, NO_OFFSET, key, value, tag, headers, time_ms)


def place_of_half(half: UndecidedBatch) -> Parking:
    """Return where a half message is parked."""
    return Parking(half.topic, half.queue, half.offset, half.side, NO_OFFSET, half.topic_id)


def half_parks(group: str) -> TransactionBatches:
    """Create the transaction that a producer group's half messages are parked for.

    Raises:
        InvalidRequest: the name of the group is invalid.
    """
    check_app_id(group)
    return TransactionBatches(TransactionId(group, HALF, 0), limit=0)


def message_of(
    sent: SendResult,
    value: BytesLike | None,
    key: BytesLike | None,
    tag: str | None,
    headers: Mapping[str, bytes] | None,
) -> Message:
    """Return the message that a local transaction is called with."""
    copied = None if headers is None else dict(headers)
    kept = None if value is None else bytes(value)
    name = None if key is None else bytes(key)
    place = (sent.topic, sent.queue, NO_OFFSET)
    return Message(*place, name, kept, tag, copied, sent.timestamp_ms)


def parked_of(sent: SendResult) -> Parking:
    """Return where a half message is parked."""
    if sent.parked is None:
        raise InternalError("a half message was stored but not parked: please report it")
    return sent.parked
