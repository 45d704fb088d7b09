"""Messages that wait for a time: how long, and how they are taken back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec import Struct

from logboom.client.calls import AskLeader
from logboom.wire.errors import InvalidRequest
from logboom.wire.group_view import DELAY_LEVELS_MS
from logboom.wire.messages import AnyMessage, WireMessage
from logboom.wire.parking import MAX_DELAY_MS, Recall, Recalled

MAX_DELAY_S: Final = MAX_DELAY_MS // 1000
"""The longest delay in seconds: 40 days."""


class Parking(Struct, frozen=True, gc=False):
    """Where messages wait that were sent with a delay; what takes them back."""

    topic: str
    queue: int
    offset: int
    """Position in the queue's log, with `side`: not the offset at which they will be read."""
    side: int
    due_ms: int
    """When they are delivered, ms since 1970 UTC; -1: once that is decided."""
    topic_id: int


def delay_level(level: int) -> float:
    """Seconds of one of RocketMQ's delay levels, 1 (1 s) to 18 (2 h).

    Raises:
        InvalidRequest: there is no such level.
    """
    if type(level) is not int or not 1 <= level <= len(DELAY_LEVELS_MS):
        text = f"a delay level is 1 to {len(DELAY_LEVELS_MS)}, not {level!r}: or give delay_s"
        raise InvalidRequest(text)
    return DELAY_LEVELS_MS[level - 1] / 1000


def due_time(delay_s: float | None, deliver_at: datetime | int | None, now_ms: int) -> int:
    """The due time in ms since 1970 of a delay, or of a time of day.

    Args:
        deliver_at: ms since 1970 UTC, or a datetime with its time zone. One in the past is good.
        now_ms: the time of day.

    Raises:
        InvalidRequest: both or a wrong type were given, a negative delay, or more than 40 days.
    """
    if deliver_at is None:
        return now_ms + _milliseconds(delay_s)
    if delay_s is not None:
        raise InvalidRequest("delay_s and deliver_at say the same: give one of them")
    due_ms = _of_day(deliver_at)
    if due_ms < 0 or due_ms - now_ms > MAX_DELAY_MS:
        days = (due_ms - now_ms) / 86_400_000
        text = f"deliver_at lies {days:.1f} days from now; at most 40 are taken: send it later"
        raise InvalidRequest(text, max_delay_ms=MAX_DELAY_MS)
    return due_ms


def _milliseconds(delay_s: object) -> int:
    if isinstance(delay_s, bool) or not isinstance(delay_s, (int, float)):
        raise InvalidRequest(f"delay_s is a number of seconds, not {delay_s!r}")
    if not 0 <= delay_s <= MAX_DELAY_S:
        text = f"a delay of {delay_s:.12g} s: from 0 to {MAX_DELAY_S} s (40 days) are taken"
        raise InvalidRequest(text, max_delay_ms=MAX_DELAY_MS)
    return round(delay_s * 1000)


def _of_day(deliver_at: object) -> int:
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            text = "deliver_at has no time zone: say deliver_at.astimezone() for local time"
            raise InvalidRequest(text)
        return round(deliver_at.timestamp() * 1000)
    if type(deliver_at) is not int:
        text = f"deliver_at is a datetime or whole ms since 1970, not {deliver_at!r}"
        raise InvalidRequest(text)
    return deliver_at


def recall_call(parked: Parking | None, timeout: float) -> AskLeader:
    """The call that takes parked messages back.

    Raises:
        InvalidRequest: nothing is parked: the message was sent without a delay or an answer.
    """
    if parked is not None and parked.due_ms < 0:
        text = "this message waits for a decision, not for a time: abort its transaction instead"
        raise InvalidRequest(text)
    if parked is None:
        text = "this message does not wait: only one that was sent with delay_s or deliver_at can"
        raise InvalidRequest(f"{text} be recalled, and not with acks='none'")

    def message(left: int) -> WireMessage:
        place = (parked.topic, parked.queue, parked.offset, parked.side, parked.topic_id)
        return Recall(0, left, *place)

    make: Callable[[int], WireMessage] = message
    return AskLeader(parked.topic, parked.queue, make, timeout)


def was_recalled(answer: AnyMessage) -> bool:
    """What a recall came to: True if the messages are never delivered."""
    return isinstance(answer, Recalled) and answer.done
