"""Parked batches: what a PARKED and a RECALLED entry hold, and the request that recalls one.

A parked batch is replicated and invisible; it waits in the log of the queue that it will enter. The
body of a PARKED entry ends with the batch, whole, as its producer sent it:

| at | bytes | field    | type    | meaning                                                     |
|---:|------:|----------|---------|-------------------------------------------------------------|
|  0 |     1 | waits    | u8      | 1: until a time, 2: until a transaction is decided          |
|  1 |     1 | carried  | u8      | 1: it was parked before, and is carried to the log's end    |
|  2 |     6 | reserved |         | 0                                                           |
|  8 |     8 | due      | i64     | ms since 1970 UTC by the clock of the leader; of what waits |
|    |       |          |         | for a decision, when it was parked first                    |
| 16 |    12 | first    | u64 u32 | only if carried: position where it was parked first         |
| 28 |    12 | last     | u64 u32 | only if carried: position that this entry takes the place of |
|    |    18 | whose    | i64 i64 | only if waits is 2: sequence, attempt, and the bytes of the |
|    |       |          | u16     | application id, which stands behind in UTF-8                |
|    |       | batch    |         | 96 bytes of heads (the stamped one empty), body             |

The body of a RECALLED entry is the position of the parked one: offset u64, side u32. All little
endian.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from logboom.wire.base import Name, Request, WireMessage
from logboom.wire.errors import InvalidRequest
from logboom.wire.head import RELEASED_FROM, BatchHead, peek
from logboom.wire.transactions import TransactionId
from logboom.wire.validation import damaged

MAX_DELAY_MS: Final = 40 * 24 * 60 * 60 * 1000
"""The longest delay: 40 days."""
CLOCKS_APART_MS: Final = 60_000
"""Tolerance of due times beyond the longest delay: clocks of two machines differ."""
AT_ONCE: Final = -1
"""The due time of a batch that is not delayed."""
UNTIL_A_TIME: Final = 1
UNTIL_DECIDED: Final = 2

_BODY: Final = struct.Struct("<BB6xq")
_CARRIED: Final = struct.Struct("<QIQI")
_WHOSE: Final = struct.Struct("<qqH")

EntryPosition: TypeAlias = tuple[int, int]
"""Position (offset, side) in a queue's log."""


class ParkedBody(NamedTuple):
    """The content of a PARKED entry."""

    due_ms: int
    """Due time; for a batch that waits for a decision, the time at which it was first parked."""
    batch: memoryview
    carried: tuple[EntryPosition, EntryPosition] | None
    """(position where it was first parked, position where it was last parked); None if this is the
    first."""
    transaction: TransactionId | None = None
    """The transaction whose decision it waits for; None: it waits until `due_ms`."""


def encode_parked(
    batch: bytes | memoryview,
    due_ms: int,
    carried: tuple[EntryPosition, EntryPosition] | None = None,
    transaction: TransactionId | None = None,
) -> bytes:
    """Encode the body of a PARKED entry.

    Args:
        batch: A checked batch, as its producer sent it.
        due_ms: Milliseconds since 1970, not negative.
        carried: As `ParkedBody.carried`.
        transaction: As `ParkedBody.transaction`.
    """
    places = b"" if carried is None else _CARRIED.pack(*carried[0], *carried[1])
    waits, whose = UNTIL_A_TIME, b""
    if transaction is not None:
        waits, app_id = UNTIL_DECIDED, transaction.app_id.encode()
        whose = _WHOSE.pack(transaction.sequence, transaction.attempt, len(app_id)) + app_id
    return b"".join((_BODY.pack(waits, carried is not None, due_ms), places, whose, batch))


