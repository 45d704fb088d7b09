"""What a dispatcher takes and gives: events, effects, and where it reads.

A dispatcher serves one subscription of one queue, at the queue's leader (`dispatcher.py`). It has
no clock and no socket: `handle(event, now)` returns what is to be sent and written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from logboom.nodes.replica.offset_set import Span, spans_of
from logboom.nodes.subscriptions.key_ranges import Range
from logboom.wire.batch import open_batch
from logboom.wire.columns import Columns
from logboom.wire.frames import Frame
from logboom.wire.head import BatchHead
from logboom.wire.subscription_messages import KINDS, Hashing, SubscriptionConfig, SubscriptionType


class Entry(NamedTuple):
    """One entry of the log, as it is read for delivery."""

    head: BatchHead
    frame: Frame

    def columns(self) -> Columns:
        """Its messages; any look at them raises DamagedBatch if they do not hold together."""
        return open_batch(self.frame, self.head)

    @property
    def base(self) -> int:
        """Offset of its first message."""
        return self.head.base_offset

    @property
    def next(self) -> int:
        """The offset behind its last message; the same as `base` for a control entry."""
        return self.head.base_offset + self.head.count

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
        return len(self.frame)


class EntrySource(Protocol):
    """Where a dispatcher reads: one queue's log below the HW."""

    queue: int
    """The queue's number, by which queues spread over the consumers of failover."""

    def read(self, offset: int, messages: int, size: int, batches: int) -> Sequence[Entry]:
        """Whole entries from the one that holds `offset` on, until one of the bounds is reached; at
        least one batch if there is any. Nothing where nothing can be read now."""
        ...


# ── events ──────────────────────────────────────────────────────────────────────────────────────


class AttachConsumer(NamedTuple):
    """A consumer comes. One that is here under the same name is replaced: what it held is
    delivered again, and its permits are gone.

    Raises (from `handle`): InvalidRequest for ranges that cannot be, Refused CONSUMER_BUSY for a
    second exclusive consumer.
    """

    consumer: str
    session: int
    """Of this attaching; events of another are ignored or refused."""
    priority: int = 0
    """0 is the best."""
    ranges: tuple[Range, ...] | None = None
    """Of key_shared with sticky hashing."""


class DetachConsumer(NamedTuple):
    """A consumer goes, or its session ended: what it holds is delivered again."""

    consumer: str
    session: int


class GrantPermits(NamedTuple):
    """Permits, and with them the word that the last delivery has arrived."""

    consumer: str
    session: int
    messages: int
    size: int
    blocked: bool = False
    """Its socket has not taken what was sent before: the next read is one batch."""


class Ack(NamedTuple):
    """Messages are done."""

    consumer: str
    session: int
    spans: tuple[Span, ...]


class AckCumulative(NamedTuple):
    """All messages up to and with this offset are done (exclusive and failover)."""

    consumer: str
    session: int
    offset: int


class Nack(NamedTuple):
    """Messages are to be delivered again, in `delay_s` seconds."""

    consumer: str
    session: int
    spans: tuple[Span, ...]
    delay_s: float = 0.0


class LogAdvanced(NamedTuple):
    """Messages below `end` can be read; those before `start` are gone."""

    start: int
    end: int


class Tick(NamedTuple):
    """Time has passed."""


DispatchEvent: TypeAlias = (
    AttachConsumer | DetachConsumer | GrantPermits | Ack | AckCumulative | Nack | LogAdvanced | Tick
)


# ── effects ─────────────────────────────────────────────────────────────────────────────────────


class DispatchedBatch(NamedTuple):
    """A batch for a consumer, whole, and which of its messages are meant."""

    entry: Entry
    bits: int
    """Bit n: the message at base + n."""
    attempts: tuple[tuple[int, int], ...] = ()
    """(offset, deliveries before this one) of messages that were delivered before."""


class Delivery(NamedTuple):
    """Parcels to send to a consumer, in order."""

    consumer: str
    session: int
    parcels: list[DispatchedBatch]
    messages: int
    size: int


@dataclass(slots=True)
class DispatchEffects:
    """What follows from an event."""

    deliveries: list[Delivery] = field(default_factory=list)
    done: list[tuple[int, int]] = field(default_factory=list)
    """To be written down: acknowledged now and not before; bit n of the second: the first + n."""
    counts: dict[int, int] = field(default_factory=dict)
    """To be written down: offset → deliveries that came to nothing."""
    refused: list[Span] = field(default_factory=list)
    """Not acknowledged, or not taken back: the consumer does not hold them."""
    active: list[tuple[str, bool]] = field(default_factory=list)
    """(consumer, whether it is the active one now), of exclusive and failover."""

    @property
    def acked(self) -> list[Span]:
        """`done` as spans."""
        return [span for start, bits in self.done for span in spans_of(bits, start)]


__all__ = [
    "KINDS",
    "Ack",
    "AckCumulative",
    "AttachConsumer",
    "Delivery",
    "DetachConsumer",
    "DispatchEffects",
    "DispatchEvent",
    "DispatchedBatch",
    "Entry",
    "EntrySource",
    "GrantPermits",
    "Hashing",
    "LogAdvanced",
    "Nack",
    "SubscriptionConfig",
    "SubscriptionType",
    "Tick",
]
