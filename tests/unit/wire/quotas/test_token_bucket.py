"""The rate that a token bucket keeps."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.wire.quotas.token_bucket import BURST_S, SOON_S, TokenBucket


@settings(deadline=None)
@given(
    rate=st.integers(1, 10**9),
    amounts=st.lists(st.integers(0, 10**8), min_size=1, max_size=50),
    pauses=st.lists(st.floats(0, 10), min_size=50, max_size=50),
)
def test_no_period_takes_more_than_the_rate_the_burst_and_one_amount(
    rate: int, amounts: list[int], pauses: list[float]
) -> None:
    now = 1_000.0
    bucket = TokenBucket(rate, now)
    taken: list[tuple[float, int]] = []
    for amount, pause in zip(amounts, pauses, strict=False):
        now += pause
        now += bucket.wait_s(now)
        bucket.take(amount, now)
        taken.append((now, amount))
    for first, (begin, _) in enumerate(taken):
        total = 0
        for at, amount in taken[first:]:
            # The last amount overdraws; all before it were covered.
            allowed = rate * (at - begin + BURST_S + len(taken) * SOON_S)
            assert total <= allowed * (1 + 1e-9) + 1
            total += amount


def test_a_bucket_that_is_always_used_gives_its_full_rate() -> None:
    rng = random.Random(5)
    now = begin = 77.0
    bucket, total = TokenBucket(1_000_000, now), 0
    while now < begin + 300:
        now += bucket.wait_s(now)
        amount = rng.randrange(1, 200_000)
        bucket.take(amount, now)
        total += amount
    assert 0.99 <= total / (1_000_000 * 301) <= 1.01


def test_what_was_overdrawn_flows_in_at_the_new_rate() -> None:
    bucket = TokenBucket(100, 0.0)
    bucket.take(1_100, 0.0)
    assert bucket.wait_s(0.0) == 10.0
    bucket.change_rate(1_000, 0.0)
    assert bucket.wait_s(0.0) == 1.0
    assert bucket.wait_s(1.0) == 0.0


def test_a_lower_rate_has_a_smaller_burst() -> None:
    bucket = TokenBucket(1_000, 0.0)
    bucket.change_rate(10, 0.0)
    bucket.take(20, 0.0)
    assert bucket.wait_s(0.0) == 1.0
