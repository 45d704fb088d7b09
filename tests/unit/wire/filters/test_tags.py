"""Tag expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.errors import InvalidFilter, InvalidRequest
from logboom.wire.filters.tags import (
    ALL,
    MAX_TAGS,
    check_tags,
    parse_tags,
    split_where,
    tags_text,
)
from logboom.wire.filters.tokens import MAX_LENGTH


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("*", ALL),
        ("  * ", ALL),
        ("a", {"a"}),
        ("late||early", {"late", "early"}),
        ("  late  ||\tearly || late ", {"late", "early"}),
        ("two words || ü", {"two words", "ü"}),
        ('"a || b" || c', {"a || b", "c"}),
        ('"*" || " blank " || "say ""x"""', {"*", " blank ", 'say "x"'}),
        ('a"b', {'a"b'}),
    ],
)
def test_an_expression_has_its_tags(expression: str, tags: set[str] | None) -> None:
    assert parse_tags(expression) == tags
    assert parse_tags(tags_text(tags)) == tags


@pytest.mark.parametrize(
    ("expression", "position", "expected"),
    [
        ("", 0, "a tag"),
        ("  ", 2, "a tag"),
        ("a ||", 4, "a tag"),
        ("|| a", 0, "a tag"),
        ("a || || b", 5, "a tag"),
        ('a || ""', 5, "a tag"),
        ("a | b", 2, '"||" between'),
        ("a ||| b", 4, "a tag"),
        ("a || *", 5, "stands alone"),
        ('"a" b', 4, '"||" between'),
        ('a || "b', 5, 'a closing "'),
        ("a || b\ud800", 5, "UTF-8"),
        ("x" * (MAX_LENGTH + 1), MAX_LENGTH, "at most"),
        ("||".join(map(str, range(1000, 1001 + MAX_TAGS))), 6 * MAX_TAGS + 3, "at most 256 tags"),
    ],
)
def test_an_error_points_at_its_character(expression: str, position: int, expected: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse_tags(expression)
    assert caught.value.fields["position"] == position
    assert expected in caught.value.fields["expected"]


tag_texts = st.text(st.sampled_from('ab|*" ü\n'), min_size=1, max_size=6)


@given(st.frozensets(tag_texts, min_size=1, max_size=5))
def test_the_canonical_expression_has_the_same_tags(tags: frozenset[str]) -> None:
    assert parse_tags(tags_text(tags)) == tags


@given(st.text(max_size=40) | st.text(st.sampled_from('ab|*" \ud800'), max_size=20))
def test_random_text_is_parsed_or_refused_at_a_character(expression: str) -> None:
    try:
        tags = parse_tags(expression)
    except InvalidFilter as error:
        position = error.fields["position"]
    else:
        position = 0
        assert parse_tags(tags_text(tags)) == tags
    assert 0 <= position <= len(expression)


@pytest.mark.parametrize(
    "tags", ["a", [], [""], ["a", None], [b"a"], ["\ud800"], list(map(str, range(MAX_TAGS + 1)))]
)
def test_tags_given_one_by_one_are_checked(tags: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        check_tags(tags)


def test_tags_given_one_by_one_may_be_any_text() -> None:
    assert check_tags(["a||b", "*", "a||b"]) == {"a||b", "*"}


@pytest.mark.parametrize(
    ("text", "tags", "where"),
    [
        ("", "", None),
        ("a || b", "a || b", None),
        ("a || b WHERE x > 1", "a || b ", " x > 1"),
        ("* WHERE x", "* ", " x"),
        ("WHERE x", "", " x"),
        ("a || WHERE x", "a || ", " x"),
        ("a\tWHERE\nx", "a\t", "\nx"),
        ("a WHERE", "a ", ""),
        ("ELSEWHERE x || a where b", "ELSEWHERE x || a where b", None),
        ('"a WHERE b" || c WHERE d', '"a WHERE b" || c ', " d"),
        ('"a WHERE b', '"a WHERE b', None),
    ],
)
def test_a_text_is_split_at_its_where(text: str, tags: str, where: str | None) -> None:
    assert split_where(text) == (tags, where)
