"""Permits of one consumer, and rates of a subscription."""

from __future__ import annotations

import pytest

from logboom.nodes.subscriptions.attached_consumer import MAX_GRANT, DispatchRateLimiter, Permits
from logboom.wire.errors import InvalidRequest


def test_permits_are_open_as_long_as_messages_and_bytes_are_left() -> None:
    permits = Permits()
    assert not permits.open
    permits.grant(2, 100)
    assert permits.open
    permits.spend(1, 40)
    assert (permits.left, permits.left_bytes, permits.open) == (1, 60, True)
    permits.spend(3, 10)
    assert (permits.left, permits.left_bytes, permits.open) == (-2, 50, False)
    permits.grant(3, 0)
    permits.spend(0, 50)
    assert (permits.left, permits.left_bytes, permits.open) == (1, 0, False)
    permits.grant(MAX_GRANT, MAX_GRANT)
    assert permits.left == MAX_GRANT + 1


@pytest.mark.parametrize("wrong", [(-1, 0), (0, -1), (MAX_GRANT + 1, 0), (0, MAX_GRANT + 1)])
def test_permits_that_nobody_can_mean_are_refused(wrong: tuple[int, int]) -> None:
    permits = Permits()
    with pytest.raises(InvalidRequest):
        permits.grant(*wrong)
    assert (permits.granted, permits.granted_bytes) == (0, 0)


def test_no_rate_is_no_limit() -> None:
    rate = DispatchRateLimiter()
    rate.charge(1_000_000, 1_000_000)
    assert rate.room(5.0) == (MAX_GRANT, MAX_GRANT)
    assert rate.next_at(5.0) == 5.0


@pytest.mark.parametrize("wrong", [(-1, 0), (0, -1)])
def test_a_rate_below_zero_is_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest):
        DispatchRateLimiter(*wrong)


def test_each_limit_counts_for_itself() -> None:
    rate = DispatchRateLimiter(bytes_per_s=1_000)
    assert rate.room(100.0) == (MAX_GRANT, 1_000)
    rate.charge(7, 1_000)
    assert rate.room(100.0) == (MAX_GRANT, 0)
    assert rate.room(100.5) == (MAX_GRANT, 500)
    both = DispatchRateLimiter(messages_per_s=10, bytes_per_s=1_000)
    both.charge(10, 100)
    assert both.room(0.0) == (0, 900)
    assert both.next_at(0.0) == pytest.approx(0.1)


def test_at_most_a_second_is_saved_up() -> None:
    rate = DispatchRateLimiter(messages_per_s=10, bytes_per_s=1_000)
    assert rate.room(100.0) == (10, 1_000)
    assert rate.room(200.0) == (10, 1_000)
    rate.charge(10, 1_000)
    assert rate.room(200.3) == (3, 300)
    assert rate.room(209.0) == (10, 1_000)


@pytest.mark.parametrize("looks", [1, 3, 50])
def test_what_was_overdrawn_is_paid_in_its_time_however_often_one_looks(looks: int) -> None:
    rate = DispatchRateLimiter(messages_per_s=10, bytes_per_s=1_000)
    assert min(rate.room(100.0)) > 0
    rate.charge(50, 0)
    due = rate.next_at(100.0)
    assert due == pytest.approx(104.1)
    for look in range(1, looks):
        assert rate.room(100.0 + 4 * look / looks)[0] == 0
    assert rate.room(due - 0.01)[0] == 0
    assert min(rate.room(due + 0.01)) > 0
    assert rate.next_at(due + 0.01) == due + 0.01
