"""The dispatcher of a subscription, which decides which consumer gets which messages of one queue.

It is pure: `handle(event, now)` returns what to send and what to write. This class contains what
all types of subscription share: attached consumers, permits, sending, and the messages that
consumers hold until they acknowledge them or they are delivered again. The types are in
`single_active_dispatcher`, `shared_dispatcher` and `key_shared_dispatcher`;
`active_subscription.make_dispatcher` creates one.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.offset_set import (
    BLOCK,
    BLOCK_BITS,
    OffsetSet,
    Span,
    blocks_of,
    offsets_of,
    pieces,
    spans_of,
)
from logboom.nodes.subscriptions.attached_consumer import (
    MAX_GRANT,
    AttachedConsumer,
    DispatchRateLimiter,
    PendingAck,
)
from logboom.nodes.subscriptions.dispatch_events import (
    Ack,
    AckCumulative,
    AttachConsumer,
    Delivery,
    DetachConsumer,
    DispatchedBatch,
    DispatchEffects,
    DispatchEvent,
    Entry,
    EntrySource,
    GrantPermits,
    LogAdvanced,
    Nack,
    SubscriptionConfig,
)
from logboom.nodes.subscriptions.entry_filter import EntryFilter
from logboom.wire.errors import GroupError, InvalidRequest
from logboom.wire.filters import ScanBudget

READ_BATCHES: Final = 100
"""Batches of one read."""
READ_BYTES: Final = 5 * 1024 * 1024
"""Bytes of one read. At least one batch is read."""
SLICE_UNITS: Final = 20_000
"""Units of work (`wire.filters.ScanBudget`) of one event: some five milliseconds of passing over what
is not delivered. The rest follows in the next turn."""
EVENT_UNITS: Final = 100
"""Units that any event costs besides, and …"""
CONSUMER_UNITS: Final = 2
"""… those of each consumer that is looked at, …"""
BLOCK_UNITS: Final = 50
"""… of each block of offsets that is settled, …"""
SPAN_UNITS: Final = 3
"""… of each span, …"""
REFUSED_UNITS: Final = 15
"""… of each span that is refused, …"""
RETURNED_UNITS: Final = 16
"""… and of each message given back, which is counted, written down and applied."""
RETURN_UNITS: Final = 6_000
"""Units that one event, and all of one turn, spend on messages that come again without being asked for:
those of consumers that have gone, and those that are due. The rest follows in the next turn."""
RETURNED_AT_ONCE: Final = 256
"""Offsets of one step of this."""
COUNTED_AT_ONCE: Final = 2_000
"""Messages with failed deliveries after which an event sends nothing more."""
RESCHEDULED_S: Final = 1.0
"""Seconds until a plug-in is asked again about a batch that it has deferred."""


class Dispatcher(ABC):
    """One subscription of one queue."""

    def __init__(
        self,
        settings: SubscriptionConfig,
        source: EntrySource,
        acks: AckSet,
        counts: dict[int, int] | None = None,
        entry_filter: EntryFilter | None = None,
        rates: Sequence[DispatchRateLimiter] = (),
    ) -> None:
        """Create a dispatcher for the acknowledged messages `acks`.

        Args:
            counts: numbers of failed deliveries by offset.
            rates: limits of the topic, shared with its other subscriptions. The subscription's own
                limit is created here.

        Raises:
            InvalidFilter, InvalidRequest: a setting is invalid.
        """
        judge = EntryFilter(settings.filter) if entry_filter is None else entry_filter
        self.settings = settings
        self.source = source
        self.acks = acks
        self.counts = {} if counts is None else counts
        self.consumers: dict[str, AttachedConsumer] = {}
        self.full = False
        """All consumers together hold too much."""
        self.unacked = 0
        """Messages that consumers hold."""
        self.read_at = acks.floor
        """Messages from here on were never read for delivery."""
        self.end = acks.floor
        """Messages below can be read."""
        self.spent = 0
        """Units that the last event has cost by passing over messages."""
        self.worked = 0
        """Units that it has cost besides, …"""
        self.returned = 0
        """… and of these, those for messages that come again without being asked for."""
        self.halted = False
        """Another broker may serve this subscription by now, so nothing is sent."""
        self._filter = judge
        self._stats = judge.stats
        self._rates = [DispatchRateLimiter(settings.messages_per_s, settings.bytes_per_s), *rates]
        self._waiting: list[tuple[float, int, int]] = []
        """Messages that are delivered again later: (due, start, bits)."""
        self.postponed = OffsetSet()
        """The offsets of these messages."""
        self.returning: list[OffsetSet] = []
        """Messages that consumers hold no longer, and that have yet to be counted and made available.
        Nothing is sent before that, so that no order is lost."""
        self._out = DispatchEffects()
        self._now = float("-inf")
        self._more = False
        """There is more to do now, or to read for consumers that are ready."""
        self._counted = 0
        """Messages with failed deliveries that this event has sent."""
        self._most = 0
        """What `worked` may come to by messages that come again without being asked for."""
        self.limited = False
        """The rates have allowed nothing to be sent now."""

    # ── the type's own ──────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _attached(self, consumer: AttachedConsumer) -> None:
        """Add a consumer, or raise an error and change nothing."""

    @abstractmethod
    def _detached(self, consumer: AttachedConsumer) -> None:
        """Remove a consumer, which holds nothing any more.

        The messages that it held are passed to `_redeliver` later, before anything is sent.
        """

    @abstractmethod
    def _pump(self) -> None:
        """Send what can be sent."""

    @property
    def scans(self) -> bool:
        """True if it looks into batches."""
        return bool(self.settings.filter)

    @abstractmethod
    def waiting(self) -> int:
        """Return the number of messages that were read and wait for a consumer or redelivery."""

    @abstractmethod
    def _redeliver(self, base: int, bits: int) -> None:
        """Make messages available for redelivery."""

    @abstractmethod
    def _done(self, consumer: AttachedConsumer, base: int, bits: int) -> None:
        """Release messages that a consumer held.

        This comes before `_redeliver` for those that are redelivered. It does not come for those of a
        consumer that is removed.
        """

    @abstractmethod
    def _forget_below(self, offset: int) -> None:
        """Forget the messages below an offset."""

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def handle(
        self,
        event: DispatchEvent,
        now: float,
        units: int = SLICE_UNITS,
        return_units: int = RETURN_UNITS,
    ) -> DispatchEffects:
        """Take an event, and return its effects and those of the time having come to `now`.

        What passing over messages may cost is at most about `units`, and what comes again without
        being asked for `return_units`; then `deadline` is at once.

        Raises:
            LogboomError: the event is refused and has changed nothing: InvalidRequest, Refused
                (CONSUMER_BUSY) or GroupError (UNKNOWN_CONSUMER, which asks the consumer to attach
                again).
        """
        self._now = now
        self._out = DispatchEffects()
        self.worked = EVENT_UNITS + CONSUMER_UNITS * len(self.consumers)
        match event:
            case AttachConsumer():
                self._attach(event)
            case DetachConsumer(name, session):
                consumer = self.consumers.get(name)
                if consumer is not None and consumer.session == session:
                    self._detach(consumer)
            case GrantPermits():
                consumer = self._known(event.consumer, event.session)
                consumer.permits.grant(event.messages, event.size)
                consumer.ready, consumer.blocked = True, event.blocked
            case Ack(name, session, spans):
                self._ack(self._known(name, session), spans)
            case AckCumulative(name, session, offset):
                self._ack_cumulative(self._known(name, session), offset)
            case Nack():
                self._nack(self._known(event.consumer, event.session), event)
            case LogAdvanced(start, end):
                self.end = max(self.end, end)
                if start > self.acks.floor:
                    self._trim(start)
            case _:
                pass
        self.limited = self._more = False
        self._filter.budget = ScanBudget(units)
        self._counted, before = 0, self.worked
        self._most = before + return_units
        self._tick()
        if self._prepare():
            self._pump()
        self._more |= bool(self.returning)
        self.spent = units - self._filter.budget.left
        self.returned = self.worked - before
        return self._out

    def deadline(self) -> float:
        """Return when `Tick` is wanted next."""
        if self._more:
            return self._now
        when = self._waiting[0][0] if self._waiting else float("inf")
        if self.settings.ack_timeout_s:
            for consumer in self.consumers.values():
                if consumer.lent:
                    when = min(when, consumer.lent[0].deadline)
        if self.limited:
            # There may be room already, if another subscription has asked for its share since.
            when = min(when, max(rate.next_at(self._now) for rate in self._rates))
        return when

    def is_held(self, offset: int, names: Sequence[str]) -> bool:
        """Return True if one of these consumers holds a message."""
        known = (self.consumers.get(name) for name in names)
        return any(offset in consumer.held for consumer in known if consumer is not None)

    def unready(self, name: str) -> None:
        """Send nothing to a consumer before its next `GrantPermits`, since it no longer waits."""
        consumer = self.consumers.get(name)
        if consumer is not None:
            consumer.ready = False

    def _known(self, name: str, session: int) -> AttachedConsumer:
        consumer = self.consumers.get(name)
        if consumer is None or consumer.session != session:
            text = f"consumer {name!r} is not attached in this session: subscribe again"
            raise GroupError(text, "UNKNOWN_CONSUMER")
        return consumer

    def _attach(self, event: AttachConsumer) -> None:
        old = self.consumers.get(event.consumer)
        if old is not None:
            if event.session <= old.session:
                text = f"consumer {event.consumer!r} is attached in a newer session"
                raise GroupError(text, "UNKNOWN_CONSUMER")
            self._detach(old)
        consumer = AttachedConsumer(event.consumer, event.session, event.priority, event.ranges)
        self._attached(consumer)
        self.consumers[event.consumer] = consumer

    def _detach(self, consumer: AttachedConsumer) -> None:
        self._return_all(consumer)
        del self.consumers[consumer.name]
        self._detached(consumer)

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def may_take(self, consumer: AttachedConsumer) -> bool:
        """True if anything may be sent to a consumer now."""
        if self.halted or self.full or consumer.full:
            return False
        if self._counted >= COUNTED_AT_ONCE:
            self._more = True
            return False
        return consumer.ready and consumer.permits.open

    def _room(self) -> tuple[int, int]:
        """Return the messages and bytes that the rates allow now."""
        messages = size = MAX_GRANT
        for rate in self._rates:
            allowed = rate.room(self._now)
            messages, size = min(messages, allowed[0]), min(size, allowed[1])
        self.limited = min(messages, size) <= 0
        return messages, size

    def _budget(self, consumer: AttachedConsumer) -> tuple[int, int, int] | None:
        """Return the messages, bytes and batches to read for a consumer, or None."""
        if not self.may_take(consumer):
            return None
        messages, size = self._room()
        if messages <= 0 or size <= 0:
            return None
        permits = consumer.permits
        messages = min(messages, permits.left, self.settings.most_unacked - consumer.held.count)
        if self.counts:
            messages = min(messages, COUNTED_AT_ONCE)
        batches = 1 if consumer.blocked else READ_BATCHES
        return max(1, messages), min(size, permits.left_bytes, READ_BYTES), batches

    def _judge(self, entry: Entry, only: int = -1, *, damaged: bool = False) -> int | None:
        """Return which unacknowledged messages of an entry (of `only` these) are delivered.

        None means that this event has done enough: the entry has to be judged again.
        """
        missing = self.acks.missing(entry.base, entry.next) & only
        verdict = self._filter.judge(entry, missing, damaged=damaged)
        if verdict is None:
            self._more = True
            return None
        if verdict.acked:
            self._acked(entry.base, verdict.acked)
        if verdict.later:
            self._postpone(entry.base, verdict.later, RESCHEDULED_S)
        return verdict.deliver

    def _send(self, consumer: AttachedConsumer, chosen: Sequence[tuple[Entry, int]]) -> None:
        """Send messages to a consumer in one delivery."""
        batches, messages, size = [], 0, 0
        timeout = self.settings.ack_timeout_s
        for entry, bits in chosen:
            attempts = self._attempts(entry, bits)
            self._counted += len(attempts)
            batches.append(DispatchedBatch(entry, bits, attempts))
            messages += bits.bit_count()
            size += entry.size
            consumer.held.add_bits(entry.base, bits)
            if timeout:
                consumer.lend(PendingAck(self._now + timeout, entry.base, bits))
        consumer.permits.spend(messages, size)
        consumer.ready = False
        self.unacked += messages
        consumer.full = consumer.held.count >= self.settings.most_unacked
        self.full = self.unacked >= self.settings.most_unacked_all
        for rate in self._rates:
            rate.charge(messages, size)
        self._out.deliveries.append(
            Delivery(consumer.name, consumer.session, batches, messages, size)
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

    # ── acknowledgements ────────────────────────────────────────────────────────────────────────

    def _held(
        self, consumer: AttachedConsumer, spans: Sequence[Span], *, again: bool = False
    ) -> list[tuple[int, int]]:
        """Return the messages of the given spans that the consumer holds, as start and bits.

        All others are refused, except those that are already acknowledged and not returned for
        redelivery (`again`).
        """
        found = []
        blocks = blocks_of(spans)
        self.worked += SPAN_UNITS * len(spans) + BLOCK_UNITS * len(blocks)
        for number, asked in sorted(blocks.items()):
            start = number << BLOCK_BITS
            stop = start + asked.bit_length()
            bits = consumer.held.bits(start, stop) & asked
            rest = asked & ~bits if again else self.acks.missing(start, stop) & asked & ~bits
            if rest:
                self._out.refused += spans_of(rest, start)
            if bits:
                found.append((start, bits))
        self.worked += REFUSED_UNITS * len(self._out.refused)
        return found

    def _ack(self, consumer: AttachedConsumer, spans: Sequence[Span]) -> None:
        for start, bits in self._held(consumer, spans):
            self._returned(consumer, start, bits)
            self._acked(start, bits)

    def _ack_cumulative(self, consumer: AttachedConsumer, offset: int) -> None:
        if self.settings.kind not in ("exclusive", "failover"):
            text = f"ack_cumulative is for exclusive and failover, not for {self.settings.kind}"
            raise InvalidRequest(f"{text}: acknowledge each message")
        if offset < self.acks.floor:
            return
        # Redelivery begins at the first unacknowledged message. So whoever holds the offset holds all
        # that is unacknowledged before it, the floor passes it now, and a repeated request is
        # confirmed above.
        if offset not in consumer.held:
            # Even if it is acknowledged: a message before it is not, and may be held by another
            # consumer.
            self._out.refused.append((offset, offset + 1))
            return
        for start, bits in _below(consumer.held, offset + 1):
            self._returned(consumer, start, bits)
            self._acked(start, bits)

    def _acked(self, start: int, bits: int) -> None:
        if self.acks.add_bits(start, bits):
            self._out.done.append((start, bits))
        if self.counts:
            for offset in offsets_of(bits, start):
                self.counts.pop(offset, None)

    def _returned(self, consumer: AttachedConsumer, start: int, bits: int) -> None:
        """Release messages that a consumer held."""
        consumer.held.discard_bits(start, bits)
        self._released(consumer, bits.bit_count())
        self._done(consumer, start, bits)

    def _released(self, consumer: AttachedConsumer, messages: int) -> None:
        """Let a consumer that held too much go on when it holds half as much."""
        self.unacked -= messages
        if consumer.full and consumer.held.count <= self.settings.most_unacked // 2:
            consumer.full = False
        if self.full and self.unacked <= self.settings.most_unacked_all // 2:
            self.full = False

    def _take_all(self, consumer: AttachedConsumer) -> OffsetSet:
        """Take everything that a consumer holds from it."""
        held, consumer.held = consumer.held, OffsetSet()
        self._released(consumer, held.count)
        return held

    # ── what comes again ────────────────────────────────────────────────────────────────────────

    def _nack(self, consumer: AttachedConsumer, event: Nack) -> None:
        held = self._held(consumer, event.spans, again=True)
        for start, bits in held:
            self._count(start, bits)
        for start, bits in held:
            if event.delay_s > 0:
                self._postpone(start, bits, event.delay_s)
            self._returned(consumer, start, bits)
        if event.delay_s <= 0:
            for start, bits in held:
                self._redeliver(start, bits)

    def _return_all(self, consumer: AttachedConsumer) -> None:
        """Take back everything that a consumer holds."""
        held = self._take_all(consumer)
        if held.count:
            self.returning.append(held)

    def _prepare(self) -> bool:
        """Make what consumers hold no longer available, and count a failed delivery of each.

        Return True if all is done, False if this event may do no more.
        """
        while self.returning and self.worked < self._most:
            start, bits = self.returning[-1].take_some(RETURNED_AT_ONCE)
            if not self.returning[-1].count:
                self.returning.pop()
            self.worked += BLOCK_UNITS
            self._count(start, bits)
            # What this dispatcher has not read since it began comes anyhow.
            self._redeliver(start, bits & ((1 << max(0, min(self.read_at - start, BLOCK))) - 1))
        return not self.returning

    def _count(self, start: int, bits: int) -> None:
        self.worked += RETURNED_UNITS * bits.bit_count()
        counts = self.counts
        fresh = {offset: counts.get(offset, 0) + 1 for offset in offsets_of(bits, start)}
        counts.update(fresh)
        self._out.counts.update(fresh)

    def _postpone(self, start: int, bits: int, delay_s: float) -> None:
        heapq.heappush(self._waiting, (self._now + delay_s, start, bits))
        self.postponed.add_bits(start, bits)

    def _tick(self) -> None:
        """Take back what is due, as much as this event may."""
        now = self._now
        while self._waiting and self._waiting[0][0] <= now and self.worked < self._most:
            self.worked += BLOCK_UNITS
            _, start, bits = heapq.heappop(self._waiting)
            bits &= self.postponed.bits(start, start + bits.bit_length())
            self.postponed.discard_bits(start, bits)
            if bits:
                self._due(start, bits)
        if self.settings.ack_timeout_s:
            for consumer in self.consumers.values():
                while consumer.is_overdue(now) and self.worked < self._most:
                    self.worked += BLOCK_UNITS
                    base, bits = consumer.take_overdue()
                    if bits:
                        self._stats.count("dispatch_timed_out", bits.bit_count())
                        self._overdue(consumer, base, bits)

    def _due(self, start: int, bits: int) -> None:
        """Make postponed messages available for redelivery."""
        self._redeliver(start, bits)

    def _overdue(self, consumer: AttachedConsumer, start: int, bits: int) -> None:
        """Take back messages that a consumer held for too long."""
        self._returned(consumer, start, bits)
        if not self.returning:
            self.returning.append(OffsetSet())
        self.returning[-1].add_bits(start, bits)

    def _trim(self, start: int) -> None:
        """Forget everything below `start`, which retention has removed, acknowledged or not."""
        for consumer in self.consumers.values():
            for first, bits in _below(consumer.held, start):
                self._returned(consumer, first, bits)
        for offsets in self.returning:
            offsets.discard(self.acks.floor, start)
        self.returning = [offsets for offsets in self.returning if offsets.count]
        self._forget_below(start)
        self.postponed.discard(self.acks.floor, start)
        # It is written as acknowledged, so that acknowledging it now is answered as safe, and since
        # the next leader may still have these messages.
        for number, at, length in pieces(self.acks.floor, start):
            first = (number << BLOCK_BITS) + at
            if missing := self.acks.missing(first, first + length):
                self._out.done.append((first, missing))
        expired = self.acks.raise_to(start)
        self._stats.count("dispatch_expired", expired)
        for offset in [offset for offset in self.counts if offset < start]:
            del self.counts[offset]
        self.read_at = max(self.read_at, start)


def _below(offsets: OffsetSet, stop: int) -> list[tuple[int, int]]:
    """Return the offsets below `stop`, as starts and bits."""
    found = []
    for start, bits in offsets.shifted():
        if start >= stop:
            break
        below = bits & ((1 << min(stop - start, BLOCK)) - 1)
        if below:
            found.append((start, below))
    return found
