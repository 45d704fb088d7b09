"""What a dispatcher knows of one attached consumer.

What a consumer is ready to take, and how fast a subscription may be served.

Permits are additive, in messages and in bytes. A batch is never split, so either may go below zero;
nothing is sent to a consumer before both are above it again. At every step granted = delivered + left.

How fast the subscriptions of a queue may be served in all, as its topic says.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from logboom.nodes.replica.offset_set import OffsetSet
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.subscriptions.key_ranges import Range
from logboom.wire.errors import InvalidRequest
from logboom.wire.routes import Routes


class PendingAck(NamedTuple):
    """Messages of one batch that were sent, until they are due back."""

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
        """Sent and not acknowledged."""
        self.ready = False
        """The last delivery has arrived: the next may be sent."""
        self.blocked = False
        """Its socket is slow: it gets one batch at a time."""
        self.full = False
        """It holds too much: nothing until it is down to half."""
        self.lent: deque[PendingAck] = deque()
        """Deliveries in the order of their deadlines, with an ack time-out."""
        self.later: dict[int, list[PendingAck]] = {}
        """The same by the base of their batch."""

    def lend(self, lent: PendingAck) -> None:
        """Remember when a delivery is due back."""
        self.lent.append(lent)
        self.later.setdefault(lent.base, []).append(lent)

    def overdue(self, now: float) -> list[tuple[int, int]]:
        """(base, bits) of what is held and was due; what was sent anew meanwhile is not."""
        found = []
        while self.lent and self.lent[0].deadline <= now:
            lent = self.lent.popleft()
            others = self.later[lent.base]
            others.remove(lent)
            bits = lent.bits & self.held.bits(lent.base, lent.base + lent.bits.bit_length())
            for other in others:
                bits &= ~other.bits
            if not others:
                del self.later[lent.base]
            if bits:
                found.append((lent.base, bits))
        return found


MAX_GRANT: Final = 1 << 40
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
        if not (0 <= messages <= MAX_GRANT and 0 <= size <= MAX_GRANT):
            text = f"permits for {messages} messages of {size} bytes: give 0 to {MAX_GRANT} of each"
            raise InvalidRequest(text)
        self.granted += messages
        self.granted_bytes += size

    def spend(self, messages: int, size: int) -> None:
        """Note what was sent."""
        self.delivered += messages
        self.delivered_bytes += size


class DispatchRateLimiter:
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
        fresh = DispatchRateLimiter(messages_per_s, bytes_per_s)
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
            return MAX_GRANT, MAX_GRANT
        self._fill(now)
        messages = int(self._messages) if self.messages_per_s else MAX_GRANT
        size = int(self._bytes) if self.bytes_per_s else MAX_GRANT
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


class TopicRateLimiters:
    """One rate for each queue, shared by its subscriptions."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._rates: dict[QueueKey, DispatchRateLimiter] = {}

    def of(self, replica: Replica) -> DispatchRateLimiter:
        """A queue's rate, as its topic has it now."""
        rate = self._rates.setdefault(replica.key, DispatchRateLimiter())
        self._adopt(replica, rate)
        return rate

    def changed(self, replica: Replica) -> bool:
        """Whether the topic has another rate by now; that is taken over."""
        rate = self._rates.get(replica.key)
        return rate is not None and self._adopt(replica, rate)

    def forget(self, key: QueueKey) -> None:
        """No subscription of a queue is served any more."""
        self._rates.pop(key, None)

    def _adopt(self, replica: Replica, rate: DispatchRateLimiter) -> bool:
        topic = self._routes.topics.get(replica.topic)
        if topic is None:
            return False
        config = topic.config
        wanted = config.dispatch_messages_per_s, config.dispatch_bytes_per_s
        if wanted == (rate.messages_per_s, rate.bytes_per_s):
            return False
        rate.change(*wanted)
        return True
