"""The throttle of moves: its rate holds, counts at once, and nothing waits longer than it must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.nodes.replication.move_budget import (
    BURST_S,
    LEAST_BYTES_PER_S,
    PIECE_BYTES,
    PIECE_S,
    MoveBudget,
    is_moving,
    move_rate,
)
from logboom.wire.settings import LiveSettings
from logboom.wire.view import QueueView

MIB = 1024 * 1024


@given(
    rate=st.integers(1, 1 << 33),
    entry=st.integers(1, 8 * MIB),
    pauses=st.lists(st.floats(0.0, 3.0), max_size=30),
)
def test_no_more_passes_than_the_rate_the_burst_and_one_entry(
    rate: int, entry: int, pauses: list[float]
) -> None:
    budget, now, passed = MoveBudget(lambda: rate, 100.0), 100.0, 0
    for pause in pauses:
        now += pause
        room = budget.room(now)
        assert 0 <= room <= PIECE_BYTES
        if room:
            size = max(entry, room // entry * entry)
            budget.take(size, now)
            passed += size
        assert passed <= rate * (now - 100.0) + rate * BURST_S + max(entry, PIECE_BYTES)


@pytest.mark.parametrize("rate", [1, 700, 64 * 1024, 5 * MIB, 900 * MIB])
def test_from_when_it_is_due_a_piece_may_pass_and_never_later(rate: int) -> None:
    budget, now = MoveBudget(lambda: rate, 7.0), 7.0
    for _ in range(50):
        assert budget.room(now) == 0 or now >= budget.due()
        now = max(now, budget.due())
        room = budget.room(now)
        assert room >= max(1, min(PIECE_BYTES, int(rate * PIECE_S)))
        budget.take(room, now)
    # It was used whenever it was due, so all of the rate has passed.
    assert now - 7.0 >= 49 * min(PIECE_S, PIECE_BYTES / rate) * 0.9


def test_another_rate_counts_at_once() -> None:
    rates = [1_000]
    budget = MoveBudget(lambda: rates[0], 0.0)
    budget.take(60_000, 0.0)
    assert budget.due() == pytest.approx(60.05)
    rates[0] = 1_000_000
    assert budget.due() == pytest.approx(0.11)
    assert budget.room(0.109) == 0
    assert budget.room(0.111) >= 50_000


def test_what_was_not_used_is_given_back() -> None:
    budget = MoveBudget(lambda: 1_000, 0.0)
    assert budget.room(1.0) == 1_000
    budget.take(1_000, 1.0)
    assert budget.room(1.0) == 0
    budget.give_back(400)
    assert budget.room(1.0) == 400


def test_the_automatic_rate_is_a_quarter_of_the_disks_and_at_least_a_floor() -> None:
    settings = LiveSettings("broker-1")
    assert move_rate(settings, 0) == LEAST_BYTES_PER_S
    assert move_rate(settings, 100 * MIB) == 25 * MIB
    settings.follow([("", "move_bytes_per_s", "1024")])
    assert move_rate(settings, 100 * MIB) == 1024


def test_only_a_replica_that_is_added_and_out_of_sync_moves() -> None:
    view = QueueView(["a", "b", "c", "d"], "a", 1, 1, ["a", "c"], ["b"], ["c", "d"], [])
    assert [broker for broker in view.replicas if is_moving(view, broker)] == ["d"]
