"""The events and effects of a dispatcher, and the entries that it reads.

A dispatcher serves one subscription of one queue, at the queue's leader (`dispatcher.py`). It has
no clock and no socket: `handle(event, now)` returns what is to be sent and written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from logboom.nodes.replica.offset_set import Span, spans_of
from logboom.nodes.subscriptions.key_ranges import Range
from logboom.wire.batch import open_batch
from logboom.wire.columns import Columns
from logboom.wire.filters import ScanBudget
from logboom.wire.frames import Frame
from logboom.wire.head import BatchHead
from logboom.wire.subscription_messages import KINDS, Hashing, SubscriptionConfig, SubscriptionType


class Entry(NamedTuple):
    """One entry of the log, as read for delivery."""

    head: BatchHead
    frame: Frame

    def columns(self) -> Columns:
        """Return its messages. Accessing them raises DamagedBatch if the body is damaged."""
        return open_batch(self.frame, self.head)

    @property
    def base(self) -> int:
        """Offset of its first message."""
        return self.head.base_offset

    @property
    def next(self) -> int:
        """Offset after its last message; equal to `base` for a control entry."""
        return self.head.base_offset + self.head.count

    @property
    def size(self) -> int:
        """Size of the whole entry in bytes."""
        return len(self.frame)


class EntrySource(Protocol):
    """Source of a dispatcher's entries: one queue's log below the HW."""

    queue: int
    """The queue's number, by which queues are distributed over the consumers of failover."""

    def read(self, offset: int, messages: int, size: int, batches: int) -> Sequence[Entry]:
        """Return whole entries from the one that holds `offset` on, up to one of the limits.

        At least one batch is returned if there is any, and nothing if nothing can be read now.
        """
        ...

    def slots(self, entry: Entry, budget: ScanBudget) -> Sequence[int] | None:
        """Return the slot of each message of a batch; None if the budget is used up before.

        Raises:
            DamagedBatch: the body is damaged.
        """
        ...


# ── events ──────────────────────────────────────────────────────────────────────────────────────


class AttachConsumer(NamedTuple):
    """Attaches a consumer, and replaces one of the same name.

    The messages that the replaced consumer held are delivered again, and its permits are void.

    Raises (from `handle`): InvalidRequest for invalid ranges, Refused CONSUMER_BUSY for a second
    exclusive consumer.
    """

    consumer: str
    session: int
    """Number of this attachment. Events of another one are ignored or refused."""
    priority: int = 0
    """0 is the highest."""
    ranges: tuple[Range, ...] | None = None
    """For key_shared with sticky hashing."""


class DetachConsumer(NamedTuple):
    """Detaches a consumer, or ends its session. The messages that it holds are delivered again."""

    consumer: str
    session: int


class GrantPermits(NamedTuple):
    """Grants permits, and confirms that the last delivery has arrived."""

    consumer: str
    session: int
    messages: int
    size: int
    blocked: bool = False
    """The socket has not taken what was sent before, so the next read returns one batch."""


class Ack(NamedTuple):
    """Acknowledges messages."""

    consumer: str
    session: int
    spans: tuple[Span, ...]


class AckCumulative(NamedTuple):
    """Acknowledges all messages up to and including an offset (exclusive and failover)."""

    consumer: str
    session: int
    offset: int


class Nack(NamedTuple):
    """Returns messages for redelivery in `delay_s` seconds."""

    consumer: str
    session: int
    spans: tuple[Span, ...]
    delay_s: float = 0.0
    more: bool = False
    """More are returned by the same request. Exclusive and failover, which then deliver everything
    again, wait for the last."""


class LogAdvanced(NamedTuple):
    """Messages below `end` can be read, and those below `start` no longer exist."""

    start: int
    end: int


class Tick(NamedTuple):
    """Time has passed."""


DispatchEvent: TypeAlias = (
    AttachConsumer | DetachConsumer | GrantPermits | Ack | AckCumulative | Nack | LogAdvanced | Tick
)


# ── effects ─────────────────────────────────────────────────────────────────────────────────────


class DispatchedBatch(NamedTuple):
    """A whole batch for a consumer, and which of its messages are delivered."""

    entry: Entry
    bits: int
    """Bit n stands for the message at base + n."""
    attempts: tuple[tuple[int, int], ...] = ()
    """Number of earlier deliveries, by offset, of messages that were delivered before."""


class Delivery(NamedTuple):
    """Batches to send to a consumer, in order."""

    consumer: str
    session: int
    batches: list[DispatchedBatch]
    messages: int
    size: int


@dataclass(slots=True)
class DispatchEffects:
    """Effects of an event."""

    deliveries: list[Delivery] = field(default_factory=list)
    done: list[tuple[int, int]] = field(default_factory=list)
    """Newly acknowledged messages, to be written: a base offset, and bits for the messages from
    there on."""
    counts: dict[int, int] = field(default_factory=dict)
    """Numbers of failed deliveries by offset, to be written."""
    refused: list[Span] = field(default_factory=list)
    """Messages that were neither acknowledged nor taken back, since the consumer does not hold
    them."""
    active: list[tuple[str, bool]] = field(default_factory=list)
    """Consumers of exclusive and failover that became active (True) or inactive (False)."""

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
