"""How long a message waits, and what takes it back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from logboom.client.delays import Parking, delay_level, due_time, recall_call, was_recalled
from logboom.client.producer_options import ProducerOptions
from logboom.client.send.send_buffer import SendBuffer
from logboom.wire.errors import InvalidRequest
from logboom.wire.messages import Ok
from logboom.wire.parking import AT_ONCE, MAX_DELAY_MS, Recall, Recalled
from tests.unit.client.send.test_queue_sender import Sent, Unlocked

NOW_MS = 1_700_000_000_000
DAY_S = 86_400


class Clocked(SendBuffer[Sent]):
    """A buffer whose time of day stands still."""

    def wall_ms(self) -> int:
        return NOW_MS


def buffer() -> SendBuffer[Sent]:
    made = Clocked(
        ProducerOptions(),
        lambda pile, index: (pile, index),
        Unlocked(),
        lambda: 7.0,
        lambda: None,
    )
    made.reshape("t", 1, 2, 5_000, 0)
    return made


def test_a_delay_counts_from_now_and_a_time_of_day_stands_for_itself() -> None:
    assert due_time(1.5, None, NOW_MS) == NOW_MS + 1_500
    assert due_time(0, None, NOW_MS) == NOW_MS
    assert due_time(40 * DAY_S, None, NOW_MS) == NOW_MS + MAX_DELAY_MS
    assert due_time(None, NOW_MS + 5, NOW_MS) == NOW_MS + 5
    assert due_time(None, NOW_MS - 5, NOW_MS) == NOW_MS - 5
    there = timezone(timedelta(hours=-5))
    assert due_time(None, datetime.fromtimestamp(NOW_MS / 1000, there), NOW_MS) == NOW_MS


@pytest.mark.parametrize(
    ("delay_s", "deliver_at"),
    [
        (-0.001, None),
        (40 * DAY_S + 1, None),
        (float("nan"), None),
        (True, None),
        ("1", None),
        (1, NOW_MS),
        (None, -1),
        (None, NOW_MS + MAX_DELAY_MS + 1),
        (None, 1.5),
        (None, datetime(2030, 1, 1)),  # noqa: DTZ001 - it has no time zone, that is the point
    ],
)
def test_what_nobody_can_mean_is_refused(delay_s: Any, deliver_at: Any) -> None:
    with pytest.raises(InvalidRequest):
        due_time(delay_s, deliver_at, NOW_MS)
    with pytest.raises(InvalidRequest):
        buffer().send("t", b"x", delay_s=delay_s, deliver_at=deliver_at)


def test_the_levels_are_those_of_rocketmq() -> None:
    levels = [1, 5, 10, 30, *(60 * m for m in range(1, 11)), 1200, 1800, 3600, 7200]
    assert [delay_level(level) for level in range(1, 19)] == levels
    for level in (0, 19, True):
        with pytest.raises(InvalidRequest):
            delay_level(level)


def test_delayed_messages_travel_apart_and_the_others_share_a_pile() -> None:
    made = buffer()
    first, _ = made.send("t", b"0", queue=0)
    later, _ = made.send("t", b"1", queue=0, delay_s=1)
    latest, _ = made.send("t", b"2", queue=0, delay_s=1)
    last, _ = made.send("t", b"3", queue=0)
    assert first is last
    assert [pile.due_ms for pile in (first, later, latest)] == [AT_ONCE, *[NOW_MS + 1_000] * 2]
    assert later is not latest
    taken = made.take(made.topics["t"].queues[0], 9, filling=True)
    assert [pile.values for pile in taken] == [[b"1"], [b"2"], [b"0", b"3"]]
    assert made.added == sum(pile.size for pile in taken)


def test_columns_wait_as_batches() -> None:
    piles = buffer().send_many("t", [b"x"] * 9, queue=1, deliver_at=NOW_MS + 7)
    assert [(len(pile.values), pile.due_ms) for pile in piles] == [(9, NOW_MS + 7)]


def test_only_what_waits_can_be_recalled() -> None:
    with pytest.raises(InvalidRequest, match="does not wait"):
        recall_call(None, 5.0)
    call = recall_call(Parking("t", 1, 7, 2, NOW_MS, 3), 5.0)
    assert (call.topic, call.queue, call.timeout) == ("t", 1, 5.0)
    assert call.message(900) == Recall(0, 900, "t", 1, 7, 2, 3)
    assert was_recalled(Recalled(1, done=True))
    assert not was_recalled(Recalled(1, done=False))
    assert not was_recalled(Ok(1))
