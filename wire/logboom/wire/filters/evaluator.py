"""From a tree to a function that judges a whole batch, and what that costs.

The rules, where the text of SQL leaves them open:

- a predicate on a missing property is unknown, but IS NULL; unknown is no match, nor is its NOT
- against a number, a property counts as the number it spells. If it spells none it differs from
  every number (= is false, <> true) and has no order with one (<, BETWEEN … are unknown)
- against text, a property counts as text, whatever it spells: `zip = '007'` is not `zip = 7`.
  Text is ordered by its UTF-8 bytes, which is the order of its characters
- two properties are compared as numbers if both spell one, else as text
- against TRUE or FALSE, and alone, a property is what it spells in any case; if neither, it
  differs from both, and alone is unknown
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from logboom.wire.filters.filter_columns import NO, UNKNOWN, YES, FilterColumns, Judge, TernaryBits
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
    Leaf,
    Not,
    Number,
    Operand,
    Or,
    Property,
    PropertySource,
    Search,
    SearchAnchor,
    Text,
)
from logboom.wire.filters.tokens import number_of

Evaluate: TypeAlias = Callable[[FilterColumns], TernaryBits]
_Test: TypeAlias = Callable[[Any, Any], bool]

_TESTS: Final[dict[ComparisonOperator, _Test]] = {
    ComparisonOperator.EQUAL: operator.eq,
    ComparisonOperator.UNEQUAL: operator.ne,
    ComparisonOperator.LESS: operator.lt,
    ComparisonOperator.LESS_EQUAL: operator.le,
    ComparisonOperator.MORE: operator.gt,
    ComparisonOperator.MORE_EQUAL: operator.ge,
}
_DIFFERENT: Final = {ComparisonOperator.EQUAL: NO, ComparisonOperator.UNEQUAL: YES}
"""The result for two values of different kinds; unknown for ordering comparisons."""


def evaluator(node: Condition) -> Evaluate:
    """Return the function that judges a batch by `node` and raises only DamagedBatch."""
    match node:
        case And():
            return every_of(*map(evaluator, node.terms))
        case Or():
            return _any(*map(evaluator, node.terms))
        case Not():
            return _not(evaluator(node.inner))
        case Compare():
            return _compare(node)
        case Between():
            return _between(node)
        case IsNull():
            asked = node.property
            return lambda rows: rows.judged(asked, lambda _: NO, YES)
        case IsTrue():
            return _holds(node.value)
        case In():
            return _judging(node.property, _in(node))
        case Search():
            return _judging(node.property, _search(node))


def leaves(node: Condition) -> Iterator[Leaf]:
    """Yield the predicates of a tree, in the order in which they are written."""
    match node:
        case And() | Or():
            for term in node.terms:
                yield from leaves(term)
        case Not():
            yield from leaves(node.inner)
        case _:
            yield node


def properties(predicates: Sequence[Leaf]) -> set[Property]:
    """Return every property that predicates name."""
    found: list[object] = []
    for leaf in predicates:
        match leaf:
            case Compare():
                found += (leaf.left, leaf.right)
            case Between():
                found += (leaf.property, leaf.low, leaf.high)
            case IsTrue():
                found.append(leaf.value)
            case In() | IsNull() | Search():
                found.append(leaf.property)
    return {each for each in found if isinstance(each, Property)}


def cost_of(predicates: Sequence[Leaf], asked: Collection[Property]) -> int:
    """Return the units that judging a message costs: at most 0.1 µs each, if no content repeats.

    `asked` are the properties of the predicates.
    """
    headers = sum(each.source is PropertySource.HEADER for each in asked)
    return (3 if headers else 0) + headers + sum(map(_cost, predicates))


def _cost(leaf: Leaf) -> int:
    match leaf:
        case Compare(left=Property(), right=Property()):
            return 14
        case Between():
            return 16 if {type(leaf.low), type(leaf.high)} != {Text} else 4
        case Compare(left=Number()) | Compare(right=Number()) | In():
            return 8
        case IsNull() | IsTrue(value=Boolean()):
            return 1
    return 4


def every_of(*terms: Evaluate) -> Evaluate:
    """Return the conjunction, which stops once no message is left for which all could hold."""

    def judge(rows: FilterColumns) -> TernaryBits:
        yes, no = rows.every, 0
        for term in terms:
            found = term(rows)
            yes &= found.yes
            no |= found.no
            if no == rows.every:
                break
        return TernaryBits(yes, no)

    return judge


def _any(*terms: Evaluate) -> Evaluate:
    def judge(rows: FilterColumns) -> TernaryBits:
        yes, no = 0, rows.every
        for term in terms:
            found = term(rows)
            yes |= found.yes
            no &= found.no
            if yes == rows.every:
                break
        return TernaryBits(yes, no)

    return judge


def _not(inner: Evaluate) -> Evaluate:
    def judge(rows: FilterColumns) -> TernaryBits:
        found = inner(rows)
        return TernaryBits(found.no, found.yes)

    return judge


def _judging(asked: Property, judge: Judge) -> Evaluate:
    return lambda rows: rows.judged(asked, judge)


def _holds(value: Property | Boolean) -> Evaluate:
    if isinstance(value, Property):
        return _judging(value, _boolean)
    state = YES if value.value else NO
    return lambda rows: rows.same(state)


def _compare(node: Compare) -> Evaluate:
    left, right, sign = node.left, node.right, node.sign
    if isinstance(left, Property) and isinstance(right, Property):
        return _compare_two(sign, left, right)
    if not isinstance(left, Property):
        left, right, sign = right, left, sign.mirrored
    if not isinstance(left, Property):
        raise TypeError(f"the parser rejects comparisons of two literals: {node}")
    if left.source is PropertySource.TIMESTAMP and isinstance(right, Number):
        return _compare_times(sign, right.value)
    return _judging(left, _against(sign, right))


def _against(sign: ComparisonOperator, value: Operand) -> Judge:
    """Return the judge that compares a content with a literal."""
    test, different = _TESTS[sign], _DIFFERENT.get(sign, UNKNOWN)
    match value:
        case Number(value=number):

            def judge_number(content: bytes) -> int:
                found = number_of(content)
                if found is None:
                    return different
                return YES if test(found, number) else NO

            return judge_number
        case Text():
            text = value.value.encode()
            return lambda content: YES if test(content, text) else NO
        case Boolean():
            wanted = YES if value.value else NO

            def judge_boolean(content: bytes) -> int:
                found = _boolean(content)
                if found == UNKNOWN:
                    return different
                return YES if test(found, wanted) else NO

            return judge_boolean
        case Property():
            raise TypeError(f"{value} is not a literal")


def _compare_two(sign: ComparisonOperator, left: Property, right: Property) -> Evaluate:
    test = _TESTS[sign]

    def judge_pair(one: bytes | None, two: bytes | None) -> int:
        if one is None or two is None:
            return UNKNOWN
        first, second = number_of(one), number_of(two)
        if first is None or second is None:
            return YES if test(one, two) else NO
        return YES if test(first, second) else NO

    def judge(rows: FilterColumns) -> TernaryBits:
        ones, twos = rows.column(left), rows.column(right)
        if ones is None or twos is None:
            return rows.same(UNKNOWN)
        return rows.truth(bytes(map(judge_pair, ones, twos)))

    return judge


def _compare_times(sign: ComparisonOperator, number: float) -> Evaluate:
    test = _TESTS[sign]
    mirrored = partial(_TESTS[sign.mirrored], number)  # its free argument is the second

    def judge(rows: FilterColumns) -> TernaryBits:
        times = rows.times()
        if times is None:
            return rows.same(YES if test(rows.first_time, number) else NO)
        yes = rows.truth(bytes(map(mirrored, times))).yes
        return TernaryBits(yes, rows.every & ~yes)

    return judge


def _between(node: Between) -> Evaluate:
    low, high = node.low, node.high
    if isinstance(low, Text) and isinstance(high, Text):
        first, last = low.value.encode(), high.value.encode()
        return _judging(node.property, lambda each: YES if first <= each <= last else NO)
    return every_of(
        _compare(Compare(ComparisonOperator.MORE_EQUAL, node.property, low)),
        _compare(Compare(ComparisonOperator.LESS_EQUAL, node.property, high)),
    )


def _in(node: In) -> Judge:
    texts = frozenset(item.value.encode() for item in node.items if isinstance(item, Text))
    numbers = frozenset(item.value for item in node.items if isinstance(item, Number))
    if not numbers:
        return lambda content: YES if content in texts else NO
    # A content that is not a number is None, which is in no such set.
    return lambda content: YES if content in texts or number_of(content) in numbers else NO


def _search(node: Search) -> Judge:
    text = node.text.value.encode()
    match node.part:
        case SearchAnchor.ANYWHERE:
            return lambda content: YES if text in content else NO
        case SearchAnchor.START:
            return lambda content: YES if content.startswith(text) else NO
        case SearchAnchor.END:
            return lambda content: YES if content.endswith(text) else NO


def _boolean(content: bytes) -> int:
    """Judge a content as a boolean."""
    match content.lower():
        case b"true":
            return YES
        case b"false":
            return NO
    return UNKNOWN
