"""Exclusive and failover subscriptions: one active consumer gets everything, in order.

To deliver a message again, the dispatcher returns to the first message that is not acknowledged, so
that the order is kept. The consumers of failover are ordered by priority and name, and queues are
distributed over those with the best priority. When another consumer becomes active, the previous
one has `failover_delay_s` to acknowledge what it holds. The consumer of an exclusive subscription
may name ranges of key slots. Messages outside of them count as acknowledged, like those that a
filter rejects.
"""

from __future__ import annotations

from collections.abc import Sequence

from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.subscriptions.attached_consumer import AttachedConsumer, DispatchRateLimiter
from logboom.nodes.subscriptions.dispatch_events import Entry, EntrySource, Nack, SubscriptionConfig
from logboom.nodes.subscriptions.dispatcher import Dispatcher
from logboom.nodes.subscriptions.entry_filter import EntryFilter
from logboom.nodes.subscriptions.slot_table import SlotTable
from logboom.wire.errors import DamagedBatch, InvalidRequest, Refused


class SingleActiveDispatcher(Dispatcher):
    """Delivers everything, in order, to one active consumer."""

    def __init__(
        self,
        settings: SubscriptionConfig,
        source: EntrySource,
        acks: AckSet,
        counts: dict[int, int] | None = None,
        entry_filter: EntryFilter | None = None,
        rates: Sequence[DispatchRateLimiter] = (),
    ) -> None:
        super().__init__(settings, source, acks, counts, entry_filter, rates)
        self.active: AttachedConsumer | None = None
        """The consumer that gets everything, or will when the delay is over."""
        self._before: AttachedConsumer | None = None
        """The previously active consumer, while the delay runs."""
        self._begins_at = float("-inf")
        """When the active consumer may be served."""
        self._slots: SlotTable | None = None
        """The slots that it wants; None means all."""
        self._held_up_at: int | None = None
        """Where a plug-in deferred a batch during the current read."""
        self._given_back = False
        """Messages were given back, and more will be by the same request."""

    def _attached(self, consumer: AttachedConsumer) -> None:
        if self.settings.kind == "exclusive" and self.consumers:
            holder = next(iter(self.consumers))
            text = f"consumer {holder!r} has this exclusive subscription: close it first"
            raise Refused(f"{text}, or use failover or shared", "CONSUMER_BUSY", consumer=holder)
        if consumer.ranges is not None:
            if self.settings.kind != "exclusive":
                raise InvalidRequest("ranges are for exclusive and key_shared: leave them out")
            slots = SlotTable("sticky")
            slots.add(consumer)
            self._slots = slots
        self._choose(consumer)

    def _detached(self, consumer: AttachedConsumer) -> None:
        self._slots = None
        if self._before is consumer:
            self._before = None
        if self.active is consumer:
            self.active = None
            self._choose(None, was=consumer)

    def _choose(
        self, newcomer: AttachedConsumer | None, was: AttachedConsumer | None = None
    ) -> None:
        """Choose the active consumer; `newcomer` is not among the consumers yet."""
        everyone = [*self.consumers.values(), *([] if newcomer is None else [newcomer])]
        chosen = None
        if everyone:
            best = min(consumer.priority for consumer in everyone)
            top = sorted((c for c in everyone if c.priority == best), key=lambda c: c.name)
            chosen = top[self.source.queue % len(top)]
        if chosen is self.active:
            if newcomer is not None:
                self._out.active.append((newcomer.name, False))
            return
        if chosen is not None and chosen is self._before:
            self._before = None
        before = self.active or was
        if self.active is not None:
            self._out.active.append((self.active.name, False))
            # It may still acknowledge until the delay is over, and so may one before it.
            if self._before is None and self.active.held.count:
                self._before = self.active
        self.active = chosen
        if chosen is not None:
            self._out.active.append((chosen.name, True))
        if newcomer is not None and newcomer is not chosen:
            self._out.active.append((newcomer.name, False))
        if before is not None:
            self._begins_at = self._now + self.settings.failover_delay_s

    @property
    def scans(self) -> bool:
        """True if it looks into batches."""
        return super().scans or self._slots is not None

    def _judge(self, entry: Entry, only: int = -1, *, damaged: bool = False) -> int | None:
        if self._slots is None or not entry.head.count:
            return super()._judge(entry, only, damaged=damaged)
        try:
            slots = self.source.slots(entry, self._filter.budget)
        except DamagedBatch:
            return super()._judge(entry, only, damaged=True)
        if slots is None:
            self._more = True
            return None
        bits = super()._judge(entry, only)
        if bits is None:
            return None
        for owner, outside in self._slots.split(slots, bits):
            if owner is None:
                self._filter.stats.count("dispatch_filtered", outside.bit_count())
                self._acked(entry.base, outside)
                bits &= ~outside
        return bits

    def _redeliver(self, base: int, bits: int) -> None:
        self._rewind()

    def _rewind(self) -> None:
        """Return to the first message that is not acknowledged."""
        for consumer in self.consumers.values():
            self._take_all(consumer)
        self.read_at = self.acks.floor

    def _nack(self, consumer: AttachedConsumer, event: Nack) -> None:
        held = self._held(consumer, event.spans, again=True)
        for start, bits in held:
            self._count(start, bits)
        self._given_back |= bool(held)
        if held and event.delay_s > 0:
            self._begins_at = max(self._begins_at, self._now + event.delay_s)
        if self._given_back and not event.more:
            self._given_back = False
            self._rewind()

    def _postpone(self, start: int, bits: int, delay_s: float) -> None:
        # A deferred batch holds up all later ones, so that their order is kept.
        self._begins_at = max(self._begins_at, self._now + delay_s)
        self._held_up_at = start

    def _done(self, consumer: AttachedConsumer, base: int, bits: int) -> None:
        """Do nothing: nothing else is stored of held messages."""

    def _forget_below(self, offset: int) -> None:
        """Do nothing: no messages wait here."""

    def waiting(self) -> int:
        """Return 0: messages are read only when they can be sent."""
        return 0

    def deadline(self) -> float:
        """Return when `Tick` is wanted next."""
        when = super().deadline()
        return min(when, self._begins_at) if self._begins_at > self._now else when

    def _pump(self) -> None:
        if self._now < self._begins_at:
            return
        if self._before is not None:
            before, self._before = self._before, None
            self._return_all(before)
            if not self._prepare():
                return
        consumer = self.active
        if consumer is None:
            return
        while (budget := self._budget(consumer)) is not None:
            entries = self.source.read(self.read_at, *budget) if self.read_at < self.end else ()
            if not entries:
                return
            self._held_up_at, begun = None, self.read_at
            chosen: list[tuple[Entry, int]] = []
            for entry in entries:
                bits = self._judge(entry)
                if bits is None:
                    break
                if self._held_up_at is not None:
                    self.read_at = self._held_up_at
                    break
                if bits:
                    chosen.append((entry, bits))
                self.read_at = max(self.read_at, entry.next)
            if chosen:
                self._send(consumer, chosen)
            if self._more or self._now < self._begins_at or self.read_at == begun:
                return
