"""Shared subscriptions: whole batches go to the consumers with permits in turn, without an order.

Consumers with the best priority come first. The others get messages only when none of these has
permits. Redelivered messages go before new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.offset_set import OffsetSet
from logboom.nodes.subscriptions.attached_consumer import AttachedConsumer, DispatchRateLimiter
from logboom.nodes.subscriptions.dispatch_events import Entry, EntrySource, SubscriptionConfig
from logboom.nodes.subscriptions.dispatcher import Dispatcher
from logboom.nodes.subscriptions.entry_filter import EntryFilter

ROUND: Final = 20
"""Batches that a consumer gets before the next one's turn."""


class SharedDispatcher(Dispatcher):
    """Any number of consumers, each message going to one of them."""

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
        self._replay = OffsetSet()
        """Messages to deliver again."""
        self._order: list[AttachedConsumer] = []
        """The consumers in the order of their turns, by priority."""

    def _attached(self, consumer: AttachedConsumer) -> None:
        self._order.append(consumer)
        self._order.sort(key=lambda each: each.priority)

    def _detached(self, consumer: AttachedConsumer) -> None:
        self._order.remove(consumer)

    def _redeliver(self, base: int, bits: int) -> None:
        self._replay.add_bits(base, bits)

    def _forget_below(self, offset: int) -> None:
        self._replay.discard(self.acks.floor, offset)

    def _done(self, consumer: AttachedConsumer, base: int, bits: int) -> None:
        """Do nothing: nothing else is stored of held messages."""

    def waiting(self) -> int:
        """Return the number of messages to deliver again."""
        return self._replay.count + sum(offsets.count for offsets in self.returning)

    def _next(self) -> AttachedConsumer | None:
        """Return the consumer whose turn it is, and move it behind the others of its priority."""
        for at, consumer in enumerate(self._order):
            if self.may_take(consumer):
                del self._order[at]
                self._order.append(consumer)
                self._order.sort(key=lambda each: each.priority)
                return consumer
        return None

    def _pump(self) -> None:
        while not self._more and (self._replay.count or self.read_at < self.end):
            consumer = self._next()
            budget = None if consumer is None else self._budget(consumer)
            if consumer is None or budget is None:
                return
            messages, size, batches = budget
            batches = min(batches, ROUND)
            again = self._replayed(messages, size, batches)
            chosen = again or self._fresh(messages, size, batches)
            if chosen is None:
                return
            if chosen:
                self._send(consumer, chosen)

    def _replayed(self, messages: int, size: int, batches: int) -> list[tuple[Entry, int]]:
        """Return messages to deliver again: within the limits, but at least one batch."""
        chosen: list[tuple[Entry, int]] = []
        while len(chosen) < batches and messages > 0 and size > 0:
            first = self._replay.first()
            entry = None if first is None else self._holding(first)
            if entry is None:
                break
            again = self._replay.bits(entry.base, entry.next)
            self._replay.discard_bits(entry.base, again)
            bits = self._judge(entry, again)
            if bits is None:
                self._replay.add_bits(entry.base, again)
                break
            if bits:
                chosen.append((entry, bits))
                messages -= bits.bit_count()
                size -= entry.size
        return chosen

    def _holding(self, offset: int) -> Entry | None:
        """Return the batch that holds an offset, or None if it cannot be read now."""
        read = self.source.read(offset, 1, 1, 1)
        return next((entry for entry in read if entry.base <= offset < entry.next), None)

    def _fresh(self, messages: int, size: int, batches: int) -> list[tuple[Entry, int]] | None:
        """Return new messages: at least one batch, within the limits.

        None if nothing can be read now, and an empty list if nothing that was read is to be sent.
        """
        if self.read_at >= self.end:
            return None
        before = self.read_at
        entries = self.source.read(before, messages, size, batches)
        chosen: list[tuple[Entry, int]] = []
        for entry in entries:
            bits = self._judge(entry)
            if bits is None:
                break
            self.read_at = max(self.read_at, entry.next)
            if bits:
                chosen.append((entry, bits))
        return chosen if self.read_at > before else None
