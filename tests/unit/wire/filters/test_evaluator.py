"""What property expressions find in batches: vectors, three-valued logic, a slow judge."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.wire.batch import encode_batch, open_batch
from logboom.wire.columns import Columns
from logboom.wire.errors import DamagedBatch
from logboom.wire.filters import Filter
from logboom.wire.filters.parser import parse
from logboom.wire.filters.syntax import Condition
from tests.thorough import examples
from tests.unit.wire.conditions import Row, conditions, judged, rows


def columns_of(messages: Sequence[Row], codec: str = "none") -> Columns:
    """A batch of these messages, opened."""
    return open_batch(
        encode_batch(
            [b"value"] * len(messages),
            keys=[row.key for row in messages],
            tags=[row.tag for row in messages],
            headers=[row.headers for row in messages],
            timestamps_ms=[row.timestamp_ms for row in messages],
            now_ms=7,
            codec=codec,
        )
    )


def passing(expression: str, columns: Columns) -> list[int]:
    """The messages of a batch that pass an expression."""
    match = Filter.of(where=expression).matcher().match(columns)
    assert match.examined == len(columns)
    found = [i for i, passes in enumerate(match.selectors()) if passes]
    assert found == [i for i in range(len(columns)) if match.bitmap[i // 8] >> i % 8 & 1]
    assert len(found) == match.passed
    return found


def holds(expression: str, row: Row) -> bool | None:
    """The whole truth on one message: an expression and its NOT."""
    columns = columns_of([row])
    yes, no = passing(expression, columns), passing(f"NOT ({expression})", columns)
    assert not (yes and no)
    return True if yes else False if no else None


PRICED = Row({"price": b"12", "word": b"abc", "zip": b"007", "yes": b"True", "empty": b""}, "t")


@pytest.mark.parametrize(
    ("expression", "truth"),
    [
        ("price > 5", True),
        ("price < 5", False),
        ("5 < price", True),
        ("price >= 12.0", True),
        ("price = 12", True),
        ("price <> 12", False),
        ("price = '12'", True),
        # Text is text: "12" is before "5".
        ("price > '5'", False),
        ("zip = 7", True),
        ("zip = '7'", False),
        ("zip = '007'", True),
        # What spells no number differs from all, and has no order with one.
        ("word = 5", False),
        ("word <> 5", True),
        ("word > 5", None),
        ("word BETWEEN 1 AND 5", None),
        ("word NOT BETWEEN 1 AND 5", None),
        ("word BETWEEN 'abb' AND 'abd'", True),
        ("price BETWEEN 12 AND 20", True),
        ("price BETWEEN 1 AND 11", False),
        ("price BETWEEN zip AND 12", True),
        ("price > zip", True),
        ("word > zip", True),
        ("price = missing", None),
        ("word IN ('abc', 'd')", True),
        ("word NOT IN ('abc', 'd')", False),
        ("price IN (3, 12)", True),
        ("zip IN (7)", True),
        ("zip IN ('7')", False),
        ("word IN (7)", False),
        ("missing IN ('a')", None),
        ("missing NOT IN ('a')", None),
        ("missing = 'a'", None),
        ("missing <> 'a'", None),
        ("missing IS NULL", True),
        ("missing IS NOT NULL", False),
        ("empty IS NULL", False),
        ("empty = ''", True),
        ("word CONTAINS 'b'", True),
        ("word CONTAINS ''", True),
        ("word NOT CONTAINS 'x'", True),
        ("missing CONTAINS 'x'", None),
        ("word STARTSWITH 'ab'", True),
        ("word ENDSWITH 'bc'", True),
        ("word ENDSWITH 'ab'", False),
        ("yes", True),
        ("NOT yes", False),
        ("yes = TRUE", True),
        ("yes = FALSE", False),
        ("FALSE <> yes", True),
        ("word", None),
        ("word = TRUE", False),
        ("word <> TRUE", True),
        ("missing", None),
        ("TRUE", True),
        ("FALSE", False),
        ("TAGS = 't'", True),
        ("TAGS > 's'", True),
        ("\"TAGS\" = 't'", None),
        ("KEYS IS NULL", True),
        ("_timestamp = 0", True),
        ("_timestamp < 0.5", True),
        ("_timestamp = '0'", True),
        ("_timestamp IS NULL", False),
        ("_timestamp < price", True),
    ],
)
def test_one_message(expression: str, truth: bool | None) -> None:
    assert holds(expression, PRICED) is truth
    assert judged(parse(expression), PRICED) is truth


TRUTHS = {"TRUE": True, "FALSE": False, "missing": None}


@pytest.mark.parametrize("left", TRUTHS)
@pytest.mark.parametrize("right", TRUTHS)
def test_the_tables_of_three_valued_logic(left: str, right: str) -> None:
    one, two = TRUTHS[left], TRUTHS[right]
    both = False if False in (one, two) else None if None in (one, two) else True
    either = True if True in (one, two) else None if None in (one, two) else False
    assert holds(f"{left} AND {right}", Row()) is both
    assert holds(f"{left} OR {right}", Row()) is either


@pytest.mark.parametrize(("word", "opposite"), [("TRUE", False), ("FALSE", True), ("gone", None)])
def test_not_of_unknown_is_unknown(word: str, opposite: bool | None) -> None:
    assert holds(f"NOT {word}", Row()) is opposite


# The vectors of the reference: what RocketMQ's own tests say, on contents as text.
AND = "a=3 and b<>4 And c>5 AND d<=4"
OR = "a=3 or b<>4 Or c>5 OR d<=4"


@pytest.mark.parametrize(
    ("expression", "headers", "passes"),
    [
        (AND, {"a": b"3", "b": b"5", "c": b"6", "d": b"1"}, True),
        (AND, {"a": b"4", "b": b"5", "c": b"6", "d": b"1"}, False),
        (OR, {"a": b"3"}, True),
        (OR, {"a": b"4", "b": b"5"}, True),
        (OR, {"a": b"4", "b": b"4", "c": b"6"}, True),
        (OR, {"a": b"4", "b": b"4", "c": b"3", "d": b"2"}, True),
        (OR, {"a": b"4", "b": b"4", "c": b"3", "d": b"10"}, False),
        ("a in ('3', '4', '5')", {"a": b"4"}, True),
        ("a in ('3', '4', '5')", {"a": b"8"}, False),
        ("a not in ('3', '4', '5')", {"a": b"8"}, True),
        ("a not in ('3', '4', '5')", {"a": b"3"}, False),
        ("a between 2 and 10", {"a": b"2"}, True),
        ("a between 2 and 10", {"a": b"10"}, True),
        ("a between 2 and 10", {"a": b"11"}, False),
        ("a not between 2 and 10", {"a": b"11"}, True),
        ("a not between 2 and 10", {"a": b"10"}, False),
        ("a between up and low", {"a": b"3.14"}, False),
        ("key is not null and key between 0 and 100", {"key": b"con"}, False),
        ("a is null", {"abc": b"2"}, True),
        ("a is null OR a='hello'", {"a": b"abc"}, False),
        ("a is not null and a='hello'", {}, False),
        ("a=TRUE OR b=FALSE", {"a": b"true", "b": b"false"}, True),
        ("a=TRUE OR b=FALSE", {"a": b"false", "b": b"true"}, False),
        ("a > 3.1E10", {"a": b"3.1415E10"}, True),
        ("a > b", {"a": b"10", "b": b"20"}, False),
        ("a > b", {"a": b"20", "b": b"10"}, True),
        ("a=b", {"a": b"3.14", "b": b"3.14"}, True),
        ("a<>b", {"a": b"3.14", "b": b"3.141"}, True),
    ],
)
def test_vectors(expression: str, headers: dict[str, bytes], passes: bool) -> None:
    assert bool(passing(expression, columns_of([Row(headers)]))) is passes


@given(conditions, st.lists(rows, min_size=1, max_size=30), st.data())
@settings(max_examples=examples(400), deadline=None)
def test_it_finds_what_the_slow_judge_finds(
    node: Condition, messages: list[Row], data: st.DataObject
) -> None:
    columns = columns_of(messages, data.draw(st.sampled_from(["none", "zstd"])))
    expected = [i for i, row in enumerate(messages) if judged(node, row) is True]
    assert passing(str(node), columns) == expected
    start = data.draw(st.integers(0, len(messages)))
    stop = data.draw(st.integers(start, len(messages)))
    within = [i - start for i in expected if start <= i < stop]
    assert passing(str(node), columns.slice(start, stop)) == within


@given(conditions, st.lists(rows, min_size=1, max_size=5), st.integers(20, 400))
@settings(max_examples=examples(50), deadline=None)
def test_contents_that_repeat_are_judged_alike(
    node: Condition, messages: list[Row], times: int
) -> None:
    many = messages * times
    expected = [judged(node, row) is True for row in messages] * times
    found = Filter.of(where=str(node)).matcher().match(columns_of(many)).selectors()
    assert list(map(bool, found)) == expected


@given(conditions, rows)
@settings(max_examples=examples(200), deadline=None)
def test_not_and_doubled_not(node: Condition, row: Row) -> None:
    assert holds(f"NOT ({node})", row) is {True: False, False: True, None: None}[judged(node, row)]


@pytest.mark.parametrize("distinct", [256, 257, 600])
def test_as_many_tags_as_a_byte_can_name_and_more(distinct: int) -> None:
    messages = [Row(tag=None if i % 7 == 0 else f"tag-{i % distinct}") for i in range(1800)]
    expected = [i for i in range(1800) if i % 7 and i % distinct % 10 == 9]
    columns = columns_of(messages)
    assert passing("TAGS ENDSWITH '9'", columns) == expected
    assert passing("TAGS ENDSWITH '9'", columns.slice(300)) == [
        i - 300 for i in expected if i >= 300
    ]
    assert passing("TAGS IS NULL", columns) == list(range(0, 1800, 7))


def test_batches_without_columns() -> None:
    columns = open_batch(encode_batch([b"v"] * 3, now_ms=1000))
    everything = [0, 1, 2]
    assert passing("price IS NULL AND TAGS IS NULL AND KEYS IS NULL", columns) == everything
    assert passing("_timestamp = 1000", columns) == everything
    assert passing("_timestamp >= '1000' AND _timestamp < 1001", columns) == everything
    assert passing("price = 1 OR NOT price = 1 OR TAGS = 't' OR KEYS = KEYS", columns) == []
    assert passing("price = region", columns) == []
    assert passing("TRUE", columns.slice(3)) == []
    assert passing("price > 5", columns.slice(3)) == []


def test_headers_of_awkward_names() -> None:
    name = 'a "\\ name\n'
    columns = columns_of([Row({name: b"5", "b": b"1"}), Row({"b": b"2"}), Row()])
    quoted = '"a ""\\ name\n"'
    assert passing(f"{quoted} = 5 AND b = 1", columns) == [0]
    assert passing(f"{quoted} IS NULL", columns) == [1, 2]


@pytest.mark.parametrize("expression", ["price > 5", '"a\\" = 1 OR price > 5'])
@pytest.mark.parametrize(
    "headers",
    [
        *(b"\xc0", b"\x90", b"\x81\xa5price\xc0", b"\x81\xa5pr", b""),
        b"\x81\xa5other" + b"\x91" * 100_000 + b"\xc0",
    ],
)
def test_damaged_headers_are_told(expression: str, headers: bytes) -> None:
    class Bare(Columns):
        """Columns whose headers are what a hostile producer wrote."""

        def encoded_headers(self) -> list[bytes | None] | None:
            return [headers]

    sound = columns_of([Row({"price": b"6"})])
    batch = encode_batch([b"v"], headers=[{"price": b"6"}], now_ms=1)
    with pytest.raises(DamagedBatch, match="not a msgpack map"):
        Filter.of(where=expression).matcher().match(Bare(sound.head, batch))
