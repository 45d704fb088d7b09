# Generated from aio/admin_subscriptions.py by client/generate_blocking.py: do not edit, run `make generate`.
"""Administration of subscriptions: `boom.admin.subscriptions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from logboom.client.admin_flows import subscription_flows
from logboom.client.admin_flows.subscription_flows import QueueSubscription, SubscriptionReset
from logboom.client.bridge import drive
from logboom.client.flows import Flow
from logboom.client.io_thread import IoThread
from logboom.client.results import Message

T = TypeVar("T")


class SubscriptionAdmin:
    """Subscriptions of topics: looked at, moved, ended."""

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s

    def _run(self, flow: Flow[T]) -> T:
        return drive(self._io, flow)

    def all(self, topic: str) -> list[QueueSubscription]:
        """All subscriptions of a topic, queue by queue."""
        return self._run(subscription_flows.subscriptions(topic, "", self._timeout_s))

    def describe(self, topic: str, name: str) -> list[QueueSubscription]:
        """One subscription, queue by queue: how far it is, and its consumers.

        Raises:
            UnknownResource: UNKNOWN_SUBSCRIPTION.
        """
        return self._run(subscription_flows.subscriptions(topic, name, self._timeout_s))

    def reset(
        self,
        topic: str,
        name: str,
        to: Literal["first", "last"] | int,
        *,
        queues: Sequence[int] | None = None,
        dry_run: bool = True,
        force: bool = False,
    ) -> list[SubscriptionReset]:
        """Let a subscription go on from the first message, the end, or a message time in ms: what
        lies below counts as acknowledged, and nothing else. Only the plan, unless `dry_run` is False.

        Raises:
            Refused: CONSUMER_BUSY: it has consumers; with `force` they are cut off, and come again.
        """
        flow = subscription_flows.reset(topic, name, to, queues, dry_run, force, self._timeout_s)
        return self._run(flow)

    def skip(
        self,
        topic: str,
        name: str,
        count: int,
        *,
        queues: Sequence[int] | None = None,
        dry_run: bool = True,
        force: bool = False,
    ) -> list[SubscriptionReset]:
        """Acknowledge the next `count` messages of each queue. Only the plan, unless `dry_run` is
        False; errors as of `reset`."""
        flow = subscription_flows.skip(topic, name, count, queues, dry_run, force, self._timeout_s)
        return self._run(flow)

    def peek(self, topic: str, name: str, queue: int, count: int = 10) -> list[Message]:
        """The first messages of a queue that are not acknowledged; nothing changes by it."""
        return self._run(subscription_flows.peek(topic, name, queue, count, self._timeout_s))

    def delete(self, topic: str, name: str, *, force: bool = False) -> None:
        """Forget a subscription with all that it acknowledged.

        Raises:
            Refused: CONSUMER_BUSY: it has consumers, and not `force`.
        """
        self._run(subscription_flows.delete(topic, name, force, self._timeout_s))
