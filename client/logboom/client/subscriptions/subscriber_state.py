"""The state of one subscription consumer, shared by the core and the reader.

The core talks to the queues' leaders; the reader hands messages out and settles them. Both hold the
lock, for microseconds, while they use it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from logboom.client.calls import CoreCall
from logboom.client.promise import Promise
from logboom.client.subscriptions.subscribed_queue import ReceivedBatch, SubscribedQueue
from logboom.wire.errors import LogboomError
from logboom.wire.subscription_messages import Span, Start, SubscriptionConfig

WINDOW: Final = 1_000
"""Messages of one queue that may be on their way to the reader."""
WINDOW_BYTES: Final = 8 * 1024 * 1024
"""The same in bytes."""
MAX_MESSAGES: Final = 50_000
"""The same for all queues together; each gets its share."""


@dataclass(frozen=True, slots=True)
class SubscriberOptions:
    """The settings with which a consumer subscribes."""

    topic: str
    subscription: str
    consumer: str
    """Its name, unique within the subscription."""
    config: SubscriptionConfig
    priority: int = 0
    ranges: tuple[Span, ...] | None = None
    start: Start = "last"
    window: int = WINDOW

    @property
    def ordered(self) -> bool:
        """True if messages are redelivered by going back in the queue (exclusive, failover)."""
        return self.config.kind in ("exclusive", "failover")


class SubscriberState:
    """The state that core and reader share."""

    def __init__(
        self,
        options: SubscriberOptions,
        bell: Callable[[], object],
        lock: AbstractContextManager[Any],
    ) -> None:
        """Create the state; one thread may take `lock` twice."""
        self.options = options
        self.lock = lock
        self.places: dict[int, SubscribedQueue] = {}
        self.arrivals: deque[ReceivedBatch] = deque()
        self.bell = bell
        """Called by the core when something arrives and `wanted` is set."""
        self.wanted = False
        self.paused = False
        """True if no more permits are given."""
        self.void: set[int] = set()
        """Queues that were attached again: messages that the reader has not handed out are
        delivered again."""
        self.woken = False
        """True if the core was told to look for settlements."""
        self.throttled_ms = 0
        """Milliseconds for which answered requests have waited because of the user's quota."""
        self.hungry = False
        """True if the core was told that half a window is free."""
        self.error: LogboomError | None = None
        """Why a queue cannot be read; the reader raises it once."""
        self.owner = 0
        """Tells this consumer from others of its name."""
        self.contest: tuple[float, LogboomError] | None = None
        """Set if another process has its name: when an earlier one must have been forgotten, and
        what the leader said."""
        self.ended: LogboomError | None = None
        """Why no queue is read any more; the reader raises it each time."""

    def window(self) -> int:
        """Return the permits of a queue in a new session."""
        return max(1, min(self.options.window, MAX_MESSAGES // max(1, len(self.places))))

    def window_bytes(self) -> int:
        """Return the same in bytes."""
        return WINDOW_BYTES

    def is_half_free(self, place: SubscribedQueue) -> bool:
        """True if a queue's permits are worth giving back: half a window, in messages or in bytes.

        With large batches the bytes are used up long before the messages are.
        """
        return 2 * place.freed >= self.window() or 2 * place.freed_bytes >= self.window_bytes()

    def renew(self, place: SubscribedQueue, session: int) -> None:
        """Start a new session of a queue: everything that arrived before is void."""
        with self.lock:
            place.renew(session)
            self.void.add(place.queue)
            kept = [batch for batch in self.arrivals if batch.place is not place]
            self.arrivals.clear()
            self.arrivals.extend(kept)

    def forget(self, place: SubscribedQueue) -> None:
        """Forget the messages of a queue that are gone, so that none is settled."""
        with self.lock:
            for offsets in (place.out, place.done, place.known, place.refused, place.sending):
                offsets.clear()
        self.renew(place, place.session)

    def cut(self, place: SubscribedQueue, end: int) -> None:
        """Forget the messages of a queue from `end` on, which it has lost (Q15)."""
        with self.lock:
            place.cut(end)
        self.renew(place, place.session)

    def put(self, batch: ReceivedBatch) -> None:
        """Add a batch that arrived; called by the core."""
        place = batch.place
        with self.lock:
            if batch.session != place.session:
                return
            if place.rewound is not None and batch.first >= place.rewound:
                place.free(batch)
                return
            if not place.arrive(batch):
                place.free(batch)
                return
            self.arrivals.append(batch)
        self.ring()

    def fail(self, error: LogboomError) -> None:
        """Report that a queue cannot be read."""
        self.error = error
        self.ring()

    def end(self, error: LogboomError) -> None:
        """Report that no queue is read any more; what was not handed out goes to others."""
        self.ended = error
        for place in self.places.values():
            self.renew(place, place.session)
        self.fail(error)

    def ring(self) -> None:
        """Wake the reader if it waits."""
        if self.wanted:
            self.wanted = False
            self.bell()


@dataclass(slots=True)
class OpenSubscriber(CoreCall):
    """Attach a consumer to its subscription at the leaders of all queues."""

    subscriber: SubscriberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class WakeSubscriber(CoreCall):
    """Tell the core that the reader made room or settled messages."""

    subscriber: SubscriberState


@dataclass(slots=True)
class FlushSubscriber(CoreCall):
    """Flush settlements; resolved once the leaders have answered to them all.

    Fails with ACK_REFUSED if they have refused acknowledgements since the last flush.
    """

    subscriber: SubscriberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class CloseSubscriber(CoreCall):
    """Confirm settlements within `timeout`, and detach."""

    subscriber: SubscriberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)
