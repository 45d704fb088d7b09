"""One consumer of a subscription: what its queues have sent, what it has, what it settled.

A `SubscriberState` is shared by the core, which talks to the queues' leaders, and by the reader, which
hands messages out and settles them. Both hold its lock while they touch it, for microseconds.
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
MOST_MESSAGES: Final = 50_000
"""The same of all queues together: each gets its share."""


@dataclass(frozen=True, slots=True)
class SubscriberOptions:
    """How a consumer subscribes."""

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
        """Whether what comes again comes by going back (exclusive, failover)."""
        return self.config.kind in ("exclusive", "failover")


class SubscriberState:
    """What core and reader share of one consumer."""

    def __init__(
        self,
        options: SubscriberOptions,
        bell: Callable[[], object],
        lock: AbstractContextManager[Any],
    ) -> None:
        """`lock` can be taken twice by one thread."""
        self.options = options
        self.lock = lock
        self.places: dict[int, SubscribedQueue] = {}
        self.arrivals: deque[ReceivedBatch] = deque()
        self.bell = bell
        """Called by the core when something came and `wanted` is set."""
        self.wanted = False
        self.paused = False
        """No more permits are given."""
        self.void: set[int] = set()
        """Queues that were attached anew: what the reader has of them and did not hand out comes
        again."""
        self.woken = False
        """The core was told to look for settlements."""
        self.hungry = False
        """The core was told that half a window is free."""
        self.error: LogboomError | None = None
        """Why a queue cannot be had; the reader raises it once."""

    def window(self) -> int:
        """Permits of a queue in a new session."""
        return max(1, min(self.options.window, MOST_MESSAGES // max(1, len(self.places))))

    def window_bytes(self) -> int:
        """The same in bytes."""
        return WINDOW_BYTES

    def is_half_free(self, place: SubscribedQueue) -> bool:
        """Whether a queue's permits are worth to be given back: those of half a window, in messages or
        in bytes. With large batches the bytes are used up long before the messages are."""
        return 2 * place.freed >= self.window() or 2 * place.freed_bytes >= self.window_bytes()

    def renew(self, place: SubscribedQueue, session: int) -> None:
        """The core attached a queue anew: nothing that came before counts."""
        with self.lock:
            place.renew(session)
            self.void.add(place.queue)
            kept = [parcel for parcel in self.arrivals if parcel.place is not place]
            self.arrivals.clear()
            self.arrivals.extend(kept)

    def forget(self, place: SubscribedQueue) -> None:
        """The messages of a queue are gone: nothing of it is to be settled."""
        with self.lock:
            for offsets in (place.out, place.done, place.known, place.sending):
                offsets.clear()
        self.renew(place, place.session)

    def put(self, parcel: ReceivedBatch) -> None:
        """The core puts what came."""
        place = parcel.place
        with self.lock:
            if parcel.session != place.session:
                return
            if place.rewound is not None and parcel.first >= place.rewound:
                place.free(parcel)
                return
            if not place.arrive(parcel):
                place.free(parcel)
                return
            self.arrivals.append(parcel)
        self.ring()

    def fail(self, error: LogboomError) -> None:
        """A queue cannot be had."""
        self.error = error
        self.ring()

    def ring(self) -> None:
        """Wake the reader, if it waits."""
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
    """The reader made room, or settled messages."""

    subscriber: SubscriberState


@dataclass(slots=True)
class FlushSubscriber(CoreCall):
    """Done when the leaders have confirmed all that was settled."""

    subscriber: SubscriberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class CloseSubscriber(CoreCall):
    """Confirm what was settled, within `timeout`, and detach."""

    subscriber: SubscriberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)
