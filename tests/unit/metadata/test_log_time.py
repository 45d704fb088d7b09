"""The log's time goes by the leader's monotonic clock."""

from __future__ import annotations

from logboom.metadata.log_time import LogTime

LATE_MS = 1_700_000_000_000


def test_it_begins_with_the_process() -> None:
    assert LogTime(5.0).stamp_ms(5.25) == 250


def test_it_goes_on_from_what_is_applied() -> None:
    time = LogTime(5.0)
    time.follow(LATE_MS, 6.0)
    assert time.stamp_ms(6.0) == LATE_MS
    assert time.stamp_ms(8.5) == LATE_MS + 2_500


def test_it_goes_on_from_what_another_leader_said() -> None:
    time = LogTime(5.0)
    time.follow(LATE_MS, 5.0)
    time.follow(LATE_MS + 60_000, 6.0)
    assert time.stamp_ms(7.0) == LATE_MS + 61_000


def test_many_commands_within_a_millisecond_lose_no_time() -> None:
    time = LogTime(0.0)
    for turn in range(1, 10_001):
        mono = turn * 0.0007
        time.follow(time.stamp_ms(mono), mono)
    assert time.stamp_ms(7.0) in (6_999, 7_000)


def test_it_never_goes_back() -> None:
    time, last = LogTime(0.0), 0
    for turn in range(1, 5_000):
        mono = turn * 0.000_9
        assert time.stamp_ms(mono) >= last
        last = time.stamp_ms(mono)
        if turn % 3:
            time.follow(last, mono)
