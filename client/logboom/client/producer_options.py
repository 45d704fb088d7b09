"""Options of producers, and what readers see of transactions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias, get_args

from logboom.wire.errors import InvalidRequest
from logboom.wire.messages import MAX_BATCH_BYTES, Acks

BATCH_ROOM: Final = 4096
"""Bytes below the wire's limit that are kept free for a batch's head and padding."""
ABANDON_S: Final = 1.0
"""Seconds that a producer is flushed for when an exception leaves its `with`."""
CODECS: Final = ("none", "lz4", "zstd")


Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]
"""What a reader sees of a transaction while a queue releases it: nothing before all of it is there,
or each part as it comes. No reader ever sees uncommitted messages."""


Begin: TypeAlias = str | int | datetime
"""Where a reader starts: "first", "last", or a message time as ms since 1970 UTC, a datetime with
its time zone, or ISO 8601 text (2026-11-21T10:00:00Z)."""


def start_of(start: object) -> Literal["first", "last"] | int:
    """Convert a start to an end of a queue, or a message time in ms since 1970 UTC.

    Raises:
        InvalidRequest: it is none of what `Begin` lists, or a time without its zone.
    """
    if start == "first":
        return "first"
    if start == "last":
        return "last"
    if type(start) is int:
        return start
    if isinstance(start, (str, datetime)):
        try:
            time = datetime.fromisoformat(start) if isinstance(start, str) else start
        except ValueError:
            pass
        else:
            if time.tzinfo is None:
                text = f"start {str(start)!r} has no time zone: add one, as in 2026-11-21T10:00:00Z"
                raise InvalidRequest(f"{text}, or with datetime.astimezone()")
            return round(time.timestamp() * 1000)
    text = 'start must be "first", "last", or a time: ms since 1970 UTC, a datetime, or ISO 8601 text such'
    raise InvalidRequest(f"{text} as 2026-11-21T10:00:00Z, not {start!r:.80}; seek() takes offsets")


def reads_uncommitted(isolation: object) -> bool:
    """True if a reader wants to see parts of what a queue releases.

    Raises:
        InvalidRequest: it is neither word.
    """
    if isolation not in get_args(Isolation):
        text = f'isolation must be "read_committed" or "read_uncommitted", not {isolation!r}'
        raise InvalidRequest(text)
    return isolation == "read_uncommitted"


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Options of a producer; checked by `validate`."""

    acks: Acks = "all"
    linger_ms: float = 0
    compression: str = "none"
    max_batch_bytes: int = 1024 * 1024
    buffer_bytes: int = 64 * 1024 * 1024
    """Maximum bytes without acknowledgement; beyond it `send` blocks."""
    delivery_timeout_s: float = 120.0
    """Seconds for which a message is retried before its future fails."""
    tracing: bool = False
    """True: spans and metrics by OpenTelemetry, and the trace in the headers of messages."""

    def validate(self) -> None:
        """Check the options.

        Raises:
            InvalidRequest: an option is invalid.
        """
        if self.acks not in ("none", "leader", "all"):
            raise InvalidRequest(f'acks must be "none", "leader" or "all", not {self.acks!r}')
        if self.compression not in CODECS:
            raise InvalidRequest(f"compression must be one of {CODECS}, not {self.compression!r}")
        if not 0 <= self.linger_ms <= 60_000:
            raise InvalidRequest(f"linger_ms must be 0 to 60000, not {self.linger_ms}")
        if not 1024 <= self.max_batch_bytes <= MAX_BATCH_BYTES - BATCH_ROOM:
            limit = MAX_BATCH_BYTES - BATCH_ROOM
            raise InvalidRequest(
                f"max_batch_bytes must be 1024 to {limit}, not {self.max_batch_bytes}"
            )
        if self.buffer_bytes < self.max_batch_bytes:
            raise InvalidRequest("buffer_bytes must be at least max_batch_bytes")
        if not self.delivery_timeout_s > 0:  # nan is neither
            raise InvalidRequest("delivery_timeout_s must be more than 0")
