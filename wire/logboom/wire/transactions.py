"""Transactions: what a decision says, who learns of it, and what a DECIDED entry holds.

A batch of a transaction is parked on the queue that it will enter (`logboom.wire.parking`), and
waits for one decision in the Raft log: COMMIT names the parked batches to release, all others of
the transaction are dropped (SAFETY T1). Queue leaders follow decisions by WATCH, carry them out in
the order of their numbers, and report once that lies below the HW (T3).

A half message is a transaction of one batch whose producer decides at the queue's leader alone; its
producer group is asked where it does not.

The body of a DECIDED entry, little endian:

| at | bytes | field    | type | meaning                                                |
|---:|------:|----------|------|--------------------------------------------------------|
|  0 |     8 | number   | u64  | of the decision: later decisions have greater ones     |
|  8 |     8 | sequence | i64  | of the transaction                                     |
| 16 |     8 | attempt  | i64  | that is aborted; of a commit: nothing                  |
| 24 |     1 | commit   | u8   | 1: the places below are released, in their order       |
| 25 |     1 |          |      | 0                                                      |
| 26 |     2 | length   | u16  | of the application id                                  |
| 28 |     4 | count    | u32  | of the places                                          |
| 32 |       | app id   |      | UTF-8                                                  |
|    |    12 | place    |      | offset u64, side u32: where it is parked now           |
"""

from __future__ import annotations

import struct
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from logboom.wire.base import Command, Name, Request, WireMessage
from logboom.wire.errors import InvalidRequest
from logboom.wire.validation import damaged

HALF: Final = -1
"""Instead of a sequence: the batch is a half message, and the name is its producer group's."""
MAX_APP_ID: Final = 255
"""Bytes of an application id or producer group in UTF-8."""
MADE_UP: Final = "%OWN%"
"""How application ids begin that a producer made up, for itself alone: nobody else ever names one, so
that what is kept of it ends a week after its last use."""
MAX_HANDLES: Final = 3_000
"""Parked batches that one decision can name: it is one command in the Raft log, of 60 KiB."""

_HEAD: Final = struct.Struct("<QqqBxHI")
_PLACE: Final = struct.Struct("<QI")

EntryPosition: TypeAlias = tuple[int, int]
"""Position (offset, side) in a queue's log."""


class TransactionId(Struct, frozen=True, array_like=True, gc=False):
    """Whose decision a parked batch waits for."""

    app_id: Name
    """Application id; of a half message its producer group."""
    sequence: int
    """Of the application: only the first commit of a sequence counts. `HALF`: a half message."""
    attempt: int
    """Tells tries of one sequence apart: an abort ends this attempt alone."""


def check_app_id(app_id: str) -> None:
    """Refuse an application id, or a producer group, that no entry could hold.

    Raises:
        InvalidRequest: it is empty, longer than 255 bytes, or holds a NUL.
    """
    size = len(app_id.encode("utf-8", "surrogatepass"))
    if not 0 < size <= MAX_APP_ID or "\0" in app_id or not app_id.isprintable():
        text = f"an application id has 1 to {MAX_APP_ID} printable bytes, not {app_id[:40]!r}"
        raise InvalidRequest(text)


# ── commands ────────────────────────────────────────────────────────────────────────────────────


class OpenApplication(Command, frozen=True, array_like=True, tag="opentransaction"):
    """A producer begins to work under an application id: who did before is fenced.

    Value: the producer epoch, and the greatest sequence that was committed (-1: none), as text.
    """

    app_id: str
    time_ms: int


class ParkedBatches(Struct, frozen=True, array_like=True, gc=False):
    """Parked batches of one queue."""

    topic_id: int
    queue: int
    places: list[EntryPosition]
    """Where each was parked first, in the order in which they are released."""


class ConsumedOffset(Struct, frozen=True, array_like=True, gc=False):
    """An offset that is committed with a transaction, as `group_commands.QueueCommit`."""

    topic_id: int
    queue: int
    owner_epoch: int
    offset: int
    seen_end: int


class TransactionOffsetCommit(Struct, frozen=True, array_like=True, gc=False):
    """Offsets of one group that are committed with a transaction, or the decision is refused."""

    group: str
    member: str
    """The member that has the queues; "": nobody may have them."""
    epoch: int
    offsets: list[ConsumedOffset]


class Decide(Command, frozen=True, array_like=True):
    """The decision on a transaction; the first commit of a sequence wins for ever (T1).

    It closes all lower sequences too: sequences only grow. An abort ends one attempt: what it has
    parked is dropped, and it cannot commit any more. Value: "commit" or "abort", whichever it is
    from now on; the number of the decision that the queues of this command wait for, "0": of none;
    "first" or "again". Of a commit again the number is that of the first one as long as queues carry
    it out, and these follow, each as "topic_id/queue".

    Codes: FENCED (an older producer epoch), TRANSACTION_ABORTED (a commit of an attempt that was
    aborted), UNKNOWN_TOPIC and UNKNOWN_QUEUE (of a commit), TOO_LARGE (more than `MAX_HANDLES`, or
    too many aborted attempts of one application), BUSY (too much waits to be carried out),
    INVALID_ARGUMENT, and those of commits of groups. What is refused changes nothing.
    """

    app_id: str
    epoch: int
    """Producer epoch from `OpenApplication`; -1: not fenced."""
    sequence: int
    attempt: int
    commit: bool
    parked: list[ParkedBatches]
    """Of an abort: queues that may hold something; the places say nothing."""
    consumed: list[TransactionOffsetCommit]
    time_ms: int


