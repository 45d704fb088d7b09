"""What the head of a batch alone says of a filter: whether surely no message matches.

A broker passes over such a batch without opening its body. The head has a summary of the tags and
one of the keys, which never miss what is in the batch; the greatest message time; and which
columns exist at all. Each condition is asked whether it can hold, and whether it can fail, for
any message; both answers may be yes without need, never no without reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from logboom.wire.filters_syntax import (
    And,
    Between,
    Compare,
    Condition,
    Holds,
    In,
    IsNull,
    Not,
    Number,
    Or,
    Property,
    Search,
    Sign,
    Source,
    Text,
)
from logboom.wire.hashing import key_mask, tag_mask
from logboom.wire.head import Attribute, BatchHead


class Chance(NamedTuple):
    """Whether a condition may hold, and whether it may fail, for a message of the batch."""

    holds: bool
    fails: bool


Guess: TypeAlias = Callable[[BatchHead], Chance]

_OPEN: Final = Chance(holds=True, fails=True)
_UNKNOWN: Final = Chance(holds=False, fails=False)
_COLUMNS: Final = {
    Source.HEADER: Attribute.HEADERS,
    Source.TAGS: Attribute.TAGS,
    Source.KEYS: Attribute.KEYS,
}


def guesser(node: Condition) -> Guess:
    """The function that tells a condition's chance from a head."""
    match node:
        case And():
            return _all([guesser(term) for term in node.terms])
        case Or():
            return _any([guesser(term) for term in node.terms])
        case Not():
            return _not(guesser(node.inner))
        case IsNull():
            return _is_null(node.property)
        case Compare(left=Property() as left, right=Property() as right):
            return _known(left, right)
        case Compare(left=Property() as asked):
            return _predicate(asked, _compared(node.sign, node.right))
        case Compare(right=Property() as asked):
            return _predicate(asked, _compared(node.sign.mirrored, node.left))
        case Between():
            return _predicate(node.property, _compared(Sign.MORE_EQUAL, node.low))
        case In():
            texts = all(isinstance(item, Text) for item in node.items)
            found = [item.value for item in node.items if isinstance(item, Text)]
            return _predicate(node.property, _Bounds(tuple(found) if texts else None))
        case Search(property=asked) | Holds(value=Property() as asked):
            return _predicate(asked, _Bounds())
    return lambda _: _OPEN


class _Bounds(NamedTuple):
    """What a property's content must be for a predicate to hold, as far as a head can tell."""

    texts: tuple[str, ...] | None = None
    """One of these; None: it may be any."""
    least: float | None = None
    """At least this, as a number."""
    above: bool = False
    """More than `least`."""


def _compared(sign: Sign, value: object) -> _Bounds:
    match value:
        case Text() if sign is Sign.EQUAL:
            return _Bounds((value.value,))
        case Number() if sign in (Sign.MORE, Sign.MORE_EQUAL, Sign.EQUAL):
            return _Bounds(least=value.value, above=sign is Sign.MORE)
    return _Bounds()


def _predicate(asked: Property, bounds: _Bounds) -> Guess:
    """A predicate that is unknown for every message without the property."""
    source, texts, least = asked.source, bounds.texts, bounds.least
    if source is Source.TIMESTAMP:
        if least is None:
            return lambda _: _OPEN
        if bounds.above:
            return lambda head: Chance(holds=head.max_timestamp_ms > least, fails=True)
        return lambda head: Chance(holds=head.max_timestamp_ms >= least, fails=True)
    column = _COLUMNS[source]
    if source is Source.HEADER or texts is None:
        return _known(asked)
    if source is Source.TAGS:
        masks = [tag_mask(text) for text in texts]
        summary_of = _tag_summary
    else:
        masks = [key_mask(text.encode()) for text in texts]
        summary_of = _key_summary

    def guess(head: BatchHead) -> Chance:
        if not head.attributes & column:
            return _UNKNOWN
        summary = summary_of(head)
        return Chance(any(summary & mask == mask for mask in masks), fails=True)

    return guess


def _known(*asked: Property) -> Guess:
    """Unknown for all where the batch lacks the column of a property, else open."""
    needed = 0
    for each in asked:
        needed |= _COLUMNS.get(each.source, 0)
    return lambda head: _OPEN if head.attributes & needed == needed else _UNKNOWN


def _tag_summary(head: BatchHead) -> int:
    return head.tag_summary


def _key_summary(head: BatchHead) -> int:
    return head.key_summary


def _is_null(asked: Property) -> Guess:
    if asked.source is Source.TIMESTAMP:
        return lambda _: Chance(holds=False, fails=True)
    column = _COLUMNS[asked.source]
    return lambda head: Chance(holds=True, fails=bool(head.attributes & column))


def _all(terms: list[Guess]) -> Guess:
    def guess(head: BatchHead) -> Chance:
        chances = [term(head) for term in terms]
        return Chance(all(each.holds for each in chances), any(each.fails for each in chances))

    return guess


def _any(terms: list[Guess]) -> Guess:
    def guess(head: BatchHead) -> Chance:
        chances = [term(head) for term in terms]
        return Chance(any(each.holds for each in chances), all(each.fails for each in chances))

    return guess


def _not(inner: Guess) -> Guess:
    def guess(head: BatchHead) -> Chance:
        chance = inner(head)
        return Chance(chance.fails, chance.holds)

    return guess
