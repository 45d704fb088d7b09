"""One attached consumer, its permits, and the rates at which subscriptions are served.

Permits are additive, in messages and in bytes. A batch is never split, so either may fall below
zero, and nothing is sent to a consumer before both are above zero again. At any time, granted =
delivered + left.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from logboom.nodes.replica.offset_set import OffsetSet
from logboom.nodes.subscriptions.key_ranges import Range
from logboom.wire.errors import InvalidRequest

MAX_GRANT: Final = 1 << 40
"""Permits that one grant may give, in messages or in bytes."""


class PendingAck(NamedTuple):
    """Messages of one delivered batch, and the deadline of their acknowledgement."""

    deadline: float
    base: int
    bits: int


class AttachedConsumer:
    """One attached consumer; compared by identity."""

    __slots__ = (
        "blocked",
        "full",
        "held",
        "later",
        "lent",
        "name",
        "permits",
        "priority",
        "ranges",
        "ready",
        "session",
    )

    def __init__(
        self, name: str, session: int, priority: int = 0, ranges: tuple[Range, ...] | None = None
    ) -> None:
        self.name = name
        self.session = session
        self.priority = priority
        self.ranges = ranges
        self.permits = Permits()
        self.held = OffsetSet()
        """Delivered and not acknowledged."""
        self.ready = False
        """The last delivery has arrived, so the next one may be sent."""
        self.blocked = False
        """The consumer's socket is slow, so it gets one batch at a time."""
        self.full = False
        """The consumer holds too much, and gets nothing before it holds half as much."""
        self.lent: deque[PendingAck] = deque()
        """Deliveries in the order of their deadlines, if there is an acknowledgement timeout."""
        self.later: dict[int, list[PendingAck]] = {}
        """The same, by the base offset of their batch."""

    def lend(self, lent: PendingAck) -> None:
        """Remember the deadline of a delivery."""
        self.lent.append(lent)
        self.later.setdefault(lent.base, []).append(lent)

    def is_overdue(self, now: float) -> bool:
        """True if the deadline of a delivery has passed."""
        return bool(self.lent) and self.lent[0].deadline <= now

    def take_overdue(self) -> tuple[int, int]:
        """Forget the oldest delivery; return those of its messages that are still held.

        They are given as base offset and bits. Messages that were delivered again in the meantime are
        left out.
        """
        lent = self.lent.popleft()
        others = self.later[lent.base]
        others.remove(lent)
        bits = lent.bits & self.held.bits(lent.base, lent.base + lent.bits.bit_length())
        for other in others:
            bits &= ~other.bits
        if not others:
            del self.later[lent.base]
        return lent.base, bits


class Permits:
    """The permits of one consumer in one session.

    A new session starts with none, so permits never leak.
    """

    __slots__ = ("delivered", "delivered_bytes", "granted", "granted_bytes")

    def __init__(self) -> None:
        self.granted = self.granted_bytes = 0
        self.delivered = self.delivered_bytes = 0

    @property
    def left(self) -> int:
        """Messages that may still be sent; below 0 after a batch that exceeded the permits."""
        return self.granted - self.delivered

    @property
    def left_bytes(self) -> int:
        """Bytes that may still be sent."""
        return self.granted_bytes - self.delivered_bytes

    @property
    def open(self) -> bool:
        """True if anything may be sent."""
        return self.left > 0 and self.left_bytes > 0

    def grant(self, messages: int, size: int) -> None:
        """Add the permits that the consumer grants.

        Raises:
            InvalidRequest: a value is below 0 or unreasonably large.
        """
        if not (0 <= messages <= MAX_GRANT and 0 <= size <= MAX_GRANT):
            text = f"permits for {messages} messages of {size} bytes: give 0 to {MAX_GRANT} of each"
            raise InvalidRequest(text)
        self.granted += messages
        self.granted_bytes += size

    def spend(self, messages: int, size: int) -> None:
        """Deduct what was sent."""
        self.delivered += messages
        self.delivered_bytes += size


class DispatchRateLimiter:
    """A limit of messages and bytes per second, charged after each delivery.

    One batch may overdraw it, and the next one waits until that is paid. Unused capacity of at most
    one second is saved.
    """

    __slots__ = ("_at", "_bytes", "_messages", "bytes_per_s", "messages_per_s")

    def __init__(self, messages_per_s: int = 0, bytes_per_s: int = 0) -> None:
        """Create a limiter; 0 means no limit.

        Raises:
            InvalidRequest: a rate is below 0.
        """
        if messages_per_s < 0 or bytes_per_s < 0:
            raise InvalidRequest("a dispatch rate is 0 (no limit) or more per second")
        self.messages_per_s = messages_per_s
        self.bytes_per_s = bytes_per_s
        self._messages = float(messages_per_s)
        self._bytes = float(bytes_per_s)
        self._at = 0.0

    def change(self, messages_per_s: int, bytes_per_s: int) -> None:
        """Change the rates, and cancel what is still owed under the old ones.

        Raises:
            InvalidRequest: a rate is below 0.
        """
        fresh = DispatchRateLimiter(messages_per_s, bytes_per_s)
        self.messages_per_s, self.bytes_per_s = messages_per_s, bytes_per_s
        self._messages, self._bytes = fresh._messages, fresh._bytes

    def _fill(self, now: float) -> None:
        passed = now - self._at
        if passed <= 0:
            return
        self._at = now
        # All of the elapsed time counts. Otherwise an overdraft would be paid only as often as
        # somebody looks.
        self._messages = min(self.messages_per_s, self._messages + passed * self.messages_per_s)
        self._bytes = min(self.bytes_per_s, self._bytes + passed * self.bytes_per_s)

    def room(self, now: float) -> tuple[int, int]:
        """Return the messages and bytes that may be read now.

        Nothing may be read if either is 0.
        """
        if not self.messages_per_s and not self.bytes_per_s:
            return MAX_GRANT, MAX_GRANT
        self._fill(now)
        messages = int(self._messages) if self.messages_per_s else MAX_GRANT
        size = int(self._bytes) if self.bytes_per_s else MAX_GRANT
        return max(0, messages), max(0, size)

    def charge(self, messages: int, size: int) -> None:
        """Charge what was sent."""
        self._messages -= messages
        self._bytes -= size

    def next_at(self, now: float) -> float:
        """Return when there is capacity again: `now` or earlier if there is some."""
        if min(self.room(now)) > 0:
            return now
        waits = [0.001]
        messages_per_s, bytes_per_s = self._speeds()
        if messages_per_s:
            waits.append((1 - self._messages) / messages_per_s)
        if bytes_per_s:
            waits.append((1 - self._bytes) / bytes_per_s)
        return now + max(waits)

    def _speeds(self) -> tuple[float, float]:
        """Return the messages and bytes per second that this limiter gets."""
        return self.messages_per_s, self.bytes_per_s
