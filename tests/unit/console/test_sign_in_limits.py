"""How often somebody may try passwords."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.console.sign_in_limits import (
    FORGOTTEN_S,
    FREE_FAILURES,
    MAX_COUNTERS,
    MAX_WAIT_S,
    SignInLimits,
    network_of,
)

FREE = FREE_FAILURES["viewer"]


def failed(
    times: int, viewer: str = "alice", address: str = "10.0.0.1", now: float = 0.0
) -> SignInLimits:
    limits = SignInLimits()
    for _ in range(times):
        limits.failed(viewer, address, now)
    return limits


def test_the_first_failures_cost_nothing() -> None:
    assert failed(FREE - 1).wait_s("alice", "10.0.0.1", 0.0) == 0.0


def test_each_further_one_doubles_the_wait_up_to_a_bound() -> None:
    waits = [failed(FREE + more).wait_s("alice", "10.0.0.1", 0.0) for more in range(12)]
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == MAX_WAIT_S
    assert failed(100_000).wait_s("alice", "10.0.0.1", 0.0) == MAX_WAIT_S


def test_the_wait_passes_with_time() -> None:
    limits = failed(FREE + 2)
    assert limits.wait_s("alice", "10.0.0.1", 3.0) == 1.0
    assert limits.wait_s("alice", "10.0.0.1", 4.0) == 0.0


def test_a_viewer_waits_wherever_the_failures_came_from() -> None:
    limits = SignInLimits()
    for number in range(FREE):
        limits.failed("alice", f"10.0.0.{number}", 0.0)
    assert limits.wait_s("alice", "192.168.0.1", 0.0) > 0
    assert limits.wait_s("bob", "192.168.0.1", 0.0) == 0.0


def test_an_address_waits_whoever_it_tried() -> None:
    limits = SignInLimits()
    for number in range(FREE_FAILURES["address"]):
        limits.failed(f"viewer-{number}", "10.0.0.1", 0.0)
    assert limits.wait_s("somebody-else", "10.0.0.1", 0.0) > 0
    assert limits.wait_s("somebody-else", "10.0.0.2", 0.0) == 0.0


def test_success_frees_the_viewer_and_not_the_address() -> None:
    limits = SignInLimits()
    for number in range(FREE_FAILURES["address"]):
        limits.failed(f"viewer-{number}", "10.0.0.1", 0.0)
    limits.failed("alice", "10.0.0.1", 0.0)
    limits.succeeded("alice", "10.0.0.1")
    assert limits.wait_s("alice", "10.0.0.2", 0.0) == 0.0
    assert limits.wait_s("alice", "10.0.0.1", 0.0) == 1.0


def test_whoever_always_knows_the_password_never_waits() -> None:
    limits = SignInLimits()
    for now in range(1_000):
        assert limits.wait_s("alice", "10.0.0.1", now) == 0.0
        limits.failed("alice", "10.0.0.1", now)
        limits.succeeded("alice", "10.0.0.1")


def test_failures_are_forgotten() -> None:
    limits = failed(50)
    assert limits.wait_s("alice", "10.0.0.1", FORGOTTEN_S + 1) == 0.0
    limits.failed("alice", "10.0.0.1", FORGOTTEN_S + 1)
    assert limits.wait_s("alice", "10.0.0.1", FORGOTTEN_S + 1) == 0.0


def test_counters_are_bounded() -> None:
    limits = SignInLimits()
    for number in range(MAX_COUNTERS):
        limits.failed(
            f"viewer-{number}", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0
        )
    assert len(limits) == MAX_COUNTERS


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_addresses_of_one_household_count_as_one(address: str, network: str) -> None:
    assert network_of(address) == network


@given(st.lists(st.sampled_from("ab"), max_size=40), st.floats(0, 1e6))
def test_a_failure_never_shortens_the_wait(names: list[str], now: float) -> None:
    limits = SignInLimits()
    waits = [0.0]
    for name in names:
        limits.failed(name, "10.0.0.1", now)
        waits.append(limits.wait_s("a", "10.0.0.1", now))
    assert waits == sorted(waits)
