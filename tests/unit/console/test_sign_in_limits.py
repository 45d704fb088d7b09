"""How often somebody may try passwords."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.console.sign_in_limits import (
    FORGOTTEN_S,
    FREE_FAILURES,
    FREE_PAIRS,
    MAX_COUNTERS,
    MAX_HELD_S,
    MAX_PACE_S,
    MAX_WAIT_S,
    SignInLimits,
    SignInTurn,
    network_of,
)

FREE = FREE_FAILURES["pair"]
AT_ONCE = SignInTurn(False, 0.0)


def failed(
    times: int, viewer: str = "alice", address: str = "10.0.0.1", now: float = 0.0
) -> SignInLimits:
    """Limits after failures that each came as soon as it could."""
    limits = SignInLimits()
    for _ in range(times):
        turn = limits.begin(viewer, address, now)
        if turn.is_refused:
            now += turn.wait_s
            limits.begin(viewer, address, now)
    return limits


def tries(limits: SignInLimits, pairs: list[tuple[str, str]], seconds: float) -> int:
    """How many passwords are looked at, of somebody who tries each pair over and over."""
    looked = 0
    for now in range(0, int(seconds), 5):
        for viewer, address in pairs:
            looked += not limits.begin(viewer, address, now).is_refused
    return looked


def test_the_first_failures_cost_nothing() -> None:
    assert failed(FREE - 1).begin("alice", "10.0.0.1", 0.0) == AT_ONCE


def test_each_further_one_doubles_the_wait_up_to_a_bound() -> None:
    limits, now, waits = failed(FREE), 0.0, []
    for _ in range(12):
        turn = limits.begin("alice", "10.0.0.1", now)
        assert turn.is_refused
        waits.append(turn.wait_s)
        now += turn.wait_s
        assert limits.begin("alice", "10.0.0.1", now) == AT_ONCE
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == MAX_WAIT_S


def test_the_wait_passes_with_time() -> None:
    limits = failed(FREE)
    assert limits.begin("alice", "10.0.0.1", 0.75) == SignInTurn(True, 0.25)
    assert limits.begin("alice", "10.0.0.1", 1.0) == AT_ONCE


def test_others_failures_at_an_address_keep_nobody_out() -> None:
    limits = failed(50, "neighbour")
    assert limits.begin("alice", "10.0.0.1", 0.0) == AT_ONCE


def test_a_stranger_elsewhere_keeps_no_viewer_out() -> None:
    limits = failed(50, "alice", "10.0.0.66")
    assert limits.begin("alice", "10.0.0.1", 0.0) == AT_ONCE
    assert limits.begin("alice", "10.0.0.66", 0.0).is_refused


def test_one_viewer_is_tried_slowly_from_however_many_addresses() -> None:
    limits = SignInLimits()
    addresses = [("alice", f"10.0.{number >> 8}.{number & 255}") for number in range(100)]
    looked = tries(limits, addresses, 600)
    assert (
        FREE_PAIRS["viewer"] < looked <= FREE_PAIRS["viewer"] + 5 + 600 / MAX_PACE_S["viewer"] + 2
    )
    # Whoever it is has its turn some time, and those who were there before wait for none.
    assert limits.begin("alice", "192.168.0.1", 600 + 2 * MAX_PACE_S["viewer"]).wait_s == 0.0


def test_many_viewers_are_tried_slowly_from_one_address() -> None:
    limits = SignInLimits()
    viewers = [(f"viewer-{number}", "10.0.0.1") for number in range(100)]
    looked = tries(limits, viewers, 600)
    most = FREE_PAIRS["address"] + (600 + MAX_HELD_S) / MAX_PACE_S["address"] + 5
    assert FREE_PAIRS["address"] < looked <= most


def test_a_right_password_gets_in_where_many_names_failed() -> None:
    limits = SignInLimits()
    for number in range(FREE_PAIRS["address"] + 2):
        limits.begin(f"viewer-{number}", "10.0.0.1", 0.0)
    turn = limits.begin("alice", "10.0.0.1", 0.0)
    assert not turn.is_refused
    assert 0.0 < turn.wait_s <= MAX_HELD_S
    assert limits.begin("alice", "10.0.0.2", 0.0) == AT_ONCE


def test_who_has_signed_in_from_there_waits_for_no_turn() -> None:
    limits = SignInLimits()
    limits.begin("alice", "10.0.0.1", 0.0)
    limits.succeeded("alice", "10.0.0.1")
    for number in range(200):
        limits.begin("alice", f"10.0.1.{number}", 0.0)
        limits.begin(f"viewer-{number}", "10.0.0.1", 0.0)
    assert limits.begin("alice", "10.0.0.1", 0.0) == AT_ONCE
    assert limits.begin("alice", "10.0.0.2", 0.0).is_refused


def test_success_frees_its_own_pair_only() -> None:
    limits = failed(FREE + 3, "bob")
    limits.begin("alice", "10.0.0.1", 0.0)
    limits.succeeded("alice", "10.0.0.1")
    assert limits.begin("bob", "10.0.0.1", 0.0).is_refused


def test_whoever_always_knows_the_password_never_waits() -> None:
    limits = SignInLimits()
    for now in range(1_000):
        assert limits.begin("alice", f"10.0.0.{now % 100}", now) == AT_ONCE
        limits.succeeded("alice", f"10.0.0.{now % 100}")


def test_failures_are_forgotten() -> None:
    limits = failed(FREE)
    for _ in range(FREE):
        assert limits.begin("alice", "10.0.0.1", FORGOTTEN_S + 1) == AT_ONCE
    assert limits.begin("alice", "10.0.0.1", FORGOTTEN_S + 1).is_refused


def test_counters_are_bounded() -> None:
    limits = SignInLimits()
    for number in range(MAX_COUNTERS + 100):
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        limits.begin(f"viewer-{number}", address, 0.0)
        limits.succeeded(f"viewer-{number}", address)
        limits.begin(f"viewer-{number}", address, 0.0)
    assert len(limits) == 4 * MAX_COUNTERS


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


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["10.0.0.1", "::1"])), max_size=60)
)
def test_a_failure_never_shortens_the_wait(pairs: list[tuple[str, str]]) -> None:
    limits = SignInLimits()
    waits = [0.0]
    for viewer, address in pairs:
        turn = limits.begin(viewer, address, 0.0)
        if (viewer, address) == ("a", "::1"):
            waits.append(turn.wait_s)
    assert waits == sorted(waits)
