"""The reader of a queue's entries: from memory at the tail, from the store before it.

Entries from the store are checked, for checksum and contiguity, before they are passed on, so that
a damaged entry is never served (see docs/SAFETY.md, Q14). Entries in memory were checked when they
arrived.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain
from typing import Final, NamedTuple

from logboom.nodes.log.keys import LAST_SIDE, Position, log_key, position_of
from logboom.nodes.log.recovery import after_entry
from logboom.nodes.log.storage import Storage
from logboom.nodes.replica.pull_filter import PullFilter
from logboom.nodes.replica.replica import Replica
from logboom.wire.batch import peek, validate_batch
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.filters import ScanBudget
from logboom.wire.frames import Frame
from logboom.wire.head import KIND_AT
from logboom.wire.messages import Pull

MOST_ENTRIES: Final = 1_024
"""Entries that one read looks at, once it has a batch: small ones take 5 µs each to read and check."""


class DamagedEntry(DataDamaged):
    """An entry that cannot be served; `position` is where it is or should be."""

    def __init__(self, text: str, position: Position) -> None:
        super().__init__(text)
        self.position = position


class ReadResult(NamedTuple):
    """The answer to a pull."""

    batches: list[Frame]
    next_offset: int
    messages: int


def entries(
    replica: Replica, storage: Storage, begin: Position, limit: Position
) -> Iterator[tuple[bytes, Position]]:
    """Yield (entry, position after it) from the entry that begins at `begin`, up to `limit`.

    `limit` is the HW or the end: a position at which an entry ends. The iterator ends early where
    the store does not show staged entries yet; ask again in the next turn.

    Raises:
        DamagedEntry: an entry is missing or damaged.
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
    replica: Replica,
    storage: Storage,
    begin: Position,
    limit: Position,
    *,
    all_checks: bool = False,
) -> Generator[tuple[bytes, Position], None, Position]:
    """Yield the same from the store alone, up to what it shows; return the position reached.

    An entry's own checksums cover every byte of it (see docs/SAFETY.md, W2), so the store need not
    check them again. With `all_checks` it does, and finds damage around the entries too.
    """
    at = begin
    first, last = log_key(*replica.key, *begin), log_key(*replica.key, *limit)
    try:
        for key, entry in storage.scan("log", first, last, values_checked_by_caller=not all_checks):
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
    """Find where the batch that contains `offset` begins; `offset` is below the HW.

    Raises:
        DamagedEntry: there is none.
    """
    whole = Position(offset, 0)
    held = replica.tail.get(whole)
    # The entries there may be parked, and more than one answer's worth of them (in memory they
    # cannot be skipped at once). Then the store knows where the batch is.
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
    """Find the same in memory, where the store does not show it yet.

    A follower may learn of an entry and at once that the HW is past it.
    """
    at = replica.written
    while (held := replica.tail.get(at)) is not None and held[1].offset <= offset:
        at = held[1]
    return at


def _gallop(replica: Replica, storage: Storage, offset: int) -> Position:
    """Find the same if the entry itself cannot be read: go forward from a readable one before it.

    Raises:
        DamagedEntry: there is none; its position is where the intact part of the log ends.
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
    """Return where the first entry at or after `low` begins, if it is readable and before `offset`."""
    first, last = log_key(*replica.key, *low), log_key(*replica.key, offset)
    try:
        return next((position_of(key) for key, _ in storage.scan("log", first, last)), None)
    except DataDamaged:
        return None


def _entries_from(
    replica: Replica, storage: Storage, offset: int, limit: Position
) -> tuple[Position, Iterator[tuple[bytes, Position]]]:
    """Return where the batch that contains `offset` begins, and `entries` from there.

    Raises:
        DamagedEntry: see `find_batch_start`.
    """
    # A reader that goes on asks for the start of a batch. To search for it would read the batch once
    # more.
    at = Position(offset)
    found = entries(replica, storage, at, limit)
    try:
        first = next(found, None)
    except DamagedEntry:
        first = None
    if first is not None and first[1].offset > offset:
        return at, chain((first,), found)
    at = find_batch_start(replica, storage, offset)
    return at, entries(replica, storage, at, limit)


def readable_end(replica: Replica, message: Pull) -> Position:
    """Return the position up to which a reader sees."""
    return replica.hw if message.uncommitted else replica.readable


def read_batches(
    replica: Replica,
    storage: Storage,
    offset: int,
    max_bytes: int,
    max_messages: int,
    limit: Position | None = None,
) -> ReadResult:
    """Read whole batches from the one that contains `offset` up to `limit`.

    At least one is returned, unless all messages there were lost. `offset` is between the log's
    start and the limit, which `readable_end` gives; None means a reader without special requests.
    Control entries are left out.

    Raises:
        DamagedEntry: the first batch cannot be served.
    """
    batches: list[Frame] = []
    size = messages = passed = 0
    full = False
    at, found = _entries_from(replica, storage, offset, limit or replica.readable)
    try:
        for looked, (entry, after) in enumerate(found, 1):
            if not entry[KIND_AT]:
                if batches and size + len(entry) > max_bytes:
                    break
                batches.append(entry)
                size += len(entry)
                messages += after.offset - max(at.offset, offset)
                # The next batch is about as large as this one. Reading it only to find that it does
                # not fit costs as much as sending it.
                full = size + len(entry) > max_bytes
            else:
                passed += len(entry)
            at = after
            # A million parked batches may follow a batch: the next pull begins after them.
            if full or passed >= max_bytes or 0 < max_messages <= messages:
                break
            if batches and looked >= MOST_ENTRIES:
                break
    except DamagedEntry:
        if not batches:
            raise
    return ReadResult(batches, max(at.offset, offset), messages)


class FilteredRead:
    """The result of one turn of a filtered scan."""

    __slots__ = (
        "batches",
        "guessed",
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
        """Batches that may hold a match."""
        self.matches: list[bytes] = []
        """The matching messages of the first batch, as in `Pulled`; the others were not evaluated.
        """
        self.next_offset = offset
        """Everything before this is in `batches` or does not match."""
        self.messages = 0
        """Matching messages in `batches`, as far as is known."""
        self.size = 0
        """Bytes of `batches`."""
        self.passed = 0
        """Bytes of batches without a match."""
        self.opened = 0
        """Batches whose messages were evaluated."""
        self.guessed = 0
        """Units of work that looking at heads has cost."""
        self.unseen = 0
        """Batches that a budget, or their size, left to the reader to evaluate."""


def filter_batches(
    replica: Replica,
    storage: Storage,
    message: Pull,
    sieve: PullFilter,
    budget: ScanBudget,
    most_bytes: int,
    most_guesses: int,
) -> FilteredRead:
    """Read through a filter from `message.offset`, as far as the budget, `most_bytes` and `most_guesses` allow.

    Raises:
        DamagedEntry: the first batch cannot be served.
    """
    found = FilteredRead(message.offset)
    skipped = 0
    offset, max_bytes = message.offset, min(message.max_bytes, most_bytes)
    at, rest = _entries_from(replica, storage, offset, readable_end(replica, message))
    try:
        for entry, after in rest:
            if not entry[KIND_AT]:
                if found.batches and found.size + len(entry) > max_bytes:
                    break
                if (sieve.looks and budget.spent) or found.guessed >= most_guesses:
                    break
                found.guessed += sieve.guess_cost
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
    """Add one batch to the result; False if the scan has to end here."""
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
    # The next batch could be evaluated, but `matches` does not name the batch it belongs to.
    return not judged
