"""Messages between the consumers of subscriptions and the leaders of their queues.

Part of `logboom.wire.messages.AnyMessage`. A consumer subscribes at each queue's leader, then keeps
one Receive there: it carries permits, and is held until there is something to deliver. What is
acknowledged or taken back goes in SettleMessages. All of it is fenced by `session`: a consumer that
comes again has a greater one, begins without permits, and what it held is delivered again.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from logboom.wire.base import Name, Request, WireMessage

SubscriptionType: TypeAlias = Literal["exclusive", "failover", "shared", "key_shared"]
KINDS: Final[tuple[SubscriptionType, ...]] = ("exclusive", "failover", "shared", "key_shared")
Hashing: TypeAlias = Literal["auto_split", "sticky", "consistent"]
Start: TypeAlias = int | Literal["first", "last"]
"""Where a subscription begins that a queue does not know: a message time in ms, or an end of it."""
Span: TypeAlias = tuple[int, int]
"""From the first offset to the one behind the last."""

NAME_LENGTH: Final = 120
"""Characters of a subscription's or a consumer's name, at most."""
MAX_ACKED: Final = 25_000
"""Maximum spans of acknowledged messages in one SettleMessages: every second message that a consumer
may hold by default."""
MAX_AGAIN: Final = 10_000
"""Maximum spans of messages given back in one SettleMessages."""
MAX_HELD: Final = 1_000_000
"""Maximum messages that consumers may hold, or that wait for them, in one queue."""
MAX_RANGES: Final = 1_024
"""Maximum ranges of one consumer."""


class SubscriptionConfig(Struct, frozen=True, array_like=True):
    """How a subscription is served, as long as it has consumers: all of them must agree."""

    kind: SubscriptionType = "exclusive"
    hashing: Hashing = "auto_split"
    """Of key_shared: who gets which keys."""
    filter: str = ""
    """Only messages that this filter takes; the others count as acknowledged."""
    ack_timeout_s: float = 0.0
    """Seconds after which what was not acknowledged goes to somebody again; 0: never."""
    most_unacked: int = 50_000
    """Messages that one consumer may hold unacknowledged; served on at half of it."""
    most_unacked_all: int = 200_000
    """The same for all consumers together."""
    failover_delay_s: float = 1.0
    """Seconds that the next active consumer waits, while the one before may still acknowledge."""
    look_ahead: int = 50_000
    """Of key_shared: messages that may wait for their consumers while others are served on."""
    messages_per_s: int = 0
    bytes_per_s: int = 0
    """Dispatch rate of each queue; 0: no limit."""
    session_ms: int = 10_000
    """A consumer that is not heard for so long is gone."""
    max_attempts: int = 0
    """Of shared and key_shared: deliveries after which a message becomes a dead letter; 0: never."""


class Subscribe(Request, array_like=True):
    """Attach a consumer to a subscription, which is made if there is none of the name.

    Answered by Subscribed. Errors: NOT_LEADER, CONSUMER_BUSY (field `consumer`), INSTANCE_TAKEN,
    SUBSCRIPTION_MISMATCH (field `different`: settings that are not those of its consumers),
    UNKNOWN_SUBSCRIPTION (with `create` false), QUOTA_EXCEEDED, INVALID_ARGUMENT, INVALID_FILTER,
    UNAVAILABLE.
    """

    topic: Name
    queue: int
    subscription: Name
    consumer: Name
    """Its name: unique within the subscription, and the same when it comes again."""
    session: int
    """Greater than any before of this name."""
    config: SubscriptionConfig
    priority: int = 0
    """0 is the best."""
    ranges: Annotated[list[Span], Meta(max_length=MAX_RANGES)] | None = None
    """(first slot, last slot): of key_shared with sticky hashing; of exclusive, where what lies outside
    counts as acknowledged."""
    start: Start = "last"
    """Where a new subscription begins; a number is a message time in ms."""
    create: bool = True
    topic_id: int = 0
    """As in Produce."""
    owner: int = 0
    """Who goes by the consumer's name: greater for one that was opened later; 0: an older client."""
    again: bool = False
    """True if this owner was attached to all queues before."""


class Subscribed(WireMessage, array_like=True):
    """The consumer is attached; it has no permits yet."""

    floor: int
    """All messages below are acknowledged."""


class Receive(Request, array_like=True):
    """Permits, and the wish for what there is; held up to `wait_ms`. Answered by Delivered.

    The next Receive tells that the last delivery has arrived. `number` counts from 1 within a
    session: the permits of each count once. Errors: UNKNOWN_CONSUMER (subscribe again), NOT_LEADER.
    """

    topic: Name
    queue: int
    subscription: Name
    consumer: Name
    session: int
    number: int
    messages: int
    """Messages more that may be sent."""
    size: int
    """Bytes more."""
    wait_ms: int
    topic_id: int = 0


