"""Administration of subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from logboom.client.admin_flows import subscription_flows
from logboom.client.admin_flows.subscription_flows import QueueSubscription, SubscriptionReset
from logboom.client.aio.bridge import drive
from logboom.client.flows import Flow
from logboom.client.io_thread import IoThread
from logboom.client.results import Message

T = TypeVar("T")


class SubscriptionAdmin:
    """The administration of subscriptions; it is `boom.admin.subscriptions`."""

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s

    async def _run(self, flow: Flow[T]) -> T:
        return await drive(self._io, flow)

    async def all(self, topic: str) -> list[QueueSubscription]:
        """Return all subscriptions of a topic, one entry for each queue."""
        return await self._run(subscription_flows.subscriptions(topic, "", self._timeout_s))

    async def describe(self, topic: str, name: str) -> list[QueueSubscription]:
        """Return one subscription, one entry for each queue: its position and its consumers.

        Raises:
            UnknownResource: UNKNOWN_SUBSCRIPTION: there is no such subscription.
        """
        return await self._run(subscription_flows.subscriptions(topic, name, self._timeout_s))

    async def reset(
        self,
        topic: str,
        name: str,
        to: Literal["first", "last"] | int,
        *,
        queues: Sequence[int] | None = None,
        dry_run: bool = True,
        force: bool = False,
    ) -> list[SubscriptionReset]:
        """Move a subscription to the first message, the end, or a message time in ms (the end of a
        queue that has no message at or after it). Exactly the messages below count as acknowledged
        afterwards.

        Args:
            dry_run: return the plan without carrying it out.
            force: disconnect the consumers; they attach again automatically.

        Raises:
            Refused: CONSUMER_BUSY: the subscription has consumers, and `force` is not given.
        """
        flow = subscription_flows.reset(topic, name, to, queues, dry_run, force, self._timeout_s)
        return await self._run(flow)

    async def skip(
        self,
        topic: str,
        name: str,
        count: int,
        *,
        queues: Sequence[int] | None = None,
        dry_run: bool = True,
        force: bool = False,
    ) -> list[SubscriptionReset]:
        """Acknowledge the next `count` messages of each queue. `dry_run`, `force` and the errors
        are those of `reset`."""
        flow = subscription_flows.skip(topic, name, count, queues, dry_run, force, self._timeout_s)
        return await self._run(flow)

    async def peek(self, topic: str, name: str, queue: int, count: int = 10) -> list[Message]:
        """Return the first messages of a queue that are not acknowledged, without changing
        anything."""
        return await self._run(subscription_flows.peek(topic, name, queue, count, self._timeout_s))

    async def delete(self, topic: str, name: str, *, force: bool = False) -> None:
        """Delete a subscription with everything that it has acknowledged.

        Raises:
            Refused: CONSUMER_BUSY: the subscription has consumers, and `force` is not given.
        """
        await self._run(subscription_flows.delete(topic, name, force, self._timeout_s))
