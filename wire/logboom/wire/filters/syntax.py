"""The meaning of a filter expression: a tree, and its canonical text.

`str(node)` is canonical: `parse(str(node)) == node`, keywords in capitals, one space, no
superfluous parentheses, the items of IN sorted. Two expressions that differ only in notation have
one text, by which subscriptions are compared; the order of AND and OR is kept.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

from msgspec import Struct

from logboom.wire.filters.tokens import is_plain_name


class PropertySource(Enum):
    """The source of a property's content; the value is the name of a pseudo property."""

    HEADER = ""
    TAGS = "TAGS"
    """The message's tag."""
    KEYS = "KEYS"
    """The message's key."""
    TIMESTAMP = "_timestamp"
    """Message time in ms since 1970 UTC, as decimal text."""


PSEUDO: Final = {
    source.value: source for source in PropertySource if source is not PropertySource.HEADER
}
"""Names that, unquoted, are not headers. In double quotes they are names of headers."""


class ComparisonOperator(Enum):
    """A comparison."""

    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    LESS_EQUAL = "<="
    MORE = ">"
    MORE_EQUAL = ">="

    @property
    def mirrored(self) -> ComparisonOperator:
        """The comparison with its sides exchanged."""
        return _MIRRORED.get(self, self)

    @property
    def orders(self) -> bool:
        """True if it tests more than equality."""
        return self not in (ComparisonOperator.EQUAL, ComparisonOperator.UNEQUAL)


_MIRRORED: Final = {
    ComparisonOperator.LESS: ComparisonOperator.MORE,
    ComparisonOperator.MORE: ComparisonOperator.LESS,
    ComparisonOperator.LESS_EQUAL: ComparisonOperator.MORE_EQUAL,
    ComparisonOperator.MORE_EQUAL: ComparisonOperator.LESS_EQUAL,
}


class SearchAnchor(Enum):
    """The part of a content in which a text is searched."""

    ANYWHERE = "CONTAINS"
    START = "STARTSWITH"
    END = "ENDSWITH"


class Property(Struct, frozen=True):
    """A header by its name, or a pseudo property (whose `name` is its own)."""

    name: str
    source: PropertySource = PropertySource.HEADER

    def __str__(self) -> str:
        if self.source is not PropertySource.HEADER or (
            is_plain_name(self.name) and self.name not in PSEUDO
        ):
            return self.name
        return '"' + self.name.replace('"', '""') + '"'


class Text(Struct, frozen=True):
    """Text in quotes."""

    value: str

    def __str__(self) -> str:
        return "'" + self.value.replace("'", "''") + "'"


class Number(Struct, frozen=True):
    """A number; a whole one below 2**53 is always an int."""

    value: int | float

    def __str__(self) -> str:
        return repr(self.value)


class Boolean(Struct, frozen=True):
    """TRUE or FALSE."""

    value: bool

    def __str__(self) -> str:
        return "TRUE" if self.value else "FALSE"


class Compare(Struct, frozen=True):
    """Two values, at least one of them a property."""

    sign: ComparisonOperator
    left: Operand
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} {self.sign.value} {self.right}"


class Between(Struct, frozen=True):
    """`low <= property AND property <= high`."""

    property: Property
    low: Bound
    high: Bound

    def __str__(self) -> str:
        return self.worded("BETWEEN")

    def worded(self, word: str) -> str:
        """The text with BETWEEN or NOT BETWEEN."""
        return f"{self.property} {word} {self.low} AND {self.high}"


class In(Struct, frozen=True):
    """The content is equal to one of the items, which `items_of` sorts."""

    property: Property
    items: tuple[Literal, ...]

    def __str__(self) -> str:
        return self.worded("IN")

    def worded(self, word: str) -> str:
        """The text with IN or NOT IN."""
        return f"{self.property} {word} ({', '.join(map(str, self.items))})"


class IsNull(Struct, frozen=True):
    """The message lacks the property. Never unknown."""

    property: Property

    def __str__(self) -> str:
        return self.worded("IS NULL")

    def worded(self, word: str) -> str:
        """The text with IS NULL or IS NOT NULL."""
        return f"{self.property} {word}"


class Search(Struct, frozen=True):
    """The content contains a text."""

    part: SearchAnchor
    property: Property
    text: Text

    def __str__(self) -> str:
        return self.worded(self.part.value)

    def worded(self, word: str) -> str:
        """The text with the search's word, or NOT before it."""
        return f"{self.property} {word} {self.text}"


class IsTrue(Struct, frozen=True):
    """A value as a condition: TRUE, FALSE, or a property with the text true or false."""

    value: Property | Boolean

    def __str__(self) -> str:
        return str(self.value)


class Not(Struct, frozen=True):
    """The negation; unknown stays unknown."""

    inner: Condition

    def __str__(self) -> str:
        match self.inner:
            case Between() as inner:
                return inner.worded("NOT BETWEEN")
            case In() as inner:
                return inner.worded("NOT IN")
            case IsNull() as inner:
                return inner.worded("IS NOT NULL")
            case Search() as inner:
                return inner.worded(f"NOT {inner.part.value}")
            case And() | Or():
                return f"NOT ({self.inner})"
        return f"NOT {self.inner}"


class And(Struct, frozen=True):
    """All of two or more terms, none of them an And, as built by `all_of`."""

    terms: tuple[Condition, ...]

    def __str__(self) -> str:
        return " AND ".join(
            f"({term})" if isinstance(term, Or) else str(term) for term in self.terms
        )


class Or(Struct, frozen=True):
    """Any of two or more terms, none of them an Or, as built by `any_of`."""

    terms: tuple[Condition, ...]

    def __str__(self) -> str:
        return " OR ".join(map(str, self.terms))


Literal: TypeAlias = Text | Number
Bound: TypeAlias = Property | Text | Number
Operand: TypeAlias = Property | Text | Number | Boolean
Leaf: TypeAlias = Compare | Between | In | IsNull | Search | IsTrue
Condition: TypeAlias = Leaf | Not | And | Or


def all_of(left: Condition, right: Condition) -> And:
    """Return the conjunction; chains become flat, because AND is associative."""
    return And((*_terms(left, And), *_terms(right, And)))


def any_of(left: Condition, right: Condition) -> Or:
    """Return the disjunction; chains become flat."""
    return Or((*_terms(left, Or), *_terms(right, Or)))


def items_of(items: list[Literal]) -> tuple[Literal, ...]:
    """Return the items of IN, each once: numbers first, both kinds in order."""
    numbers = sorted({item.value for item in items if isinstance(item, Number)})
    texts = sorted({item.value for item in items if isinstance(item, Text)})
    return (*map(Number, numbers), *map(Text, texts))


def _terms(node: Condition, kind: type[And | Or]) -> tuple[Condition, ...]:
    return node.terms if isinstance(node, kind) else (node,)
