"""The parser of filter expressions, which yields their tree: a Pratt parser over the tokens.

    condition := condition OR condition | condition AND condition | NOT condition | predicate
    predicate := value (= | <> | < | <= | > | >=) value         at least one a property
               | property [NOT] BETWEEN value AND value
               | property [NOT] IN (literal, …)
               | property IS [NOT] NULL
               | property [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text
               | property | TRUE | FALSE | ( condition )
    value     := property | number | text | TRUE | FALSE

As in SQL, and unlike the grammar of RocketMQ, NOT binds looser than a comparison: `NOT a = 1` is
`NOT (a = 1)`. `a = NULL` could never hold and is refused.
"""

from __future__ import annotations

from typing import Final

from logboom.wire.errors import InvalidFilter
from logboom.wire.filters.syntax import (
    PSEUDO,
    Between,
    Boolean,
    Bound,
    Compare,
    ComparisonOperator,
    Condition,
    In,
    IsNull,
    IsTrue,
    Literal,
    Not,
    Number,
    Operand,
    Property,
    PropertySource,
    Search,
    SearchAnchor,
    Text,
    all_of,
    any_of,
    items_of,
)
from logboom.wire.filters.tokens import Token, TokenKind, invalid, tokens_of

MAX_DEPTH: Final[int] = 32
"""Maximum nesting of parentheses and NOTs."""

MAX_TERMS: Final[int] = 256
"""Maximum number of predicates and items of IN together."""

MAX_SEARCHES: Final[int] = 16
"""Maximum number of CONTAINS, STARTSWITH and ENDSWITH, whose cost grows with the content."""

_OR, _AND, _NOT, _PREDICATE = 1, 2, 3, 4  # binding powers
_SIGNS: Final = {sign.value: sign for sign in ComparisonOperator}
_PARTS: Final = {part.value: part for part in SearchAnchor}
_AFTER_PROPERTY: Final = ("IS", "IN", "BETWEEN", *_PARTS)
_OPERANDS: Final = (Property, Text, Number, Boolean)


def parse(expression: str) -> Condition:
    """Return the tree of an expression.

    Raises:
        InvalidFilter: The error points at the character, and says what was expected there.
    """
    return _Parser(expression).whole()