class AppliedDecision(Struct, frozen=True, array_like=True, gc=False):
    """A queue's leader has carried out decisions, up to this one."""

    number: int
    topic_id: int
    queue: int


class ReportDecided(Command, frozen=True, array_like=True):
    """Decisions carried out, below the HW; each lives until all its queues have reported (T3)."""

    broker: str
    instance_epoch: int
    done: list[AppliedDecision]


TransactionCommand: TypeAlias = OpenApplication | Decide | ReportDecided


# ── what brokers are told ───────────────────────────────────────────────────────────────────────


class DecisionView(Struct, frozen=True, array_like=True, gc=False):
    """A decision that not all queues have reported yet; part of a `View` for brokers."""

    number: int
    """Grows with every decision: queues carry them out in this order."""
    app_id: str
    sequence: int
    attempt: int
    commit: bool
    queues: list[ParkedBatches]
    """Queues that have not reported."""


# ── entries ─────────────────────────────────────────────────────────────────────────────────────


class DecidedBody(Struct, frozen=True, gc=False):
    """What a DECIDED entry holds."""

    number: int
    app_id: str
    sequence: int
    attempt: int
    commit: bool
    places: list[EntryPosition]


def encode_decided(decided: DecidedBody) -> bytes:
    """The body of a DECIDED entry."""
    app_id = decided.app_id.encode()
    head = _HEAD.pack(
        decided.number,
        decided.sequence,
        decided.attempt,
        decided.commit,
        len(app_id),
        len(decided.places),
    )
    return b"".join((head, app_id, *(_PLACE.pack(*place) for place in decided.places)))


def decided_body(body: bytes | memoryview) -> DecidedBody:
    """What `encode_decided` made.

    Raises:
        DamagedBatch: it is no such body.
    """
    if len(body) < _HEAD.size:
        raise damaged(f"a deciding entry of {len(body)} bytes", "fetch it again")
    number, sequence, attempt, commit, length, count = _HEAD.unpack_from(body)
    start = _HEAD.size + length
    if commit > 1 or len(body) != start + count * _PLACE.size:
        raise damaged(f"a deciding entry of {len(body)} bytes", "read it with a newer version")
    try:
        app_id = bytes(body[_HEAD.size : start]).decode()
    except UnicodeDecodeError as error:
        raise damaged(f"a deciding entry: {error}", "fetch it again") from None
    places = list(_PLACE.iter_unpack(body[start:]))
    return DecidedBody(number, app_id, sequence, attempt, bool(commit), places)


# ── messages ────────────────────────────────────────────────────────────────────────────────────


class AwaitDecided(Request, array_like=True):
    """Answered by Done once the queue's leader has carried out a decision, below the HW."""

    topic: Name
    queue: int
    number: int
    topic_id: int = 0
    """As in Produce."""


class CheckParked(Request, array_like=True):
    """Which of these places of a queue hold no batch of the transaction, below the HW?"""

    topic: Name
    queue: int
    transaction: TransactionId
    places: list[EntryPosition]
    topic_id: int = 0
    read_bytes: int = 0
    """Beyond 0: the batches of the first places are wanted too, until they have so many bytes."""


class ParkedChecked(WireMessage, array_like=True):
    """Answer to CheckParked: the places where nothing is parked for this transaction. The frames behind
    are the batches that were wanted: one at least, if the first place holds one."""

    unknown: list[EntryPosition]


class EndHalf(Request, array_like=True):
    """The producer's decision on a half message, to the queue's leader; the first one counts.

    Answered by HalfEnded once it is as safe as acks=all.
    """

    topic: Name
    queue: int
    offset: int
    side: int
    commit: bool
    topic_id: int = 0


class HalfEnded(WireMessage, array_like=True):
    """Answer to EndHalf."""

    outcome: Literal["committed", "aborted", "unknown"]
    """What became of it; unknown: it ended before, and longer ago than the log remembers."""


class CheckHalves(Request, array_like=True):
    """Held until half messages of a producer group want to be asked for at this broker."""

    producer_group: Name
    wait_ms: int


class UndecidedBatch(Struct, frozen=True, array_like=True, gc=False):
    """One parked batch that waits for a decision."""

    topic: str
    topic_id: int
    queue: int
    offset: int
    side: int
    transaction: TransactionId
    parked_ms: int
    """When it was parked, ms since 1970 by the leader's clock."""
    checks: int
    """How often its producer group was to be asked; beyond the limit a person decides."""
    count: int
    """Messages."""
    size: int
    """Bytes."""


class HalvesToCheck(WireMessage, array_like=True):
    """Answer to CheckHalves; the frames behind are the batches, in this order."""

    halves: list[UndecidedBatch]


class ListUndecided(Request, array_like=True, tag="listunended"):
    """All that waits for a decision in the queues led by this broker, oldest first; of one application
    in the order of sequences and attempts."""

    app_id: Name = ""
    """Only of this application id or producer group; "": of all."""
    limit: int = 1_000
    after: UndecidedBatch | None = None
    """Go on behind this one, the last of the answer before."""


class UndecidedListed(WireMessage, array_like=True, tag="unendedlisted"):
    """Answer to ListUnended."""

    parked: list[UndecidedBatch]
    more: bool


TransactionMessage: TypeAlias = (
    AwaitDecided
    | CheckParked
    | ParkedChecked
    | EndHalf
    | HalfEnded
    | CheckHalves
    | HalvesToCheck
    | ListUndecided
    | UndecidedListed
)