class Delivered(WireMessage, array_like=True):
    """Whole batches follow as frames; of each, which messages are meant."""

    chosen: list[bytes]
    """Per batch: bit i % 8 of byte i // 8 is set for message i; empty: all of them."""
    attempts: list[tuple[int, int]]
    """(offset, earlier deliveries) of messages that were delivered before."""
    active: bool
    """Of exclusive and failover: whether this consumer is the one that gets messages."""
    throttled_ms: int = 0
    """As in Produced."""


class SettleMessages(Request, array_like=True):
    """Acknowledge messages, or give them back; answered by Settled once every in-sync replica knows.

    A batch's messages are named by their offsets. Errors: UNKNOWN_CONSUMER, NOT_LEADER,
    NOT_ENOUGH_REPLICAS, INVALID_ARGUMENT.
    """

    FRAME_BYTES: ClassVar[int] = 1024 * 1024

    topic: Name
    queue: int
    subscription: Name
    consumer: Name
    session: int
    acked: Annotated[list[Span], Meta(max_length=MAX_ACKED)]
    up_to: int = -1
    """Exclusive and failover: everything up to and with this offset is done; -1: nothing."""
    again: Annotated[list[tuple[int, int, int]], Meta(max_length=MAX_AGAIN)] = msgspec.field(
        default_factory=list
    )
    """(first offset, offset behind, milliseconds): to be delivered again so much later."""
    topic_id: int = 0


class Settled(WireMessage, array_like=True):
    """Done, but for what the consumer does not hold."""

    refused: list[Span]
    """Never delivered to it, or taken back meanwhile; of what was given back also what is
    acknowledged."""


class Detach(Request, array_like=True):
    """A consumer goes: what it holds is delivered to others; answered by Done."""

    topic: Name
    queue: int
    subscription: Name
    consumer: Name
    session: int
    topic_id: int = 0


class AlterSubscription(Request, array_like=True):
    """End a subscription, or set where it goes on; answered by Done once that is replicated.

    Consumers that are attached are cut off, and come again. Errors: UNKNOWN_SUBSCRIPTION,
    CONSUMER_BUSY (with consumers, unless `force`), NOT_LEADER, INVALID_ARGUMENT.
    """

    topic: Name
    queue: int
    subscription: Name
    change: Literal["end", "reset", "skip"]
    offset: int = 0
    """Of a reset: everything below is acknowledged, nothing else. Of a skip: everything below is
    acknowledged too."""
    force: bool = False
    topic_id: int = 0


class MakeRetryTopics(Request, array_like=True):
    """Create the topics of a subscription's retries and dead letters, if they are missing.

    To the leader of queue 0 of the topic; answered by Ok. Errors: NOT_LEADER, INVALID_NAME,
    QUOTA_EXCEEDED, TOO_FEW_BROKERS, BUSY, UNAVAILABLE.
    """

    topic: Name
    queue: int
    subscription: Name
    topic_id: int = 0


class DescribeSubscriptions(Request, array_like=True):
    """The subscriptions of a queue; to its leader. Answered by SubscriptionsDescribed."""

    topic: Name
    queue: int
    subscription: Name = ""
    """Only this one; "": all."""
    topic_id: int = 0


class ConsumerState(Struct, frozen=True, array_like=True):
    """One attached consumer."""

    name: str
    priority: int
    permits: int
    permit_bytes: int
    unacked: int
    active: bool
    silent_ms: int
    ranges: list[Span]
    """Of key_shared: its slots. Those of all consumers are cut after 1,000 ranges, the lowest first."""


class SubscriptionState(Struct, frozen=True, array_like=True):
    """One subscription of one queue."""

    name: str
    floor: int
    """All messages below are acknowledged."""
    spans: int
    """Spans of acknowledged messages above it."""
    unacked: int
    """Messages that are not acknowledged, delivered or not."""
    end: int
    """The high watermark."""
    kind: str
    """"" without consumers."""
    held: int
    """Messages that consumers hold."""
    waiting: int
    """Messages that were read and wait for a consumer."""
    consumers: list[ConsumerState]
    uncovered: list[Span]
    """Of key_shared: the first 100 ranges of slots of nobody."""
    draining: list[tuple[int, int]]
    """Of key_shared: (slot, messages that its old owner still holds), of the first 100 slots."""
    again: list[tuple[int, int]]
    """(offset, deliveries that came to nothing) of the first 100 messages that have any."""
    acked: list[Span]
    """The first 100 spans of acknowledged messages above the floor."""
    config: SubscriptionConfig | None = None
    """Its settings; None without consumers."""


class SubscriptionsDescribed(WireMessage, array_like=True):
    """Answer to DescribeSubscriptions, by name."""

    subscriptions: list[SubscriptionState]


SubscriptionMessage = (
    Subscribe
    | Subscribed
    | Receive
    | Delivered
    | SettleMessages
    | Settled
    | Detach
    | AlterSubscription
    | MakeRetryTopics
    | DescribeSubscriptions
    | SubscriptionsDescribed
)
