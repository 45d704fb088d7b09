"""Pruning of batches: the head of a batch may prove that no message matches a filter.

A broker skips such a batch without opening its body. The head has a summary of the tags and one of
the keys, which never miss a tag or key of the batch, the greatest message time, and the columns
that exist. Each condition is asked whether it can hold, and whether it can fail, for any message.
Either answer may be "yes" without need, but never "no" without proof.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from logboom.wire.filters.syntax import (
    And,
    Between,
    Compare,
    ComparisonOperator,
    Condition,
    In,
    IsNull,
    IsTrue,
    Not,
    Number,
    Or,
    Property,
    PropertySource,
    Search,
    Text,
)
from logboom.wire.hashing import key_mask, tag_mask
from logboom.wire.head import Attribute, BatchHead


class PruneResult(NamedTuple):
    """Whether a condition may hold, and whether it may fail, for a message of the batch."""

    holds: bool
    fails: bool


Guess: TypeAlias = Callable[[BatchHead], PruneResult]

_OPEN: Final = PruneResult(holds=True, fails=True)
_UNKNOWN: Final = PruneResult(holds=False, fails=False)
_COLUMNS: Final = {
    PropertySource.HEADER: Attribute.HEADERS,
    PropertySource.TAGS: Attribute.TAGS,
    PropertySource.KEYS: Attribute.KEYS,
}


def compile_pruner(node: Condition) -> Guess:
    """Return the function that computes the result of a condition from a head."""
    match node:
        case And():
            return _all([compile_pruner(term) for term in node.terms])
        case Or():
            return _any([compile_pruner(term) for term in node.terms])
        case Not():
            return _not(compile_pruner(node.inner))
        case IsNull():
            return _is_null(node.property)
        case Compare(left=Property() as left, right=Property() as right):
            return _known(left, right)
        case Compare(left=Property() as asked):
            return _predicate(asked, _compared(node.sign, node.right))
        case Compare(right=Property() as asked):
            return _predicate(asked, _compared(node.sign.mirrored, node.left))
        case Between():
            return _predicate(node.property, _compared(ComparisonOperator.MORE_EQUAL, node.low))
        case In():
            texts = all(isinstance(item, Text) for item in node.items)
            found = [item.value for item in node.items if isinstance(item, Text)]
            return _predicate(node.property, _Bounds(tuple(found) if texts else None))
        case Search(property=asked) | IsTrue(value=Property() as asked):
            return _predicate(asked, _Bounds())
    return lambda _: _OPEN


class _Bounds(NamedTuple):
    """Bounds of a property's content for a predicate to hold, as far as a head can tell."""

    texts: tuple[str, ...] | None = None
    """The content is one of these; None: any."""
    least: float | None = None
    """The content is at least this, as a number."""
    above: bool = False
    """True if it must be more than `least`."""


def _compared(sign: ComparisonOperator, value: object) -> _Bounds:
    match value:
        case Text() if sign is ComparisonOperator.EQUAL:
            return _Bounds((value.value,))
        case Number() if sign in (
            ComparisonOperator.MORE,
            ComparisonOperator.MORE_EQUAL,
            ComparisonOperator.EQUAL,
        ):
            return _Bounds(least=value.value, above=sign is ComparisonOperator.MORE)
    return _Bounds()


def _predicate(asked: Property, bounds: _Bounds) -> Guess:
    """Return the pruner of a predicate that is unknown for messages without the property."""
    source, texts, least = asked.source, bounds.texts, bounds.least
    if source is PropertySource.TIMESTAMP:
        if least is None:
            return lambda _: _OPEN
        if bounds.above:
            return lambda head: PruneResult(holds=head.max_timestamp_ms > least, fails=True)
        return lambda head: PruneResult(holds=head.max_timestamp_ms >= least, fails=True)
    column = _COLUMNS[source]
    if source is PropertySource.HEADER or texts is None:
        return _known(asked)
    if source is PropertySource.TAGS:
        masks = [tag_mask(text) for text in texts]
        summary_of = _tag_summary
    else:
        masks = [key_mask(text.encode()) for text in texts]
        summary_of = _key_summary

    def guess(head: BatchHead) -> PruneResult:
        if not head.attributes & column:
            return _UNKNOWN
        summary = summary_of(head)
        return PruneResult(any(summary & mask == mask for mask in masks), fails=True)

    return guess


def _known(*asked: Property) -> Guess:
    """Return the pruner that is unknown if the batch lacks a property's column, else open."""
    needed = 0
    for each in asked:
        needed |= _COLUMNS.get(each.source, 0)
    return lambda head: _OPEN if head.attributes & needed == needed else _UNKNOWN


def _tag_summary(head: BatchHead) -> int:
    return head.tag_summary


def _key_summary(head: BatchHead) -> int:
    return head.key_summary


def _is_null(asked: Property) -> Guess:
    if asked.source is PropertySource.TIMESTAMP:
        return lambda _: PruneResult(holds=False, fails=True)
    column = _COLUMNS[asked.source]
    return lambda head: PruneResult(holds=True, fails=bool(head.attributes & column))


def _all(terms: list[Guess]) -> Guess:
    def guess(head: BatchHead) -> PruneResult:
        chances = [term(head) for term in terms]
        return PruneResult(all(each.holds for each in chances), any(each.fails for each in chances))

    return guess


def _any(terms: list[Guess]) -> Guess:
    def guess(head: BatchHead) -> PruneResult:
        chances = [term(head) for term in terms]
        return PruneResult(any(each.holds for each in chances), all(each.fails for each in chances))

    return guess


def _not(inner: Guess) -> Guess:
    def guess(head: BatchHead) -> PruneResult:
        chance = inner(head)
        return PruneResult(chance.fails, chance.holds)

    return guess
