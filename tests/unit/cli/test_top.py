"""What `logboom top` shows of two samples, and how it fits a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from logboom.cli.top_layout import layout
from logboom.cli.top_sample import (
    ClusterSample,
    broker_rows,
    group_rows,
    headline,
    number_text,
    topic_rows,
)
from logboom.client.admin_flows.group_lag import GroupDescription, GroupQueue
from logboom.client.results import NodeStats
from logboom.wire.group_view import GroupConfig
from logboom.wire.view import QueueView, TopicConfig, TopicView


def sample(
    at_s: float, produced: int, end: int, lag: int, *, names: int = 1, restarted: bool = False
) -> ClusterSample:
    """Return a sample of two brokers, `names` topics and as many groups."""
    counters: dict[str, int | float | str] = {
        "leading": 2,
        "replicas": 4,
        "produced_messages": 3 if restarted else produced,
        "messages_out": 2 * produced,
        "free_bytes": 25,
        "disk_bytes": 100,
    }
    nodes = [
        NodeStats("broker-1", "broker", "h:1", counters),
        NodeStats("broker-2", "broker", "h:2", {}, "no answer"),
        NodeStats("name-1", "raft leader", "h:3", {"version": 1}),
    ]
    whole = QueueView(["broker-1", "broker-2"], "broker-1", 1, 1, ["broker-1", "broker-2"], [])
    behind = QueueView(["broker-1", "broker-2"], None, 1, 1, ["broker-1"], [])
    moving = QueueView(
        ["broker-1", "broker-3"], "broker-1", 1, 1, ["broker-1"], [], ["broker-3"], []
    )
    topics = [
        TopicView(f"topic-{number:03}", number, TopicConfig(), [whole, behind, moving], 1)
        for number in range(names)
    ]
    offsets = {topic.name: {0: (2, end), 1: (0, end)} for topic in topics}
    groups = [
        GroupDescription(
            f"group-{number:03}", number, GroupConfig(), {}, 1, "", 1, 1, 1, "", [], [queue(lag)]
        )
        for number in range(names)
    ]
    return ClusterSample(at_s, nodes, topics, offsets, groups)


def queue(lag: int) -> GroupQueue:
    """Return a queue of a group that is behind by `lag`."""
    return GroupQueue("topic-000", 0, 5, 0, 5 + lag, lag, None, "", "")


def test_rates_are_those_between_two_samples() -> None:
    before, now = sample(10.0, 100, 50, 40), sample(12.0, 300, 60, 20)
    first, second = broker_rows(now, before)
    assert (first["in_per_s"], first["state"], first["disk"]) == (100.0, "up", 0.75)
    assert first["out_per_s"] == 200.0
    assert (second["in_per_s"], second["state"]) == (None, "down")
    (topic,) = topic_rows(now, before)
    # Two queues grew by ten each, in two seconds.
    assert (topic["in_per_s"], topic["messages"]) == (10.0, 118)
    assert group_rows(now, before)[0]["lag_per_s"] == -10.0


def test_a_restarted_process_has_no_rate_instead_of_a_negative_one() -> None:
    now = sample(12.0, 300, 60, 20, restarted=True)
    assert broker_rows(now, sample(10.0, 100, 50, 40))[0]["in_per_s"] is None


def test_the_first_sample_has_no_rates() -> None:
    now = sample(12.0, 300, 60, 20)
    assert broker_rows(now, None)[0]["in_per_s"] is None
    assert topic_rows(now, None)[0]["in_per_s"] is None
    assert group_rows(now, None)[0]["lag_per_s"] is None


def test_a_replica_that_is_being_added_does_not_count_as_missing() -> None:
    (topic,) = topic_rows(sample(1.0, 0, 0, 0), None)
    assert (topic["queues"], topic["in_sync"], topic["led"], topic["moving"]) == (3, 2, 2, 1)


def test_the_headline_tells_what_is_missing() -> None:
    told = headline(sample(1.0, 0, 0, 0), None)
    assert told == "1/2 brokers · raft leader name-1 · 2/3 queues in sync"


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
@pytest.mark.parametrize("names", [1, 300])
def test_a_screen_fits_its_terminal(width: int, names: int) -> None:
    height = 30
    before, now = sample(10.0, 100, 50, 40, names=names), sample(12.0, 300, 60, 20, names=names)
    out = io.StringIO()
    Console(file=out, width=width, height=height, force_terminal=False).print(
        layout(now, before, width, height)
    )
    lines = out.getvalue().rstrip("\n").split("\n")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = out.getvalue()
    assert "broker-1" in text
    assert "topic-000" in text
    assert "group-000" in text
    if names > 1:
        assert "more" in text
    assert ("replicas" in text) == (width >= 80)
    assert ("zone" in text) == (width >= 140)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.4, "0"), (9_999, "9999"), (12_345, "12.3k"), (4.56e6, "4.6M"), (3e9, "3.0G")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number_text(value) == text
