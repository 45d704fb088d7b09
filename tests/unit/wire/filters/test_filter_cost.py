"""No filter that may be sent costs a node more than a turn can spare, whatever it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Final

import pytest

from logboom.nodes.replica.pull_filter import sieve_of
from logboom.nodes.subscriptions.entry_filter import EntryFilter
from logboom.wire.errors import InvalidFilter
from logboom.wire.filters import Filter
from logboom.wire.filters.parser import MAX_TERMS
from logboom.wire.filters.tokens import MAX_LENGTH, MAX_TOKENS
from logboom.wire.messages import Pull
from tests.unit.wire.work import cost_ms, without_garbage_of_others

MOST_MS: Final = 10.0
LONGEST: Final = 2 * MAX_LENGTH
"""Characters of a filter with tags and properties, and a few."""
TAGS: Final = " || ".join(f'"{chr(34) * 20}{number}"' for number in range(256))


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def joined(word: str, terms: Iterable[str], tokens: int) -> str:
    """As many terms of so many tokens as an expression may have."""
    most = min(MAX_TERMS, (MAX_TOKENS + 1) // (tokens + 1))
    found: list[str] = []
    size = 0
    for term, _ in zip(terms, range(most), strict=False):
        size += len(term) + len(word) + 2
        if size > MAX_LENGTH:
            break
        found.append(term)
    return "WHERE " + f" {word} ".join(found)


TAKEN: Final = {
    "properties": joined("OR", (f"a{n}" for n in count()), 1),
    "comparisons": joined("OR", (f"a{n} < 2.5e{n}" for n in count()), 3),
    "texts": joined("AND", (f"a{n} <> '{'x' * 9}{n}'" for n in count()), 3),
    "the same": joined("OR", ("a = b" for _ in count()), 3),
    "quoted names": joined("OR", ('"' + '""' * 6 + f'{n}" = 1' for n in count()), 3),
    "letters": joined("OR", (f"\"\N{SNOWMAN}{n}\" = '\N{SNOWMAN}'" for n in count()), 3),
    "pairs": joined("OR", (f"(a{n} = 1 AND b <> 2)" for n in count()), 9),
    "tags": joined("OR", (f"TAGS = '{n}'" for n in count()), 3),
    "keys": joined("OR", (f"KEYS = '{n}'" for n in count()), 3),
    "ranges": joined("OR", (f"a{n} BETWEEN {n} AND {n + 1}" for n in count()), 5),
    "no ranges": joined("AND", (f"a{n} NOT BETWEEN b AND {n + 1}" for n in count()), 6),
    "in": f"WHERE a IN ({', '.join(str(n) for n in reversed(range(MAX_TERMS - 1)))})",
    "texts in": f"WHERE a IN ({', '.join(repr('x' * 20 + str(n)) for n in range(MAX_TERMS - 1))})",
    "numbers in": f"WHERE a IN ({', '.join(f'-{n}.123456789e{n}' for n in range(MAX_TERMS - 1))})",
    "not one": joined("AND", ("NOT a" for _ in count()), 2),
    "not three": joined("AND", ("NOT NOT NOT a" for _ in count()), 4),
    "not any": joined("AND", ("NOT (a OR b)" for _ in count()), 6),
    "depth": joined("AND", ("NOT " * 31 + "a" for _ in count()), 32),
    "parentheses": joined("AND", ("(" * 31 + "a" + ")" * 31 for _ in count()), 63),
    "quotes": f"WHERE a = '{chr(39) * 8_000}'",
    "a name": "WHERE " + "a" * (MAX_LENGTH - 100),
    "searches": joined("OR", (f"a CONTAINS '{'x' * 450}'" for _ in range(16)), 3),
    "space": "WHERE" + " " * (MAX_LENGTH - 100) + "a",
    "tags alone": TAGS,
    "the same tags": " || ".join(["t"] * (MAX_LENGTH // 5)),
    "a tag of quotes": '"' * (MAX_LENGTH - 100),
    "a tag of blanks": "a " * 4_000 + "b",
}
"""Filters that are as costly as they may be, by what they have most of."""
REFUSED: Final = {
    "conditions": "WHERE " + " OR ".join(["a"] * (MAX_TERMS + 1)),
    "tokens": "WHERE " + "a " * (MAX_LENGTH // 2),
    "signs": "WHERE " + ")" * MAX_LENGTH,
    "commas": "WHERE " + ",=" * (MAX_LENGTH // 2 - 1) + "~",
    "equal signs": "WHERE " + "=" * MAX_LENGTH,
    "many in parentheses": "WHERE " + " AND ".join(["(" * 31 + "a" + ")" * 31] * 120),
    "nots": "WHERE " + " AND ".join(["NOT " * 31 + "a"] * 60),
    "ranges": "WHERE " + " OR ".join(f"abcde BETWEEN {n} AND {n + 1}" for n in range(255)),
    "an open quote": "WHERE a = '" + "''" * 4_000,
    "digits": "WHERE a = " + "9" * 8_000,
    "a late sign": "WHERE a" + " " * (MAX_LENGTH - 2) + "~",
    "bars": "|" * LONGEST,
    "many WHERE": "WHERE " * (MAX_LENGTH // 6),
    "WHERE in tags": "xWHERE" * (LONGEST // 6),
    "quotes in tags": '"' * (LONGEST - 1),
}
READ: Final[dict[str, Callable[[str], object]]] = {
    "a pull": lambda text: sieve_of(Pull(1, 0, "t", 0, 0, 1, 0, filter=text)),
    "a subscription": EntryFilter,
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("case", TAKEN)
def test_a_filter_is_read_at_once(case: str, read: str) -> None:
    texts = [TAKEN[case]]
    if texts[0].startswith("WHERE"):
        texts.append(TAGS + " " + texts[0])
    for text in texts:
        Filter.read(text)
        # Each try has a text that no cache knows.
        tries = (text + " " * number for number in count(1))
        assert cost_ms(partial(read_next, READ[read], tries), MOST_MS) <= MOST_MS


def read_next(read: Callable[[str], object], texts: Iterator[str]) -> None:
    read(next(texts))


@pytest.mark.parametrize("case", REFUSED)
def test_a_filter_is_refused_at_once(case: str) -> None:
    text = REFUSED[case]

    def read() -> None:
        with pytest.raises(InvalidFilter):
            Filter.read(text)

    assert cost_ms(read, MOST_MS) <= MOST_MS
