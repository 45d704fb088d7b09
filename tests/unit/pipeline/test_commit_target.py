"""Marks in the latest offset of a query."""

from __future__ import annotations

import json

import pytest

from logboom.pipeline.commit_target import CommitTarget, mark_of, marked, reached
from logboom.pipeline.source_options import source_options

OFFSETS = {"flights": {"0": 5}}


def test_a_mark_is_found_again() -> None:
    given = {"servers": "a:1", "subscribe": "flights", "commitGroup": "g", "timeoutMs": "7"}
    latest = marked(OFFSETS, source_options(given, stream=True))
    assert mark_of(json.dumps(latest)) == CommitTarget("g", "a:1", 7)
    assert latest["flights"] == {"0": 5}


def test_without_a_group_there_is_none() -> None:
    options = source_options({"servers": "a:1", "subscribe": "flights"}, stream=True)
    assert marked(OFFSETS, options) == OFFSETS
    # A source of another kind has any text.
    for text in (None, "", "null", "3", "at 7", "{", json.dumps(OFFSETS), '{"commitGroup:g": 3}'):
        assert mark_of(text) is None


@pytest.mark.parametrize(
    "mark", [{}, {"servers": "a:1"}, {"timeoutMs": 7}, {"servers": 1, "timeoutMs": 7}]
)
def test_what_only_looks_like_a_mark_is_none(mark: dict[str, object]) -> None:
    whole = {"servers": "a:1", "timeoutMs": 7}
    assert mark_of(json.dumps({"commitGroup:g": mark})) is None
    assert mark_of(json.dumps({"flights": whole})) is None
    both = {"commitGroup:g": mark, "commitGroup:h": whole}
    assert mark_of(json.dumps(both)) == CommitTarget("h", "a:1", 7)


def test_how_far_a_query_is() -> None:
    assert reached(json.dumps(OFFSETS)) == {("flights", 0): 5}
    assert reached(None) == {}
