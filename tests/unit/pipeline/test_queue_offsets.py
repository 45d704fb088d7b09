"""Offsets as JSON, both ways."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.pipeline.queue_offsets import from_json, read_offsets, read_queues, to_json
from logboom.wire.errors import InvalidRequest

PLACES = st.tuples(st.text(min_size=1, max_size=5), st.integers(0, 500))


@given(st.dictionaries(PLACES, st.integers(0, 2**62)))
def test_offsets_come_back(offsets: dict[tuple[str, int], int]) -> None:
    text = json.dumps(to_json(offsets))
    assert read_offsets(text, "startingOffsets") == offsets
    assert json.dumps(to_json(dict(reversed(offsets.items())))) == text  # Spark compares the text


def test_queues_stand_in_the_order_of_their_numbers() -> None:
    assert to_json({("b", 10): 1, ("b", 2): 3, ("a", 0): 0}) == {
        "a": {"0": 0},
        "b": {"2": 3, "10": 1},
    }
    assert list(to_json({("b", 10): 1, ("b", 2): 3})["b"]) == ["2", "10"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "startingOffsets is no JSON"),
        ("[]", r"startingOffsets has \[\]"),
        ('{"t": 3}', "startingOffsets has 3"),
        ('{"t": {"x": 3}}', 'startingOffsets has "t": {"x": 3}'),
        ('{"t": {"0": "3"}}', "startingOffsets has"),
        ('{"t": {"0": true}}', "startingOffsets has"),
        ('{"t": {"0": -3}}', "startingOffsets has"),
    ],
)
def test_what_are_no_offsets_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_offsets(text, "startingOffsets")


def test_only_options_may_name_ends() -> None:
    assert read_offsets('{"t": {"0": -2, "1": -1}}', "x") == {("t", 0): -2, ("t", 1): -1}
    with pytest.raises(InvalidRequest, match="the checkpoint has"):
        from_json({"t": {"0": -1}}, "the checkpoint")


def test_queues_by_topic() -> None:
    assert read_queues('{"t": [3, 1, 3], "u": [0]}', "assign") == {"t": [1, 3], "u": [0]}
    for text in ('{"t": []}', '{"t": 0}', '{"t": [0, -1]}', '{"t": [0, "1"]}'):
        with pytest.raises(InvalidRequest, match='as queues of "t"'):
            read_queues(text, "assign")
