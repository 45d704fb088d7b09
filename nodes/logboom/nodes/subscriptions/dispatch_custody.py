"""What the consumers of a subscription hold: until it is acknowledged, or comes again."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from logboom.nodes.stats import Statistics
from logboom.nodes.subscriptions.ack_set import AckSet
from logboom.nodes.subscriptions.dispatch_consumers import Consumer
from logboom.nodes.subscriptions.dispatch_events import DispatchEffects, Settings
from logboom.nodes.subscriptions.offset_set import (
    BLOCK_BITS,
    OffsetSet,
    Span,
    blocks_of,
    offsets_of,
    pieces,
    spans_of,
)
from logboom.wire.errors import InvalidRequest

LONGEST_SPAN: Final = 1 << 20
"""Offsets that one span of an ack may cover."""


class Custody(ABC):
    """The half of a dispatcher that takes back."""

    def __init__(
        self, settings: Settings, acks: AckSet, counts: dict[int, int], stats: Statistics
    ) -> None:
        """Begin where `acks` and `counts` (offset → earlier deliveries) say."""
        self.settings = settings
        self.acks = acks
        self.counts = counts
        self.consumers: dict[str, Consumer] = {}
        self.full = False
        """All consumers together hold too much."""
        self.unacked = 0
        """Messages that consumers hold."""
        self.read_at = acks.floor
        """What was never read for delivery begins here."""
        self._stats = stats
        self._waiting: list[tuple[float, int, int]] = []
        """(due, start, stop): what comes again later."""
        self.postponed = OffsetSet()
        """The offsets of these."""
        self._out = DispatchEffects()
        self._now = float("-inf")

    # ── the type's own ──────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _again(self, base: int, bits: int) -> None:
        """Messages are to be delivered again now."""

    @abstractmethod
    def _done(self, consumer: Consumer, base: int, bits: int) -> None:
        """A consumer holds these no longer; called before `_again` for those that come again."""

    @abstractmethod
    def _forget_below(self, offset: int) -> None:
        """Messages below are gone for good."""

    # ── acknowledgements ────────────────────────────────────────────────────────────────────────

    def _held(
        self, consumer: Consumer, spans: Sequence[Span], *, again: bool = False
    ) -> list[tuple[int, int]]:
        """(start, bits) of what the consumer holds of spans; the rest is refused, unless it is
        acknowledged already and not to come `again`."""
        found = []
        for start, stop in spans:
            if not 0 <= start < stop or stop - start > LONGEST_SPAN:
                text = f"{start} to {stop} is no span of at most {LONGEST_SPAN} offsets"
                raise InvalidRequest(text)
        for number, asked in sorted(blocks_of(spans).items()):
            start = number << BLOCK_BITS
            stop = start + asked.bit_length()
            bits = consumer.held.bits(start, stop) & asked
            rest = asked & ~bits if again else self.acks.missing(start, stop) & asked & ~bits
            if rest:
                self._out.refused += spans_of(rest, start)
            if bits:
                found.append((start, bits))
        return found

    def _ack(self, consumer: Consumer, spans: Sequence[Span]) -> None:
        for start, bits in self._held(consumer, spans):
            self._returned(consumer, start, bits)
            self._acked(start, bits)

    def _ack_cumulative(self, consumer: Consumer, offset: int) -> None:
        if self.settings.kind not in ("exclusive", "failover"):
            text = f"ack_cumulative is for exclusive and failover, not for {self.settings.kind}"
            raise InvalidRequest(f"{text}: acknowledge each message")
        if offset < self.acks.floor:
            return
        last = consumer.held.first()
        if last is None or offset not in consumer.held:
            if offset not in self.acks:
                self._out.refused.append((offset, offset + 1))
            return
        for start, stop in [s for s in consumer.held.spans() if s[0] <= offset]:
            stop = min(stop, offset + 1)
            bits = (1 << (stop - start)) - 1
            self._returned(consumer, start, bits)
            self._acked(start, bits)

    def _acked(self, start: int, bits: int) -> None:
        if self.acks.add_bits(start, bits):
            self._out.done.append((start, bits))
        if self.counts:
            for offset in offsets_of(bits, start):
                self.counts.pop(offset, None)

    def _returned(self, consumer: Consumer, start: int, bits: int) -> None:
        """A consumer holds these no longer."""
        consumer.held.discard_bits(start, bits)
        self.unacked -= bits.bit_count()
        if consumer.full and consumer.held.count <= self.settings.most_unacked // 2:
            consumer.full = False
        if self.full and self.unacked <= self.settings.most_unacked_all // 2:
            self.full = False
        self._done(consumer, start, bits)

    # ── what comes again ────────────────────────────────────────────────────────────────────────

    def _nack(self, consumer: Consumer, spans: Sequence[Span], delay_s: float) -> None:
        if not 0 <= delay_s < float("inf"):
            raise InvalidRequest(f"a delay is 0 or more seconds, not {delay_s!r}")
        found = self._held(consumer, spans, again=True)
        held = [span for start, bits in found for span in spans_of(bits, start)]
        if held:
            self._take_back(consumer, held, delay_s)

    def _take_back(self, consumer: Consumer, spans: Sequence[Span], delay_s: float) -> None:
        """What a consumer held goes to somebody again; one more delivery came to nothing."""
        for start, stop in spans:
            self._count(start, stop)
        for start, stop in spans:
            if delay_s > 0:
                self._postpone(start, stop, delay_s)
            self._returned(consumer, start, (1 << (stop - start)) - 1)
        if delay_s <= 0:
            for start, stop in spans:
                self._again(start, (1 << (stop - start)) - 1)

    def _count(self, start: int, stop: int) -> None:
        counts = self.counts
        for offset in range(start, stop):
            counts[offset] = self._out.counts[offset] = counts.get(offset, 0) + 1

    def _postpone(self, start: int, stop: int, delay_s: float) -> None:
        heapq.heappush(self._waiting, (self._now + delay_s, start, stop))
        self.postponed.add(start, stop)

    def _tick(self) -> None:
        now = self._now
        while self._waiting and self._waiting[0][0] <= now:
            _, start, stop = heapq.heappop(self._waiting)
            bits = self.postponed.bits(start, stop)
            self.postponed.discard_bits(start, bits)
            if bits:
                self._due(start, bits)
        if self.settings.ack_timeout_s:
            for consumer in list(self.consumers.values()):
                for base, bits in consumer.overdue(now):
                    self._stats.count("dispatch_timed_out", bits.bit_count())
                    self._overdue(consumer, list(spans_of(bits, base)))

    def _due(self, start: int, bits: int) -> None:
        """What was postponed is to be delivered now."""
        self._again(start, bits)

    def _overdue(self, consumer: Consumer, spans: Sequence[Span]) -> None:
        """A consumer held these for too long."""
        self._take_back(consumer, spans, 0.0)

    def _trim(self, start: int) -> None:
        """Retention removed everything below `start`, acknowledged or not."""
        for consumer in self.consumers.values():
            for first, stop in [s for s in consumer.held.spans() if s[0] < start]:
                bits = (1 << (min(stop, start) - first)) - 1
                self._returned(consumer, first, bits)
        self._forget_below(start)
        self.postponed.discard(self.acks.floor, start)
        # Written down like any other: whoever acknowledges it now is told that this is safe, and
        # the next leader may have these messages still.
        for number, at, length in pieces(self.acks.floor, start):
            first = (number << BLOCK_BITS) + at
            if missing := self.acks.missing(first, first + length):
                self._out.done.append((first, missing))
        expired = self.acks.raise_to(start)
        self._stats.count("dispatch_expired", expired)
        for offset in [offset for offset in self.counts if offset < start]:
            del self.counts[offset]
        self.read_at = max(self.read_at, start)
