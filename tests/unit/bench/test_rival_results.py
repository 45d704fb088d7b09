"""Figures of the rivals: medians, spreads, ratios within a round, and runs that are joined."""

from __future__ import annotations

import pytest

from bench.rivals.bursts import MAX_BURST_BYTES, MAX_MESSAGES, MIN_MESSAGES, messages_of
from bench.rivals.results import (
    BurstResult,
    Competitor,
    RunReport,
    Setup,
    Spread,
    Work,
    cpu_spread,
    merge,
    percentile,
    rate_spread,
    ratio_spread,
    spread,
)

ONE = Setup(1, 100, "none")
THREE = Setup(3, 100, "none")


def burst(
    rival: str, number: int, messages: int, setup: Setup = ONE, work: Work = "produce"
) -> BurstResult:
    """A burst of two seconds, whose servers took one second and whose clients half of one."""
    return BurstResult(rival, work, setup, number, messages, 2.0, 1.0, 0.5)


def run_of(results: list[BurstResult], *competitors: Competitor, cpu: str = "cpu") -> RunReport:
    """A report of two rounds."""
    return RunReport("2026-11-23", {"processor": cpu}, 2, list(competitors), results)


def test_a_spread_is_of_what_was_measured() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert spread([4.0, 1.0]) == Spread(2.5, 1.0, 4.0, 2)
    assert spread([]) is None


def test_a_percentile_is_one_of_the_figures() -> None:
    figures = [float(n) for n in range(100, 0, -1)]
    assert percentile(figures, 0.5) == 51.0
    assert percentile(figures, 0.99) == 100.0
    assert percentile([7.0], 0.99) == 7.0


def test_rates_are_of_one_kind_of_burst() -> None:
    results = [
        burst("kafka", 1, 200),
        burst("kafka", 2, 400),
        burst("kafka", 1, 9_000, THREE),
        burst("kafka", 1, 9_000, work="consume"),
        burst("nats", 1, 9_000),
    ]
    assert rate_spread(results, "kafka", "produce", ONE) == Spread(150.0, 100.0, 200.0, 2)
    assert rate_spread(results, "redis", "produce", ONE) is None


def test_processor_time_is_for_a_million_messages() -> None:
    results = [burst("kafka", 1, 500_000), burst("kafka", 2, 250_000)]
    found = cpu_spread(results, "kafka", "produce", ONE, lambda result: result.server_cpu_s)
    assert found == Spread(3.0, 2.0, 4.0, 2)


def test_ratios_are_taken_within_a_round() -> None:
    # The machine was four times as fast in the second round: the ratio of medians would be 1.25.
    results = [
        burst("logboom", 1, 200),
        burst("kafka", 1, 100),
        burst("logboom", 2, 800),
        burst("kafka", 2, 400),
        burst("logboom", 3, 10**6),
    ]
    assert ratio_spread(results, "kafka", "produce", ONE) == Spread(2.0, 2.0, 2.0, 2)
    assert ratio_spread(results, "nats", "produce", ONE) is None


def test_runs_with_one_and_three_brokers_are_joined() -> None:
    own, failed = Competitor("logboom", "logboom"), {"3 brokers": "it ended"}
    one = run_of([burst("logboom", 1, 200)], own, Competitor("nats", "NATS", "2.12", "on disk"))
    one.foreign_cores["1"] = 0.25
    three = run_of(
        [burst("logboom", 1, 200, THREE)], own, Competitor("nats", "NATS", "", "", failed)
    )
    three.idle_cores["3"] = {"logboom": 0.5}
    joined = merge([one, three])
    assert [result.setup.brokers for result in joined.results] == [1, 3]
    assert joined.competitors == [own, Competitor("nats", "NATS", "2.12", "on disk", failed)]
    assert (joined.foreign_cores, joined.idle_cores) == ({"1": 0.25}, {"3": {"logboom": 0.5}})


def test_runs_that_do_not_compare_are_refused() -> None:
    one, again = run_of([burst("kafka", 1, 200)]), run_of([burst("kafka", 2, 200)])
    with pytest.raises(ValueError, match="the same work"):
        merge([one, again])
    other = run_of([burst("kafka", 1, 200, THREE)], cpu="another")
    with pytest.raises(ValueError, match="different machines"):
        merge([one, other])


def test_a_burst_is_bounded_in_time_messages_and_bytes() -> None:
    assert messages_of(100_900, 0.1, 100) == 10_000
    assert messages_of(5, 0.1, 100) == MIN_MESSAGES
    assert messages_of(1e9, 1.0, 100) == MAX_MESSAGES
    assert messages_of(1e9, 1.0, 1 << 20) * (1 << 20) <= MAX_BURST_BYTES
