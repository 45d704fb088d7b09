"""Delayed messages: their due times, and their recall."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec import Struct

from logboom.client.calls import AskLeader
from logboom.wire.base import WireMessage
from logboom.wire.errors import InvalidRequest
from logboom.wire.group_view import DELAY_LEVELS_MS
from logboom.wire.messages import AnyMessage
from logboom.wire.parking import MAX_DELAY_MS, Recall, Recalled

MAX_DELAY_S: Final = MAX_DELAY_MS // 1000
"""The longest delay in seconds: 40 days."""


class Parking(Struct, frozen=True, gc=False):
    """The place where delayed messages wait, by which they can be recalled."""

    topic: str
    queue: int
    offset: int
    """Position in the queue's log, together with `side`. It is not the offset at which they will be
    read."""
    side: int
    due_ms: int
    """Time of delivery, ms since 1970 UTC; -1: it depends on a decision."""
    topic_id: int


def delay_level(level: int) -> float:
    """Return the seconds of one of RocketMQ's delay levels, 1 (1 s) to 18 (2 h).

    Raises:
        InvalidRequest: there is no such level.
    """
    if type(level) is not int or not 1 <= level <= len(DELAY_LEVELS_MS):
        text = f"a delay level must be 1 to {len(DELAY_LEVELS_MS)}, not {level!r}: or give delay_s"
        raise InvalidRequest(text)
    return DELAY_LEVELS_MS[level - 1] / 1000


def due_time(delay_s: float | None, deliver_at: datetime | int | None, now_ms: int) -> int:
    """Return the due time of a delay or a time of day, in ms since 1970.

    Args:
        delay_s: seconds from now.
        deliver_at: ms since 1970 UTC, or a datetime with its time zone. It may be in the past.
        now_ms: the time of day.

    Raises:
        InvalidRequest: both or a wrong type were given, a negative delay, or more than 40 days.
    """
    if deliver_at is None:
        return now_ms + round(check_delay(delay_s) * 1000)
    if delay_s is not None:
        raise InvalidRequest("delay_s and deliver_at exclude each other: give one of them")
    due_ms = _of_day(deliver_at)
    if due_ms < 0 or due_ms - now_ms > MAX_DELAY_MS:
        days = (due_ms - now_ms) / 86_400_000
        text = f"deliver_at is {days:.1f} days from now; the maximum is 40: send it later"
        raise InvalidRequest(text, max_delay_ms=MAX_DELAY_MS)
    return due_ms


def check_delay(delay_s: object) -> float:
    """Return a delay in seconds, once it is checked.

    Raises:
        InvalidRequest: it is no number, negative, or more than 40 days.
    """
    if isinstance(delay_s, bool) or not isinstance(delay_s, (int, float)):
        raise InvalidRequest(f"delay_s must be a number of seconds, not {delay_s!r}")
    if not 0 <= delay_s <= MAX_DELAY_S:
        text = f"delay_s must be 0 to {MAX_DELAY_S} s (40 days), not {delay_s:.12g} s"
        raise InvalidRequest(text, max_delay_ms=MAX_DELAY_MS)
    return delay_s


def _of_day(deliver_at: object) -> int:
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            text = "deliver_at has no time zone: use deliver_at.astimezone() for local time"
            raise InvalidRequest(text)
        return round(deliver_at.timestamp() * 1000)
    if type(deliver_at) is not int:
        text = f"deliver_at must be a datetime or whole ms since 1970, not {deliver_at!r}"
        raise InvalidRequest(text)
    return deliver_at


def recall_call(parked: Parking | None, timeout: float) -> AskLeader:
    """Return the call that recalls delayed messages.

    Raises:
        InvalidRequest: there is nothing to recall: they were sent without a delay or an answer.
    """
    if parked is not None and parked.due_ms < 0:
        text = "this message waits for a decision, not for a time: abort its transaction instead"
        raise InvalidRequest(text)
    if parked is None:
        text = "this message does not wait: only messages sent with delay_s or deliver_at can"
        raise InvalidRequest(f"{text} be recalled, and not with acks='none'")

    def message(left: int) -> WireMessage:
        place = (parked.topic, parked.queue, parked.offset, parked.side, parked.topic_id)
        return Recall(0, left, *place)

    make: Callable[[int], WireMessage] = message
    return AskLeader(parked.topic, parked.queue, make, timeout, topic_id=parked.topic_id)


def was_recalled(answer: AnyMessage) -> bool:
    """True if a recall succeeded: the messages are never delivered."""
    return isinstance(answer, Recalled) and answer.done
