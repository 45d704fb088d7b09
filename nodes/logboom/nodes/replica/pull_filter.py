"""What a filtered pull lets through: whole batches by their heads, messages by their columns.

A batch that cannot hold a match is passed over by its head alone. Of the others each is opened and
its messages judged, as far as a budget pays for it; past it they go to the reader as they are, who
judges them itself. Tags alone are never looked at here: that is cheaper at the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from logboom.wire.columns import Columns
from logboom.wire.errors import DamagedBatch
from logboom.wire.filters.filter import Filter, Matcher, ScanBudget
from logboom.wire.hashing import tag_mask
from logboom.wire.head import BatchHead
from logboom.wire.messages import Pull

PULL_UNITS: Final = 500_000
"""Units of work (`wire.filters.ScanBudget`, some 0.1 µs) that one pull may cost at the broker."""
OPENED_BYTES: Final = 8 * 1024 * 1024
"""Plain bytes of a batch past which it is not opened here: that alone would hold up the loop."""
OPENED_MESSAGES: Final = 100_000
"""The same for its messages, each of whose offsets is verified."""


MOST_PRICE: Final = 2_000
"""Units of one message past which a batch is not judged here: a scan takes some at least in a
turn."""


class PartialStep(NamedTuple):
    """What is known of a batch that the budget of one turn does not pay for as a whole."""

    base_offset: int
    offset: int
    """From where on it was asked for."""
    reach: int
    """Messages that were judged, counted from its first."""
    bits: int
    """Those that match."""


class FilterStep(NamedTuple):
    """What is known of a batch, from the asked message on."""

    resume: int
    """Where to go on: behind the batch, or behind the last message that was judged if none before
    it matches; else where it began, and the next look goes on by itself."""
    passed: int
    """Messages that match; all, where it was not looked at."""
    bitmap: bytes | None
    """Which ones, of the whole batch; empty: all. None: it was not looked at, or not all of it."""


class PullFilter:
    """The filter of one pull, and what is left of its budget."""

    __slots__ = ("_masks", "_matcher", "left", "looks", "partial")

    def __init__(self, tags: Sequence[str] | None, matcher: Matcher | None, *, looks: bool) -> None:
        self._masks = None if tags is None else [tag_mask(tag) for tag in tags]
        self._matcher = matcher
        self.looks = looks
        """Whether messages are judged here."""
        self.left = PULL_UNITS
        self.partial: PartialStep | None = None
        """Of the batch that the last look did not finish, if messages of it match."""

    def may_match(self, head: BatchHead) -> bool:
        """Whether the batch may hold a match; False is certain."""
        summary, masks = head.tag_summary, self._masks
        if masks is not None and not any(summary & mask == mask for mask in masks):
            return False
        return self._matcher is None or self._matcher.may_match(head)

    def grant(self, units: int) -> ScanBudget:
        """A share of what is left, at most `units`."""
        return ScanBudget(min(units, self.left))

    def settle(self, granted: int, budget: ScanBudget) -> int:
        """Take what was spent of a share; returns it. With nothing left, no batch is opened."""
        spent = granted - budget.left
        self.left -= spent
        if self.left <= 0:
            self.looks = False
        return spent

    def look(self, head: BatchHead, entry: bytes, offset: int, budget: ScanBudget) -> FilterStep:
        """Judge the messages of a batch from `offset` on, as far as the budget goes."""
        first = max(0, offset - head.base_offset)
        unseen = FilterStep(head.next_offset, head.count - first, None)
        too_large = head.count > OPENED_MESSAGES or head.plain_length > OPENED_BYTES
        if self._matcher is None or too_large:
            return unseen
        begin, bits, known = first, 0, self.partial
        if known is not None and (known.base_offset, known.offset) == (head.base_offset, offset):
            begin, bits = known.reach, known.bits
        self.partial = None
        try:
            columns = Columns(head, entry)
            if self._matcher.price(columns) > MOST_PRICE:
                return unseen
            found = self._matcher.match(columns.slice(begin) if begin else columns, budget)
        except DamagedBatch:
            # Stored as its producer sent it, with a body that does not hold together: this is no
            # damage of ours, and the reader's to refuse.
            return unseen
        reach = begin + found.examined
        bits |= int.from_bytes(found.bitmap, "little") << begin
        if reach < head.count:
            if not bits:
                return FilterStep(head.base_offset + reach, 0, None)
            self.partial = PartialStep(head.base_offset, offset, reach, bits)
            return FilterStep(offset, 0, None)
        passed = bits.bit_count()
        if passed == head.count:
            return FilterStep(head.next_offset, passed, b"")
        return FilterStep(head.next_offset, passed, bits.to_bytes(-(-head.count // 8), "little"))


def sieve_of(message: Pull) -> PullFilter | None:
    """The sieve that a pull asks for; None if it takes everything.

    Raises:
        InvalidFilter, InvalidRequest: its filter cannot be read.
    """
    matcher, looks = _made(message.filter) if message.filter else (None, False)
    if message.tags is None and matcher is None:
        return None
    return PullFilter(message.tags, matcher, looks=looks)


@lru_cache(maxsize=1024)
def _made(text: str) -> tuple[Matcher | None, bool]:
    """What carries a filter out, and whether it judges messages; None: it takes everything."""
    wanted = Filter.read(text)
    return (None if wanted.takes_all else wanted.matcher()), wanted.where is not None