def parked_body(body: bytes | memoryview) -> ParkedBody:
    """Decode the body of a PARKED entry; the entry's checksum covers the batch.

    Raises:
        DamagedBatch: The body is not valid, or of a later version.
    """
    if len(body) <= _BODY.size:
        raise damaged(f"a parked entry of {len(body)} bytes", "fetch it again")
    waits, carried, due_ms = _BODY.unpack_from(body)
    if waits not in (UNTIL_A_TIME, UNTIL_DECIDED) or carried > 1 or due_ms < 0:
        raise damaged(f"a parked entry that waits for {waits}", "read it with a newer version")
    at, places, transaction = _BODY.size, None, None
    try:
        if carried:
            numbers = _CARRIED.unpack_from(body, at)
            places = (numbers[:2], numbers[2:])
            at += _CARRIED.size
        if waits == UNTIL_DECIDED:
            transaction, at = _whose(body, at)
    except (struct.error, UnicodeDecodeError) as error:
        raise damaged(f"a parked entry of {len(body)} bytes: {error}", "fetch it again") from None
    if len(body) <= at:
        raise damaged(f"a parked entry of {len(body)} bytes", "fetch it again")
    return ParkedBody(due_ms, memoryview(body)[at:], places, transaction)


def _whose(body: bytes | memoryview, at: int) -> tuple[TransactionId, int]:
    sequence, attempt, length = _WHOSE.unpack_from(body, at)
    at += _WHOSE.size
    app_id = bytes(body[at : at + length]).decode()
    return TransactionId(app_id, sequence, attempt), at + length


def parked_head(body: bytes | memoryview) -> BatchHead | None:
    """Return the head of the batch in a PARKED entry; None if it was parked before.

    Raises:
        DamagedBatch: The body is not valid.
    """
    parked = parked_body(body)
    return peek(parked.batch) if parked.carried is None else None


def encode_recalled(offset: int, side: int) -> bytes:
    """Encode the body of a RECALLED entry for the batch parked at (offset, side)."""
    return RELEASED_FROM.pack(offset, side)


def recalled_body(body: bytes | memoryview) -> tuple[int, int]:
    """Return the position (offset, side) of the recalled entry.

    Raises:
        DamagedBatch: The body is not valid.
    """
    if len(body) != RELEASED_FROM.size:
        raise damaged(f"a recalling entry of {len(body)} bytes", "fetch it again")
    offset, side = RELEASED_FROM.unpack(body)
    return offset, side


def check_due(due_ms: int, wall_ms: int) -> None:
    """Refuse a due time that cannot be intended.

    A time in the past is valid, and the batch is released at once: a send that is retried for long
    arrives after its time.

    Raises:
        InvalidRequest: The delay is too long; the field `max_delay_ms` is the limit.
    """
    if due_ms < 0:
        text = f"a due time of {due_ms} ms since 1970: give a time from now on"
        raise InvalidRequest(text, max_delay_ms=MAX_DELAY_MS)
    if due_ms - wall_ms > MAX_DELAY_MS + CLOCKS_APART_MS:
        text = (
            f"a delay of {(due_ms - wall_ms) / 86_400_000:.1f} days; at most "
            f"{MAX_DELAY_MS // 86_400_000} are accepted: send it later, or compare the clocks"
        )
        raise InvalidRequest(text, max_delay_ms=MAX_DELAY_MS)


class Recall(Request, array_like=True):
    """Recall the batch that is parked at (offset, side), before it is released.

    Sent to the queue's leader; answered once the recall is as safe as acks=all.
    """

    topic: Name
    queue: int
    offset: int
    side: int
    topic_id: int = 0
    """As in Produce."""


class Recalled(WireMessage, array_like=True):
    """Answer to Recall. `done`: the batch will never be delivered; else it was released before."""

    done: bool


class DelayedBatch(Struct, frozen=True, array_like=True, gc=False):
    """A parked batch that waits until a time."""

    topic: str
    topic_id: int
    queue: int
    offset: int
    """Position at which it was first parked, together with `side`, by which it is recalled."""
    side: int
    due_ms: int
    """Due time in ms since 1970 UTC by the leader's clock."""
    size: int
    """Size in bytes."""


class ListDelayed(Request, array_like=True):
    """List the delayed batches in the queues led by this broker, the next due first."""

    topic: Name = ""
    """Only those of this topic; "": of all."""
    limit: int = 1_000
    after: DelayedBatch | None = None
    """Continue after this one, the last of the previous answer."""


class DelayedListed(WireMessage, array_like=True):
    """Answer to ListDelayed."""

    delayed: list[DelayedBatch]
    more: bool


ParkingMessage = Recall | Recalled | ListDelayed | DelayedListed
