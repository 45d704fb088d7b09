"""Transactions: decisions, the messages about them, and the content of a DECIDED entry.

A batch of a transaction is parked on the queue that it will enter (`logboom.wire.parking`), and
waits for one decision in the Raft log. COMMIT names the parked batches to release; all others of
the transaction are dropped (see docs/SAFETY.md, T1). Queue leaders follow decisions by WATCH, carry
them out in the order of their numbers, and report this once it is committed (T3).

A half message is a transaction of one batch whose producer decides at the queue's leader alone. If
the producer does not decide, its producer group is asked.

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

import hashlib
import struct
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from logboom.wire.base import Command, Name, Request, WireMessage
from logboom.wire.errors import InvalidRequest
from logboom.wire.validation import damaged

HALF: Final = -1
"""In place of a sequence: the batch is a half message, and the name is its producer group's."""
MAX_APP_ID: Final = 255
"""Maximum length of an application id or producer group in UTF-8, in bytes."""
NOT_FENCED: Final = -1
"""Epoch of a decision that no newer owner of the application makes invalid."""
MADE_UP: Final = "%OWN%"
"""Prefix of application ids that a producer invented for itself alone. No other process ever uses
one, so that its state is dropped a week after its last use."""
_SHOWN: Final = len(MADE_UP) + len("spark-write-")
"""Characters of an invented id that are no secret: at least 20 random ones follow."""
MAX_HANDLES: Final = 3_000
"""Parked batches that one decision can name: it is one command in the Raft log, of 60 KiB."""

_HEAD: Final = struct.Struct("<QqqBxHI")
_PLACE: Final = struct.Struct("<QI")

EntryPosition: TypeAlias = tuple[int, int]
"""Position (offset, side) in a queue's log."""


class TransactionId(Struct, frozen=True, array_like=True, gc=False):
    """The transaction whose decision a parked batch waits for."""

    app_id: Name
    """Application id, or the producer group of a half message."""
    sequence: int
    """Sequence within the application: only the first commit of a sequence counts. `HALF`: a half
    message."""
    attempt: int
    """Distinguishes the attempts of one sequence: an abort ends this attempt alone."""


def check_app_id(app_id: str) -> None:
    """Refuse an application id, or a producer group, that does not fit into an entry.

    Raises:
        InvalidRequest: It is empty, longer than 255 bytes, or contains a NUL.
    """
    size = len(app_id.encode("utf-8", "surrogatepass"))
    if not 0 < size <= MAX_APP_ID or "\0" in app_id or not app_id.isprintable():
        text = f"an application id has 1 to {MAX_APP_ID} printable bytes, not {app_id[:40]!r}"
        raise InvalidRequest(text)


def hide_made_up(app_id: str) -> str:
    """Return an application id that a producer invented as it is shown to those who may not use it.

    What tells the kind of program is kept.
    """
    digest = hashlib.blake2b(app_id.encode(), digest_size=4).hexdigest()
    return f"{app_id[:_SHOWN]}~{digest}"


# ── commands ────────────────────────────────────────────────────────────────────────────────────


class OpenApplication(Command, frozen=True, array_like=True, tag="opentransaction"):
    """Open an application id for a producer, which fences its former producer.

    Value: the producer epoch, and the greatest committed sequence (-1: none), as text.

    Codes: APPLICATION_TAKEN (the id has another owner), INVALID_ARGUMENT. What is refused changes
    nothing.
    """

    app_id: str
    time_ms: int
    owner: str = ""
    """Who numbers the sequences, such as a query of Spark; the first one named owns the id for good.
    "": whoever opens it, as a producer that takes the next sequence."""
    replaces: str = ""
    """The owner that `owner` takes the place of."""


class ParkedBatches(Struct, frozen=True, array_like=True, gc=False):
    """Parked batches of one queue."""

    topic_id: int
    queue: int
    places: list[EntryPosition]
    """Position at which each was first parked, in the order of release."""


class ConsumedOffset(Struct, frozen=True, array_like=True, gc=False):
    """An offset that is committed with a transaction, as `group_commands.QueueCommit`."""

    topic_id: int
    queue: int
    owner_epoch: int
    offset: int
    seen_end: int


class TransactionOffsetCommit(Struct, frozen=True, array_like=True, gc=False):
    """Offsets of one group to commit with a transaction, or to refuse along with it."""

    group: str
    member: str
    """The member that owns the queues; "": they must have no owner."""
    epoch: int
    offsets: list[ConsumedOffset]


