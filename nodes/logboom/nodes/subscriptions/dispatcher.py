"""A dispatcher: decides which consumer of a subscription gets what of one queue.

Pure: `handle(event, now)` returns what to send and what to write down. What is here is the same for
all types of subscription: who is attached, permits, what is sent. What consumers hold, acknowledge
and give back is in `dispatch_custody`. The types are in `dispatch_single`, `dispatch_shared` and `dispatch_keys`; `dispatchers.made` makes one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from logboom.nodes.subscriptions.ack_set import AckSet
from logboom.nodes.subscriptions.dispatch_consumers import Consumer, Lent
from logboom.nodes.subscriptions.dispatch_custody import Custody
from logboom.nodes.subscriptions.dispatch_events import (
    Ack,
    AckCumulative,
    Attach,
    Delivery,
    Detach,
    DispatchEffects,
    DispatchEvent,
    Entry,
    Grant,
    Grown,
    Nack,
    Parcel,
    Settings,
    Source,
)
from logboom.nodes.subscriptions.entry_filter import EntryFilter
from logboom.nodes.subscriptions.offset_set import (
    spans_of,
)
from logboom.nodes.subscriptions.permits import MOST, DispatchRate
from logboom.wire.errors import GroupError

READ_BATCHES: Final = 100
"""Batches of one read."""
READ_BYTES: Final = 5 * 1024 * 1024
"""Bytes of one read; one batch always goes."""
RESCHEDULED_S: Final = 1.0
"""Seconds until a batch is asked about again that a plug-in did not want yet."""


class Dispatcher(Custody):
    """One subscription of one queue."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        acks: AckSet,
        counts: dict[int, int] | None = None,
        entry_filter: EntryFilter | None = None,
        rates: Sequence[DispatchRate] = (),
    ) -> None:
        """Begin where `acks` and `counts` (offset → earlier deliveries) say. `rates`: those of the
        topic, shared with its other subscriptions; the subscription's own is made here.

        Raises:
            InvalidFilter, InvalidRequest: a setting that cannot be.
        """
        judge = EntryFilter(settings.filter) if entry_filter is None else entry_filter
        super().__init__(settings, acks, {} if counts is None else counts, judge.stats)
        self.source = source
        self.end = acks.floor
        """Messages below can be read."""
        self.halted = False
        """Somebody else may serve this by now: nothing is sent."""
        self._filter = judge
        self._rates = [DispatchRate(settings.messages_per_s, settings.bytes_per_s), *rates]

    # ── the type's own ──────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _attached(self, consumer: Consumer) -> None:
        """A consumer came; raises what refuses it, and then has changed nothing."""

    @abstractmethod
    def _detached(self, consumer: Consumer) -> None:
        """A consumer went; what it held was handed to `_again` before."""

    @abstractmethod
    def _pump(self) -> None:
        """Send what can be sent."""

    @abstractmethod
    def waiting(self) -> int:
        """Messages that were read and wait: for a consumer, or to come again at once."""

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: DispatchEvent, now: float) -> DispatchEffects:
        """Take an event; what follows from it, and from time having come to `now`.

        Raises:
            LogboomError: the event is refused and has changed nothing: InvalidRequest, Refused
                (CONSUMER_BUSY), GroupError (UNKNOWN_CONSUMER: attach again).
        """
        self._now = now
        self._out = DispatchEffects()
        match event:
            case Attach():
                self._attach(event)
            case Detach(name, session):
                consumer = self.consumers.get(name)
                if consumer is not None and consumer.session == session:
                    self._detach(consumer)
            case Grant():
                consumer = self._known(event.consumer, event.session)
                consumer.permits.grant(event.messages, event.size)
                consumer.ready, consumer.blocked = True, event.blocked
            case Ack(name, session, spans):
                self._ack(self._known(name, session), spans)
            case AckCumulative(name, session, offset):
                self._ack_cumulative(self._known(name, session), offset)
            case Nack(name, session, spans, delay_s):
                self._nack(self._known(name, session), spans, delay_s)
            case Grown(start, end):
                self.end = max(self.end, end)
                if start > self.acks.floor:
                    self._trim(start)
            case _:
                pass
        self._tick()
        self._pump()
        return self._out

    def deadline(self) -> float:
        """When `Tick` is wanted next."""
        when = self._waiting[0][0] if self._waiting else float("inf")
        if self.settings.ack_timeout_s:
            for consumer in self.consumers.values():
                if consumer.lent:
                    when = min(when, consumer.lent[0].deadline)
        if any(c.ready and c.permits.open for c in self.consumers.values()):
            paid = max(rate.next_at(self._now) for rate in self._rates)
            if paid > self._now:
                when = min(when, paid)
        return when

    def unready(self, name: str) -> None:
        """A consumer waits no longer: send it nothing before its next `Grant`."""
        consumer = self.consumers.get(name)
        if consumer is not None:
            consumer.ready = False

    def _known(self, name: str, session: int) -> Consumer:
        consumer = self.consumers.get(name)
        if consumer is None or consumer.session != session:
            text = f"consumer {name!r} is not attached in this session: subscribe again"
            raise GroupError(text, "UNKNOWN_CONSUMER")
        return consumer

    def _attach(self, event: Attach) -> None:
        old = self.consumers.get(event.consumer)
        if old is not None:
            if event.session <= old.session:
                text = f"consumer {event.consumer!r} is attached in a newer session"
                raise GroupError(text, "UNKNOWN_CONSUMER")
            self._detach(old)
        consumer = Consumer(event.consumer, event.session, event.priority, event.ranges)
        self._attached(consumer)
        self.consumers[event.consumer] = consumer

    def _detach(self, consumer: Consumer) -> None:
        self._take_back(consumer, list(consumer.held.spans()), 0.0)
        del self.consumers[consumer.name]
        self._detached(consumer)

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def may_take(self, consumer: Consumer) -> bool:
        """Whether anything may be sent to a consumer now."""
        if self.halted or self.full or consumer.full:
            return False
        return consumer.ready and consumer.permits.open

    def _room(self) -> tuple[int, int]:
        """Messages and bytes that the rates allow now."""
        messages = size = MOST
        for rate in self._rates:
            allowed = rate.room(self._now)
            messages, size = min(messages, allowed[0]), min(size, allowed[1])
        return messages, size

    def _budget(self, consumer: Consumer) -> tuple[int, int, int] | None:
        """(messages, bytes, batches) to read for a consumer; None: nothing now."""
        if not self.may_take(consumer):
            return None
        messages, size = self._room()
        if messages <= 0 or size <= 0:
            return None
        permits = consumer.permits
        messages = min(messages, permits.left, self.settings.most_unacked - consumer.held.count)
        batches = 1 if consumer.blocked else READ_BATCHES
        return max(1, messages), min(size, permits.left_bytes, READ_BYTES), batches

    def _judge(self, entry: Entry, only: int = -1, *, damaged: bool = False) -> int:
        """Which messages of an entry (of `only` these bits) are to be delivered, of those not
        acknowledged."""
        missing = self.acks.missing(entry.base, entry.next) & only
        verdict = self._filter.judge(entry, missing, damaged=damaged)
        if verdict.acked:
            self._acked(entry.base, verdict.acked)
        for first, stop in spans_of(verdict.later, entry.base):
            self._postpone(first, stop, RESCHEDULED_S)
        return verdict.deliver

    def _send(self, consumer: Consumer, chosen: Sequence[tuple[Entry, int]]) -> None:
        """Send messages of batches to a consumer: one delivery."""
        parcels, messages, size = [], 0, 0
        timeout = self.settings.ack_timeout_s
        for entry, bits in chosen:
            parcels.append(Parcel(entry, bits, self._attempts(entry, bits)))
            messages += bits.bit_count()
            size += entry.size
            consumer.held.add_bits(entry.base, bits)
            if timeout:
                consumer.lend(Lent(self._now + timeout, entry.base, bits))
        consumer.permits.spend(messages, size)
        consumer.ready = False
        self.unacked += messages
        consumer.full = consumer.held.count >= self.settings.most_unacked
        self.full = self.unacked >= self.settings.most_unacked_all
        for rate in self._rates:
            rate.charge(messages, size)
        self._out.deliveries.append(
            Delivery(consumer.name, consumer.session, parcels, messages, size)
        )

    def _attempts(self, entry: Entry, bits: int) -> tuple[tuple[int, int], ...]:
        counts = self.counts
        if not counts:
            return ()
        base = entry.base
        return tuple(
            (offset, counts[offset])
            for first, stop in spans_of(bits, base)
            for offset in range(first, stop)
            if offset in counts
        )
