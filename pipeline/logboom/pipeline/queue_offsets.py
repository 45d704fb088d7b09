"""Offsets of queues in the JSON of Spark's Kafka source, `{"topic": {"0": 12}}`.

The same text is used in options, in checkpoints and in the progress of a query. It has a fixed
order, because Spark compares it as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from logboom.wire.errors import InvalidRequest

TopicQueue: TypeAlias = tuple[str, int]
"""(topic, queue)."""

Offsets: TypeAlias = dict[TopicQueue, int]
"""The offset of the next message by queue, or in options one of the two values below."""

EARLIEST: Final = -2
"""In options: the first message of the queue."""
LATEST: Final = -1
"""In options: after the last message."""


def to_json(offsets: Mapping[TopicQueue, int]) -> dict[str, dict[str, int]]:
    """Return offsets for Spark, sorted."""
    found: dict[str, dict[str, int]] = {}
    for (topic, queue), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(queue)] = offset
    return found


def from_json(value: Any, what: str, least: int = 0) -> Offsets:
    """Return the offsets in a JSON text. `what` names it in errors.

    Raises:
        InvalidRequest: it does not have this form, or an offset is below `least`.
    """
    offsets: Offsets = {}
    for topic, queues in _mapping(value, what).items():
        for queue, offset in _mapping(queues, what).items():
            if not str(queue).isdecimal() or type(offset) is not int or offset < least:
                raise _wrong(what, f'"{topic}": {{"{queue}": {offset!r}}}')
            offsets[topic, int(queue)] = offset
    return offsets


def read_offsets(text: str, option: str, least: int = EARLIEST) -> Offsets:
    """Return the offsets in an option's text.

    Raises:
        InvalidRequest: it is not JSON of this form.
    """
    return from_json(_parsed(text, option), option, least)


def read_queues(text: str, option: str) -> dict[str, list[int]]:
    """Return queues by topic from `{"topic": [0, 1]}`.

    Raises:
        InvalidRequest: it is not JSON of this form.
    """
    found: dict[str, list[int]] = {}
    for topic, queues in _mapping(_parsed(text, option), option).items():
        right = isinstance(queues, list) and all(type(q) is int and q >= 0 for q in queues)
        if not right or not queues:
            text = f'{option} has {json.dumps(queues)} as queues of "{topic}": write e.g. [0, 1]'
            raise InvalidRequest(text)
        found[topic] = sorted(set(queues))
    if not found:
        raise InvalidRequest(f'{option} names no topic: write e.g. {{"flights": [0, 1]}}')
    return found


def describe(place: TopicQueue) -> str:
    """Return a queue as errors name it."""
    return f"queue {place[1]} of topic {place[0]!r}"


def _parsed(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{option} is no JSON ({error}): {text[:80]!r}") from None


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(what, json.dumps(value))
    return value


def _wrong(what: str, found: str) -> InvalidRequest:
    text = f'{what} has {found[:80]}: write topic, queue and offset as {{"flights": {{"0": 12}}}}'
    return InvalidRequest(text)
