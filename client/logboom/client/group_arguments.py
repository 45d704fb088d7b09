"""What people write of groups: subscriptions, offsets by queue, queues by member."""

from __future__ import annotations

from collections.abc import Sequence

from logboom.client.fetch.fetch_collector import TopicQueue
from logboom.client.written_values import queue_numbers
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
