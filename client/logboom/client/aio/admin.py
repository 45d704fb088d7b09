"""Administration of a cluster: topics, brokers, groups, offsets and single messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from logboom.client import flows
from logboom.client.admin_flows import group_flows
from logboom.client.admin_flows.group_lag import GroupDescription
from logboom.client.admin_flows.offset_resets import (
    OffsetReset,
    ResetRequest,
    Target,
    parse_offsets,
    reset_offsets,
)
from logboom.client.admin_flows.open_transactions import (
    DEFAULT_LIMIT,
    OpenTransactions,
    open_transactions,
)
from logboom.client.aio.admin_subscriptions import SubscriptionAdmin
from logboom.client.aio.bridge import drive, run_in_thread
from logboom.client.delays import Parking
from logboom.client.fetch import message_flows
from logboom.client.fetch.fetch_collector import TopicQueue
from logboom.client.flows import Flow, changed_config
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.results import Message, NodeStats
from logboom.client.transactions.half_messages import HalfOutcome, end_half
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters import Filter
from logboom.wire.group_view import GroupSummary
from logboom.wire.view import BrokerView, NameServerView, TopicConfig, TopicView

T = TypeVar("T")


class Admin:
    """The administration of a cluster; it is the attribute `admin` of a client.

    Every method waits up to the client's time-out. Reads are linearizable: they show every change
    that was acknowledged before, whoever made it.
    """

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self.subscriptions = SubscriptionAdmin(io, timeout_s)
        """The subscriptions of topics."""

    async def _run(self, flow: Flow[T]) -> T:
        return await drive(self._io, flow)

    async def create_topic(
        self, name: str, queues: int = 4, replicas: int = 0, **settings: Any
    ) -> None:
        """Create a topic.

        Args:
            name: 1 to 127 of A-Z a-z 0-9 . _ % | -
            replicas: copies of each queue; 0 means min(3, hosts of live brokers).
            settings: min_in_sync, retention_ms, retention_bytes, max_message_bytes,
                unclean_election, compaction, as described in `TopicConfig`.

        Raises:
            AlreadyExists: a topic of this name exists.
            InvalidRequest: INVALID_NAME or INVALID_ARGUMENT; the text states the rule.
            Refused: TOO_FEW_BROKERS: fewer live brokers, or hosts of such, than replicas.
        """
        config = changed_config(TopicConfig(), settings)
        await self._run(
            flows.create_topic(name, queues, replicas, config, wall_ms(), self._timeout_s)
        )

    async def alter_topic(self, name: str, queues: int | None = None, **settings: Any) -> None:
        """Change settings of a topic, or give it more queues. Settings that are not named stay."""
        await self._run(flows.alter_topic(name, queues, settings, wall_ms(), self._timeout_s))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""
        await self._run(flows.delete_topic(name, wall_ms(), self._timeout_s))

    async def topics(self) -> list[TopicView]:
        """Return all topics, sorted by name."""
        return await self._run(flows.topics(self._timeout_s))

    async def describe_topic(self, name: str) -> TopicView:
        """Return one topic: its settings, and the replicas and the leader of each queue.

        Raises:
            UnknownResource: UNKNOWN_TOPIC: there is no such topic.
        """
        return await self._run(flows.describe_topic(name, self._timeout_s))

    async def offsets(
        self,
        topic: str,
        queues: Sequence[int] | None = None,
        *,
        read_compacted: bool = False,
    ) -> dict[int, tuple[int, int]]:
        """Return (first offset, high watermark) by queue.

        Args:
            queues: the queues to ask for; None: all.
            read_compacted: return the offsets that a reader with `read_compacted` sees. A compacted
                topic then begins at 0, because compaction keeps messages that retention has removed
                from the log.
        """
        flow = message_flows.offsets(topic, queues, self._timeout_s, compacted=read_compacted)
        return await self._run(flow)

    async def horizons(self, topic: str) -> dict[int, int]:
        """Return the offset up to which each queue of a compacted topic is compacted. The result is
        empty for any other topic."""
        return await self._run(message_flows.horizons(topic, self._timeout_s))

    async def offset_for_time(
        self,
        topic: str,
        queue: int,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return the offset of the first message at or after a message time, or the high watermark
        if there is none.

        With boundary="upper", return the offset of the last message at or before the time, or 0 if
        all are later.
        """
        find = (
            message_flows.last_offset_by if boundary == "upper" else message_flows.offset_for_time
        )
        return await self._run(find(topic, queue, timestamp_ms, self._timeout_s))

    async def get_message(self, topic: str, queue: int, offset: int) -> Message:
        """Return the message at an offset.

        Raises:
            OffsetOutOfRange: there is none; the fields hold the offsets that exist.
        """
        return await self._run(message_flows.get_message(topic, queue, offset, self._timeout_s))

    async def find_messages(
        self, topic: str, key: bytes, queue: int | None = None, limit: int = 100
    ) -> list[Message]:
        """Find the messages with a key, newest first in each queue."""
        return await self._run(
            message_flows.find_messages(topic, key, queue, limit, self._timeout_s)
        )

    async def elect_leader(self, topic: str, queue: int, prefer: str | None = None) -> None:
        """Move the leadership of a queue to an in-sync replica. Without `prefer` it goes to the
        first one in placement order."""
        await self._run(flows.elect_leader(topic, queue, prefer, wall_ms(), self._timeout_s))

    async def brokers(self) -> list[BrokerView]:
        """Return all brokers, sorted by id."""
        return await self._run(flows.brokers(self._timeout_s))

    async def remove_broker(self, broker: str) -> None:
        """Remove a broker that will not return and holds no replica."""
        await self._run(flows.remove_broker(broker, self._timeout_s))

    async def name_servers(self) -> list[NameServerView]:
        """Return all name servers, sorted by id."""
        return await self._run(flows.name_servers(self._timeout_s))

    async def raft_leader(self) -> str | None:
        """Return the id of the leader of the name servers, or None if they have none."""
        return await self._run(flows.raft_leader(self._timeout_s))

    async def add_name_server(self, name: str, endpoint: str, raft_endpoint: str) -> None:
        """Add an empty name server under an id that was never used before."""
        await self._run(flows.add_name_server(name, endpoint, raft_endpoint, self._timeout_s))

    async def remove_name_server(self, name: str) -> None:
        """Remove a name server from the group."""
        await self._run(flows.remove_name_server(name, self._timeout_s))

    async def groups(self) -> list[GroupSummary]:
        """Return all consumer groups, sorted by name."""
        return await self._run(group_flows.groups(self._timeout_s))

    async def describe_group(self, name: str) -> GroupDescription:
        """Return one group: its members and, for each queue, the committed offset, the lag and the
        reason if it makes no progress.

        Raises:
            UnknownResource: UNKNOWN_GROUP: there is no such group.
        """
        return await self._run(group_flows.describe_group(name, wall_ms(), self._timeout_s))

    async def committed(self, group: str, topic: str) -> dict[int, int | None]:
        """Return the committed offsets of a group in a topic, by queue, even if the group no longer
        subscribes to it.

        The offset is None while the start of a queue is not known yet. The result is empty if the
        group never subscribed to the topic.

        Raises:
            UnknownResource: UNKNOWN_GROUP: there is no such group.
        """
        return await self._run(group_flows.committed(group, topic, self._timeout_s))

    async def alter_group(
        self,
        name: str,
        *,
        subscription: Mapping[str, str | Filter] | None = None,
        create: bool = False,
        **settings: Any,
    ) -> None:
        """Change settings of a group or its subscription. Settings that are not named stay.

        Args:
            subscription: topic → filter text. Members with another subscription adopt it one by
                one.
            create: create the group if it does not exist.
            settings: session_ms, heartbeat_ms, strategy …, as described in `GroupConfig`. `options`
                may be a mapping of the `StrategyOptions` to change.

        Raises:
            UnknownResource: UNKNOWN_GROUP: there is no such group.
            InvalidFilter: a filter cannot be parsed; `pointer()` shows where.
            InvalidRequest: there is no such setting, or its value is invalid.
        """
        flow = group_flows.alter_group(
            name, subscription, settings, wall_ms(), self._timeout_s, create=create
        )
        await self._run(flow)

    async def delete_group(self, name: str, *, dead_letters: bool = False) -> None:
        """Delete a group that has no members, with its offsets and its retries.

        Its dead letters stay readable in the topic `%DLQ%group`, which `delete_topic` deletes.

        Args:
            dead_letters: delete the dead letters too.

        Raises:
            UnknownResource: UNKNOWN_GROUP: there is no such group.
            GroupError: GROUP_NOT_EMPTY: the group has members.
        """
        flow = group_flows.delete_group(name, wall_ms(), self._timeout_s, dead_letters=dead_letters)
        await self._run(flow)

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
        """Move the committed offsets of a group forward or back, whether its members run or not.

        Give exactly one of `to`, `shift`, `from_group` and `file`. By default only the plan is
        returned. The group's retries stay as they are, unless `topic` or the file names them.

        Args:
            to: "first", "last", a message time (ms since 1970 UTC, or a datetime with its zone), or
                offsets by (topic, queue).
            shift: number of messages to move forward, or back if negative.
            from_group: a group whose committed offsets are taken over.
            file: a file with offsets, as `logboom group describe -o json` prints them.
            topic: reset only this topic; the group need not have subscribed to it yet.
            queues: reset only these queues of the topic.
            dry_run: return the plan without carrying it out.

        Raises:
            UnknownResource: there is no such group, topic or queue.
            InvalidRequest: not exactly one target was given, or an offset does not exist.
        """
        listed = None if file is None else await run_in_thread(_read_offsets, file)
        asked = ResetRequest(group, to, shift, from_group, listed, topic, queues)
        return await self._run(reset_offsets(asked, wall_ms(), self._timeout_s, dry_run=dry_run))

    async def transactions(
        self, app_id: str = "", *, most: int = DEFAULT_LIMIT
    ) -> OpenTransactions:
        """List the transactions and half messages that are not decided, the oldest first.

        `Client.decide` takes the `handles()` of a transaction, `end_half` the `half` of a half
        message.

        Args:
            app_id: list only those of this application id; "": of all.
            most: stop after this many batches; `more` of the result is then true.
        """
        return await self._run(open_transactions(app_id, self._timeout_s, most))

    async def end_half(self, half: Parking, *, commit: bool) -> HalfOutcome:
        """Decide a half message, and return the outcome. The first decision counts.

        Raises:
            TransactionError: UNKNOWN_HANDLES: no half message is parked there.
        """
        return await self._run(end_half(half, commit=commit, timeout=self._timeout_s))

    async def stats(self) -> list[NodeStats]:
        """Return the counters of every node, and the reason for each that does not answer."""
        return await self._run(flows.stats(self._timeout_s))


def _read_offsets(path: Path | str) -> dict[TopicQueue, int]:
    """Read offsets from a file.

    Raises:
        InvalidRequest: the file cannot be read, or holds no offsets.
    """
    try:
        return parse_offsets(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}") from None
