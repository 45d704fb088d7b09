"""Filters as values, their bitmaps and budgets, and what a batch's head alone tells."""

from __future__ import annotations

from itertools import compress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.wire.batch import encode_batch, open_batch, peek
from logboom.wire.columns import Columns
from logboom.wire.errors import InvalidFilter, InvalidRequest
from logboom.wire.filters.filter import LEAST_STEP, Filter, ScanBudget, selectors
from logboom.wire.filters.syntax import Condition
from tests.thorough import examples
from tests.unit.wire.conditions import Row, conditions, judged, rows
from tests.unit.wire.filters.test_evaluator import columns_of


def tagged(*tags: str | None) -> Columns:
    """A batch of messages with these tags."""
    return open_batch(encode_batch([b"v"] * len(tags), tags=tags, now_ms=1))


@pytest.mark.parametrize(
    ("wanted", "text", "words"),
    [
        (Filter.of(), "*", "all messages"),
        (Filter.of("*"), "*", "all messages"),
        (Filter.of("b||a || b"), "a || b", "messages with one of the tags 'a', 'b'"),
        (Filter.of(["b", "a"]), "a || b", "messages with one of the tags 'a', 'b'"),
        (Filter.of({"a"}), "a", "messages with the tag 'a'"),
        (Filter.of(where="x>1"), "* WHERE x > 1", "messages where x > 1"),
        (Filter.of("a", "x>1"), "a WHERE x > 1", "messages with the tag 'a' and where x > 1"),
    ],
)
def test_a_filter_has_one_text_and_its_words(wanted: Filter, text: str, words: str) -> None:
    assert wanted.text == text
    assert wanted.describe() == words
    assert wanted.takes_all is (text == "*")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", Filter.of()),
        (" * ", Filter.of()),
        ("b || a", Filter.of("a || b")),
        ("a WHERE  x>1", Filter.of("a", "x > 1")),
        ("WHERE x > 1", Filter.of(where="x > 1")),
        ("a where b", Filter.of(["a where b"])),
        ("* WHERE x = ' WHERE '", Filter.of(where="x = ' WHERE '")),
    ],
)
def test_a_text_says_a_filter(text: str, wanted: Filter) -> None:
    assert Filter.read(text) == wanted


@given(
    st.none()
    | st.frozensets(
        st.lists(st.sampled_from(["a", "|", '"', " ", "*", "WHERE", "||"]), min_size=1).map(
            "".join
        ),
        min_size=1,
    ),
    st.none() | conditions.map(str),
)
def test_the_text_of_a_filter_says_this_filter(
    tags: frozenset[str] | None, where: str | None
) -> None:
    wanted = Filter.of(tags, where)
    assert Filter.read(wanted.text) == wanted


@pytest.mark.parametrize(
    ("text", "expression", "position"),
    [
        ("a | b", "a | b", 2),
        ("a WHERE x >", "a WHERE x >", 11),
        ("a | b WHERE x", "a | b ", 2),
        ("a WHERE", "a WHERE", 7),
        ("a WHERE x = '\ud800'", "a WHERE x = '?'", 13),
        ('"a WHERE b', '"a WHERE b', 0),
    ],
)
def test_a_text_that_says_none_is_pointed_at(text: str, expression: str, position: int) -> None:
    with pytest.raises(InvalidFilter) as caught:
        Filter.read(text)
    assert caught.value.fields["expression"] == expression
    assert caught.value.fields["position"] == position
    assert caught.value.text.endswith(f", at character {position + 1}")


def test_a_text_that_is_far_too_long_is_refused_unread() -> None:
    with pytest.raises(InvalidFilter, match="at most"):
        Filter.read("|| " * 5_000_000)


def test_filters_that_differ_in_writing_only_are_equal() -> None:
    one = Filter.of("late || early", "price>3 and region  in ('us','eu')")
    two = Filter.of(["early", "late"], "(price > 3.0) AND region IN ('eu', 'us', 'us')")
    assert one == two
    assert hash(one) == hash(two)
    assert one.matcher() is two.matcher()
    assert one.difference(two) == ""


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        (Filter.of("a || b"), Filter.of("b || c || d"), "tags more: c || d; tags fewer: a"),
        (Filter.of("a"), Filter.of(), "tags * instead of a"),
        (Filter.of(), Filter.of("a"), "tags a instead of *"),
        (Filter.of(where="x > 1"), Filter.of(where="x > 2"), "where x > 2 instead of x > 1"),
        (
            Filter.of("a"),
            Filter.of("b", "x"),
            "tags more: b; tags fewer: a; where x instead of TRUE",
        ),
    ],
)
def test_the_difference_of_two_filters_is_shown(
    ours: Filter, theirs: Filter, difference: str
) -> None:
    assert ours.difference(theirs) == difference


