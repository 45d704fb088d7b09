"""Marks in the latest offset of a query."""

from __future__ import annotations

import json

import pytest

from logboom.pipeline.commit_target import MARK, CommitTarget, mark_of, marked, reached
from logboom.pipeline.source_options import source_options

OFFSETS = {"flights": {"0": 5}}


def test_a_mark_is_found_again() -> None:
    given = {"servers": "a:1", "subscribe": "flights", "commitGroup": "g", "timeoutMs": "7"}
    latest = marked(OFFSETS, source_options(given, stream=True))
    assert mark_of(json.dumps(latest)) == CommitTarget("g", "a:1", 7)
    # Who computes lags of it goes through queues and numbers, and finds those of the topic alone.
    assert [
        (topic, queue, offset + 0) for topic in latest for queue, offset in latest[topic].items()
    ] == [("flights", "0", 5)]


def test_without_a_group_there_is_none() -> None:
    options = source_options({"servers": "a:1", "subscribe": "flights"}, stream=True)
    assert marked(OFFSETS, options) == OFFSETS
    # A source of another kind has any text.
    for text in (None, "", "null", "3", "at 7", "{", json.dumps(OFFSETS), '{"commitGroup:g": 3}'):
        assert mark_of(text) is None


@pytest.mark.parametrize("mark", [[], "g", ["g", "a:1"], ["g", 1, 7], ["g", "a:1", "7"], {"g": 7}])
def test_what_only_looks_like_a_mark_is_none(mark: object) -> None:
    wrong, right = (MARK + json.dumps(each) for each in (mark, ["h", "a:1", 7]))
    assert mark_of(json.dumps({wrong: {}})) is None
    assert mark_of(json.dumps({"commitGroup:g": {}, right[1:]: {}})) is None
    assert mark_of(json.dumps({wrong: {}, right: {}})) == CommitTarget("h", "a:1", 7)


def test_how_far_a_query_is() -> None:
    assert reached(json.dumps(OFFSETS)) == {("flights", 0): 5}
    assert reached(None) == {}
