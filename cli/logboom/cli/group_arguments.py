"""Arguments of `logboom group`: subscriptions, offsets, reset targets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from logboom.cli.options import duration_ms, queue_numbers, time_ms
from logboom.client.fetch.fetch_collector import TopicQueue
from logboom.wire.errors import InvalidRequest


def subscription_of(parts: Sequence[str]) -> dict[str, str]:
    """Return the filter text by topic from `topic` and `topic=filter`.

    Raises:
        InvalidRequest: a topic is named twice.
    """
    found: dict[str, str] = {}
    for part in parts:
        topic, _, wanted = part.partition("=")
        if topic in found:
            raise InvalidRequest(f"{topic!r} is subscribed to twice: give it one filter")
        found[topic] = wanted
    return found


def when(text: str) -> Literal["first", "last"] | int:
    """Return "first", "last", or a message time in ms.

    A time is written as 2026-11-21T10:00:00Z, as milliseconds since 1970 UTC, or as an age: 90s,
    15m, 1h, 7d.

    Raises:
        InvalidRequest: it is none of these.
    """
    if text == "first":
        return "first"
    if text == "last":
        return "last"
    said = time_ms(text)
    if said is not None:
        return said
    try:
        ago = duration_ms(text)
    except InvalidRequest:
        ago = -1
    if ago < 0:
        meant = "first, last, a time like 2026-11-21T10:00:00Z, or 1h for an hour ago"
        raise InvalidRequest(f"{text!r} is not a reset target: say {meant}")
    return int(time.time() * 1000) - ago


def assigned(texts: Sequence[str]) -> dict[str, list[TopicQueue]]:
    """Return the queues by member from `member=topic/queues`.

    Raises:
        InvalidRequest: an argument is invalid, or a queue is given twice.
    """
    found: dict[str, list[TopicQueue]] = {}
    owner: dict[TopicQueue, str] = {}
    for text in texts:
        member, _, places = text.rpartition("=")
        topic, _, numbers = places.rpartition("/")
        if not member or not topic:
            raise InvalidRequest(f"{text!r} gives no queues: write member-1=orders/0-3")
        for number in queue_numbers(numbers) or ():
            place = (topic, number)
            if owner.setdefault(place, member) != member:
                other = owner[place]
                raise InvalidRequest(
                    f"{topic}/{number} is given to {other!r} and to {member!r}: give it to one"
                )
            if place not in found.setdefault(member, []):
                found[member].append(place)
    return found


def offsets_of(texts: Sequence[str]) -> dict[TopicQueue | int, int]:
    """Return offsets by topic and queue from `topic/queue=offset`.

    Raises:
        InvalidRequest: an argument is invalid.
    """
    found: dict[TopicQueue | int, int] = {}
    for text in texts:
        place, _, offset = text.partition("=")
        topic, _, queue = place.rpartition("/")
        if not topic or not queue.isdecimal() or not offset.isdecimal():
            raise InvalidRequest(f"{text!r} is not an offset: write orders/0=1200")
        found[topic, int(queue)] = int(offset)
    return found