def test_a_filter_travels_as_it_is() -> None:
    wanted = Filter.of("a || b", "x > 1")
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(wanted), type=Filter)
    assert again == wanted
    assert again.matcher() is wanted.matcher()


@pytest.mark.parametrize(
    "hostile", [Filter(where="a >"), Filter(tags=()), Filter(tags=("",)), Filter(("\ud800",))]
)
def test_a_filter_from_the_wire_is_checked_anew(hostile: Filter) -> None:
    with pytest.raises(InvalidRequest):
        hostile.matcher()


@pytest.mark.parametrize("where", [5, b"a", ["a"]])
def test_where_is_text(where: object) -> None:
    with pytest.raises(InvalidRequest, match="as text"):
        Filter.of(where=where)  # type: ignore[arg-type]  # the mistake that is meant


def test_a_bad_expression_is_refused_when_the_filter_is_made() -> None:
    with pytest.raises(InvalidFilter):
        Filter.of(where="a >")
    with pytest.raises(InvalidFilter):
        Filter.of("a |")


def test_tags_are_matched_exactly() -> None:
    columns = tagged("a", "b", None, "ab", "a")
    assert Filter.of("a").matcher().match(columns) == (b"\x11", 2, 5)
    assert Filter.of("b || ab").matcher().match(columns) == (b"\x0a", 2, 5)
    assert Filter.of().matcher().match(columns) == (b"\x1f", 5, 5)
    assert Filter.of("a").matcher().match(columns.slice(1, 4)) == (b"\x00", 0, 3)
    assert Filter.of("a").matcher().match(open_batch(encode_batch([b"v"], now_ms=1))).passed == 0


def test_both_parts_must_pass() -> None:
    columns = columns_of([Row({"x": b"2"}, "a"), Row({"x": b"2"}, "b"), Row({"x": b"0"}, "a")])
    match = Filter.of("a", "x > 1").matcher().match(columns)
    assert match == (b"\x01", 1, 3)
    assert list(compress("012", match.selectors())) == ["0"]


