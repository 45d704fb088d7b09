"""The rows of family `parked` for batches that wait for the decision on a transaction.

After (topic id, queue):

| key                              | value                                                         |
|----------------------------------|---------------------------------------------------------------|
| `t`, application id, NUL, sequence, | nothing: what waits, by whose decision it waits for        |
| attempt, offset u64, side u32    |                                                               |
| `a`, ms u64, offset u64, side u32 | whose: what waits for a transaction, by when it was parked   |
| `h`, ms u64, offset u64, side u32 | whose: the same of half messages                             |
| `x`, application id              | the greatest sequence that was committed here i64, and the    |
|                                  | last attempts that were aborted, each sequence i64, attempt i64 |
| `n`                              | how many batches wait for a decision u64; number of the last  |
|                                  | decision executed u64; of one that is not yet complete its    |
|                                  | number u64, the position of its entry (u64, u32), and the     |
|                                  | positions still to be released (u64, u32)                     |

Sequences and attempts in keys are shifted so that byte order is their order. Whose: sequence i64,
attempt i64, messages u32, application id. `x` only saves work on batches that can never be
committed: the name servers refuse them in any case, and what was parked then ends as an orphan.
Neither `x` nor `n` therefore has to survive a log that starts again: executing a decision twice
does nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from logboom.nodes.log.keys import LAST_SIDE, Position, queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.wire.transactions import HALF, DecidedBody, TransactionId

ABORTED_KEPT: Final = 16
"""Aborted attempts remembered per application."""

Ids: TypeAlias = tuple[int, int]
"""(topic id, queue)."""

_WAITS: Final = struct.Struct(">qqI")
_AGE: Final = struct.Struct(">QQI")
_FIRST: Final = Position(0)
_MINE: Final = struct.Struct(">QQQI")
_SHIFT: Final = 1 << 63
_NUMBERS: Final = struct.Struct(">QQ")
_OPEN: Final = struct.Struct(">QQI")
_PLACE: Final = struct.Struct(">QI")
_SEQUENCE: Final = struct.Struct(">q")
_PAIR: Final = struct.Struct(">qq")
_PREFIX: Final = 9
"""Bytes of topic id, queue and letter."""
_BEHIND: Final = Position((1 << 64) - 1, LAST_SIDE)
"""Greater than every position of a log."""


class DecisionWait(NamedTuple):
    """The decision that a parked batch waits for."""

    transaction: TransactionId
    messages: int
    """Messages in the batch."""

    @property
    def is_half(self) -> bool:
        """True if it is a half message."""
        return self.transaction.sequence == HALF


class OpenRelease(NamedTuple):
    """A release whose DECIDED entry is committed, but not all of its batches."""

    number: int
    """Number of the decision."""
    at: Position
    """Position of its DECIDED entry, past which readers see nothing."""
    left: tuple[Position, ...]
    """Batches still to be released, in this order."""


class DecisionProgress(NamedTuple):
    """The progress of a queue with decisions, up to the HW."""

    undecided: int = 0
    """Batches that wait for a decision."""
    done: int = 0
    """Number of the last decision that was executed."""
    release: OpenRelease | None = None
    """The release that is not yet complete."""


class ClosedSequences(NamedTuple):
    """A queue's record of an application's ended transactions."""

    committed: int = -1
    """The greatest sequence committed here."""
    aborted: tuple[tuple[int, int], ...] = ()
    """The last attempts aborted here: (sequence, attempt), later than `committed`."""


# ── what waits ──────────────────────────────────────────────────────────────────────────────────


def pack_waits(waits: DecisionWait) -> bytes:
    """Encode a wait."""
    whose = waits.transaction
    return _WAITS.pack(whose.sequence, whose.attempt, waits.messages) + whose.app_id.encode()


def unpack_waits(stored: bytes) -> DecisionWait:
    """Decode a wait."""
    sequence, attempt, messages = _WAITS.unpack_from(stored)
    app_id = stored[_WAITS.size :].decode()
    return DecisionWait(TransactionId(app_id, sequence, attempt), messages)


def _of_app(ids: Ids, app_id: str) -> bytes:
    return queue_key(*ids, b"t" + app_id.encode() + b"\0")


def _mine_key(ids: Ids, transaction: TransactionId, at: Position) -> bytes:
    sequence, attempt = transaction.sequence + _SHIFT, transaction.attempt + _SHIFT
    return _of_app(ids, transaction.app_id) + _MINE.pack(sequence, attempt, *at)


def _age_key(ids: Ids, half: bool, parked_ms: int, at: Position) -> bytes:
    return queue_key(*ids, (b"h" if half else b"a") + _AGE.pack(parked_ms, *at))


def put_waiting(
    writes: WriteSet, ids: Ids, at: Position, parked_ms: int, waits: DecisionWait
) -> None:
    """Stage that a batch waits for a decision."""
    writes.put("parked", _mine_key(ids, waits.transaction, at), b"")
    writes.put("parked", _age_key(ids, waits.is_half, parked_ms, at), pack_waits(waits))


def remove_waiting(
    writes: WriteSet, ids: Ids, at: Position, parked_ms: int, waits: DecisionWait
) -> None:
    """Stage that it no longer waits."""
    writes.delete("parked", _mine_key(ids, waits.transaction, at))
    writes.delete("parked", _age_key(ids, waits.is_half, parked_ms, at))


def ended_by(storage: Storage, ids: Ids, decided: DecidedBody) -> Iterator[Position]:
    """Yield the positions of batches that a decision ends, by release or by drop.

    A commit ends all of its sequence and of those before; an abort ends those of one attempt.

    Raises:
        DataDamaged: the store cannot be read.
    """
    if decided.sequence < 0:
        return
    app_id, sequence, attempt = decided.app_id, decided.sequence, decided.attempt
    if decided.commit:
        first = _mine_key(ids, TransactionId(app_id, 0, -_SHIFT), Position(0))
        last = _mine_key(ids, TransactionId(app_id, sequence, _SHIFT - 1), _BEHIND)
    else:
        first = _mine_key(ids, TransactionId(app_id, sequence, attempt), Position(0))
        last = _mine_key(ids, TransactionId(app_id, sequence, attempt), _BEHIND)
    for key, _ in storage.scan("parked", first, last):
        yield Position(*_PLACE.unpack_from(key, len(key) - _PLACE.size))


def waiting_for(
    storage: Storage, ids: Ids, app_id: str, since: tuple[int, int] | None = None
) -> Iterator[Position]:
    """Yield the positions of one application's or producer group's batches, from a sequence on.

    Raises:
        DataDamaged: the store cannot be read.
    """
    first = _of_app(ids, app_id)
    last = first[:-1] + b"\1"
    if since is not None:
        first = _mine_key(ids, TransactionId(app_id, *since), Position(0))
    for key, _ in storage.scan("parked", first, last):
        yield Position(*_PLACE.unpack_from(key, len(key) - _PLACE.size))


def by_age(
    storage: Storage,
    ids: Ids,
    *,
    half: bool,
    since_ms: int = 0,
    until_ms: int,
    since: Position = _FIRST,
) -> Iterator[tuple[int, Position, DecisionWait]]:
    """Yield (time, position, wait) of batches parked within a period, oldest first.

    Those of its first millisecond begin at position `since`.

    Raises:
        DataDamaged: the store cannot be read.
    """
    first = _age_key(ids, half, max(0, since_ms), since)
    last = _age_key(ids, half, max(0, until_ms), Position(0))
    for key, stored in storage.scan("parked", first, last):
        parked_ms, offset, side = _AGE.unpack_from(key, _PREFIX)
        yield parked_ms, Position(offset, side), unpack_waits(stored)


# ── what was decided ────────────────────────────────────────────────────────────────────────────


def progress(storage: Storage, ids: Ids) -> DecisionProgress:
    """Return a queue's progress with decisions.

    Raises:
        DataDamaged: the store cannot be read.
    """
    stored = storage.get("parked", queue_key(*ids, b"n"))
    if stored is None:
        return DecisionProgress()
    undecided, done = _NUMBERS.unpack_from(stored)
    if len(stored) == _NUMBERS.size:
        return DecisionProgress(undecided, done)
    number, offset, side = _OPEN.unpack_from(stored, _NUMBERS.size)
    places = _PLACE.iter_unpack(stored[_NUMBERS.size + _OPEN.size :])
    left = tuple(Position(*place) for place in places)
    return DecisionProgress(undecided, done, OpenRelease(number, Position(offset, side), left))


def put_progress(writes: WriteSet, ids: Ids, reached: DecisionProgress) -> None:
    """Stage a queue's progress with decisions."""
    packed = _NUMBERS.pack(reached.undecided, reached.done)
    if reached.release is not None:
        packed += _OPEN.pack(reached.release.number, *reached.release.at)
        packed += b"".join(_PLACE.pack(*place) for place in reached.release.left)
    writes.put("parked", queue_key(*ids, b"n"), packed)


def closed(storage: Storage, ids: Ids, app_id: str) -> ClosedSequences:
    """Return a queue's record of an application.

    Raises:
        DataDamaged: the store cannot be read.
    """
    stored = storage.get("parked", queue_key(*ids, b"x" + app_id.encode()))
    if stored is None:
        return ClosedSequences()
    (committed,) = _SEQUENCE.unpack_from(stored)
    return ClosedSequences(committed, tuple(_PAIR.iter_unpack(stored[_SEQUENCE.size :])))


def put_closed(writes: WriteSet, ids: Ids, before: ClosedSequences, decided: DecidedBody) -> None:
    """Stage what a decision adds to the record of an application."""
    committed, aborted = before.committed, list(before.aborted)
    attempt = (decided.sequence, decided.attempt)
    if decided.commit:
        committed = max(committed, decided.sequence)
    elif attempt not in aborted:
        aborted.append(attempt)
    kept = [pair for pair in aborted if pair[0] > committed][-ABORTED_KEPT:]
    packed = _SEQUENCE.pack(committed) + b"".join(_PAIR.pack(*pair) for pair in kept)
    writes.put("parked", queue_key(*ids, b"x" + decided.app_id.encode()), packed)
