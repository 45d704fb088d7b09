"""The evaluation of batches by filters, large ones in steps.

To open the largest batch takes longer than a turn may last. So one of them at a time is worked on by
all filters that share a `MatchQueue`, for as many units as each has; whoever needs another one works
on that one first. Then no more than one body is open, however many filters there are, and none waits
for a filter that has gone.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from logboom.wire.batch import open_batch
from logboom.wire.columns import Columns, open_steps
from logboom.wire.errors import DamagedBatch
from logboom.wire.filters import Matcher, ScanBudget
from logboom.wire.filters.filter import opening_cost
from logboom.wire.head import BatchHead

SMALL_UNITS: Final = 4_000
"""Units of opening up to which a batch is opened at once, and again if its evaluation continues."""
STEP_UNITS: Final = 20_000
"""Units of one step of opening a larger one."""


class BatchMatch:
    """The messages of one batch that match a filter, as far as they are evaluated."""

    __slots__ = ("_columns", "_most_price", "_steps", "batch", "bits", "head", "matcher", "reach")

    def __init__(
        self,
        matcher: Matcher,
        head: BatchHead,
        batch: bytes,
        first: int = 0,
        most_price: int | None = None,
    ) -> None:
        """Create the evaluation of the messages from `first` on.

        If one of them costs more than `most_price` units, none is evaluated.
        """
        self.matcher: Final = matcher
        self.head: Final = head
        self.batch = batch
        self.reach = first
        """Messages evaluated, counted from its first."""
        self.bits: int | None = 0
        """Those that match; None: they cost too much."""
        self._most_price = most_price
        self._columns: Columns | None = None
        self._steps: Generator[None, None, Columns] | None = None

    @property
    def small(self) -> bool:
        """True if it is opened at once."""
        return opening_cost(self.head) <= SMALL_UNITS

    @property
    def whole(self) -> bool:
        """True if there is nothing left to do."""
        return self.bits is None or self.reach >= self.head.count

    def advance(self, budget: ScanBudget) -> None:
        """Continue as far as the budget allows.

        Raises:
            DamagedBatch: the body is damaged.
        """
        columns = self._open(budget)
        if columns is None:
            return
        if self._most_price is not None and self.matcher.price(columns) > self._most_price:
            self.bits = None
        elif self.bits is not None:
            found = self.matcher.match(columns.slice(self.reach), budget)
            self.bits |= int.from_bytes(found.bitmap, "little") << self.reach
            self.reach += found.examined
        if self.small:
            budget.left -= opening_cost(self.head)
        if self.whole:
            self._columns, self.batch = None, b""
            if not self.small:
                budget.left -= STEP_UNITS  # Many objects are freed.

    def take_over(self, other: BatchMatch) -> None:
        """Go on with what another evaluation of the same batch has opened."""
        self._columns, self._steps = other._columns, other._steps
        other._columns = other._steps = None

    def _open(self, budget: ScanBudget) -> Columns | None:
        """Return the columns; None if the budget is used up before."""
        if self.small:
            return open_batch(self.batch, self.head)
        if self._columns is None and self._steps is None:
            self._steps = open_steps(self.head, self.batch)
        while self._steps is not None:
            if budget.spent:
                return None
            budget.left -= STEP_UNITS
            try:
                next(self._steps)
            except StopIteration as ended:
                self._columns, self._steps = ended.value, None
            except DamagedBatch:
                self._steps = None
                raise
        return self._columns


class MatchQueue:
    """The large batch that is evaluated now, of all filters that share this."""

    def __init__(self) -> None:
        self._current: BatchMatch | None = None

    def advance(self, wanted: BatchMatch, budget: ScanBudget) -> bool:
        """Continue an evaluation as far as the budget allows; return True once it is whole.

        Raises:
            DamagedBatch: the body is damaged.
        """
        if wanted.small:
            if not wanted.whole and not budget.spent:
                wanted.advance(budget)
            return wanted.whole
        while not wanted.whole and not budget.spent:
            current = self._current
            if current is None:
                current = wanted
            elif current is not wanted and current.batch == wanted.batch:
                wanted.take_over(current)
                current = wanted
            self._current = current
            try:
                current.advance(budget)
            except DamagedBatch:
                self._current = None
                if current is wanted:
                    raise
                continue  # Its own filter will find that.
            if current.whole:
                self._current = None
        return wanted.whole
