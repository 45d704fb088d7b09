"""Copies of failed messages for the retry and dead-letter topics of a group.

Headers carry the origin of a copy, its attempts and the cause of the failure. A retry therefore
appears as the original message, and a dead letter can be understood and sent again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from logboom.client.results import Message
from logboom.wire.copy_receipts import (
    ATTEMPT_HEADER,
    CAUSE,
    ORIGIN,
    parse_number,
    parse_origin,
)
from logboom.wire.group_view import DELAY_LEVELS_MS, GroupConfig

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
    origin = parse_origin((message.headers or {}).get(ORIGIN, b""))
    attempt = attempt_of(message)
    read_from = (message.topic, message.queue, message.offset)
    if origin is None:
        return message  # somebody else wrote the message there
    topic, queue, offset = origin
    return msgspec.structs.replace(
        message,
        topic=topic,
        queue=queue,
        offset=offset,
        attempt=2 if attempt is None else attempt,
        read_from=read_from,
    )


def attempt_of(message: Message) -> int | None:
    """Return the attempt that the headers of a copy name; None: they name none."""
    return parse_number((message.headers or {}).get(ATTEMPT_HEADER, b""))


def cause_of(message: Message) -> str:
    """Return why the last attempt failed, as the headers of a copy tell it; "" if they do not."""
    return (message.headers or {}).get(CAUSE, b"").decode("utf-8", "replace")
