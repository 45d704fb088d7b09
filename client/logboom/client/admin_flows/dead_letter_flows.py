"""Dead letters of groups and subscriptions: flows that list and read them, and plans to resend them.

The **owner** of dead letters is a group, or a subscription, which is named topic%subscription here.
How far they were sent again is the group's own offset in its dead-letter topic, so that nobody
sends them twice by mistake. For a subscription it is a subscription of that topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from logboom.client.admin_flows import group_flows, subscription_flows
from logboom.client.admin_flows.offset_resets import ResetRequest, reset_offsets
from logboom.client.calls import AskLeader
from logboom.client.fetch.copy_signing import sign_copies
from logboom.client.fetch.message_flows import EVERYTHING, get_message, offsets, pull
from logboom.client.fetch.retry_copies import attempt_of, cause_of
from logboom.client.flows import Flow
from logboom.client.results import Message
from logboom.wire.base import WireMessage
from logboom.wire.copy_receipts import ATTEMPT_HEADER, ORIGIN, RECEIPT
from logboom.wire.errors import InvalidRequest, UnknownResource
from logboom.wire.names import DLQ_PREFIX
from logboom.wire.subscription_messages import Detach, Subscribe, SubscriptionConfig

AT_ONCE: Final = 1_000
"""Messages per read, and per resend."""
REDRIVE: Final = "redrive"
"""The subscription that acknowledges those dead letters of a subscription that were sent again."""

QueueOffset: TypeAlias = tuple[int, int]
"""(queue, offset) in a dead-letter topic."""


class DeadLetter(Struct, frozen=True, gc=False):
    """A message that was given up."""

    message: Message
    """The copy in the dead-letter topic."""
    origin: str
    """topic/queue/offset of the original; "": whoever wrote the copy did not say."""
    attempts: int | None
    """Deliveries that came to nothing; None: not said."""
    cause: str
    """Why the last one failed, in one line; "": not said."""


class DeadLetterQueue(Struct, frozen=True, gc=False):
    """One queue of a dead-letter topic."""

    queue: int
    first: int
    begun: int
    """Offset of the first dead letter that was not sent again."""
    end: int


class DeadLetterSummary(Struct, frozen=True, gc=False):
    """The dead letters of one owner."""

    owner: str
    queues: list[DeadLetterQueue]
    oldest_ms: int | None
    """Message time of the first one that was not sent again; None: there is none."""

    @property
    def messages(self) -> int:
        """All that are stored, also those that were sent again."""
        return sum(each.end - each.first for each in self.queues)

    @property
    def open(self) -> int:
        """Those that were not sent again."""
        return sum(each.end - each.begun for each in self.queues)


def owners_of(topics: Iterable[str]) -> list[str]:
    """Return the owners of the dead-letter topics among these, sorted."""
    return sorted(name.removeprefix(DLQ_PREFIX) for name in topics if name.startswith(DLQ_PREFIX))


def is_subscription(owner: str) -> bool:
    """Return True for a subscription, False for a group."""
    return "%" in owner


def dead_letter(message: Message) -> DeadLetter:
    """Return a dead letter with what its headers say."""
    origin = (message.headers or {}).get(ORIGIN, b"").decode("utf-8", "replace")
    return DeadLetter(message, origin, attempt_of(message), cause_of(message))


def redriven_headers(message: Message, receipt: bytes = b"") -> dict[str, bytes]:
    """Return the headers with which a dead letter is sent again, as a first delivery."""
    headers = {**(message.headers or {}), ATTEMPT_HEADER: b"1"}
    headers.pop(RECEIPT, None)
    return {**headers, RECEIPT: receipt} if receipt else headers


def receipts(
    owner: str, letters: Sequence[DeadLetter], timeout: float
) -> Flow[dict[QueueOffset, bytes]]:
    """Return the receipts with which brokers take dead letters of this user again.

    Raises:
        Forbidden: the user may not manage the group or subscription.
    """
    found: dict[QueueOffset, bytes] = {}
    topic = DLQ_PREFIX + owner
    for queue in dict.fromkeys(letter.message.queue for letter in letters):
        offsets = [each.message.offset for each in letters if each.message.queue == queue]
        signed = yield from sign_copies(owner, topic, queue, offsets, timeout, kept=True)
        found.update(((queue, o), r) for o, r in zip(offsets, signed or (), strict=False))
    return found


def dead_queues(
    owner: str, queues: Sequence[int] | None, timeout: float, *, again: bool = False
) -> Flow[list[DeadLetterQueue]]:
    """Return the offsets of the dead letters of an owner, in these queues or in all.

    With `again` none of them count as sent.

    Raises:
        UnknownResource: it has no dead-letter topic.
    """
    bounds = yield from offsets(DLQ_PREFIX + owner, queues, timeout)
    begun: Mapping[int, int] = {}
    if not again:
        begun = yield from _begun(owner, timeout)
    return [
        DeadLetterQueue(queue, first, min(max(first, begun.get(queue, 0)), end), end)
        for queue, (first, end) in sorted(bounds.items())
    ]


def summary(owner: str, timeout: float) -> Flow[DeadLetterSummary]:
    """Return how many dead letters an owner has, and how old they are."""
    queues = yield from dead_queues(owner, None, timeout)
    found = yield from read(owner, queues, 1, timeout)
    return DeadLetterSummary(owner, queues, found[0].message.timestamp_ms if found else None)


def get(owner: str, queue: int, offset: int, timeout: float) -> Flow[DeadLetter]:
    """Return one dead letter.

    Raises:
        OffsetOutOfRange: there is none.
    """
    message = yield from get_message(DLQ_PREFIX + owner, queue, offset, timeout)
    return dead_letter(message)


def read(
    owner: str, queues: Sequence[DeadLetterQueue], most: int, timeout: float
) -> Flow[list[DeadLetter]]:
    """Return up to `most` dead letters from where each of the queues begins."""
    found: list[DeadLetter] = []
    for each in queues:
        at = each.begun
        while at < each.end and len(found) < most:
            wanted = min(AT_ONCE, most - len(found))
            result = yield from pull(
                DLQ_PREFIX + owner, each.queue, at, wanted, 0, EVERYTHING, timeout
            )
            some = [message for message in result.messages if message.offset < each.end]
            found += map(dead_letter, some)
            if result.next_offset <= at:
                break
            at = result.next_offset
    return found


def check_chosen(
    chosen: Collection[QueueOffset], queues: Sequence[int] | None, count: int | None
) -> None:
    """Check which dead letters somebody names one by one.

    Raises:
        InvalidRequest: queues or a count are named as well.
    """
    if chosen and (queues is not None or count is not None):
        raise InvalidRequest("name dead letters one by one, or queues and a count, not both")


def now_begun(queue: DeadLetterQueue, sent: Collection[int]) -> int:
    """Return up to where all dead letters of a queue were sent again, once these offsets are.

    One that was chosen behind others stays open, because the owner keeps one offset a queue.
    """
    at = queue.begun
    while at < queue.end and at in sent:
        at += 1
    return at


def remember(owner: str, queue: int, at: int, wall_ms: int, timeout: float) -> Flow[None]:
    """Record that all dead letters of a queue below `at` were sent again.

    Raises:
        UnknownResource: the group was deleted.
    """
    topic = DLQ_PREFIX + owner
    if not is_subscription(owner):
        request = ResetRequest(owner, {(topic, queue): at})
        yield from reset_offsets(request, wall_ms, timeout, dry_run=False)
        return
    begun = yield from committed(owner, timeout)
    if queue not in begun:
        yield from _begin(topic, queue, wall_ms, timeout)
        begun = yield from committed(owner, timeout)
    if at > begun[queue]:
        count = at - begun[queue]
        yield from subscription_flows.skip(topic, REDRIVE, count, [queue], False, True, timeout)


def _begin(topic: str, queue: int, wall_ms: int, timeout: float) -> Flow[None]:
    """Create the subscription that records what was sent again, at the first message."""
    who = (topic, queue, REDRIVE, REDRIVE, wall_ms)

    def attach(left: int) -> WireMessage:
        return Subscribe(0, left, *who, SubscriptionConfig(), 0, None, "first")

    def detach(left: int) -> WireMessage:
        return Detach(0, left, *who)

    yield AskLeader(topic, queue, attach, timeout)
    yield AskLeader(topic, queue, detach, timeout)


def _begun(owner: str, timeout: float) -> Flow[dict[int, int]]:
    """Return by queue up to where dead letters were sent again."""
    try:
        found = yield from committed(owner, timeout)
    except UnknownResource:
        return {}  # the group was deleted, but not its dead letters
    return found


def committed(owner: str, timeout: float) -> Flow[dict[int, int]]:
    """Return the same for an owner that exists.

    Raises:
        UnknownResource: the group was deleted.
    """
    topic = DLQ_PREFIX + owner
    if not is_subscription(owner):
        offsets_of = yield from group_flows.committed(owner, topic, timeout)
        return {queue: offset for queue, offset in offsets_of.items() if offset is not None}
    found = yield from subscription_flows.subscriptions(topic, "", timeout)
    return {each.queue: each.state.floor for each in found if each.state.name == REDRIVE}