@given(st.lists(st.booleans(), max_size=70))
def test_a_bitmap_is_read_as_it_was_written(passes: list[bool]) -> None:
    number = sum(1 << i for i, each in enumerate(passes) if each)
    bitmap = number.to_bytes(-(-len(passes) // 8), "little")
    assert list(selectors(bitmap, len(passes))) == passes
    assert selectors(memoryview(bitmap), len(passes)) == selectors(bitmap, len(passes))


@pytest.mark.parametrize(
    ("bitmap", "count"), [(b"", 1), (b"\1\0", 8), (b"\1", 9), (b"\2", 1), (b"\1", 0)]
)
def test_a_bitmap_that_does_not_fit_is_refused(bitmap: bytes, count: int) -> None:
    with pytest.raises(InvalidRequest, match="pull again"):
        selectors(bitmap, count)


# Budgets.


def test_a_budget_stops_a_scan_and_tells_how_far_it_came() -> None:
    matcher = Filter.of(where="x >= 500").matcher()
    columns = columns_of([Row({"x": b"%d" % i}) for i in range(1000)])
    found: list[int] = []
    at = pulls = 0
    while at < 1000:
        budget = ScanBudget(2_000)
        match = matcher.match(columns.slice(at), budget)
        assert LEAST_STEP <= match.examined <= 2_000 // matcher.cost or at + match.examined == 1000
        found += [at + i for i, passes in enumerate(match.selectors()) if passes]
        at += match.examined
        pulls += 1
    assert found == list(range(500, 1000))
    assert 1000 * matcher.cost // 2_000 <= pulls <= 1000 // LEAST_STEP + 1


def test_a_budget_is_shared_by_batches_and_runs_out() -> None:
    matcher, columns = Filter.of("a").matcher(), tagged(*["a"] * 100)
    budget = ScanBudget(700)
    examined = [matcher.match(columns, budget).examined for _ in range(6)]
    assert examined[0] == 100
    assert examined[-1] == 0
    assert budget.spent
    assert matcher.match(columns, budget) == (b"", 0, 0)
    assert matcher.match(columns).examined == 100


def test_the_least_budget_gets_on() -> None:
    match = (
        Filter.of(where="x = 1")
        .matcher()
        .match(columns_of([Row({"x": b"1"})] * 300), ScanBudget(1))
    )
    assert (match.passed, match.examined) == (LEAST_STEP, LEAST_STEP)


def test_searching_large_headers_costs_more() -> None:
    columns = columns_of([Row({"x": b"a" * 100_000})] * 200)
    plain = Filter.of(where="x = 'a'").matcher().match(columns, ScanBudget(400_000)).examined
    search = (
        Filter.of(where="x CONTAINS 'b'").matcher().match(columns, ScanBudget(400_000)).examined
    )
    assert plain == 200
    assert search < 150


# Heads.


def head_says(wanted: Filter, columns: Columns) -> bool:
    return wanted.matcher().may_match(columns.head)


@pytest.mark.parametrize(
    "where",
    [
        "TAGS = 'absent'",
        "'absent' = TAGS",
        "TAGS IN ('absent', 'gone')",
        "TAGS = 'late' AND KEYS = 'absent'",
        "TAGS = 'absent' OR KEYS IN ('absent')",
        "region = 'eu'",
        "NOT region = 'eu'",
        "region IS NOT NULL",
        "region = TAGS OR KEYS < region",
        "region > 5 OR region IN (5, 'x') OR region CONTAINS 'x' OR region",
        "_timestamp > 1000",
        "_timestamp = 1001",
        "1001 <= _timestamp",
        "_timestamp BETWEEN 1001 AND 2000",
        "NOT (TAGS IS NOT NULL OR TRUE) AND TAGS IS NULL AND _timestamp IS NULL",
    ],
)
def test_a_head_rules_a_batch_out(where: str) -> None:
    columns = open_batch(encode_batch([b"v"] * 2, [b"k", None], ["late", "early"], now_ms=1000))
    assert not head_says(Filter.of(where=where), columns)
    assert Filter.of(where=where).matcher().match(columns).passed == 0


@pytest.mark.parametrize(
    "where",
    [
        "TAGS = 'late'",
        "TAGS <> 'absent'",
        "NOT TAGS = 'absent'",
        "TAGS > 'a'",
        "KEYS = 'k'",
        "KEYS IS NULL",
        "region IS NULL",
        "NOT region IS NOT NULL",
        "NOT (region = 5 AND TAGS = 'absent')",
        "_timestamp >= 1000",
        "_timestamp < 5000",
        "KEYS < TAGS",
        "TAGS CONTAINS 'late'",
        "TAGS = 'absent' OR _timestamp IS NOT NULL",
    ],
)
def test_a_head_lets_through_what_may_match(where: str) -> None:
    columns = open_batch(encode_batch([b"v"] * 2, [b"k", None], ["late", "early"], now_ms=1000))
    assert head_says(Filter.of(where=where), columns)
    assert Filter.of(where=where).matcher().match(columns).passed > 0


def test_a_head_does_not_judge_tags_as_numbers() -> None:
    columns = tagged("05")
    for where in ("TAGS IN ('absent', 5)", "TAGS = 5"):
        assert head_says(Filter.of(where=where), columns)
        assert Filter.of(where=where).matcher().match(columns).passed == 1


def test_a_head_knows_the_tags_of_a_batch() -> None:
    columns = tagged("late", None)
    assert head_says(Filter.of("late || absent"), columns)
    assert not head_says(Filter.of("absent"), columns)
    assert not head_says(Filter.of("absent", "TRUE"), columns)
    assert not head_says(Filter.of("late", "x = 1"), columns)
    assert head_says(Filter.of(), open_batch(encode_batch([b"v"], now_ms=1)))


@given(conditions, st.lists(rows, min_size=1, max_size=4))
@settings(max_examples=examples(300), deadline=None)
def test_a_head_never_rules_out_what_matches(node: Condition, messages: list[Row]) -> None:
    columns = columns_of(messages)
    matches = any(judged(node, row) for row in messages)
    assert head_says(Filter.of(where=str(node)), columns) or not matches


@given(conditions)
@settings(max_examples=examples(50), deadline=None)
def test_a_head_never_rules_out_bare_batches_wrongly(node: Condition) -> None:
    batch = encode_batch([b"v"], now_ms=100)
    matches = bool(judged(node, Row(timestamp_ms=100)))
    assert Filter.of(where=str(node)).matcher().may_match(peek(batch)) or not matches
