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
_TEXT: Final = re.compile(r"'((?:[^']|'')*+)'")
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*+)"')
_SIGN: Final = re.compile(r"<>|!=|<=|>=|[=<>(),]")
_BYTES_NUMBER: Final = re.compile(_NUMBER.pattern.encode())

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
    found = []
    at = _skip(expression, 0)
    while at < len(expression):
        token, end = _token(expression, at)
        found.append(token)
        at = _skip(expression, end)
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


def _token(expression: str, at: int) -> tuple[Token, int]:
    """Return the token that begins at `at`, and the position of its end."""
    if match := _NAME.match(expression, at):
        word = match[0]
        if word.upper() in KEYWORDS:
            return Token(TokenKind.KEYWORD, word.upper(), at), match.end()
        return Token(TokenKind.NAME, word, at), match.end()
    if match := _NUMBER.match(expression, at):
        return Token(TokenKind.NUMBER, _checked_number(expression, match), at), match.end()
    for mark, pattern, kind in (
        ("'", _TEXT, TokenKind.TEXT),
        ('"', _QUOTED, TokenKind.QUOTED_NAME),
    ):
        if expression.startswith(mark, at):
            if match := pattern.match(expression, at):
                return Token(kind, match[1].replace(mark * 2, mark), at), match.end()
            raise invalid(expression, at, f"{kind.value} that ends: a closing {mark} is missing")
    for mark, hint in _HINTS.items():
        if expression.startswith(mark, at) and not expression.startswith("!=", at):
            raise invalid(expression, at, hint, f'"{mark}"')
    if match := _SIGN.match(expression, at):
        sign = "<>" if match[0] == "!=" else match[0]
        return Token(TokenKind.SIGN, sign, at), match.end()
    raise invalid(expression, at, "a name, a value or a sign", ascii(expression[at]))


def _checked_number(expression: str, match: re.Match[str]) -> int | float:
    at, end = match.span()
    if end - at > MAX_NUMBER:
        raise invalid(expression, at, f"a number of at most {MAX_NUMBER} characters")
    if _NAME.match(expression, end) or expression.startswith(".", end):
        raise invalid(expression, end, "a space after the number", ascii(expression[end]))
    number = _canonical(number_of(match[0].encode()))
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


def _skip(expression: str, at: int) -> int:
    match = _SPACE.match(expression, at)
    return at if match is None else match.end()
