"""Read whole entries of a queue: from memory at its tail, from the store behind it.

What comes from the store is checked, checksum and contiguity, before it goes anywhere: a damaged
entry is never served (Q14). What lies in memory was checked when it came.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from logboom.nodes.log.keys import LAST_SIDE, Position, log_key, position_of
from logboom.nodes.log.recovery import after_entry
from logboom.nodes.log.storage import Storage
from logboom.nodes.replica.pull_filter import PullFilter
from logboom.nodes.replica.replica import Replica
from logboom.wire.batch import peek, validate_batch
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.filters.filter import ScanBudget
from logboom.wire.frames import Frame
from logboom.wire.head import KIND_AT
from logboom.wire.messages import Pull


class DamagedEntry(DataDamaged):
    """An entry that cannot be served; `position` is where it stands or should stand."""

    def __init__(self, text: str, position: Position) -> None:
        super().__init__(text)
        self.position = position


class ReadResult(NamedTuple):
    """What a pull gets."""

    batches: list[Frame]
    next_offset: int
    messages: int


def entries(
    replica: Replica, storage: Storage, begin: Position, limit: Position
) -> Iterator[tuple[bytes, Position]]:
    """(entry, position behind it) from the one that begins at `begin`, while behind ≤ `limit`.

    `limit` is the HW or the end: a position where an entry ends. Ends early where the store does
    not yet show what was staged; ask again next turn.

    Raises:
        Damaged: an entry is missing or does not hold.
    """
    tail = replica.tail
    held = tail.get(begin)
    if held is None:
        begin = yield from read_stored_entries(replica, storage, begin, min(limit, replica.written))
        if begin != replica.written:
            return
        held = tail.get(begin)
    while held is not None:
        entry, after = held
        if after > limit:
            return
        yield entry, after
        held = tail.get(after)


def read_stored_entries(
    replica: Replica, storage: Storage, begin: Position, limit: Position
) -> Generator[tuple[bytes, Position], None, Position]:
    """The same from the store alone, up to what it shows; returns where it came to."""
    at = begin
    first, last = log_key(*replica.key, *begin), log_key(*replica.key, *limit)
    try:
        for key, entry in storage.scan("log", first, last):
            head = validate_batch(entry)
            if position_of(key) != at or head.base_offset != at.offset:
                raise DamagedEntry(f"an entry is missing at offset {at.offset}", at)
            after = after_entry(at, head)
            if after > limit:
                return at
            yield entry, after
            at = after
    except DamagedBatch as error:
        raise DamagedEntry(error.text, at) from None
    except DamagedEntry:
        raise
    except DataDamaged as error:
        raise DamagedEntry(error.text, at) from None
    if at < limit:
        raise DamagedEntry(f"entries are missing from offset {at.offset}", at)
    return at


def find_batch_start(replica: Replica, storage: Storage, offset: int) -> Position:
    """Where the batch that holds `offset` begins; `offset` lies below the HW.

    Raises:
        Damaged: there is none.
    """
    whole = Position(offset, 0)
    held = replica.tail.get(whole)
    # What stands there may be parked, with more than one answer's worth behind it (in memory it
    # cannot be passed over at once): then the store knows where the batch is.
    if held is not None and held[1].offset > offset:
        return whole
    if offset >= replica.written.offset:
        return _staged(replica, offset)
    first = log_key(*replica.key, replica.start)
    last = log_key(*replica.key, offset, LAST_SIDE)
    try:
        for key, entry in storage.scan("log", first, last, reverse=True):
            position = position_of(key)
            if after_entry(position, peek(entry)).offset > offset or position.offset == offset:
                return position
            break
    except (DataDamaged, DamagedBatch):
        return _gallop(replica, storage, offset)
    return _gallop(replica, storage, offset)


def _staged(replica: Replica, offset: int) -> Position:
    """The same where the store does not show it yet: a follower may be told of an entry and, at once,
    that the HW is behind it."""
    at = replica.written
    while (held := replica.tail.get(at)) is not None and held[1].offset <= offset:
        at = held[1]
    return at


def _gallop(replica: Replica, storage: Storage, offset: int) -> Position:
    """The same where the entry itself cannot be read: from an entry before it that can, forward.

    Raises:
        Damaged: there is none; its position is where the whole part of the log ends.
    """
    start = Position(replica.start)
    reach = 1
    while True:
        low = max(start, Position(offset - reach))
        begin = start if low == start else _first_from(replica, storage, low, offset)
        if begin is not None:
            at = begin
            for _, after in read_stored_entries(replica, storage, begin, replica.written):
                if after.offset > offset:
                    return at
                at = after
            raise DamagedEntry(f"no batch holds offset {offset}", at)
        reach *= 2


def _first_from(replica: Replica, storage: Storage, low: Position, offset: int) -> Position | None:
    """Where the first entry at or behind `low` begins, if it can be read and lies before
    `offset`."""
    first, last = log_key(*replica.key, *low), log_key(*replica.key, offset)
    try:
        return next((position_of(key) for key, _ in storage.scan("log", first, last)), None)
    except DataDamaged:
        return None


def readable_end(replica: Replica, message: Pull) -> Position:
    """How far a reader sees."""
    return replica.hw if message.uncommitted else replica.readable


def read_batches(
    replica: Replica,
    storage: Storage,
    offset: int,
    max_bytes: int,
    max_messages: int,
    limit: Position | None = None,
) -> ReadResult:
    """Whole batches from the one that holds `offset` up to `limit`; at least one, unless all that is
    there was lost.

    `offset` lies from the log's start to below the limit, which is one of `readable_end`; None: of whom
    asks for nothing special. Control entries are left out.

    Raises:
        Damaged: the first batch cannot be served.
    """
    batches: list[Frame] = []
    size = messages = passed = 0
    at = find_batch_start(replica, storage, offset)
    try:
        for entry, after in entries(replica, storage, at, limit or replica.readable):
            if not entry[KIND_AT]:
                if batches and size + len(entry) > max_bytes:
                    break
                batches.append(entry)
                size += len(entry)
                messages += after.offset - max(at.offset, offset)
            else:
                passed += len(entry)
            at = after
            # Behind a batch may stand a million parked ones: the next pull begins behind them.
            if max(size, passed) >= max_bytes or 0 < max_messages <= messages:
                break
    except DamagedEntry:
        if not batches:
            raise
    return ReadResult(batches, max(at.offset, offset), messages)


class FilteredRead:
    """What a filtered scan came to in one turn."""

    __slots__ = (
        "batches",
        "matches",
        "messages",
        "next_offset",
        "opened",
        "passed",
        "size",
        "unseen",
    )

    def __init__(self, offset: int) -> None:
        self.batches: list[Frame] = []
        """Those that may hold a match."""
        self.matches: list[bytes] = []
        """Which messages of the first of them match, as in `Pulled`; the others were not judged."""
        self.next_offset = offset
        """Everything before is in `batches` or does not match."""
        self.messages = 0
        """Messages in `batches` that match, as far as is known."""
        self.size = 0
        """Bytes of `batches`."""
        self.passed = 0
        """Bytes of batches that hold no match."""
        self.opened = 0
        """Batches whose messages were judged."""
        self.unseen = 0
        """Batches that a budget, or their size, left to the reader to judge."""


def filter_batches(
    replica: Replica,
    storage: Storage,
    message: Pull,
    sieve: PullFilter,
    budget: ScanBudget,
    most_bytes: int,
) -> FilteredRead:
    """The same through a sieve, from `message.offset`: as far as the budget and `most_bytes` go.

    Raises:
        Damaged: the first batch cannot be served.
    """
    found = FilteredRead(message.offset)
    skipped = 0
    offset, max_bytes = message.offset, min(message.max_bytes, most_bytes)
    at = find_batch_start(replica, storage, offset)
    try:
        for entry, after in entries(replica, storage, at, readable_end(replica, message)):
            if not entry[KIND_AT]:
                if found.batches and found.size + len(entry) > max_bytes:
                    break
                if sieve.looks and budget.spent:
                    break
                if not _through(entry, sieve, budget, found):
                    break
            else:
                skipped += len(entry)
            at = after
            found.next_offset = max(at.offset, offset)
            if (
                found.size >= max_bytes
                or found.size + found.passed + skipped >= most_bytes
                or 0 < message.max_messages <= found.messages
            ):
                break
    except DamagedEntry:
        if not found.batches and found.next_offset == offset:
            raise
    return found


def _through(entry: bytes, sieve: PullFilter, budget: ScanBudget, found: FilteredRead) -> bool:
    """Put one batch where it belongs; False if the scan has to end here."""
    head = peek(entry)
    if not sieve.may_match(head):
        found.passed += len(entry)
        return True
    bitmap, judged = None, sieve.looks
    passed = head.next_offset - max(found.next_offset, head.base_offset)
    if judged:
        found.opened += 1
        resume, passed, bitmap = sieve.look(head, entry, found.next_offset, budget)
        if not passed:
            found.next_offset = resume
            if resume < head.next_offset:
                return False
            found.passed += len(entry)
            return True
    found.batches.append(entry)
    found.size += len(entry)
    found.messages += passed
    if bitmap is not None:
        found.matches.append(bitmap)
        return True
    found.unseen += judged
    found.next_offset = head.next_offset
    # What follows could be judged, but `matches` would not say of which batch it speaks.
    return not judged