class _Parser:
    """One walk over the tokens of one expression."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._following = iter(tokens_of(expression))
        self._token = next(self._following)
        self._depth = 0
        self._terms = 0
        self._searches = 0

    def whole(self) -> Condition:
        """Parse the expression up to its end."""
        start = self._token
        node = self._climb(0)
        if self._token.kind is not TokenKind.END:
            bare = "a comparison, " if isinstance(node, _OPERANDS) else ""
            raise self._unexpected(f"{bare}AND, OR or the end")
        return self._condition(node, start)

    def _climb(self, power: int) -> Condition | Operand:
        """Parse an expression whose operators all bind stronger than `power`."""
        start = self._token
        left = self._prefix()
        while (binding := self._binding()) > power:
            if binding == _PREDICATE:
                left = self._predicate(left, start)
                continue
            left = self._condition(left, start)
            join = all_of if self._take().value == "AND" else any_of
            second = self._token
            left = join(left, self._condition(self._climb(binding), second))
        return left

    def _binding(self) -> int:
        """Return how strongly the next token binds the expression before it; 0: not at all."""
        token = self._token
        if token.kind is TokenKind.KEYWORD:
            word = str(token.value)
            if word == "NOT" or word in _AFTER_PROPERTY:
                return _PREDICATE
            return {"OR": _OR, "AND": _AND}.get(word, 0)
        return _PREDICATE if token.kind is TokenKind.SIGN and token.value in _SIGNS else 0

    def _prefix(self) -> Condition | Operand:
        token = self._token
        if self._at_word("NOT"):
            self._take()
            self._descend(token)
            inner = self._token
            node: Condition | Operand = Not(self._condition(self._climb(_NOT), inner))
        elif self._at_sign("("):
            self._take()
            self._descend(token)
            node = self._climb(0)
            if not self._at_sign(")"):
                raise self._unexpected('AND, OR or ")"')
            self._take()
        else:
            return self._operand("a property, a value, NOT or (")
        self._depth -= 1
        return node

    def _predicate(self, left: Condition | Operand, start: Token) -> Condition:
        """Parse the rest of a predicate after its first value: a comparison, or a word."""
        if not isinstance(left, _OPERANDS):
            raise self._unexpected("AND, OR or the end: only values are compared, not conditions")
        self._count(start)
        if self._token.kind is TokenKind.SIGN:
            return self._comparison(left, start)
        negated = self._at_word("NOT")
        if negated:
            self._take()
        word = self._token
        if word.kind is not TokenKind.KEYWORD or word.value not in _AFTER_PROPERTY:
            raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        if negated and word.value == "IS":
            raise self._unexpected("IN or another word: write IS NOT NULL")
        if not isinstance(left, Property):
            raise self._error(start, f"a property before {word.value}")
        self._take()
        node: Condition
        match word.value:
            case "BETWEEN":
                node = self._between(left)
            case "IN":
                node = In(left, self._items())
            case "IS":
                negated = self._null()
                node = IsNull(left)
            case _:
                self._count_search(word)
                node = Search(_PARTS[str(word.value)], left, self._text())
        return Not(node) if negated else node

    def _comparison(self, left: Operand, start: Token) -> Compare:
        token = self._take()
        sign = _SIGNS[str(token.value)]
        second = self._token
        right = self._operand(f'a value after "{sign.value}"', unit=True)
        if not isinstance(left, Property) and not isinstance(right, Property):
            raise self._error(start, "a property on at least one side of the comparison")
        if sign.orders:
            for side, where in ((left, start), (right, second)):
                if isinstance(side, Boolean):
                    raise self._error(where, "a number, text or a property: TRUE has no order")
        return Compare(sign, left, right)

    def _between(self, left: Property) -> Between:
        first = self._token
        low = self._bound("BETWEEN")
        if not self._at_word("AND"):
            raise self._unexpected("AND and the upper bound")
        self._take()
        high = self._bound("AND")
        numbers = isinstance(low, Number) and isinstance(high, Number) and low.value > high.value
        texts = isinstance(low, Text) and isinstance(high, Text) and low.value > high.value
        if numbers or texts:
            raise self._error(first, "the lower bound first: this range is empty")
        return Between(left, low, high)

    def _bound(self, after: str) -> Bound:
        token = self._token
        value = self._operand(f"a number, text or a property after {after}", unit=True)
        if isinstance(value, Boolean):
            raise self._error(token, "a number, text or a property: TRUE has no order")
        return value

    def _items(self) -> tuple[Literal, ...]:
        if not self._at_sign("("):
            raise self._unexpected("( after IN")
        items: list[Literal] = []
        while not items or self._at_sign(","):
            self._take()
            token = self._token
            if token.kind not in (TokenKind.TEXT, TokenKind.NUMBER):
                raise self._unexpected("a number or text in the list")
            self._count(token)
            value = self._take().value
            items.append(Text(value) if isinstance(value, str) else Number(value))
        if not self._at_sign(")"):
            raise self._unexpected('"," or ")"')
        self._take()
        return items_of(items)

    def _null(self) -> bool:
        """Return True if IS is followed by NOT NULL."""
        negated = self._at_word("NOT")
        if negated:
            self._take()
        if not self._at_word("NULL"):
            raise self._unexpected("NULL" if negated else "NULL or NOT NULL")
        self._take()
        return negated

    def _text(self) -> Text:
        token = self._token
        if token.kind is not TokenKind.TEXT:
            raise self._unexpected("text in single quotes")
        return Text(str(self._take().value))

    def _operand(self, expected: str, *, unit: bool = False) -> Operand:
        """Parse one value; with `unit` it may be in parentheses of its own."""
        token = self._token
        if unit and self._at_sign("("):
            return self._enclosed(expected)
        node: Operand
        kind, value, _ = token
        if kind is TokenKind.NAME:
            name = str(value)
            node = Property(name, PSEUDO.get(name, PropertySource.HEADER))
        elif kind is TokenKind.NUMBER and not isinstance(value, str):
            node = Number(value)
        elif kind is TokenKind.TEXT:
            node = Text(str(value))
        elif kind is TokenKind.QUOTED_NAME:
            node = Property(str(value))
        elif kind is TokenKind.KEYWORD and value in ("TRUE", "FALSE"):
            node = Boolean(value == "TRUE")
        elif kind is TokenKind.KEYWORD and value == "NULL":
            raise self._error(token, f"{expected}: to ask for a missing one write IS NULL")
        else:
            raise self._unexpected(expected)
        self._take()
        return node

    def _enclosed(self, expected: str) -> Operand:
        token = self._take()
        self._descend(token)
        node = self._operand(expected, unit=True)
        if not self._at_sign(")"):
            raise self._unexpected('")"')
        self._take()
        self._depth -= 1
        return node

    def _condition(self, node: Condition | Operand, start: Token) -> Condition:
        """Return a node as a condition, or refuse it."""
        if isinstance(node, Property | Boolean):
            self._count(start)
            return IsTrue(node)
        if isinstance(node, Text | Number):
            raise self._unexpected("a comparison: a value alone is not a condition")
        return node

    # Limits and errors.

    def _descend(self, token: Token) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(token, f"at most {MAX_DEPTH} parentheses and NOTs within each other")

    def _count(self, token: Token) -> None:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise self._error(token, f"at most {MAX_TERMS} conditions and items of IN")

    def _count_search(self, token: Token) -> None:
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            raise self._error(token, f"at most {MAX_SEARCHES} searches for text")

    def _take(self) -> Token:
        token = self._token
        if token.kind is not TokenKind.END:
            self._token = next(self._following)
        return token

    def _at_word(self, word: str) -> bool:
        token = self._token
        return token.kind is TokenKind.KEYWORD and token.value == word

    def _at_sign(self, sign: str) -> bool:
        token = self._token
        return token.kind is TokenKind.SIGN and token.value == sign

    def _error(self, token: Token, expected: str) -> InvalidFilter:
        return invalid(self._expression, token.at, expected)

    def _unexpected(self, expected: str) -> InvalidFilter:
        """Return the error for the current token."""
        token = self._token
        match token.kind:
            case TokenKind.END:
                found = "the end"
            case TokenKind.KEYWORD | TokenKind.SIGN:
                found = f'"{token.value}"'
            case _:
                found = token.kind.value
        return invalid(self._expression, token.at, expected, found)
