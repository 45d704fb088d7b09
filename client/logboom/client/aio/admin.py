"""Administration, awaited: each method is `logboom.client.admin.Admin`'s of the same name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from logboom.client import flows
from logboom.client.admin import read_offsets, wall_ms
from logboom.client.admin_flows import group_flows
from logboom.client.admin_flows.group_lag import GroupDescription, OffsetReset
from logboom.client.admin_flows.offset_resets import ResetRequest, Target, reset_offsets
from logboom.client.admin_flows.open_transactions import (
    DEFAULT_LIMIT,
    OpenTransactions,
    open_transactions,
)
from logboom.client.aio.admin_subscriptions import SubscriptionAdmin
from logboom.client.aio.bridge import drive
from logboom.client.delays import Parking
from logboom.client.fetch import message_flows
from logboom.client.flows import changed_config
from logboom.client.io_thread import IoThread
from logboom.client.results import Message, NodeStats
from logboom.client.transactions.half_messages import HalfOutcome, end_half
from logboom.wire.filters.filter import Filter
from logboom.wire.group_view import GroupSummary
from logboom.wire.view import BrokerView, NameServerView, TopicConfig, TopicView


class Admin:
    """Made by `Client.admin`. Reads are linearizable."""

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self.subscriptions = SubscriptionAdmin(io, timeout_s)
        """Subscriptions of topics."""

    async def create_topic(
        self, name: str, queues: int = 4, replicas: int = 0, **settings: Any
    ) -> None:
        """Create a topic."""
        config = changed_config(TopicConfig(), settings)
        flow = flows.create_topic(name, queues, replicas, config, wall_ms(), self._timeout_s)
        await drive(self._io, flow)

    async def alter_topic(self, name: str, queues: int | None = None, **settings: Any) -> None:
        """Change settings of a topic, or give it more queues."""
        flow = flows.alter_topic(name, queues, settings, wall_ms(), self._timeout_s)
        await drive(self._io, flow)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""
        await drive(self._io, flows.delete_topic(name, wall_ms(), self._timeout_s))

    async def topics(self) -> list[TopicView]:
        """All topics by name."""
        return await drive(self._io, flows.topics(self._timeout_s))

    async def describe_topic(self, name: str) -> TopicView:
        """One topic."""
        return await drive(self._io, flows.describe_topic(name, self._timeout_s))

    async def offsets(
        self,
        topic: str,
        queues: Sequence[int] | None = None,
        *,
        read_compacted: bool = False,
    ) -> dict[int, tuple[int, int]]:
        """(first offset, high watermark) by queue."""
        flow = message_flows.offsets(topic, queues, self._timeout_s, compacted=read_compacted)
        return await drive(self._io, flow)

    async def horizons(self, topic: str) -> dict[int, int]:
        """Up to where each queue of a compacted topic is compacted; empty of any other topic."""
        return await drive(self._io, message_flows.horizons(topic, self._timeout_s))

    async def offset_for_time(
        self,
        topic: str,
        queue: int,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Offset of the first message at or after a message time, or of the last by then."""
        find = (
            message_flows.last_offset_by if boundary == "upper" else message_flows.offset_for_time
        )
        return await drive(self._io, find(topic, queue, timestamp_ms, self._timeout_s))

    async def get_message(self, topic: str, queue: int, offset: int) -> Message:
        """The message at an offset."""
        return await drive(
            self._io, message_flows.get_message(topic, queue, offset, self._timeout_s)
        )

    async def find_messages(
        self, topic: str, key: bytes, queue: int | None = None, limit: int = 100
    ) -> list[Message]:
        """Messages with a key, newest first in each queue."""
        flow = message_flows.find_messages(topic, key, queue, limit, self._timeout_s)
        return await drive(self._io, flow)

    async def elect_leader(self, topic: str, queue: int, prefer: str | None = None) -> None:
        """Move a queue's leadership to an in-sync replica."""
        flow = flows.elect_leader(topic, queue, prefer, wall_ms(), self._timeout_s)
        await drive(self._io, flow)

    async def brokers(self) -> list[BrokerView]:
        """All brokers by id."""
        return await drive(self._io, flows.brokers(self._timeout_s))

    async def remove_broker(self, broker: str) -> None:
        """Forget a broker that is gone for good and holds no replica."""
        await drive(self._io, flows.remove_broker(broker, self._timeout_s))

    async def name_servers(self) -> list[NameServerView]:
        """All name servers by id."""
        return await drive(self._io, flows.name_servers(self._timeout_s))

    async def raft_leader(self) -> str | None:
        """Id of the name servers' leader."""
        return await drive(self._io, flows.raft_leader(self._timeout_s))

    async def add_name_server(self, name: str, endpoint: str, raft_endpoint: str) -> None:
        """Add an empty name server."""
        flow = flows.add_name_server(name, endpoint, raft_endpoint, self._timeout_s)
        await drive(self._io, flow)

    async def remove_name_server(self, name: str) -> None:
        """Remove a name server from the group."""
        await drive(self._io, flows.remove_name_server(name, self._timeout_s))

    async def groups(self) -> list[GroupSummary]:
        """All consumer groups by name."""
        return await drive(self._io, group_flows.groups(self._timeout_s))

    async def describe_group(self, name: str) -> GroupDescription:
        """One group with the lag of each queue."""
        flow = group_flows.describe_group(name, wall_ms(), self._timeout_s)
        return await drive(self._io, flow)

    async def committed(self, group: str, topic: str) -> dict[int, int | None]:
        """How far a group is in a topic, by queue."""
        return await drive(self._io, group_flows.committed(group, topic, self._timeout_s))

    async def alter_group(
        self,
        name: str,
        *,
        subscription: Mapping[str, str | Filter] | None = None,
        create: bool = False,
        **settings: Any,
    ) -> None:
        """Change settings of a group or its subscription."""
        flow = group_flows.alter_group(
            name, subscription, settings, wall_ms(), self._timeout_s, create=create
        )
        await drive(self._io, flow)

    async def delete_group(self, name: str, *, dead_letters: bool = False) -> None:
        """Forget a group that has no members, with its retries, and its dead letters if asked."""
        flow = group_flows.delete_group(name, wall_ms(), self._timeout_s, dead_letters=dead_letters)
        await drive(self._io, flow)

    async def reset_offsets(
        self,
        group: str,
        to: Target | None = None,
        *,
        shift: int | None = None,
        from_group: str | None = None,
        file: Path | str | None = None,
        topic: str | None = None,
        queues: Sequence[int] | None = None,
        dry_run: bool = True,
    ) -> list[OffsetReset]:
        """Move committed offsets, or only plan it."""
        listed = None if file is None else await asyncio.to_thread(read_offsets, file)
        asked = ResetRequest(group, to, shift, from_group, listed, topic, queues)
        flow = reset_offsets(asked, wall_ms(), self._timeout_s, dry_run=dry_run)
        return await drive(self._io, flow)

    async def transactions(
        self, app_id: str = "", *, most: int = DEFAULT_LIMIT
    ) -> OpenTransactions:
        """Transactions and half messages that nobody has decided."""
        return await drive(self._io, open_transactions(app_id, self._timeout_s, most))

    async def end_half(self, half: Parking, *, commit: bool) -> HalfOutcome:
        """Decide on a half message; tells what became of it."""
        return await drive(self._io, end_half(half, commit=commit, timeout=self._timeout_s))

    async def stats(self) -> list[NodeStats]:
        """Counters of every node."""
        return await drive(self._io, flows.stats(self._timeout_s))
