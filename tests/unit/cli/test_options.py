"""Durations, sizes and queue lists as people write them."""

import pytest

from logboom.cli.options import ago_ms, delay_s, key_end_ms
from logboom.client.written_values import (
    bytes_text,
    counted,
    duration_ms,
    duration_text,
    number_text,
    queue_numbers,
    size_bytes,
    time_ms,
)
from logboom.wire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("90s", 90_000), ("1.5h", 5_400_000), ("7d", 604_800_000), ("ever", -1)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("64k", 65_536), ("1.5MiB", 1_572_864), ("any", -1)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "7", "d", "-5s", "1y", "1 h"])
def test_no_duration(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a duration"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["99999999999999d", "9" * 400 + "w"])
def test_a_duration_or_size_without_measure(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is too large"):
        duration_ms(text)
    with pytest.raises(InvalidRequest, match="is too large"):
        size_bytes(text.rstrip("dw") + "t")


def test_a_time_ago() -> None:
    assert ago_ms("1.5s", 10_000) == 8_500
    with pytest.raises(InvalidRequest, match="not an age"):
        ago_ms("ever", 10_000)


def test_delays_and_times() -> None:
    assert delay_s("1.5m") == 90.0
    with pytest.raises(InvalidRequest, match="40d is the longest"):
        delay_s("ever")
    assert time_ms("2026-11-21T10:00:00Z") == time_ms("1795255200000") == 1_795_255_200_000
    assert time_ms("tomorrow") is None
    assert time_ms("0001-01-01T00:00:00") is None


@pytest.mark.parametrize("text", ["", "k", "-5", "1p"])
def test_no_size(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a size"):
        size_bytes(text)


def test_queue_lists() -> None:
    assert queue_numbers("0,3,5-7") == [0, 3, 5, 6, 7]
    assert queue_numbers(None) is None
    with pytest.raises(InvalidRequest, match="names no queues"):
        queue_numbers("a")
    for text in ("5-2", "0-99999999999", "1024"):
        with pytest.raises(InvalidRequest, match="0 to 1023"):
            queue_numbers(text)


def test_numbers_for_people() -> None:
    assert [counted(n, "queue") for n in (0, 1, 2)] == ["0 queues", "1 queue", "2 queues"]
    assert [bytes_text(n) for n in (0, 1023, 1536, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
    ]
    assert [duration_text(n) for n in (-1, 604_800_000, 5_400_000, 1, 0)] == [
        "ever",
        "7d",
        "90m",
        "1ms",
        "0ms",
    ]


def test_the_end_of_a_key() -> None:
    assert key_end_ms("never", 1_000) == 0
    assert key_end_ms("90d", 1_000) == 1_000 + 90 * 86_400_000
    assert key_end_ms("2027-06-30T12:00:00Z", 1_000) == 1_814_356_800_000


@pytest.mark.parametrize("text", ["", "ever", "soon", "-1", "0", "2026-11-21T10:00:00Z", "12"])
def test_no_end_of_a_key(text: str) -> None:
    with pytest.raises(InvalidRequest, match="90d"):
        key_end_ms(text, 1_900_000_000_000)


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("10m", "bytes per second", "10485760"),
        ("90s", "milliseconds", "90000"),
        ("15m", "seconds", "900"),
        ("20000m", "seconds", "1200000"),
        ("500ms", "seconds", "0.5"),
        ("7", "bytes", "7"),
        ("debug", "", "debug"),
    ],
)
def test_sizes_and_durations_become_numbers_of_a_unit(text: str, unit: str, number: str) -> None:
    assert number_text(text, unit) == number
