"""Filters: which messages of a topic a consumer wants, by tag, by properties, or by both.

    Filter.of("late || early")                         tags (`logboom.wire.filters.tags`)
    Filter.of(where="price > 3 AND region IS NULL")    properties (`logboom.wire.filters.parser`)

    Filter.read("late WHERE price > 3")                both, as one text: what travels

A `Filter` is plain and canonical; equal filters are equal values and have one `text`. Its `Matcher`
does the work, the same at a broker, a client and in Spark: `may_match(head)` passes over whole
batches by their heads, `match(columns)` gives a bitmap of the messages of a batch. A broker gives
a `ScanBudget`, so that no filter holds its loop: a match says how far it came.

The properties are a message's headers, and TAGS, KEYS and `_timestamp` (tag, key and message time
in ms). `"TAGS"` in double quotes is a header of this name.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from logboom.wire.columns import Columns
from logboom.wire.compression import Codec
from logboom.wire.errors import InvalidFilter, InvalidRequest
from logboom.wire.filters.evaluator import (
    Evaluate,
    cost_of,
    evaluator,
    every_of,
    leaves,
    properties,
)
from logboom.wire.filters.filter_columns import NO, YES, FilterColumns, HeaderReader, TernaryBits
from logboom.wire.filters.parser import parse
from logboom.wire.filters.pruning import Guess, compile_pruner
from logboom.wire.filters.syntax import Condition, Property, PropertySource, Search
from logboom.wire.filters.tags import ALL, check_tags, parse_tags, split_where, tags_text
from logboom.wire.filters.tokens import MAX_LENGTH, invalid
from logboom.wire.hashing import tag_mask
from logboom.wire.head import BatchHead
from logboom.wire.unpacking import bits

LEAST_STEP: Final[int] = 64
"""Messages that a budget with anything left always pays for, so that every scan progresses, …"""
_LEAST_UNITS: Final = 10_000
"""… if they cost no more than this; otherwise one."""

_SHORT: Final = 256
"""Characters of a filter up to which many matchers are kept."""
_MAX_TEXT: Final[int] = 2 * MAX_LENGTH + 16
_GUESSING: Final[int] = 10  # units for a look at a batch's head
_OPENING: Final[int] = 100  # units for opening a batch and its columns
_TAGS = Property("TAGS", PropertySource.TAGS)
_ONES: Final = bytes.maketrans(b"01", b"\0\1")


class Filter(Struct, frozen=True, array_like=True, gc=False):
    """The condition for messages; `of` makes it canonical. Messages must match both parts."""

    tags: tuple[str, ...] | None = None
    """The accepted tags, sorted; None: any tag, or none."""
    where: str | None = None
    """A canonical property expression; None: any properties."""

    @staticmethod
    def of(tags: str | Collection[str] | None = None, where: str | None = None) -> Filter:
        """Return the filter of a tag expression (or of single tags) and a property expression.

        Raises:
            InvalidFilter: An expression is invalid; the error points at the character.
            InvalidRequest: A tag is invalid.
        """
        if isinstance(tags, str):
            found = parse_tags(tags)
        else:
            found = ALL if tags is None else check_tags(tags)
        if where is not None and not isinstance(where, str):
            raise InvalidRequest(f"where is an expression, as text, not {where!r:.80}")
        return Filter(
            None if found is None else tuple(sorted(found)),
            None if where is None else str(parse(where)),
        )

    @staticmethod
    def read(text: str) -> Filter:
        """Return the filter of one text, such that `read(wanted.text) == wanted`.

        The text is `*` or "", `a || b`, `a || b WHERE price > 3`, or WHERE with a property
        expression alone.

        Raises:
            InvalidFilter: The text is invalid; the error points at the character.
        """
        return _read(text)[0]

    @property
    def takes_all(self) -> bool:
        """True if every message passes."""
        return self.tags is None and self.where is None

    @property
    def text(self) -> str:
        """One line for people, the wire and comparisons: `*`, `a || b`, `* WHERE price > 3`."""
        where = "" if self.where is None else f" WHERE {self.where}"
        return f"{tags_text(self.tags)}{where}"

    def describe(self) -> str:
        """Describe the filter in words."""
        if self.takes_all:
            return "all messages"
        parts = []
        if self.tags is not None:
            word = "the tag" if len(self.tags) == 1 else "one of the tags"
            parts.append(f"with {word} {', '.join(map(repr, self.tags))}")
        if self.where is not None:
            parts.append(f"where {self.where}")
        return f"messages {' and '.join(parts)}"

    def difference(self, other: Filter) -> str:
        """Return how `other` differs from this filter, in one line; "" if it does not."""
        parts = []
        if self.tags != other.tags:
            ours, theirs = self.tags, other.tags
            if ours is None or theirs is None:
                parts.append(f"tags {tags_text(theirs)} instead of {tags_text(ours)}")
            else:
                more, fewer = set(theirs) - set(ours), set(ours) - set(theirs)
                parts += [f"tags more: {tags_text(more)}"] if more else []
                parts += [f"tags fewer: {tags_text(fewer)}"] if fewer else []
        if self.where != other.where:
            parts.append(f"where {other.where or 'TRUE'} instead of {self.where or 'TRUE'}")
        return "; ".join(parts)

    def matcher(self) -> Matcher:
        """Return the matcher of this filter, which is checked again in case it came over the wire.

        Raises:
            InvalidFilter, InvalidRequest: As `of`.
        """
        return _matcher(self)


class ScanBudget:
    """Units of work that a scan may still use, shared by its batches; a unit is about 0.1 µs."""

    __slots__ = ("left",)

    def __init__(self, units: int) -> None:
        self.left = units

    @property
    def spent(self) -> bool:
        """True if nothing is left, so that the scan must stop."""
        return self.left <= 0


class Match(NamedTuple):
    """The messages of a batch, or of a slice of it, that pass a filter."""

    bitmap: bytes
    """Bit i % 8 of byte i // 8 is set if message i passes, as in Arrow's validity."""
    passed: int
    """Number of messages that pass."""
    examined: int
    """Number of messages examined: all, or as many as the budget paid for. `bitmap` covers
    these."""

    def selectors(self) -> bytes:
        """Return a byte per message, 1 if it passes, as `itertools.compress` takes them."""
        return selectors(self.bitmap, self.examined)


