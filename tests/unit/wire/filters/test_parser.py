"""Property expressions: what they are, how they are written, and where they go wrong."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.wire.errors import InvalidFilter, InvalidRequest, error_for
from logboom.wire.filters.parser import MAX_DEPTH, MAX_SEARCHES, MAX_TERMS, parse
from logboom.wire.filters.syntax import (
    And,
    Compare,
    ComparisonOperator,
    Condition,
    IsTrue,
    Not,
    Number,
    Or,
    Property,
    PropertySource,
    Text,
)
from logboom.wire.filters.tokens import KEYWORDS, MAX_LENGTH, MAX_TOKENS, number_of
from tests.sim.world.processor import counted
from tests.thorough import examples
from tests.unit.wire.conditions import conditions

A, B, C = (IsTrue(Property(name)) for name in "abc")


@pytest.mark.parametrize(
    ("expression", "node"),
    [
        ("a", A),
        ("NOT a AND b", And((Not(A), B))),
        ("NOT (a AND b)", Not(And((A, B)))),
        ("a OR b AND c", Or((A, And((B, C))))),
        ("a AND b OR c", Or((And((A, B)), C))),
        ("(a OR b) AND c", And((Or((A, B)), C))),
        ("a AND (b AND c)", And((A, B, C))),
        ("(a OR b) OR c", Or((A, B, C))),
        ("NOT a = 1", Not(Compare(ComparisonOperator.EQUAL, Property("a"), Number(1)))),
        ("NOT NOT a", Not(Not(A))),
        ("NOT a OR b", Or((Not(A), B))),
        ("a=-5", Compare(ComparisonOperator.EQUAL, Property("a"), Number(-5))),
        ("a<>.5", Compare(ComparisonOperator.UNEQUAL, Property("a"), Number(0.5))),
        ("((a)) = ((5))", Compare(ComparisonOperator.EQUAL, Property("a"), Number(5))),
        (
            "TAGS = 'x'",
            Compare(ComparisonOperator.EQUAL, Property("TAGS", PropertySource.TAGS), Text("x")),
        ),
        ("\"TAGS\" = 'x'", Compare(ComparisonOperator.EQUAL, Property("TAGS"), Text("x"))),
        ("tags = 'x'", Compare(ComparisonOperator.EQUAL, Property("tags"), Text("x"))),
        (
            "_timestamp > 5",
            Compare(
                ComparisonOperator.MORE, Property("_timestamp", PropertySource.TIMESTAMP), Number(5)
            ),
        ),
    ],
)
def test_an_expression_has_its_tree(expression: str, node: Condition) -> None:
    assert parse(expression) == node
    assert parse(str(node)) == node


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("a=3 and b<>4 And c>5 AND d<=4", "a = 3 AND b <> 4 AND c > 5 AND d <= 4"),
        ("  a\n\tnot  in('5', 4,'5',5.0 ) ", "a NOT IN (4, 5, '5')"),
        ("a not between 2 and 10", "a NOT BETWEEN 2 AND 10"),
        ("not a between 2 and 10 and b", "a NOT BETWEEN 2 AND 10 AND b"),
        ("a is null or not b is null", "a IS NULL OR b IS NOT NULL"),
        ("a NOT CONTAINS 'x'", "a NOT CONTAINS 'x'"),
        ("(a startswith 'x') and (b endswith 'it''s')", "a STARTSWITH 'x' AND b ENDSWITH 'it''s'"),
        ("a != 1.50", "a <> 1.5"),
        ("a = 1e3", "a = 1000"),
        ("a = +1e30", "a = 1e+30"),
        ("a = 123456789012345678901234567890", "a = 123456789012345678901234567890"),
        ('"plain" and "two words" and "and"', 'plain AND "two words" AND "and"'),
        ("true or FALSE", "TRUE OR FALSE"),
        ("TAGS is not null and TAGS='''''tag'''''", "TAGS IS NOT NULL AND TAGS = '''''tag'''''"),
        ("größe > 5 and x.y$z = 1", "größe > 5 AND x.y$z = 1"),
    ],
)
def test_the_canonical_text_is_one_however_it_was_written(expression: str, text: str) -> None:
    assert str(parse(expression)) == text


@pytest.mark.parametrize("term", ["(a)", "NOT a", "a = (1)", "(NOT (a = ((1))))"])
def test_depth_is_not_length(term: str) -> None:
    assert len(str(parse(" AND ".join([term] * 59))).split(" AND ")) == 59


@given(conditions)
@settings(max_examples=examples(300), deadline=None)
def test_the_text_of_a_tree_is_parsed_to_the_same_tree(node: Condition) -> None:
    assert parse(str(node)) == node


@pytest.mark.parametrize(
    ("expression", "position", "expected"),
    [
        ("", 0, "a property"),
        ("   ", 3, "a property"),
        ("a =", 3, 'a value after "="'),
        ("a = = 5", 4, 'a value after "="'),
        ("a = NULL", 4, "IS NULL"),
        ("a == 5", 2, 'write "=" for equal'),
        ("a || b", 2, "write OR"),
        ("a && b", 2, "write AND"),
        ("!a", 0, "write NOT"),
        ("a 5", 2, "a comparison, AND, OR or the end"),
        ("a = 5 5", 6, "AND, OR or the end"),
        ("a = 5 AND", 9, "a property"),
        ("(a", 2, 'AND, OR or ")"'),
        ("a)", 1, "AND, OR or the end"),
        ("a = (5", 6, '")"'),
        ("a BETWEEN 1", 11, "AND and the upper bound"),
        ("a BETWEEN 5 AND 1", 10, "the lower bound first"),
        ("a BETWEEN 'b' AND 'a'", 10, "the lower bound first"),
        ("a BETWEEN TRUE AND 1", 10, "no order"),
        ("5", 1, "a comparison"),
        ("'x' AND a", 4, "a comparison"),
        ("NOT 5", 5, "a comparison"),
        ("a AND 5 OR b", 8, "a comparison"),
        ("a = 5abc", 5, "a space after the number"),
        ("a = 1.2.3", 7, "a space after the number"),
        ("a = 1e999", 4, "within the range"),
        ("a = " + "1" * 41, 4, "at most 40 characters"),
        ("content-type = 'x'", 7, 'in "quotes"'),
        ("a * 2 > 5", 2, "no arithmetic"),
        ("1 = 1", 0, "a property on at least one side"),
        ("5 IN (5)", 0, "a property before IN"),
        ("a IN ()", 6, "a number or text in the list"),
        ("a IN 'x'", 5, "( after IN"),
        ("a IN ('x',)", 10, "a number or text in the list"),
        ("a IN (TRUE)", 6, "a number or text in the list"),
        ("a IN ('x' 'y')", 10, '"," or ")"'),
        ("a = 'open", 4, "a closing ' is missing"),
        ("a = 'it's'", 9, "a closing ' is missing"),
        ('"open', 0, 'a closing " is missing'),
        ('"a"" = 5', 0, 'a closing " is missing'),
        ("(a = 1) = TRUE", 8, "only values are compared"),
        ("a = b = c", 6, "only values are compared"),
        ("a NOT IS NULL", 6, "write IS NOT NULL"),
        ("a IS 5", 5, "NULL or NOT NULL"),
        ("a IS NOT 5", 9, "NULL"),
        ("a NOT = 5", 6, "BETWEEN, IN"),
        ("a NOT", 5, "BETWEEN, IN"),
        ("NOT", 3, "a property"),
        ("TRUE < a", 0, "no order"),
        ("a >= FALSE", 5, "no order"),
        ("a CONTAINS 5", 11, "text in single quotes"),
        ("a CONTAINS b", 11, "text in single quotes"),
        ("a = 'x' ; drop", 8, "a name, a value or a sign"),
        ("a = '\ud800'", 5, "UTF-8"),
        ("a\x00", 1, "a name, a value or a sign"),
        ("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), MAX_DEPTH, "within each other"),
        ("NOT " * (MAX_DEPTH + 1) + "a", 4 * MAX_DEPTH, "within each other"),
        ("a = " + "(" * 40, 4 + MAX_DEPTH, "within each other"),
        (" OR ".join(["a"] * (MAX_TERMS + 1)), 5 * MAX_TERMS, "conditions and items"),
        (f"a IN ({','.join('1' * (MAX_TERMS + 1))})", 6 + 2 * (MAX_TERMS - 1), "items"),
        (" OR ".join(["a CONTAINS 'x'"] * (MAX_SEARCHES + 1)), 18 * MAX_SEARCHES + 2, "searches"),
        ("(a) OR " * 200 + "a", 7 * 192, f"at most {MAX_TOKENS} names"),
        ("a" * (MAX_LENGTH + 1), MAX_LENGTH, f"at most {MAX_LENGTH} characters"),
    ],
)
def test_an_error_points_at_its_character(expression: str, position: int, expected: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse(expression)
    error = caught.value
    assert error.fields["position"] == position
    assert expected in error.fields["expected"]
    assert "\n" not in str(error)
    assert f"at character {position + 1}" in str(error)
    assert not error.retryable
    str(error).encode()


def test_the_caret_stands_under_its_character() -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse("price >\t= 5")
    expression, caret = caught.value.pointer().split("\n")
    assert expression == "price > = 5"
    assert caret == '        ^ expected a value after ">"'


def test_the_caret_of_a_long_expression_stands_in_a_window() -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse(" OR ".join(["long_name = 5"] * 50) + " OR 7 x" + " OR y" * 50)
    expression, caret = caught.value.pointer(width=60).split("\n")
    assert len(expression) == 60
    assert expression[caret.index("^")] == "x"


def test_the_pointer_survives_the_wire_and_pickling() -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse("a = ")
    error = caught.value
    again = error_for(error.code, error.text, error.fields)
    assert isinstance(again, InvalidFilter)
    assert isinstance(again, InvalidRequest)
    assert again.pointer() == error.pointer()
    assert pickle.loads(pickle.dumps(error)).pointer() == error.pointer()


@pytest.mark.parametrize(
    "fields", [{}, {"position": -5}, {"position": 99, "expression": "a"}, {"position": "x"}]
)
def test_a_pointer_of_foreign_fields_is_harmless(fields: dict[str, object]) -> None:
    assert "^" in error_for("INVALID_FILTER", "filter: …", fields).pointer()  # type: ignore[attr-defined]  # the code's class has it


MARKS = ["(", ")", ",", "=", "<>", "<", ">=", "!", "|", "'", '"', "\ud800", "\n"]
VALUES = ["a", "TAGS", '"b c"', "'x'", "5", "-1.5", "é", "9" * 50, "1e9999"]
words = st.sampled_from([*sorted(KEYWORDS), *MARKS, *VALUES])


@given(st.lists(words, max_size=25).map(" ".join) | st.text(max_size=60))
@example("a = 'x\ud800" + "y" * MAX_LENGTH)
@settings(max_examples=examples(500), deadline=None)
def test_random_text_is_parsed_or_refused_at_a_character(expression: str) -> None:
    found: Condition | InvalidFilter
    try:
        found = parse(expression)
    except InvalidFilter as error:
        found = error
    if isinstance(found, InvalidFilter):
        assert 0 <= found.fields["position"] <= len(expression)
        found.pointer().encode()
    else:
        assert parse(str(found)) == found


@pytest.mark.parametrize(
    "expression",
    ["'" + "''" * 4000, '"' + '""' * 4000, "(" * 8000, "NOT " * 2000, " " * 8192, "9" * 8192],
)
def test_the_longest_nonsense_is_refused_at_once(expression: str) -> None:
    def refuse() -> None:
        with pytest.raises(InvalidFilter):
            parse(expression)

    _, calls = counted(refuse)
    assert calls < 50 * len(expression)


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (b"5", 5),
        (b"-5", -5),
        (b"+5", 5),
        (b"007", 7),
        (b"5.", 5.0),
        (b".5", 0.5),
        (b"1e3", 1000.0),
        (b"-1.5E-2", -0.015),
        (b"9007199254740993", 9007199254740993),
        (b"1" * 40, int("1" * 40)),
        (b"1" * 41, None),
        (b"1e999", None),
        *[(word, None) for word in (b"", b"+", b".", b" 5", b"5 ", b"1_0", b"nan", b"inf")],
        *[(word, None) for word in (b"0x1", b"--5", b"1e", b"\xff", "\u0665".encode())],
    ],
)
def test_a_content_spells_a_number_or_none(content: bytes, number: float | None) -> None:
    found = number_of(content)
    assert found == number
    assert type(found) is type(number)
