"""One consumer of a subscription: what its queues have sent, what it has, what it settled.

A `Subscriber` is shared by the core, which talks to the queues' leaders, and by the reader, which
hands messages out and settles them. Both hold its lock while they touch it, for microseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from logboom.wire.columns import Columns
from logboom.wire.errors import LogboomError
from logboom.wire.subscription_messages import Span, Start, SubscriptionConfig

WINDOW: Final = 1_000
"""Messages of one queue that may be on their way to the reader."""
WINDOW_BYTES: Final = 8 * 1024 * 1024
"""The same in bytes."""
MOST_KNOWN: Final = 100_000
"""Offsets of a queue that are remembered to be done with, though they may come again."""
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


class Parcel:
    """One batch that was delivered, and which of its messages are meant."""

    __slots__ = ("attempts", "chosen", "columns", "count", "place", "session", "size")

    def __init__(
        self,
        place: Place,
        session: int,
        columns: Columns,
        chosen: bytes,
        attempts: dict[int, int],
        size: int,
    ) -> None:
        self.place = place
        self.session = session
        self.columns = columns
        self.chosen = chosen
        """Bits; empty: all."""
        self.attempts = attempts
        self.size = size
        self.count = int.from_bytes(chosen, "little").bit_count() if chosen else columns.head.count

    @property
    def first(self) -> int:
        """Offset of the first message that is meant."""
        bits = int.from_bytes(self.chosen, "little")
        return self.columns.head.base_offset + ((bits & -bits).bit_length() - 1 if bits else 0)

    def among(self, offsets: set[int]) -> set[int]:
        """Which of these offsets are meant."""
        base = self.columns.head.base_offset
        found = offsets.intersection(range(self.first, self.columns.head.next_offset))
        if found and self.chosen:
            bits = int.from_bytes(self.chosen, "little")
            found = {offset for offset in found if bits >> (offset - base) & 1}
        return found


class Place:
    """One queue of a subscriber."""

    __slots__ = (
        "active",
        "again",
        "done",
        "doubled",
        "expected",
        "freed",
        "freed_bytes",
        "known",
        "out",
        "queue",
        "rewound",
        "sending",
        "session",
        "to_ack",
        "up_to",
    )

    def __init__(self, queue: int) -> None:
        self.queue = queue
        self.session = 0
        """Of the attaching now; parcels of another are void."""
        self.active = True
        self.freed = self.freed_bytes = 0
        """Permits to give back."""
        self.out: set[int] = set()
        """Offsets that the reader has and has not settled."""
        self.doubled: set[int] = set()
        """Of these, what came once more and was not handed out again yet."""
        self.done: set[int] = set()
        """Offsets that the reader acknowledged; the leader has not confirmed them yet."""
        self.known: set[int] = set()
        """Offsets that the reader acknowledged when they were not this consumer's any more: should
        they come again, they are acknowledged without being handed out."""
        self.sending: set[int] = set()
        """Offsets of which a copy is on its way, to the retries or the dead letters."""
        self.to_ack: list[int] = []
        self.up_to = -1
        """All up to here is to be acknowledged (cumulative)."""
        self.again: list[tuple[int, int]] = []
        """(offset, delay in ms): to be given back."""
        self.expected = 0
        """Behind the last message that came, of an ordered subscription."""
        self.rewound: int | None = None
        """Something was given back: all from here on is void until something before it comes."""

    @property
    def unsettled(self) -> bool:
        """Whether anything is to be told to the leader."""
        return bool(self.to_ack or self.again or self.up_to >= 0)

    @property
    def idle(self) -> bool:
        """Whether the leader has confirmed everything."""
        return not (self.unsettled or self.done or self.sending)

    def renew(self, session: int) -> None:
        """Attached anew: what was under way comes again. Whether what was acknowledged and not
        confirmed is known to the leader is found out by saying it once more."""
        self.session = session
        self.freed = self.freed_bytes = 0
        self.to_ack, self.again, self.up_to = list(self.done), [], -1
        self.rewound = None
        self.doubled.clear()

    def confirm(self, offsets: Iterable[int], up_to: int, refused: list[Span]) -> None:
        """The leader answered."""
        missed = {offset for start, stop in refused for offset in range(start, stop)}
        missed &= self.done
        if len(self.known) < MOST_KNOWN:
            self.known |= missed
        self.done.difference_update(offsets)
        if not self.again:
            # What comes from now on was sent after all was taken back; what lies before it may be
            # another's by then.
            self.rewound = None
        if up_to >= 0:
            below = {offset for offset in self.done if offset <= up_to}
            if up_to in missed and len(self.known) < MOST_KNOWN:
                self.known |= below
            self.done -= below

    def free(self, parcel: Parcel) -> None:
        """A parcel needs no room any more."""
        if parcel.session == self.session:
            self.freed += parcel.count
            self.freed_bytes += parcel.size


class Subscriber:
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
        self.places: dict[int, Place] = {}
        self.arrivals: deque[Parcel] = deque()
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

    def renew(self, place: Place, session: int) -> None:
        """The core attached a queue anew: nothing that came before counts."""
        with self.lock:
            place.renew(session)
            self.void.add(place.queue)
            kept = [parcel for parcel in self.arrivals if parcel.place is not place]
            self.arrivals.clear()
            self.arrivals.extend(kept)

    def forget(self, place: Place) -> None:
        """The messages of a queue are gone: nothing of it is to be settled."""
        with self.lock:
            for offsets in (place.out, place.done, place.known, place.sending):
                offsets.clear()
        self.renew(place, place.session)

    def put(self, parcel: Parcel) -> None:
        """The core puts what came."""
        place = parcel.place
        with self.lock:
            if parcel.session != place.session:
                return
            if place.rewound is not None and parcel.first >= place.rewound:
                place.free(parcel)
                return
            place.rewound = None
            place.expected = parcel.columns.head.next_offset
            if place.out:
                place.doubled |= parcel.among(place.out)
            if place.done:
                # By the time that it is looked at, these may be confirmed, and forgotten.
                place.known |= parcel.among(place.done)
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
