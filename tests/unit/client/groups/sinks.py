"""A place for the copies of failed messages that takes them at once."""

from __future__ import annotations

from collections.abc import Callable

from logboom.client.results import Message
from logboom.wire.errors import LogboomError


class Sink:
    """Remembers what it was sent."""

    can_delay = True

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message, dict[str, bytes], int]] = []

    def send(
        self,
        topic: str,
        message: Message,
        headers: dict[str, bytes],
        delay_ms: int,
        done: Callable[[LogboomError | None], None],
    ) -> None:
        """Take a copy."""
        self.sent.append((topic, message, headers, delay_ms))
        done(None)
