"""The tokens of a filter expression, each with its position.

Keywords are written in any case; names are case-sensitive. A plain name begins with a letter or `_`
and continues with letters, digits, `_`, `.` and `$`; any other name is in double quotes. Text is in
single quotes. In either kind of quotes a quote is doubled. Numbers are decimal, with an optional
sign, point and exponent.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Final, NamedTuple

from logboom.wire.errors import InvalidFilter

MAX_LENGTH: Final[int] = 8192
"""Maximum length of a filter expression, and of a tag expression, in characters."""

MAX_TOKENS: Final[int] = 768
"""Maximum number of tokens of a filter expression, for each of which reading it costs some 5 µs."""

MAX_NUMBER: Final[int] = 40
"""Maximum length of a number, in an expression and in a header: a longer one is not a number."""

_SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", *_SEARCHES)
)
"""Reserved words; as a header's name they are written in double quotes."""


class TokenKind(Enum):
    """The kind of a token; the value is its name in error messages."""

    NAME = "a name"
    QUOTED_NAME = "a name in quotes"
    TEXT = "text"
    NUMBER = "a number"
    KEYWORD = "a keyword"
    SIGN = "a sign"
    END = "the end"


class Token(NamedTuple):
    """A token. `value`: the name, text, number, keyword (upper case) or sign."""

    kind: TokenKind
    value: str | int | float
    at: int
    """Position of its first character."""


_SPACE: Final = re.compile(r"\s*+")
_NAME: Final = re.compile(r"[^\W\d][\w.$]*+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_TOKEN: Final = re.compile(
    rf"""(?:({_NAME.pattern})|({_NUMBER.pattern})|'((?:[^']|'')*+)'|"((?:[^"]|"")*+)\""""
    r"|(<>|!=|<=|>=|=(?!=)|[<>(),]))\s*+"
)
"""A token and the space behind it; the groups are those of `_GROUPS`."""
_BYTES_NUMBER: Final = re.compile(_NUMBER.pattern.encode())

_GROUPS: Final = (
    TokenKind.END,
    TokenKind.NAME,
    TokenKind.NUMBER,
    TokenKind.TEXT,
    TokenKind.QUOTED_NAME,
    TokenKind.SIGN,
)
_HINTS: Final = {
    "==": 'a comparison: write "=" for equal',
    "||": 'a keyword: write OR (tags have "||", in an expression of their own)',
    "&&": "a keyword: write AND",
    "!": "a keyword: write NOT, or <> for not equal",
    "-": 'a sign or a keyword: there is no arithmetic, and a name with "-" stands in "quotes"',
    "+": "a sign or a keyword: there is no arithmetic",
    "*": "a sign or a keyword: there is no arithmetic",
    "/": "a sign or a keyword: there is no arithmetic",
}


def is_plain_name(name: str) -> bool:
    """Return True if a name needs no quotes in an expression."""
    return _NAME.fullmatch(name) is not None and name.upper() not in KEYWORDS


def number_of(content: bytes) -> int | float | None:
    """Return the number that a property's content spells, as in an expression, or None.

    Whole numbers are exact. A number beyond the range of a float is not one.
    """
    if len(content) > MAX_NUMBER:
        return None
    if content.isdigit() or (content[:1] in (b"-", b"+") and content[1:].isdigit()):
        return int(content)
    if _BYTES_NUMBER.fullmatch(content) is None:
        return None
    number = float(content)
    return number if math.isfinite(number) else None


def tokens_of(expression: str) -> list[Token]:
    """Return the tokens of an expression, followed by one END.

    Raises:
        InvalidFilter: No token begins at a character; the error points at it.
    """
    if len(expression) > MAX_LENGTH:
        raise invalid(expression, MAX_LENGTH, f"the end: it has at most {MAX_LENGTH} characters")
    if (at := _unsound(expression)) is not None:
        raise invalid(expression, at, "a character that UTF-8 can hold")
    found: list[Token] = []
    match = _SPACE.match(expression)
    at = 0 if match is None else match.end()
    while at < len(expression):
        if len(found) == MAX_TOKENS:
            expected = f"the end: it has at most {MAX_TOKENS} names, values, words and signs"
            raise invalid(expression, at, expected)
        match = _TOKEN.match(expression, at)
        if match is None:
            raise _no_token(expression, at)
        found.append(_token(expression, match, at))
        at = match.end()
    found.append(Token(TokenKind.END, "", len(expression)))
    return found


def invalid(expression: str, at: int, expected: str, found: str = "") -> InvalidFilter:
    """Return the error for an expression that is wrong at a position."""
    seen = f", not {found}" if found else ""
    text = f"filter: expected {expected}{seen}, at character {at + 1}"
    # The size of an answer is bounded, whatever was requested.
    shown = expression[: MAX_LENGTH + 1]
    shown = shown.encode(errors="replace").decode()
    return InvalidFilter(text, expression=shown, position=at, expected=expected)


def _token(expression: str, match: re.Match[str], at: int) -> Token:
    """Return the token of a match that begins at `at`."""
    group = match.lastindex or 0
    kind, text = _GROUPS[group], match[group]
    if kind is TokenKind.SIGN:
        return Token(kind, "<>" if text == "!=" else text, at)
    if kind is TokenKind.NAME:
        word = text.upper()
        return Token(TokenKind.KEYWORD, word, at) if word in KEYWORDS else Token(kind, text, at)
    if kind is TokenKind.NUMBER:
        return Token(kind, _checked_number(expression, *match.span(group)), at)
    mark = "'" if kind is TokenKind.TEXT else '"'
    return Token(kind, text.replace(mark * 2, mark), at)


def _no_token(expression: str, at: int) -> InvalidFilter:
    """Return the error for a character at which no token begins."""
    for mark, kind in (("'", TokenKind.TEXT), ('"', TokenKind.QUOTED_NAME)):
        if expression.startswith(mark, at):
            return invalid(expression, at, f"{kind.value} that ends: a closing {mark} is missing")
    for mark, hint in _HINTS.items():
        if expression.startswith(mark, at):
            return invalid(expression, at, hint, f'"{mark}"')
    return invalid(expression, at, "a name, a value or a sign", ascii(expression[at]))


def _checked_number(expression: str, at: int, end: int) -> int | float:
    if end - at > MAX_NUMBER:
        raise invalid(expression, at, f"a number of at most {MAX_NUMBER} characters")
    if _NAME.match(expression, end) or expression.startswith(".", end):
        raise invalid(expression, end, "a space after the number", ascii(expression[end]))
    number = _canonical(number_of(expression[at:end].encode()))
    if number is None:
        raise invalid(expression, at, "a number within the range of a 64-bit float")
    return number


def _canonical(number: float | None) -> int | float | None:
    """Return equal numbers such as 5.0 and 5 as one, so that their expressions are one."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 1 << 53:
        return int(number)
    return number


def _unsound(expression: str) -> int | None:
    """Return the position of the first lone surrogate."""
    try:
        expression.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None
