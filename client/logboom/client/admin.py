# Generated from aio/admin.py by `make generate`: do not edit.
"""Administration of a cluster: topics, brokers, groups, offsets, users and single messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from logboom.client import flows
from logboom.client.admin_access import AccessAdmin
from logboom.client.admin_flows import (
    backup_flows,
    group_flows,
    message_facts,
    operation_flows,
    setting_flows,
    survey_flows,
)
from logboom.client.admin_flows.backup_flows import EntriesToRestore, EntryRange, FetchedEntries
from logboom.client.admin_flows.delayed_flows import DEFAULT_LIMIT as DELAYED_LIMIT
from logboom.client.admin_flows.delayed_flows import DelayedBatches, delayed, parked_at
from logboom.client.admin_flows.group_lag import GroupDescription
from logboom.client.admin_flows.message_life import MessageLife, message_life
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
from logboom.client.admin_flows.survey_flows import ClusterSurvey
from logboom.client.admin_subscriptions import SubscriptionAdmin
from logboom.client.bridge import run, run_in_thread
from logboom.client.delays import Parking, recall_call, was_recalled
from logboom.client.fetch import message_flows
from logboom.client.fetch.fetch_collector import TopicQueue
from logboom.client.flows import changed_config
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.results import Message, NodeConfig, NodeConnections, NodeStats
from logboom.client.transactions.half_messages import HalfOutcome, end_half
from logboom.wire.backup_messages import ClusterSnapshot, EntriesRestored
from logboom.wire.commands import CommandResult, RestoreCommand
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters import Filter
from logboom.wire.group_view import GroupSummary
from logboom.wire.messages import VersionsDescribed
from logboom.wire.operation_commands import BrokerMode
from logboom.wire.operation_messages import BalancePlanned, ClusterDescribed, PlannedMove
from logboom.wire.survey_messages import GroupSurvey, QueueSurvey
from logboom.wire.view import BrokerView, NameServerView, SettingView, TopicConfig, TopicView, View


class Admin(AccessAdmin):
    """The administration of a cluster; it is the attribute `admin` of a client.

    Every method waits up to the client's time-out. Reads are linearizable: they show every change
    that was acknowledged before, whoever made it.
    """

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        super().__init__(io, timeout_s)
        self.subscriptions = SubscriptionAdmin(io, timeout_s)
        """The subscriptions of topics."""

    def create_topic(self, name: str, queues: int = 4, replicas: int = 0, **settings: Any) -> None:
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
        self._run(flows.create_topic(name, queues, replicas, config, wall_ms(), self._timeout_s))

    def alter_topic(
        self, name: str, queues: int | None = None, replicas: int | None = None, **settings: Any
    ) -> None:
        """Change settings of a topic, or give it more queues. Settings that are not named stay.

        Args:
            replicas: the number of replicas that each queue shall have. The name servers then add or
                remove some, queue by queue; `describe_cluster` tells how far they are.
        """
        self._run(flows.alter_topic(name, queues, settings, wall_ms(), self._timeout_s, replicas))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""
        self._run(flows.delete_topic(name, wall_ms(), self._timeout_s))

    def topics(self) -> list[TopicView]:
        """Return all topics, sorted by name."""
        return self._run(flows.topics(self._timeout_s))

    def describe_topic(self, name: str) -> TopicView:
        """Return one topic: its settings, and the replicas and the leader of each queue.

        Raises:
            UnknownResource: UNKNOWN_TOPIC: there is no such topic.
        """
        return self._run(flows.describe_topic(name, self._timeout_s))

    def offsets(
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
        return self._run(flow)

    def offsets_ahead(
        self, topic: str, begins: Mapping[int, int], max_bytes: Mapping[int, int]
    ) -> dict[int, tuple[int, int]]:
        """Return by queue the offset that about so many bytes of messages, as stored, lead to, and
        how many these are: to bound a read by its size.

        At least one message is before the offset, and it is the high watermark at most. A queue is
        left out if it is not known, because the log does not begin that early any more, or because
        its leader runs an older release.

        Args:
            begins: where to begin, by queue.
            max_bytes: the bytes of each of these queues.
        """
        flow = message_flows.offsets_ahead(topic, begins, max_bytes, self._timeout_s)
        return self._run(flow)

    def horizons(self, topic: str) -> dict[int, int]:
        """Return the offset up to which each queue of a compacted topic is compacted. The result is
        empty for any other topic."""
        return self._run(message_flows.horizons(topic, self._timeout_s))

    def offset_for_time(
        self,
        topic: str,
        queue: int,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return the offset of the first message at or after a message time, or the high watermark
        if there is none.

        With boundary="upper", return the offset before the first message after the time, or 0 if all
        are later. Where times go back, messages at or before the time may follow it.
        """
        find = (
            message_flows.last_offset_by if boundary == "upper" else message_flows.offset_for_time
        )
        return self._run(find(topic, queue, timestamp_ms, self._timeout_s))

    def get_message(self, topic: str, queue: int, offset: int) -> Message:
        """Return the message at an offset.

        Raises:
            OffsetOutOfRange: there is none; the fields hold the offsets that exist.
        """
        return self._run(message_flows.get_message(topic, queue, offset, self._timeout_s))

    def find_messages(
        self, topic: str, key: bytes, queue: int | None = None, limit: int = 100
    ) -> list[Message]:
        """Find the messages with a key, newest first in each queue."""
        return self._run(message_flows.find_messages(topic, key, queue, limit, self._timeout_s))

    def message_life(self, topic: str, queue: int, offset: int) -> MessageLife:
        """Return the life of the message at an offset: who produced it and when, how it waited, and
        what each group and subscription has done with it. `unknown` says what cannot be known.

        Whoever may not read the retries or dead letters, or is no admin of the cluster, learns less;
        then `unknown` says so.

        Raises:
            UnknownResource: there is no such topic or queue.
        """
        flow = message_facts.gather(topic, queue, offset, wall_ms(), self._timeout_s)
        return message_life(self._run(flow))

    def elect_leader(self, topic: str, queue: int, prefer: str | None = None) -> None:
        """Move the leadership of a queue to an in-sync replica. Without `prefer` it goes to the
        first one in placement order."""
        self._run(flows.elect_leader(topic, queue, prefer, wall_ms(), self._timeout_s))

    def brokers(self) -> list[BrokerView]:
        """Return all brokers, sorted by id."""
        return self._run(flows.brokers(self._timeout_s))

    def remove_broker(self, broker: str, accept_loss: bool = False) -> None:
        """Remove a broker that will not return. Its replicas are made anew on others, if there are
        any.

        Args:
            accept_loss: remove it although it alone holds messages, which are then lost.

        Raises:
            UnknownResource: UNKNOWN_BROKER: there is no such broker.
            LogboomError: it is alive, or alone holds messages; the text tells what to do.
        """
        self._run(flows.remove_broker(broker, self._timeout_s, accept_loss=accept_loss))

    def discard_lost_topic(self, topic_id: int) -> None:
        """Have brokers delete for good what they keep of a topic that the name servers have lost.

        Raises:
            UnknownResource: UNKNOWN_TOPIC: none that was lost can have this id.
        """
        self._run(flows.discard_lost_topic(topic_id, self._timeout_s))

    def set_broker_mode(self, broker: str, mode: BrokerMode) -> None:
        """Set the mode of a broker, which it keeps over restarts.

        Args:
            mode: "active"; "maintenance": it leads nothing where another can, and gets no new
                replica; "draining": also its replicas are moved away. "drained" follows from that
                by itself.

        Raises:
            UnknownResource: UNKNOWN_BROKER: there is no such broker.
        """
        self._run(operation_flows.set_broker_mode(broker, mode, wall_ms(), self._timeout_s))

    def describe_cluster(self, sizes_of: str = "") -> ClusterDescribed:
        """Return the brokers with their loads, the moves under way, and what the planner of moves
        does or waits for.

        Args:
            sizes_of: a topic; `sizes` then holds the bytes of one replica of each of its queues.
        """
        return self._run(operation_flows.describe_cluster(self._timeout_s, sizes_of))

    def plan_balance(self, most: int = 1_000) -> BalancePlanned:
        """Return the moves that would even out the brokers, at most so many. Nothing is moved:
        see `carry_out`."""
        return self._run(operation_flows.plan_balance(most, self._timeout_s))

    def carry_out(self, moves: Sequence[PlannedMove]) -> list[str]:
        """Begin moves of a plan. The result has a code for each, "" if it has begun; "CONFLICT":
        the queue has changed since."""
        return self._run(operation_flows.carry_out(moves, wall_ms(), self._timeout_s))

    def reassign(
        self, topic: str, queue: int, replicas: Sequence[str], force: bool = False
    ) -> None:
        """Move a queue to these brokers. `describe_cluster` tells how far it is.

        New replicas are added first; the others are removed once all of these are in sync. A move
        that is under way gets this target.

        Args:
            replicas: ids of brokers, the preferred leader first.
            force: allow fewer zones than before.

        Raises:
            LogboomError: a broker is unknown, dead, not active or full, shares its host with
                another, or the zones would get fewer; the text tells which.
        """
        flow = operation_flows.reassign(
            topic, queue, replicas, wall_ms(), self._timeout_s, force=force
        )
        self._run(flow)

    def cancel_reassign(self, topic: str, queue: int) -> None:
        """Give a queue the replicas back that it had before its move; without one, do nothing."""
        self._run(operation_flows.cancel_reassign(topic, queue, wall_ms(), self._timeout_s))

    def view(self) -> View:
        """Return all metadata at one version, as the asked node knows it: brokers, name servers,
        topics and their queues. Unlike other reads it also works while the name servers have no
        leader, and may then be older than the last change."""
        return self._run(flows.known_view(self._timeout_s))

    def name_servers(self) -> list[NameServerView]:
        """Return all name servers, sorted by id."""
        return self._run(flows.name_servers(self._timeout_s))

    def cluster_id(self) -> str:
        """Return the id of the cluster, which is permanent."""
        return self._run(flows.cluster_id(self._timeout_s))

    def raft_leader(self) -> str | None:
        """Return the id of the leader of the name servers, or None if they have none."""
        return self._run(flows.raft_leader(self._timeout_s))

    def add_name_server(self, name: str, endpoint: str, raft_endpoint: str) -> None:
        """Add an empty name server under an id that was never used before."""
        self._run(flows.add_name_server(name, endpoint, raft_endpoint, self._timeout_s))

    def remove_name_server(self, name: str) -> None:
        """Remove a name server from the group."""
        self._run(flows.remove_name_server(name, self._timeout_s))

    def versions(self) -> VersionsDescribed:
        """Return the software of all nodes, the features level, and what hinders a higher one."""
        return self._run(flows.versions(self._timeout_s))

    def finalize_upgrade(self, level: int) -> None:
        """Raise the features level, for good, once all nodes were upgraded (`versions` offers it).

        Raises:
            InvalidRequest: a node hinders it; the text names each.
        """
        self._run(flows.finalize_upgrade(level, self._timeout_s))

    def groups(self) -> list[GroupSummary]:
        """Return all consumer groups, sorted by name."""
        return self._run(group_flows.groups(self._timeout_s))

    def describe_group(self, name: str) -> GroupDescription:
        """Return one group: its members and, for each queue, the committed offset, the lag and the
        reason if it makes no progress.

        Raises:
            UnknownResource: UNKNOWN_GROUP: there is no such group.
        """
        return self._run(group_flows.describe_group(name, wall_ms(), self._timeout_s))

    def committed(self, group: str, topic: str) -> dict[int, int | None]:
        """Return the committed offsets of a group in a topic, by queue, even if the group no longer
        subscribes to it.

        The offset is None while the start of a queue is not known yet. The result is empty if the
        group never subscribed to the topic.

        Raises:
            UnknownResource: UNKNOWN_GROUP: there is no such group.
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
        self._run(flow)

    def delete_group(self, name: str, *, dead_letters: bool = False) -> None:
        """Delete a group that has no members, with its offsets and its retries.

        Its dead letters stay readable in the topic `%DLQ%group`, which `delete_topic` deletes.

        Args:
            dead_letters: delete the dead letters too.

        Raises:
            UnknownResource: UNKNOWN_GROUP: there is no such group.
            GroupError: GROUP_NOT_EMPTY: the group has members.
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
        """Move the committed offsets of a group forward or back, whether its members run or not.

        Give exactly one of `to`, `shift`, `from_group` and `file`. By default only the plan is
        returned. The group's retries stay as they are, unless `topic` or the file names them.

        Args:
            to: "first", "last", a message time (ms since 1970 UTC, or a datetime with its zone; the
                end of a queue that has no message at or after it), or offsets by (topic, queue).
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
        listed = None if file is None else run_in_thread(_read_offsets, file)
        asked = ResetRequest(group, to, shift, from_group, listed, topic, queues)
        return self._run(reset_offsets(asked, wall_ms(), self._timeout_s, dry_run=dry_run))

    def transactions(self, app_id: str = "", *, most: int = DEFAULT_LIMIT) -> OpenTransactions:
        """List the transactions and half messages that are not decided, the oldest first.

        `Client.decide` takes the `handles()` of a transaction, `end_half` the `half` of a half
        message.

        Args:
            app_id: list only those of this application id; "": of all.
            most: stop after this many batches; `more` of the result is then true.
        """
        return self._run(open_transactions(app_id, self._timeout_s, most))

    def end_half(self, half: Parking, *, commit: bool) -> HalfOutcome:
        """Decide a half message, and return the outcome. The first decision counts.

        Raises:
            TransactionError: UNKNOWN_HANDLES: no half message is parked there.
        """
        return self._run(end_half(half, commit=commit, timeout=self._timeout_s))

    def delayed(self, topic: str = "", *, most: int = DELAYED_LIMIT) -> DelayedBatches:
        """List the delayed batches that still wait, the next due first; `recall` takes one back.

        Args:
            topic: list only those of this topic; "": of all that you may describe.
            most: list at most this many; `more` of the result then says that there are others.

        Raises:
            UnknownResource: there is no such topic.
        """
        return self._run(delayed(topic, self._timeout_s, most))

    def recall(self, place: Parking | str) -> bool:
        """Take a delayed batch back before it is delivered; return False if it was delivered before.

        Args:
            place: where it waits, from a `SendResult` or from `delayed`, or as a text of the form
                "topic/queue/offset.side".

        Raises:
            InvalidRequest: nothing is parked there, or it waits for a decision.
        """
        if isinstance(place, str):
            place = self._run(parked_at(place, self._timeout_s))
        answer, _ = run(self._io, recall_call(place, self._timeout_s))
        return was_recalled(answer)

    def stats(self) -> list[NodeStats]:
        """Return the counters of every node, and the reason for each that does not answer."""
        return self._run(flows.stats(self._timeout_s))

    def known_brokers(self) -> list[BrokerView]:
        """Return the brokers as this client has last heard of them, by id. Nobody is asked, so this
        also answers while the name servers do not."""
        return self._run(survey_flows.known_brokers())

    def survey_cluster(self, patience_s: float = 2.0) -> ClusterSurvey:
        """Return all nodes, topics, queues and groups, in few requests: for monitoring. All are asked
        at once, so one that is down costs nothing but what it alone could tell.

        Args:
            patience_s: seconds that each has for an answer.
        """
        return self._run(survey_flows.survey_cluster(patience_s, self._timeout_s))

    def survey_groups(self) -> list[GroupSurvey]:
        """Return all groups with their committed offsets, by name, in few requests: for monitoring.
        `describe_group` also tells why a group is stuck."""
        return self._run(survey_flows.survey_groups(self._timeout_s))

    def survey_queues(self, broker: str) -> list[QueueSurvey]:
        """Return offsets, size and subscriptions of all queues that a broker leads, in few requests:
        for monitoring.

        Raises:
            UnknownResource: UNKNOWN_BROKER: there is no such broker.
        """
        return self._run(survey_flows.survey_queues(broker, self._timeout_s))

    def append_times(self, broker: str, places: Sequence[tuple[int, int, int]]) -> list[int | None]:
        """Return when messages were stored, in ms since 1970 UTC by their leader's clock.

        Args:
            broker: the leader of the queues.
            places: (topic id, queue, offset).

        Returns:
            A time for each place; None: the broker does not lead the queue, or has no such message.

        Raises:
            UnknownResource: UNKNOWN_BROKER: there is no such broker.
        """
        return self._run(survey_flows.append_times(broker, places, self._timeout_s))

    def list_settings(self) -> list[SettingView]:
        """Return the settings that were set while the cluster runs, sorted by scope and name; the
        scope is "" for the cluster, else a node id."""
        return self._run(setting_flows.list_settings(self._timeout_s))

    def alter_settings(self, values: Mapping[str, str | float | None], node: str = "") -> None:
        """Set settings of the cluster, or of one node, whose values win. They count at once.

        Args:
            values: name → value; None unsets. All of them are changed, or none.
            node: the id of a broker or name server; "": the cluster.

        Raises:
            InvalidRequest: a name or a value is wrong; the text says what there is.
            UnknownResource: there is no such node.
        """
        self._run(setting_flows.alter_settings(values, node, wall_ms(), self._timeout_s))

    def describe_config(self, node: str = "") -> list[NodeConfig]:
        """Return the settings that every node goes by, or one, with their sources; and the reason
        for each node that does not answer. Secrets are not among them.

        Raises:
            UnknownResource: there is no such node.
        """
        return self._run(setting_flows.describe_config(node, self._timeout_s))

    def connections(
        self, node: str = "", *, user: str = "", limit: int = 1_000
    ) -> list[NodeConnections]:
        """Return the connections of every node, or of one: up to `limit` each, those first that
        have waited longest for a quota; and the reason for each node that does not answer.

        Raises:
            UnknownResource: there is no such node.
        """
        return self._run(flows.connections(node, user, limit, self._timeout_s))

    def kick_connection(self, node: str, endpoint: str) -> None:
        """Reset the connection of a peer (host:port, as in `connections`) to a node. It may connect
        again; to shut a user out, disable it.

        Raises:
            UnknownResource: there is no such node.
            InvalidRequest: the node has no such connection.
        """
        self._run(flows.kick_connection(node, endpoint, self._timeout_s))

    def read_state(self) -> ClusterSnapshot:
        """Return the replicated state at one version, for a backup."""
        return self._run(backup_flows.read_state(self._timeout_s))

    def fetch_entries(self, wanted: EntryRange) -> FetchedEntries:
        """Return entries of a queue as its leader has stored them, for a backup.

        Raises:
            UnknownResource: the topic was deleted.
            DataDamaged: no good copy of an entry is known, or the answer is damaged.
        """
        return self._run(backup_flows.fetch_entries(wanted, self._timeout_s))

    def restore(self, command: RestoreCommand) -> CommandResult:
        """Commit a command of a restore (`logboom.backup.restore` knows their order)."""
        return self._run(backup_flows.restore(command, self._timeout_s))

    def restore_entries(self, wanted: EntriesToRestore) -> EntriesRestored:
        """Append entries to a queue that is being restored; return where its log ends then.

        Raises:
            InvalidRequest: its topic is not being restored from this backup.
        """
        return self._run(backup_flows.restore_entries(wanted, self._timeout_s))


def _read_offsets(path: Path | str) -> dict[TopicQueue, int]:
    """Read offsets from a file.

    Raises:
        InvalidRequest: the file cannot be read, or holds no offsets.
    """
    try:
        return parse_offsets(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}") from None
