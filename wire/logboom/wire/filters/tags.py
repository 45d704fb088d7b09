"""Tag expressions: `*` for all messages, `a || b || c` for those with one of these tags.

Blanks around a tag are ignored. A tag that contains `|` or the word `WHERE`, begins with `"`,
begins or ends with a blank, or is `*`, is written in double quotes, with each `"` in it doubled.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from logboom.wire.errors import InvalidRequest
from logboom.wire.filters.tokens import MAX_LENGTH, invalid

MAX_TAGS: Final[int] = 256
"""Maximum number of tags in an expression."""

ALL: Final = None
"""The result of parsing `*`: every message, with a tag or without."""

_QUOTED: Final = re.compile(r'"((?:[^"]|"")*+)"')
_BARE: Final = re.compile(r"[^|]*+")
_WORD: Final = re.compile(r"(?:^|(?<=\s))WHERE(?=\s|$)")
_BREAK: Final = re.compile(r"\|\||(?:^|(?<=\s))WHERE(?=\s|$)")


def parse_tags(expression: str) -> frozenset[str] | None:
    """Return the tags of an expression, or ALL.

    Raises:
        InvalidFilter: The error points at the character, and says what was expected there.
    """
    if len(expression) > MAX_LENGTH:
        raise invalid(expression, MAX_LENGTH, f"the end: it has at most {MAX_LENGTH} characters")
    if expression.strip() == "*":
        return ALL
    tags: set[str] = set()
    at = 0
    while True:
        tag, at = _tag(expression, at)
        tags.add(tag)
        if len(tags) > MAX_TAGS:
            raise invalid(expression, at - 1, f"at most {MAX_TAGS} tags")
        if at == len(expression):
            return frozenset(tags)
        if not expression.startswith("||", at):
            expected = '"||" between two tags: a tag with | in it stands in "quotes"'
            raise invalid(expression, at, expected)
        at += 2


def check_tags(tags: Collection[str]) -> frozenset[str]:
    """Check tags that were given one by one.

    Raises:
        InvalidRequest: There are none or too many, or one is empty or not text.
    """
    if isinstance(tags, str) or not tags or not all(type(tag) is str and tag for tag in tags):
        raise InvalidRequest(f'tags are "a || b", "*" or a list of strings, not {tags!r:.80}')
    found = frozenset(tags)
    if len(found) > MAX_TAGS:
        raise InvalidRequest(f"a filter names at most {MAX_TAGS} tags, not {len(found)}")
    try:
        "".join(found).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"a tag is text that UTF-8 can hold: {error}") from error
    return found


def tags_text(tags: Collection[str] | None) -> str:
    """Return the canonical expression: `parse_tags(tags_text(tags)) == tags`."""
    return "*" if tags is ALL else " || ".join(map(_written, sorted(tags)))


def split_where(text: str) -> tuple[str, str | None]:
    """Split `a || b WHERE price > 3` into its tag expression and its property expression.

    The latter is None without a WHERE outside of quotes. Nothing is checked here.
    """
    at = 0
    # A longer tag expression is refused, whatever it is.
    while at <= MAX_LENGTH:
        while at < len(text) and text[at].isspace():
            at += 1
        if text.startswith('"', at):
            quoted = _QUOTED.match(text, at)
            at = len(text) if quoted is None else quoted.end()
        found = _BREAK.search(text, at)
        if found is None:
            break
        if found[0] == "WHERE":
            return text[: found.start()], text[found.end() :]
        at = found.end()
    return text, None


def _tag(expression: str, at: int) -> tuple[str, int]:
    """Return the tag after `at`, and the start of what follows it and its blanks."""
    start = at
    while start < len(expression) and expression[start].isspace():
        start += 1
    if expression.startswith('"', start):
        quoted = _QUOTED.match(expression, start)
        if quoted is None:
            raise invalid(expression, start, 'a closing " for this one')
        tag, end = quoted[1].replace('""', '"'), quoted.end()
        while end < len(expression) and expression[end].isspace():
            end += 1
    else:
        bare = _BARE.match(expression, start)
        tag, end = ("", start) if bare is None else (bare[0].rstrip(), bare.end())
        if tag == "*":
            raise invalid(expression, start, 'a tag: "*" stands alone, for all messages')
    if not tag:
        raise invalid(expression, start, "a tag")
    try:
        tag.encode()
    except UnicodeEncodeError:
        raise invalid(expression, start, "a tag that UTF-8 can hold") from None
    return tag, end


def _written(tag: str) -> str:
    plain = "|" not in tag and not tag.startswith('"') and tag.strip() == tag and tag != "*"
    plain = plain and _WORD.search(tag) is None
    return tag if plain else '"' + tag.replace('"', '""') + '"'
