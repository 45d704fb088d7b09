"""The operators' flows for subscriptions: list, reset, skip, peek and delete.

See `logboom.client.flows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from logboom.client.calls import AskLeader, FindTopic
from logboom.client.fetch import message_flows
from logboom.client.flows import Flow, check_queues
from logboom.client.results import Message
from logboom.wire.base import WireMessage
from logboom.wire.errors import InvalidRequest, UnknownResource
from logboom.wire.filters import Filter
from logboom.wire.subscription_messages import (
    AlterSubscription,
    DescribeSubscriptions,
    SubscriptionsDescribed,
    SubscriptionState,
)
from logboom.wire.view import TopicView

Change: TypeAlias = Literal["end", "reset", "skip"]
PEEKED_AT_ONCE: Final = 1_000
"""Messages that one pull of a peek requests."""


class QueueSubscription(Struct, frozen=True):
    """The state of one subscription in one queue."""

    queue: int
    state: SubscriptionState


class SubscriptionReset(Struct, frozen=True):
    """The current and the new position of a subscription in one queue."""

    queue: int
    floor: int
    target: int
    first: int
    end: int


def subscriptions(topic: str, name: str, timeout: float) -> Flow[list[QueueSubscription]]:
    """Return all subscriptions of a topic (or the one with this name), by queue.

    Raises:
        UnknownResource: UNKNOWN_SUBSCRIPTION, it exists in no queue.
    """
    view: TopicView = yield FindTopic(topic, timeout)
    found: list[QueueSubscription] = []
    for queue in range(len(view.queues)):

        def message(left: int, queue: int = queue) -> WireMessage:
            return DescribeSubscriptions(0, left, topic, queue, "", view.id)

        answer, _ = yield AskLeader(topic, queue, message, timeout)
        if not isinstance(answer, SubscriptionsDescribed):
            raise message_flows.unexpected(answer)
        states = (state for state in answer.subscriptions if name in ("", state.name))
        found += (QueueSubscription(queue, state) for state in states)
    if name and not found:
        text = f"topic {topic!r} has no subscription {name!r}: subscribe to create it"
        raise UnknownResource(text, "UNKNOWN_SUBSCRIPTION")
    return found


def alter(
    topic: str, name: str, change: Change, offsets: Mapping[int, int], force: bool, timeout: float
) -> Flow[None]:
    """End or move a subscription in these queues."""
    for queue, offset in offsets.items():

        def message(left: int, queue: int = queue, offset: int = offset) -> WireMessage:
            return AlterSubscription(0, left, topic, queue, name, change, offset, force)

        yield AskLeader(topic, queue, message, timeout)


def delete(topic: str, name: str, force: bool, timeout: float) -> Flow[None]:
    """End a subscription in all queues that have it."""
    there = yield from subscriptions(topic, name, timeout)
    yield from alter(topic, name, "end", {each.queue: 0 for each in there}, force, timeout)


def reset(
    topic: str,
    name: str,
    to: Literal["first", "last"] | int,
    queues: Sequence[int] | None,
    dry_run: bool,
    force: bool,
    timeout: float,
) -> Flow[list[SubscriptionReset]]:
    """Move a subscription to the first message, the end, or a message time in ms."""
    there = yield from _there(topic, name, queues, timeout)
    plan: list[SubscriptionReset] = []
    for each in there:
        bounds = yield from message_flows.offsets(topic, [each.queue], timeout)
        first, end = bounds[each.queue]
        if to == "first":
            target = first
        elif to == "last":
            target = end
        else:
            target = yield from message_flows.offset_for_time(topic, each.queue, to, timeout)
        plan.append(SubscriptionReset(each.queue, each.state.floor, target, first, end))
    if not dry_run:
        targets = {line.queue: line.target for line in plan}
        yield from alter(topic, name, "reset", targets, force, timeout)
    return plan


def skip(
    topic: str,
    name: str,
    count: int,
    queues: Sequence[int] | None,
    dry_run: bool,
    force: bool,
    timeout: float,
) -> Flow[list[SubscriptionReset]]:
    """Acknowledge the next `count` messages of each queue, starting at the floor."""
    if count < 1:
        raise InvalidRequest(f"skip 1 or more messages, not {count}")
    there = yield from _there(topic, name, queues, timeout)
    plan: list[SubscriptionReset] = []
    for each in there:
        floor, end = each.state.floor, each.state.end
        plan.append(SubscriptionReset(each.queue, floor, min(floor + count, end), floor, end))
    if not dry_run:
        targets = {line.queue: line.target for line in plan}
        yield from alter(topic, name, "skip", targets, force, timeout)
    return plan


def peek(topic: str, name: str, queue: int, count: int, timeout: float) -> Flow[list[Message]]:
    """Return the first unacknowledged messages of a queue, without changing anything.

    Acknowledged spans above the floor are left out as far as the leader reports them.
    """
    if count < 1:
        raise InvalidRequest(f"peek at 1 or more messages, not {count}")
    there = yield from _there(topic, name, [queue], timeout)
    state = there[0].state
    found: list[Message] = []
    at = state.floor
    while at < state.end and len(found) < count:
        result = yield from message_flows.pull(
            topic, queue, at, PEEKED_AT_ONCE, 0, Filter(), timeout
        )
        found += (
            message
            for message in result.messages
            if not any(start <= message.offset < stop for start, stop in state.acked)
        )
        if result.next_offset <= at:
            break
        at = result.next_offset
    return found[:count]


def _there(
    topic: str, name: str, queues: Sequence[int] | None, timeout: float
) -> Flow[list[QueueSubscription]]:
    """Return a subscription in these queues, or in all that have it."""
    if not name:
        raise InvalidRequest("give the name of a subscription")
    there = yield from subscriptions(topic, name, timeout)
    if queues is None:
        return there
    view: TopicView = yield FindTopic(topic, timeout, queues=max(queues, default=0) + 1)
    check_queues(view, queues)
    found = [each for each in there if each.queue in queues]
    missing = set(queues) - {each.queue for each in found}
    if missing:
        text = f"subscription {name!r} has no cursor in queue {min(missing)} of {topic!r}"
        raise UnknownResource(f"{text}: it has not been consumed there yet", "UNKNOWN_SUBSCRIPTION")
    return found