class Matcher:
    """A compiled filter; `Filter.matcher` keeps the recent ones. Threads may share it."""

    __slots__ = ("_evaluate", "_guess", "_masks", "_reader", "_searches", "cost", "guess_cost")

    def __init__(self, wanted: Filter, node: Condition | None = None) -> None:
        """Compile a filter; `node` is its tree, if it was parsed before."""
        tags = None if wanted.tags is None else check_tags(wanted.tags)
        if node is None and wanted.where is not None:
            node = parse(wanted.where)
        found = [] if node is None else list(leaves(node))
        asked = properties(found)
        self.cost: Final = (cost_of(found, asked) if found else 1) + (tags is not None)
        """Units per message, in addition to those that depend on the size of its headers."""
        self._masks = None if tags is None else [tag_mask(tag) for tag in tags]
        self.guess_cost: Final = self.cost + _GUESSING + len(self._masks or ()) // 2
        """Units of `may_match`."""
        self._guess: Guess | None = None if node is None else compile_pruner(node)
        self._evaluate = _evaluation(tags, node)
        self._reader = HeaderReader(
            [each.name for each in asked if each.source is PropertySource.HEADER]
        )
        self._searches = sum(isinstance(leaf, Search) for leaf in found)

    def may_match(self, head: BatchHead) -> bool:
        """Return True if a message of this batch may pass; False is certain, at about 1 µs."""
        summary = head.tag_summary
        if self._masks is not None and not any(summary & mask == mask for mask in self._masks):
            return False
        return self._guess is None or self._guess(head).holds

    def match(self, columns: Columns, budget: ScanBudget | None = None) -> Match:
        """Return which messages pass; with a budget, of as many of the first as it pays for.

        Whoever opens the batch pays `opening_cost` besides.

        Raises:
            DamagedBatch: The body is inconsistent.
        """
        count = len(columns)
        if budget is not None:
            count = min(count, self._paid(columns, budget))
            columns = columns if count == len(columns) else columns.slice(0, count)
        if self._evaluate is None:
            yes = (1 << count) - 1
        else:
            yes = self._evaluate(FilterColumns(columns, self._reader)).yes
        return Match(yes.to_bytes(-(-count // 8), "little"), yes.bit_count(), count)

    def price(self, columns: Columns) -> int:
        """Return the units that one message of this batch costs, by the size of its headers.

        Raises:
            DamagedBatch: The body is inconsistent.
        """
        headers = columns.arrow_buffers().headers
        size = 0 if headers is None else len(headers.data) // columns.head.count
        return self.cost + (size >> 6) * (1 + self._searches)

    def _paid(self, columns: Columns, budget: ScanBudget) -> int:
        """Take from the budget, and return the number of messages that it pays for."""
        if budget.spent:
            return 0
        each = self.price(columns)
        least = max(1, min(LEAST_STEP, _LEAST_UNITS // each))
        paid = min(len(columns), max(least, budget.left // each))
        budget.left -= paid * each
        return paid


def opening_cost(head: BatchHead) -> int:
    """Return the units that opening a batch costs.

    Each offset is verified; bytes are read at some GB/s, and decompressed at 400 MB/s or more.
    """
    cost = _OPENING + (head.count >> 1)
    return cost + (head.plain_length >> (12 if head.codec is Codec.NONE else 5))


def selectors(bitmap: bytes | memoryview, count: int) -> bytes:
    """Return a byte per message, 1 if it passes, from a match bitmap that came over the wire.

    Raises:
        InvalidRequest: The bitmap is not one of `count` messages.
    """
    if len(bitmap) != -(-count // 8) or int.from_bytes(bitmap, "little") >> count:
        raise InvalidRequest(
            f"a match bitmap of {len(bitmap)} bytes does not fit {count} messages: pull again"
        )
    return bits(memoryview(bitmap), count).encode().translate(_ONES) if count else b""


def read_matcher(text: str) -> tuple[Filter, Matcher]:
    """Return `Filter.read(text)` and its matcher, for which it is parsed only once.

    Raises:
        InvalidFilter, InvalidRequest: As `Filter.read`.
    """
    return (_short if len(text) <= _SHORT else _long)(text)


def _compiled(text: str) -> tuple[Filter, Matcher]:
    wanted, node = _read(text)
    return wanted, Matcher(wanted, node)


# A matcher takes up to 160 times the bytes of its text: all of them together some 27 MiB at most.
_short = lru_cache(maxsize=512)(_compiled)
_long = lru_cache(maxsize=32)(_compiled)


def _read(text: str) -> tuple[Filter, Condition | None]:
    """Return the filter of one text, and the tree of its property expression."""
    if len(text) > _MAX_TEXT:
        raise invalid(text, _MAX_TEXT, f"the end: it has at most {_MAX_TEXT} characters")
    tags, where = split_where(text)
    wanted = Filter.of(tags) if tags.strip() else Filter()
    if where is None:
        return wanted, None
    try:
        node = parse(where)
    except InvalidFilter as error:
        at = len(text) - len(where) + int(error.fields["position"])
        shown = text.encode(errors="replace").decode()
        said = error.text.rpartition(", at character ")[0]
        raise InvalidFilter(
            f"{said}, at character {at + 1}",
            **{**error.fields, "expression": shown, "position": at},
        ) from None
    return Filter(wanted.tags, str(node)), node


@lru_cache(maxsize=256)
def _matcher(wanted: Filter) -> Matcher:
    return Matcher(wanted)


def _evaluation(tags: frozenset[str] | None, node: Condition | None) -> Evaluate | None:
    """Return the evaluation of both parts; None if every message passes."""
    condition = None if node is None else evaluator(node)
    if tags is None:
        return condition
    wanted = frozenset(tag.encode() for tag in tags)

    def by_tag(rows: FilterColumns) -> TernaryBits:
        return rows.judged(_TAGS, lambda tag: YES if tag in wanted else NO, NO)

    return by_tag if condition is None else every_of(by_tag, condition)
