"""Conditions for the tests of filters: strategies, and a slow judge that goes by the rules alone.

The judge looks at one message at a time as a plain mapping and knows nothing of columns, bitmaps
or memories. None is unknown. It repeats the table of signs and the walk over the conditions on
purpose: a model that shared code with what it judges would share its mistakes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from logboom.wire.filters.syntax import (
    And,
    Between,
    Boolean,
    Compare,
    ComparisonOperator,
    Condition,
    In,
    IsNull,
    IsTrue,
    Not,
    Number,
    Operand,
    Or,
    Property,
    PropertySource,
    Search,
    SearchAnchor,
    Text,
    all_of,
    any_of,
    items_of,
)


class Row(NamedTuple):
    """One message, as far as filters look at it."""

    headers: dict[str, bytes] | None = None
    tag: str | None = None
    key: bytes | None = None
    timestamp_ms: int = 0


SIGNS: Final[dict[ComparisonOperator, Callable[[Any, Any], bool]]] = {
    ComparisonOperator.EQUAL: operator.eq,
    ComparisonOperator.UNEQUAL: operator.ne,
    ComparisonOperator.LESS: operator.lt,
    ComparisonOperator.LESS_EQUAL: operator.le,
    ComparisonOperator.MORE: operator.gt,
    ComparisonOperator.MORE_EQUAL: operator.ge,
}


def judged(node: Condition, row: Row) -> bool | None:
    """Whether the condition holds for the message; None: unknown."""
    match node:
        case And():
            found = [judged(term, row) for term in node.terms]
            return False if False in found else None if None in found else True
        case Or():
            found = [judged(term, row) for term in node.terms]
            return True if True in found else None if None in found else False
        case Not():
            inner = judged(node.inner, row)
            return None if inner is None else not inner
        case IsNull():
            return content(node.property, row) is None
        case IsTrue():
            return _truth(node.value, row)
        case Compare():
            return _compared(node.sign, node.left, node.right, row)
        case Between():
            low = Compare(ComparisonOperator.LESS_EQUAL, node.low, node.property)
            high = Compare(ComparisonOperator.LESS_EQUAL, node.property, node.high)
            return judged(And((low, high)), row)
        case In():
            equal = [
                _compared(ComparisonOperator.EQUAL, node.property, item, row) for item in node.items
            ]
            return None if None in equal else True in equal
        case Search():
            return _found(node, row)


def content(asked: Property, row: Row) -> bytes | None:
    """The content of a property of a message."""
    match asked.source:
        case PropertySource.TAGS:
            return None if row.tag is None else row.tag.encode()
        case PropertySource.KEYS:
            return row.key
        case PropertySource.TIMESTAMP:
            return str(row.timestamp_ms).encode()
    return (row.headers or {}).get(asked.name)


def spelled(written: bytes) -> Fraction | float | None:
    """The number that bytes spell: whole ones exact, others as a float."""
    text = written.decode("latin-1")
    if len(text) > 40 or not re.fullmatch(
        r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text
    ):
        return None
    if re.fullmatch("[+-]?[0-9]+", text):
        return Fraction(text)
    number = float(text)
    return None if number in (float("inf"), -float("inf")) else number


def _truth(value: Property | Boolean, row: Row) -> bool | None:
    if isinstance(value, Boolean):
        return value.value
    found = content(value, row)
    return None if found is None else {b"true": True, b"false": False}.get(found.lower())


def _compared(sign: ComparisonOperator, left: Operand, right: Operand, row: Row) -> bool | None:
    test, different = (
        SIGNS[sign],
        {ComparisonOperator.EQUAL: False, ComparisonOperator.UNEQUAL: True}.get(sign),
    )
    sides: list[bytes] = []
    for side in (left, right):
        if isinstance(side, Property):
            found = content(side, row)
            if found is None:
                return None
            sides.append(found)
        else:
            sides.append(side.value.encode() if isinstance(side, Text) else b"")
    numbers: list[Any] = [
        side.value if isinstance(side, Number) else spelled(written)
        for side, written in zip((left, right), sides, strict=True)
    ]
    kinds = {type(left), type(right)} - {Property}
    if Number in kinds:
        return different if None in numbers else test(*numbers)
    if Boolean in kinds:
        worth = [
            side.value if isinstance(side, Boolean) else _truth(side, row)
            for side in (left, right)
            if isinstance(side, Property | Boolean)
        ]
        return different if None in worth else test(*worth)
    if not kinds and None not in numbers:
        return test(*numbers)
    return test(*sides)


def _found(node: Search, row: Row) -> bool | None:
    found, text = content(node.property, row), node.text.value.encode()
    if found is None:
        return None
    match node.part:
        case SearchAnchor.START:
            return found[: len(text)] == text
        case SearchAnchor.END:
            return found[max(len(found) - len(text), 0) :] == text
    return any(found[at : at + len(text)] == text for at in range(len(found) + 1))


# Strategies. Few names and values, so that conditions and messages meet.

NAMES: Final = ("price", "region", "urgent", "and", "TAGS", "content-type", 'say "x"', "", "ü.b$1")
WORDS: Final = ("a", "b", "", "true", "FALSE", "5", "05", "5.0", "-3", "1e2", "it's", "ü", "zz|")
NUMBERS: Final = (0, 5, -3, 100, 5.5, 1e300, -0.125, 2**53 + 1, 10**20)

texts = st.sampled_from(WORDS).map(Text)
numbers = st.sampled_from(NUMBERS).map(Number)
props = st.sampled_from(
    [Property(name) for name in NAMES]
    + [
        Property(source.value, source)
        for source in PropertySource
        if source is not PropertySource.HEADER
    ]
)
bounds = st.one_of(props, texts, numbers)


@st.composite
def compares(draw: st.DrawFn) -> Compare:
    """A comparison that the parser lets through."""
    sign = draw(st.sampled_from(ComparisonOperator))
    other = bounds if sign.orders else bounds | st.booleans().map(Boolean)
    sides = [draw(props), draw(other)]
    if draw(st.booleans()):
        sides.reverse()
    return Compare(sign, sides[0], sides[1])


@st.composite
def betweens(draw: st.DrawFn) -> Between:
    """A range that is not empty by its writing."""
    low, high = draw(bounds), draw(bounds)
    if isinstance(low, Number) and isinstance(high, Number) and low.value > high.value:
        low, high = high, low
    if isinstance(low, Text) and isinstance(high, Text) and low.value > high.value:
        low, high = high, low
    return Between(draw(props), low, high)


leaf_conditions: st.SearchStrategy[Condition] = st.one_of(
    compares(),
    betweens(),
    st.builds(In, props, st.lists(texts | numbers, min_size=1, max_size=4).map(items_of)),
    st.builds(IsNull, props),
    st.builds(Search, st.sampled_from(SearchAnchor), props, texts),
    st.builds(IsTrue, st.one_of(props, st.booleans().map(Boolean))),
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    leaf_conditions,
    lambda inner: st.one_of(
        st.builds(Not, inner), st.builds(all_of, inner, inner), st.builds(any_of, inner, inner)
    ),
    max_leaves=8,
)
"""Any condition, of no more searches and terms than the limits allow."""

contents = st.sampled_from([word.encode() for word in WORDS] + [b"\xff", b"1" * 41, b"1e999"])
rows = st.builds(
    Row,
    st.none() | st.dictionaries(st.sampled_from(NAMES), contents, max_size=4),
    st.none() | st.sampled_from(WORDS),
    st.none() | contents,
    st.sampled_from([0, 5, -3, 100, 1_700_000_000_000]),
)
