"""The filter of a pull: it selects batches by their heads, and messages by their columns.

A batch that cannot hold a match is skipped by its head alone. Others are opened and their messages
evaluated, as far as the budget allows. Past it, batches go to the reader as they are, and the
reader evaluates them. Filters on tags alone are never evaluated here, because that is cheaper at
the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from logboom.nodes.replica.batch_match import BatchMatch, MatchQueue
from logboom.wire.errors import DamagedBatch
from logboom.wire.filters import Filter, Matcher, ScanBudget, read_matcher
from logboom.wire.hashing import tag_mask
from logboom.wire.head import BatchHead
from logboom.wire.messages import Pull

PULL_UNITS: Final = 500_000
"""Units of work (`wire.filters.ScanBudget`, some 0.1 µs) that one pull may cost at the broker."""
OPENED_BYTES: Final = 8 * 1024 * 1024
"""Plain bytes of a batch past which it is not opened here, because that would stall the loop."""
OPENED_MESSAGES: Final = 100_000
"""Messages past which it is not either, each of whose offsets is verified."""
MOST_PRICE: Final = 2_000
"""Units per message past which a batch is not evaluated here: a scan evaluates at least some
messages per turn."""


class FilterStep(NamedTuple):
    """The result for a batch, from the requested message on."""

    resume: int
    """Where to continue: after the batch, or after the last message evaluated if none before it
    matches. Otherwise where the step began, and the next one continues from there."""
    passed: int
    """Messages that match; all of them where the batch was not evaluated."""
    bitmap: bytes | None
    """The matching messages of the whole batch; empty: all. None: it was not evaluated completely.
    """


class PullFilter:
    """The filter of one pull, and the rest of its budget."""

    __slots__ = ("_masks", "_matcher", "guess_cost", "left", "looks", "partial", "queue")

    def __init__(self, tags: Sequence[str] | None, matcher: Matcher | None, *, looks: bool) -> None:
        self._masks = None if tags is None else [tag_mask(tag) for tag in tags]
        self._matcher = matcher
        self.guess_cost = len(self._masks or ()) // 2 + (
            10 if matcher is None else matcher.guess_cost
        )
        """Units of `may_match`."""
        self.looks = looks
        """True if messages are evaluated here."""
        self.left = PULL_UNITS
        self.partial: BatchMatch | None = None
        """The batch that the last step did not finish."""
        self.queue = MatchQueue()
        """Where large batches are evaluated, shared by all pulls of a broker."""

    def may_match(self, head: BatchHead) -> bool:
        """Return True if the batch may hold a match; False is certain."""
        summary, masks = head.tag_summary, self._masks
        if masks is not None and not any(summary & mask == mask for mask in masks):
            return False
        return self._matcher is None or self._matcher.may_match(head)

    def grant(self, units: int) -> ScanBudget:
        """Return a share of the rest, at most `units`."""
        return ScanBudget(min(units, self.left))

    def settle(self, granted: int, budget: ScanBudget) -> int:
        """Charge the used part of a share, and return it. Without a rest, no batch is opened."""
        spent = granted - budget.left
        self.left -= spent
        if self.left <= 0:
            self.looks = False
        return spent

    def look(self, head: BatchHead, entry: bytes, offset: int, budget: ScanBudget) -> FilterStep:
        """Evaluate the messages of a batch from `offset` on, as far as the budget allows."""
        first = max(0, offset - head.base_offset)
        unseen = FilterStep(head.next_offset, head.count - first, None)
        too_large = head.count > OPENED_MESSAGES or head.plain_length > OPENED_BYTES
        if self._matcher is None or too_large:
            return unseen
        match = self.partial
        if match is None or match.head != head:
            match = BatchMatch(self._matcher, head, entry, first, MOST_PRICE)
        self.partial = None
        try:
            whole = self.queue.advance(match, budget)
        except DamagedBatch:
            # Stored as its producer sent it, with a malformed body. This is not damage of ours, and
            # the reader has to reject it.
            return unseen
        bits = match.bits
        if bits is None:
            return unseen
        if not whole:
            self.partial = match
            return FilterStep(offset if bits else head.base_offset + match.reach, 0, None)
        passed = bits.bit_count()
        if passed == head.count:
            return FilterStep(head.next_offset, passed, b"")
        return FilterStep(head.next_offset, passed, bits.to_bytes(-(-head.count // 8), "little"))


def sieve_of(message: Pull) -> PullFilter | None:
    """Build the filter that a pull requests; None if it accepts everything.

    Raises:
        InvalidFilter, InvalidRequest: its filter cannot be parsed.
    """
    wanted, matcher = read_matcher(message.filter) if message.filter else (Filter(), None)
    if wanted.takes_all:
        matcher = None
    if message.tags is None and matcher is None:
        return None
    return PullFilter(message.tags, matcher, looks=wanted.where is not None)
