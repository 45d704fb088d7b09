"""One queue of a subscription's consumer: messages that arrived, were handed out, or are settled.

The lock of `SubscriberState` protects it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from logboom.wire.columns import Columns
from logboom.wire.subscription_messages import Span

MAX_KNOWN: Final = 100_000
"""Maximum number of finished offsets of a queue that are remembered because they may be delivered
again."""


class ReceivedBatch:
    """A delivered batch, and which of its messages count."""

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
        """Bits of the messages that count; empty: all."""
        self.attempts = attempts
        self.size = size
        self.count = int.from_bytes(chosen, "little").bit_count() if chosen else columns.head.count

    @property
    def first(self) -> int:
        """Offset of the first message that counts."""
        bits = int.from_bytes(self.chosen, "little")
        return self.columns.head.base_offset + ((bits & -bits).bit_length() - 1 if bits else 0)

    def among(self, offsets: set[int]) -> set[int]:
        """Return which of these offsets count."""
        base = self.columns.head.base_offset
        found = offsets.intersection(range(self.first, self.columns.head.next_offset))
        if found and self.chosen:
            bits = int.from_bytes(self.chosen, "little")
            found = {offset for offset in found if bits >> (offset - base) & 1}
        return found

    def offsets(self) -> Sequence[int]:
        """Return the offsets that count, lowest first."""
        base = self.columns.head.base_offset
        if not self.chosen:
            return range(base, self.columns.head.next_offset)
        bits = bin(int.from_bytes(self.chosen, "little"))[:1:-1]
        return [base + place for place, bit in enumerate(bits) if bit == "1"]

    def leave_out(self, offsets: Iterable[int]) -> None:
        """Exclude offsets; their permits are given back with those of the others."""
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
        "refused",
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
        """The current session; batches of another session are void."""
        self.active = True
        self.freed = self.freed_bytes = 0
        """Permits to give back."""
        self.out: set[int] = set()
        """Offsets that the application has and has not settled."""
        self.waiting: set[int] = set()
        """Offsets that arrived and were not handed out yet."""
        self.copies: dict[int, int] = {}
        """Waiting offsets that arrived more than once → number of additional arrivals."""
        self.done: set[int] = set()
        """Offsets that the application has acknowledged and the leader has not confirmed yet."""
        self.known: set[int] = set()
        """Offsets that were acknowledged after they had stopped being this consumer's. If they are
        delivered again, they are acknowledged without being handed out."""
        self.refused: set[int] = set()
        """Those of `known` whose acknowledgement was refused since the last flush."""
        self.sending: set[int] = set()
        """Offsets of which a copy is being sent to the retries or the dead letters."""
        self.to_ack: list[int] = []
        self.up_to = -1
        """Everything up to here has to be acknowledged (cumulative)."""
        self.done_to = -1
        """Everything up to here was acknowledged so, and is not confirmed by the leader yet."""
        self.again: list[tuple[int, int]] = []
        """(offset, delay in ms) of messages to give back."""
        self.expected = 0
        """Offset after the last message that arrived, for an ordered subscription."""
        self.highest = 0
        """Offset after the highest message that ever arrived."""
        self.went_back = 0
        """The highest offset from which the leader went back; waiting messages may be below."""
        self.rewound: int | None = None
        """Set if a message was given back: everything from here on is void until a message before
        it arrives."""

    @property
    def unsettled(self) -> bool:
        """True if there are settlements for the leader."""
        return bool(self.to_ack or self.again or self.up_to >= 0)

    @property
    def idle(self) -> bool:
        """True if the leader has confirmed everything."""
        return not (self.unsettled or self.done or self.sending)

    def renew(self, session: int) -> None:
        """Start a new session, in which unsettled messages are delivered again.

        Acknowledgements that were not confirmed are sent again, in case the leader does not know
        them.
        """
        self.session = session
        self.freed = self.freed_bytes = 0
        self.to_ack, self.again, self.up_to = list(self.done), [], -1
        self.rewound = None
        self.done_to = -1
        self.empty()

    def arrive(self, batch: ReceivedBatch) -> bool:
        """Add a batch without messages that are finished already; return whether any are left."""
        first = batch.first
        self.rewound = None
        if first < self.expected:
            self.went_back = max(self.went_back, self.expected)
        self.expected = batch.columns.head.next_offset
        # Checked on arrival: by the time they are handed out, finished messages may be confirmed
        # and forgotten.
        if self.done or self.known or self.sending or first <= self.done_to:
            self._leave_out_done(batch)
        offsets = batch.offsets()
        if first < self.highest and not self.waiting.isdisjoint(offsets):
            for offset in self.waiting.intersection(offsets):
                self.copies[offset] = self.copies.get(offset, 0) + 1
        self.waiting.update(offsets)
        self.highest = max(self.highest, self.expected)
        return bool(offsets)

    def _leave_out_done(self, batch: ReceivedBatch) -> None:
        """Exclude finished messages and acknowledge them again; they may be ours only now."""
        done = batch.among(self.done) | batch.among(self.known)
        done.update(offset for offset in batch.offsets() if offset <= self.done_to)
        gone = done | batch.among(self.sending)
        if gone:
            batch.leave_out(gone)
        self.known -= done
        self.done |= done
        self.to_ack += sorted(done)

    def take(self, offsets: Sequence[int]) -> None:
        """Hand out messages that waited."""
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
        """Drop waiting messages."""
        self.waiting -= offsets
        for offset in offsets.intersection(self.copies):
            del self.copies[offset]

    def cut(self, end: int) -> None:
        """Forget messages from `end` on, which the queue has lost: others get their offsets."""
        for offsets in (
            self.out,
            self.waiting,
            self.done,
            self.known,
            self.refused,
            self.sending,
        ):
            offsets.difference_update([offset for offset in offsets if offset >= end])
        self.up_to, self.done_to = min(self.up_to, end - 1), min(self.done_to, end - 1)
        self.expected, self.highest = min(self.expected, end), min(self.highest, end)

    def empty(self) -> None:
        """Drop all waiting messages."""
        self.waiting.clear()
        self.copies.clear()

    def confirm(self, offsets: Iterable[int], up_to: int, refused: list[Span]) -> None:
        """Apply the leader's answer: what it refused is not acknowledged."""
        missed = {offset for start, stop in refused for offset in range(start, stop)} & self.done
        settled = set(offsets)
        if missed:
            # What came again since is acknowledged again, too: that answer counts.
            repeated = missed.intersection(self.to_ack)
            missed -= repeated
            settled -= repeated
        if not self.again:
            # Messages that arrive from now on were sent after everything was taken back. Those
            # before may belong to another consumer by then.
            self.rewound = None
        if up_to >= self.done_to:
            self.done_to = -1
        if up_to >= 0:
            below = {offset for offset in self.done - settled if offset <= up_to}
            if up_to in missed:
                missed |= below
            settled |= below
        self.done -= settled
        self.refused -= settled
        if len(self.known) < MAX_KNOWN:
            self.known |= missed
        if len(self.refused) < MAX_KNOWN:
            self.refused |= missed

    def free(self, batch: ReceivedBatch) -> None:
        """Give back the permits of a batch."""
        if batch.session == self.session:
            self.freed += batch.count
            self.freed_bytes += batch.size
