"""Copies of failed messages for the retry and dead-letter topics of a group.

Headers carry the origin of a copy, its attempts and the cause of the failure. A retry therefore
appears as the original message, and a dead letter can be understood and sent again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from logboom.client.results import Message
from logboom.wire.group_view import DELAY_LEVELS_MS, GroupConfig

ATTEMPT_HEADER: Final = "boom-attempt"
"""Number of the delivery that the copy will be, as text."""
ORIGIN: Final = "boom-origin"
"""topic/queue/offset of the original message."""
CAUSE: Final = "boom-cause"
"""Reason why the last attempt failed, in one line."""
DEAD: Final = -1.0
"""Takes the place of a delay: no more retries, the message is a dead letter."""
MAX_CAUSE: Final = 1024
"""Maximum characters of a cause."""
FIRST_LEVEL: Final = 3
"""The delay level after the first failure (RocketMQ: 3 + failed attempts)."""


def retry_delay_ms(config: GroupConfig, failures: int) -> int:
    """Return how long a message waits after its n-th failure (from 1), in ms."""
    if config.retry == "exponential":
        doubled = config.retry_first_ms << min(max(failures - 1, 0), 32)
        return min(doubled, config.retry_last_ms)
    level = min(max(FIRST_LEVEL + failures - 1, 1), len(DELAY_LEVELS_MS))
    return DELAY_LEVELS_MS[level - 1]


def place_of(message: Message) -> tuple[str, int, int]:
    """Return (topic, queue, offset) from which a message was read."""
    if message.read_from is not None:
        return message.read_from
    return message.topic, message.queue, message.offset


def copy_headers(message: Message, attempt: int, cause: str) -> dict[str, bytes]:
    """Return the headers of the copy that is delivered or buried as attempt `attempt`."""
    origin = f"{message.topic}/{message.queue}/{message.offset}"
    return {
        **(message.headers or {}),
        ATTEMPT_HEADER: str(attempt).encode(),
        ORIGIN: origin.encode(),
        CAUSE: " ".join(cause.split())[:MAX_CAUSE].encode("utf-8", "replace"),
    }


def restore_original(message: Message) -> Message:
    """Return the original message of a retry: its topic, queue, offset, and the attempt."""
    headers = message.headers or {}
    origin = headers.get(ORIGIN, b"").decode("utf-8", "replace").rsplit("/", 2)
    attempt = headers.get(ATTEMPT_HEADER, b"")
    read_from = (message.topic, message.queue, message.offset)
    if len(origin) != 3 or not (origin[1].isdigit() and origin[2].isdigit()):
        return message  # somebody else wrote the message there
    return msgspec.structs.replace(
        message,
        topic=origin[0],
        queue=int(origin[1]),
        offset=int(origin[2]),
        attempt=int(attempt) if attempt.isdigit() else 2,
        read_from=read_from,
    )
