"""One queue of a consumer of a subscription: what came and waits, what is handed out, what is settled.

`SubscriberState` has the lock under which all of this is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from logboom.wire.columns import Columns
from logboom.wire.subscription_messages import Span

MOST_KNOWN: Final = 100_000
"""Offsets of a queue that are remembered to be done with, though they may come again."""


class ReceivedBatch:
    """One batch that was delivered, and which of its messages are meant."""

    __slots__ = ("attempts", "chosen", "columns", "count", "place", "session", "size")

    def __init__(
        self,
        place: SubscribedQueue,
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

    def offsets(self) -> Sequence[int]:
        """What is meant, lowest first."""
        base = self.columns.head.base_offset
        if not self.chosen:
            return range(base, self.columns.head.next_offset)
        bits = bin(int.from_bytes(self.chosen, "little"))[:1:-1]
        return [base + place for place, bit in enumerate(bits) if bit == "1"]

    def leave_out(self, offsets: Iterable[int]) -> None:
        """These are not meant; the permits that they took are given back with the others."""
        head = self.columns.head
        bits = int.from_bytes(self.chosen, "little") if self.chosen else (1 << head.count) - 1
        for offset in offsets:
            bits &= ~(1 << (offset - head.base_offset))
        self.chosen = bits.to_bytes(max(len(self.chosen), -(-head.count // 8)), "little")


class SubscribedQueue:
    """One queue of a subscriber."""

    __slots__ = (
        "active",
        "again",
        "copies",
        "done",
        "done_to",
        "expected",
        "freed",
        "freed_bytes",
        "highest",
        "known",
        "out",
        "queue",
        "rewound",
        "sending",
        "session",
        "to_ack",
        "up_to",
        "waiting",
        "went_back",
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
        self.waiting: set[int] = set()
        """Offsets that came and were not handed out yet."""
        self.copies: dict[int, int] = {}
        """Of these, what waits more than once → how often besides."""
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
        self.done_to = -1
        """All up to here was acknowledged so; the leader has not confirmed it yet."""
        self.again: list[tuple[int, int]] = []
        """(offset, delay in ms): to be given back."""
        self.expected = 0
        """Behind the last message that came, of an ordered subscription."""
        self.highest = 0
        """Behind all that ever came."""
        self.went_back = 0
        """The leader went back from here at most: what waits may lie below."""
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
        self.done_to = -1
        self.empty()

    def arrive(self, parcel: ReceivedBatch) -> bool:
        """This waits from now on, without what the reader is done with; whether any is left."""
        first = parcel.first
        self.rewound = None
        if first < self.expected:
            self.went_back = max(self.went_back, self.expected)
        self.expected = parcel.columns.head.next_offset
        # It is looked at when it comes: by the time that it is handed out, what is done may be
        # confirmed, and forgotten.
        if self.done or self.known or self.sending or first <= self.done_to:
            self._leave_out_done(parcel)
        offsets = parcel.offsets()
        if first < self.highest and not self.waiting.isdisjoint(offsets):
            for offset in self.waiting.intersection(offsets):
                self.copies[offset] = self.copies.get(offset, 0) + 1
        self.waiting.update(offsets)
        self.highest = max(self.highest, self.expected)
        return bool(offsets)

    def _leave_out_done(self, parcel: ReceivedBatch) -> None:
        """What the reader is done with is acknowledged again; it may be ours only now."""
        done = parcel.among(self.done) | parcel.among(self.known)
        done.update(offset for offset in parcel.offsets() if offset <= self.done_to)
        gone = done | parcel.among(self.sending)
        if gone:
            parcel.leave_out(gone)
        self.known -= done
        self.done |= done
        self.to_ack += sorted(done)

    def take(self, offsets: Sequence[int]) -> None:
        """These waited and are handed out."""
        self.out.update(offsets)
        if not self.copies:
            self.waiting.difference_update(offsets)
            return
        for offset in offsets:
            more = self.copies.pop(offset, 0)
            if more > 1:
                self.copies[offset] = more - 1
            elif not more:
                self.waiting.discard(offset)

    def drop(self, offsets: set[int]) -> None:
        """Nothing of these waits any more."""
        self.waiting -= offsets
        for offset in offsets.intersection(self.copies):
            del self.copies[offset]

    def empty(self) -> None:
        """Nothing waits any more."""
        self.waiting.clear()
        self.copies.clear()

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
        if up_to >= self.done_to:
            self.done_to = -1
        if up_to >= 0:
            below = {offset for offset in self.done if offset <= up_to}
            if up_to in missed and len(self.known) < MOST_KNOWN:
                self.known |= below
            self.done -= below

    def free(self, parcel: ReceivedBatch) -> None:
        """A parcel needs no room any more."""
        if parcel.session == self.session:
            self.freed += parcel.count
            self.freed_bytes += parcel.size