class Decide(Command, frozen=True, array_like=True):
    """The decision on a transaction; the first commit of a sequence is permanent.

    It also closes all lower sequences, because sequences only grow. An abort ends one attempt: its
    parked batches are dropped, and it can no longer commit. Value: "commit" or "abort", whichever
    now holds; the number of the decision that the queues of this command wait for, "0" if none;
    "first" or "again". For a repeated commit the number is that of the first one as long as queues
    carry it out, and these queues follow, each as "topic_id/queue".

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
    """For an abort: queues that may contain batches; their positions are ignored."""
    consumed: list[TransactionOffsetCommit]
    time_ms: int


class AppliedDecision(Struct, frozen=True, array_like=True, gc=False):
    """The number up to which a queue's leader has carried out decisions."""

    number: int
    topic_id: int
    queue: int


class ReportDecided(Command, frozen=True, array_like=True):
    """Report decisions as carried out and committed; each lives until all queues have reported."""

    broker: str
    instance_epoch: int
    done: list[AppliedDecision]


TransactionCommand: TypeAlias = OpenApplication | Decide | ReportDecided


# ── what brokers are told ───────────────────────────────────────────────────────────────────────


class DecisionView(Struct, frozen=True, array_like=True, gc=False):
    """A decision that not all queues have reported yet; part of a `View` for brokers."""

    number: int
    """Grows with every decision: queues carry decisions out in this order."""
    app_id: str
    sequence: int
    attempt: int
    commit: bool
    queues: list[ParkedBatches]
    """Queues that have not reported."""


# ── entries ─────────────────────────────────────────────────────────────────────────────────────


class DecidedBody(Struct, frozen=True, gc=False):
    """The content of a DECIDED entry."""

    number: int
    app_id: str
    sequence: int
    attempt: int
    commit: bool
    places: list[EntryPosition]


def encode_decided(decided: DecidedBody) -> bytes:
    """Encode the body of a DECIDED entry."""
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
    """Decode the body of a DECIDED entry.

    Raises:
        DamagedBatch: The body is not valid.
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
    """Wait until the queue's leader has carried out a decision and committed it; answered by Ok."""

    topic: Name
    queue: int
    number: int
    topic_id: int = 0
    """As in Produce."""


MAX_CHECKED: Final = 10_000
"""Maximum positions in a CheckParked; those beyond `MAX_HANDLES` are not looked at."""


class CheckParked(Request, array_like=True):
    """Find the positions of a queue that hold no committed batch of the transaction."""

    FRAME_BYTES: ClassVar[int] = 256 * 1024

    topic: Name
    queue: int
    transaction: TransactionId
    places: Annotated[list[EntryPosition], Meta(max_length=MAX_CHECKED)]
    topic_id: int = 0
    read_bytes: int = 0
    """Above 0: return the batches of the first positions, too, up to about as many bytes."""


class ParkedChecked(WireMessage, array_like=True):
    """Answer to CheckParked: the positions where nothing is parked for this transaction.

    The following frames are the requested batches: at least one, if the first position holds one.
    """

    unknown: list[EntryPosition]


class EndHalf(Request, array_like=True):
    """The producer's decision on a half message, for the queue's leader; the first one counts.

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
    """The result; unknown: it was decided earlier than the log remembers."""


class CheckHalves(Request, array_like=True):
    """Wait until this broker has half messages to check with a producer group."""

    producer_group: Name
    wait_ms: int


class UndecidedBatch(Struct, frozen=True, array_like=True, gc=False):
    """A parked batch that waits for a decision."""

    topic: str
    topic_id: int
    queue: int
    offset: int
    side: int
    transaction: TransactionId
    parked_ms: int
    """Time at which it was parked, in ms since 1970 by the leader's clock."""
    checks: int
    """Number of checks with its producer group; beyond the limit an operator decides."""
    count: int
    """Number of messages."""
    size: int
    """Size in bytes."""


class HalvesToCheck(WireMessage, array_like=True):
    """Answer to CheckHalves; the following frames are the batches, in this order."""

    halves: list[UndecidedBatch]


class ListUndecided(Request, array_like=True, tag="listunended"):
    """List the undecided batches in the queues led by this broker, oldest first.

    Those of one application are in the order of sequences and attempts.
    """

    app_id: Name = ""
    """Only those of this application id or producer group; "": all."""
    limit: int = 1_000
    after: UndecidedBatch | None = None
    """Continue after this one, the last of the previous answer."""


class UndecidedListed(WireMessage, array_like=True, tag="unendedlisted"):
    """Answer to ListUndecided."""

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
