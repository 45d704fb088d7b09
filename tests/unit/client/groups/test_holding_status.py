"""What a member says of a queue that does not move."""

from __future__ import annotations

import pytest

from logboom.client.fetch.fetch_buffer import FetchBuffer
from logboom.client.groups.assigned_queue import STILL_S, AssignedQueue, GroupFetch, TopicFilter
from logboom.wire.filters import Filter
from logboom.wire.group_view import OwnedQueue

ALL = TopicFilter(Filter())


@pytest.fixture
def holding() -> AssignedQueue:
    """A queue that is read, from offset 5 on."""
    made = AssignedQueue("billing", "orders", OwnedQueue(1, 0, 7, 5), ALL, 100.0)
    made.fetch = GroupFetch(made, 5, FetchBuffer(1 << 20, lambda: None), 1_000, ALL)
    return made


def told(holding: AssignedQueue, now: float, quiet_s: float = 0.0) -> tuple[str, int] | None:
    """State and milliseconds of it."""
    status = holding.status(now, now - quiet_s)
    return None if status is None else (status.state, status.since_ms)


def test_a_queue_that_is_simply_read_says_nothing(holding: AssignedQueue) -> None:
    assert told(holding, 1_000.0) is None
    holding.running = 3
    holding.progress.finish(5, 6)
    assert told(holding, 1_000.0) is None
    assert told(holding, 1_000.0 + STILL_S - 0.1) is None


def test_a_handler_that_runs_for_long_is_named_from_when_the_commit_point_stood(
    holding: AssignedQueue,
) -> None:
    holding.running = 1
    holding.progress.finish(5, 6)
    assert told(holding, 200.0) is None
    holding.progress.finish(7, 9)  # others above it go on
    assert told(holding, 290.0) == ("handler running", 90_000)
    holding.progress.finish(6, 7)
    assert told(holding, 291.0) is None


def test_a_pause_failing_pulls_and_a_full_cache_are_named_at_once(holding: AssignedQueue) -> None:
    assert holding.fetch is not None
    holding.fetch.paused = True
    assert told(holding, 101.0) == ("paused", 1_000)
    holding.fetch.paused = False
    holding.fetch.fetched = 1_000
    assert told(holding, 102.0) == ("full cache", 2_000)
    holding.running = 1
    assert told(holding, 102.0) == ("handler running, full cache", 2_000)
    holding.fetch.trouble = "STALE_EPOCH"
    assert told(holding, 102.0) == ("lock refused", 2_000)
    holding.fetch.trouble = "UNAVAILABLE"
    assert told(holding, 102.0) == ("pulls fail: UNAVAILABLE", 2_000)
    holding.state, holding.since = "draining", 101.5
    assert told(holding, 102.0) == ("draining: 1 handed out", 500)


def test_a_caller_that_asks_for_nothing_is_named_before_the_cache_that_fills(
    holding: AssignedQueue,
) -> None:
    assert holding.fetch is not None
    assert told(holding, 200.0, STILL_S - 0.1) is None
    assert told(holding, 200.0, 60.0) == ("not polled", 60_000)
    holding.fetch.fetched = 1_000
    assert told(holding, 200.0, 60.0) == ("not polled", 60_000)
    holding.fetch.paused = True
    assert told(holding, 200.0, 60.0) == ("paused", 100_000)
