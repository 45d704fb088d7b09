"""What a consumer is ready to take, and how fast a subscription may be served.

Permits are additive, in messages and in bytes. A batch is never split, so either may go below zero;
nothing is sent to a consumer before both are above it again. At every step granted = delivered + left.
"""

from __future__ import annotations

from typing import Final

from logboom.wire.errors import InvalidRequest

MOST: Final = 1 << 40
"""Permits that one grant may give, in messages or bytes."""


class Permits:
    """One consumer's, in one session: a reconnect begins at nothing, so none ever leak."""

    __slots__ = ("delivered", "delivered_bytes", "granted", "granted_bytes")

    def __init__(self) -> None:
        self.granted = self.granted_bytes = 0
        self.delivered = self.delivered_bytes = 0

    @property
    def left(self) -> int:
        """Messages that may still be sent; below 0 after a batch that was larger."""
        return self.granted - self.delivered

    @property
    def left_bytes(self) -> int:
        """Bytes that may still be sent."""
        return self.granted_bytes - self.delivered_bytes

    @property
    def open(self) -> bool:
        """Whether anything may be sent."""
        return self.left > 0 and self.left_bytes > 0

    def grant(self, messages: int, size: int) -> None:
        """Add what the consumer freed.

        Raises:
            InvalidRequest: below 0, or more than anybody can mean.
        """
        if not (0 <= messages <= MOST and 0 <= size <= MOST):
            text = f"permits for {messages} messages of {size} bytes: give 0 to {MOST} of each"
            raise InvalidRequest(text)
        self.granted += messages
        self.granted_bytes += size

    def spend(self, messages: int, size: int) -> None:
        """Note what was sent."""
        self.delivered += messages
        self.delivered_bytes += size


class DispatchRate:
    """Messages and bytes per second, charged after the send: one batch may overdraw, and the next
    waits until that is paid. At most one second's worth is saved up."""

    __slots__ = ("_at", "_bytes", "_messages", "bytes_per_s", "messages_per_s")

    def __init__(self, messages_per_s: int = 0, bytes_per_s: int = 0) -> None:
        """0: no limit.

        Raises:
            InvalidRequest: below 0.
        """
        if messages_per_s < 0 or bytes_per_s < 0:
            raise InvalidRequest("a dispatch rate is 0 (no limit) or more per second")
        self.messages_per_s = messages_per_s
        self.bytes_per_s = bytes_per_s
        self._messages = float(messages_per_s)
        self._bytes = float(bytes_per_s)
        self._at = 0.0

    def change(self, messages_per_s: int, bytes_per_s: int) -> None:
        """Another rate from now on; nothing is owed of the old one.

        Raises:
            InvalidRequest: below 0.
        """
        fresh = DispatchRate(messages_per_s, bytes_per_s)
        self.messages_per_s, self.bytes_per_s = messages_per_s, bytes_per_s
        self._messages, self._bytes = fresh._messages, fresh._bytes

    def _fill(self, now: float) -> None:
        passed = now - self._at
        if passed <= 0:
            return
        self._at = now
        # All of the time counts, or what was overdrawn would be paid only as often as one looks.
        self._messages = min(self.messages_per_s, self._messages + passed * self.messages_per_s)
        self._bytes = min(self.bytes_per_s, self._bytes + passed * self.bytes_per_s)

    def room(self, now: float) -> tuple[int, int]:
        """Messages and bytes that may be read now; 0 of either: nothing."""
        if not self.messages_per_s and not self.bytes_per_s:
            return MOST, MOST
        self._fill(now)
        messages = int(self._messages) if self.messages_per_s else MOST
        size = int(self._bytes) if self.bytes_per_s else MOST
        return max(0, messages), max(0, size)

    def charge(self, messages: int, size: int) -> None:
        """Pay for what was sent."""
        self._messages -= messages
        self._bytes -= size

    def next_at(self, now: float) -> float:
        """When there is room again; `now` or before if there is."""
        if min(self.room(now)) > 0:
            return now
        waits = [0.001]
        if self.messages_per_s:
            waits.append((1 - self._messages) / self.messages_per_s)
        if self.bytes_per_s:
            waits.append((1 - self._bytes) / self.bytes_per_s)
        return now + max(waits)
