# Generated from aio/admin.py by client/generate_blocking.py: do not edit, run `make generate`.
"""Administration: topics, brokers, groups, offsets, single messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from logboom.client import flows
from logboom.client.admin_flows import group_flows
from logboom.client.admin_flows.group_lag import GroupDescription, OffsetReset, TopicQueue
from logboom.client.admin_flows.offset_resets import (
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
from logboom.client.admin_subscriptions import SubscriptionAdmin
from logboom.client.bridge import drive, run_in_thread
from logboom.client.delays import Parking
from logboom.client.fetch import message_flows
from logboom.client.flows import Flow, changed_config
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.results import Message, NodeStats
from logboom.client.transactions.half_messages import HalfOutcome, end_half
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters.filter import Filter
from logboom.wire.group_view import GroupSummary
from logboom.wire.view import BrokerView, NameServerView, TopicConfig, TopicView

T = TypeVar("T")


class Admin:
    """Made by `Client.admin`. Every method waits up to the client's time-out.

    Reads are linearizable: they show all that was done before, by anybody.
    """

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self.subscriptions = SubscriptionAdmin(io, timeout_s)
        """Subscriptions of topics."""

    def _run(self, flow: Flow[T]) -> T:
        return drive(self._io, flow)

    def create_topic(self, name: str, queues: int = 4, replicas: int = 0, **settings: Any) -> None:
        """Create a topic.

        Args:
            name: 1 to 127 of A-Z a-z 0-9 . _ % | -
            replicas: copies of each queue; 0 means min(3, live brokers).
            settings: min_in_sync, retention_ms, retention_bytes, max_message_bytes,
                unclean_election, compaction, as `TopicConfig` says.

        Raises:
            AlreadyExists: there is one of this name.
            InvalidRequest: INVALID_NAME or INVALID_ARGUMENT, with the rule.
            Refused: TOO_FEW_BROKERS.
        """
        config = changed_config(TopicConfig(), settings)
        self._run(flows.create_topic(name, queues, replicas, config, wall_ms(), self._timeout_s))

    def alter_topic(self, name: str, queues: int | None = None, **settings: Any) -> None:
        """Change settings of a topic, or give it more queues; what is not named stays."""
        self._run(flows.alter_topic(name, queues, settings, wall_ms(), self._timeout_s))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""
        self._run(flows.delete_topic(name, wall_ms(), self._timeout_s))

    def topics(self) -> list[TopicView]:
        """All topics by name."""
        return self._run(flows.topics(self._timeout_s))

    def describe_topic(self, name: str) -> TopicView:
        """One topic: its settings, and the replicas and leader of each queue.

        Raises:
            UnknownResource: UNKNOWN_TOPIC.
        """
        return self._run(flows.describe_topic(name, self._timeout_s))

    def offsets(
        self,
        topic: str,
        queues: Sequence[int] | None = None,
        *,
        read_compacted: bool = False,
    ) -> dict[int, tuple[int, int]]:
        """(first offset, high watermark) by queue; `queues` None: all.

        With `read_compacted` as a reader of compacted messages sees them: a compacted topic begins at
        0, since what compaction keeps outlives the log.
        """
        flow = message_flows.offsets(topic, queues, self._timeout_s, compacted=read_compacted)
        return self._run(flow)

    def horizons(self, topic: str) -> dict[int, int]:
        """Up to where each queue of a compacted topic is compacted; empty of any other topic."""
        return self._run(message_flows.horizons(topic, self._timeout_s))

    def offset_for_time(
        self,
        topic: str,
        queue: int,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Offset of the first message at or after a message time; the high watermark if none.

        With boundary="upper" of the last one at or before it; 0 if all are later.
        """
        find = (
            message_flows.last_offset_by if boundary == "upper" else message_flows.offset_for_time
        )
        return self._run(find(topic, queue, timestamp_ms, self._timeout_s))

    def get_message(self, topic: str, queue: int, offset: int) -> Message:
        """The message at an offset.

        Raises:
            OffsetOutOfRange: there is none, with the offsets that exist.
        """
        return self._run(message_flows.get_message(topic, queue, offset, self._timeout_s))

    def find_messages(
        self, topic: str, key: bytes, queue: int | None = None, limit: int = 100
    ) -> list[Message]:
        """Messages with a key, newest first in each queue."""
        return self._run(message_flows.find_messages(topic, key, queue, limit, self._timeout_s))

    def elect_leader(self, topic: str, queue: int, prefer: str | None = None) -> None:
        """Move a queue's leadership to an in-sync replica; None: the first in placement order."""
        self._run(flows.elect_leader(topic, queue, prefer, wall_ms(), self._timeout_s))

    def brokers(self) -> list[BrokerView]:
        """All brokers by id."""
        return self._run(flows.brokers(self._timeout_s))

    def remove_broker(self, broker: str) -> None:
        """Forget a broker that is gone for good and holds no replica."""
        self._run(flows.remove_broker(broker, self._timeout_s))

    def name_servers(self) -> list[NameServerView]:
        """All name servers by id."""
        return self._run(flows.name_servers(self._timeout_s))

    def raft_leader(self) -> str | None:
        """Id of the name servers' leader."""
        return self._run(flows.raft_leader(self._timeout_s))

    def add_name_server(self, name: str, endpoint: str, raft_endpoint: str) -> None:
        """Add an empty name server, under an id that was never used."""
        self._run(flows.add_name_server(name, endpoint, raft_endpoint, self._timeout_s))

    def remove_name_server(self, name: str) -> None:
        """Remove a name server from the group."""
        self._run(flows.remove_name_server(name, self._timeout_s))

    def groups(self) -> list[GroupSummary]:
        """All consumer groups by name."""
        return self._run(group_flows.groups(self._timeout_s))

    def describe_group(self, name: str) -> GroupDescription:
        """One group: its members and, per queue, what is committed, the lag and why it is stuck.

        Raises:
            UnknownResource: UNKNOWN_GROUP.
        """
        return self._run(group_flows.describe_group(name, wall_ms(), self._timeout_s))

    def committed(self, group: str, topic: str) -> dict[int, int | None]:
        """How far a group is in a topic, by queue; also where it does not subscribe any more.

        None: where it starts is not known yet. Empty: it never had to do with this topic.

        Raises:
            UnknownResource: UNKNOWN_GROUP.
        """
        return self._run(group_flows.committed(group, topic, self._timeout_s))

    def alter_group(
        self,
        name: str,
        *,
        subscription: Mapping[str, str | Filter] | None = None,
        create: bool = False,
        **settings: Any,
    ) -> None:
        """Change settings of a group or its subscription; what is not named stays.

        Args:
            subscription: topic → filter text; members of another adopt it in turn.
            create: make the group if it does not exist.
            settings: session_ms, heartbeat_ms, strategy …, as `GroupConfig` says; `options` may
                be a mapping of those `StrategyOptions` that change.

        Raises:
            UnknownResource: UNKNOWN_GROUP.
            InvalidFilter: a filter cannot be read; points at the character.
            InvalidRequest: no such setting, or none that can be.
        """
        flow = group_flows.alter_group(
            name, subscription, settings, wall_ms(), self._timeout_s, create=create
        )
        self._run(flow)

    def delete_group(self, name: str, *, dead_letters: bool = False) -> None:
        """Forget a group that has no members, its offsets and its retries, also those that wait.

        Its dead letters stay readable in `%DLQ%group`, which `delete_topic` deletes later, unless
        `dead_letters` asks for them to go at once.

        Raises:
            UnknownResource: UNKNOWN_GROUP.
            GroupError: GROUP_NOT_EMPTY.
        """
        flow = group_flows.delete_group(name, wall_ms(), self._timeout_s, dead_letters=dead_letters)
        self._run(flow)

    def reset_offsets(
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
        """Move committed offsets, also back, with members online or offline.

        Say where to with one of the first four; by default nothing is done, the plan is returned.
        The group's retries stay as they are, unless their topic or a file names them.

        Args:
            to: "first", "last", a message time (ms since 1970 UTC, or a datetime with its zone), or
                offsets by (topic, queue).
            shift: so many messages forward, or back if negative.
            from_group: to where another group is.
            file: to the offsets in a file, as `logboom group describe -o json` prints them.
            topic: only this topic; the group need not have subscribed to it yet.
            queues: only these queues of it.
            dry_run: False carries the plan out.

        Raises:
            UnknownResource: no such group, topic or queue.
            InvalidRequest: not one way to say where to, or an offset that the queue does not have.
        """
        listed = None if file is None else run_in_thread(_read_offsets, file)
        asked = ResetRequest(group, to, shift, from_group, listed, topic, queues)
        return self._run(reset_offsets(asked, wall_ms(), self._timeout_s, dry_run=dry_run))

    def transactions(self, app_id: str = "", *, most: int = DEFAULT_LIMIT) -> OpenTransactions:
        """Transactions and half messages that nobody has decided, the oldest first; `app_id` "":
        of everybody. `Client.decide` takes the `handles()` of one, `end_half` its `half`.

        Once `most` batches are listed, no more are asked for, and `more` says so.
        """
        return self._run(open_transactions(app_id, self._timeout_s, most))

    def end_half(self, half: Parking, *, commit: bool) -> HalfOutcome:
        """Decide on a half message; tells what became of it: the first decision counts.

        Raises:
            TransactionError: UNKNOWN_HANDLES, none was parked there.
        """
        return self._run(end_half(half, commit=commit, timeout=self._timeout_s))

    def stats(self) -> list[NodeStats]:
        """Counters of every node; of one that does not answer, why."""
        return self._run(flows.stats(self._timeout_s))


def _read_offsets(path: Path | str) -> dict[TopicQueue, int]:
    """Read the offsets in a file.

    Raises:
        InvalidRequest: there is no such file, or it says no offsets.
    """
    try:
        return parse_offsets(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}") from None
