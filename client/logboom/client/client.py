# Generated from aio/client.py by `make generate`: do not edit.
"""The client: `connect`, and the `Client` that it opens."""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar, overload

from logboom.client.admin import Admin
from logboom.client.argument_checks import check_seconds
from logboom.client.bridge import (
    begin,
    drive,
    run,
    stop,
    traced,
    wait_done,
)
from logboom.client.calls import Connect
from logboom.client.cluster_search import CREDENTIALS_VARIABLE, find_cluster
from logboom.client.consumer import Consumer
from logboom.client.dead_letter_admin import DeadLetterAdmin
from logboom.client.fetch import message_flows
from logboom.client.fetch.fetch_collector import check_start
from logboom.client.fetch.message_filter import wanted_of
from logboom.client.fetch.topic_selection import TopicSelection
from logboom.client.group_consumer import GroupConsumer
from logboom.client.group_options import check_groupless, check_whole, member_options
from logboom.client.groups.member import COMMIT_EVERY_S, MAX_POLL_INTERVAL_MS
from logboom.client.groups.offsets_file import store_of
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.lookout import Lookout
from logboom.client.producer import Producer
from logboom.client.producer_options import (
    ABANDON_S,
    Begin,
    Isolation,
    ProducerOptions,
    reads_uncommitted,
)
from logboom.client.push_consumer import PushConsumer
from logboom.client.push_options import PushOptions
from logboom.client.range_reader import RANGE_BYTES, read_range
from logboom.client.resource import Scope
from logboom.client.results import PullResult
from logboom.client.subscription_consumer import SubscriptionConsumer
from logboom.client.subscription_options import subscriber_options
from logboom.client.subscriptions.subscriber_state import WINDOW
from logboom.client.tracing.loading import load_consumer_tracer
from logboom.client.transactions.applications import check_chosen, take_over
from logboom.client.transactions.decisions import (
    Decision,
    ParkedHandle,
    decide_handles,
    read_parked,
)
from logboom.client.transactions.parked_batches import ToPark, handle_of, parks_of
from logboom.wire.columns import Columns
from logboom.wire.credentials import Credentials
from logboom.wire.filters import Filter
from logboom.wire.key_pair import SecretBytes
from logboom.wire.messages import Acks

R = TypeVar("R", Consumer, GroupConsumer, PushConsumer, SubscriptionConsumer)

PARK_S: Final = 60.0
"""Seconds for which `park` retries a batch."""
PREFETCH_BYTES: Final = 32 * 1024 * 1024
"""Bytes that a consumer reads ahead, in all its queues together."""


def connect(
    endpoints: str | os.PathLike[str] | Sequence[str] = "",
    *,
    credentials: str | os.PathLike[str] | Credentials | None = None,
    timeout_s: float = 10.0,
    client_id: str = "",
    create_topics: bool = False,
    cluster_key: bytes = b"",
) -> Client:
    """Open a client: `boom = connect(…)` or `with connect(…) as boom`. It is open once
    a node has described the cluster.

    Args:
        endpoints: host:port of any nodes, as a list or one comma-separated string; or the path of a
            credentials file that ends in .toml. Without both, the file is LOGBOOM_CREDENTIALS.
        credentials: the path of a credentials file, or its content, for a cluster that is not open.
            The nodes in it are asked if `endpoints` names none.
        timeout_s: time-out of this call, and of each request of `admin` and `pull`.
        client_id: a name that appears in the logs of the nodes.
        create_topics: create a topic on first use (development, embedded clusters).
        cluster_key: the content of the cluster key file, with both keys while the key is changed.
            Only operators need it, for `admin.add_name_server`, `remove_name_server` and
            `remove_broker`.

    Raises:
        InvalidRequest: an endpoint is invalid.
        StartError: BAD_CONFIG: the credentials file cannot be used; the text has the remedy.
        TimedOut: no node answered in time.
        Unauthenticated: the cluster does not know the key, or the nodes have other keys than the
            credentials file names.
        Refused: UNSUPPORTED_VERSION.
    """
    ends, known = find_cluster(endpoints, credentials, os.environ.get(CREDENTIALS_VARIABLE, ""))
    make = partial(
        Client,
        ends,
        timeout_s,
        client_id,
        create_topics=create_topics,
        cluster_key=SecretBytes(cluster_key),
        credentials=known,
    )
    return _connected(make)


def _connected(make: Callable[[], Client]) -> Client:
    client = make()
    try:
        client.wait_connected()
    # Ctrl-C and a cancellation, too, must not leave a thread and sockets. They are raised again.
    except BaseException:
        client.close()
        raise
    return client


class Client(Scope):
    """A connection to a cluster, for any number of threads. `connect` makes it."""

    def __init__(
        self,
        endpoints: tuple[str, ...],
        timeout_s: float,
        client_id: str = "",
        *,
        create_topics: bool = False,
        cluster_key: bytes = b"",
        credentials: Credentials | None = None,
    ) -> None:
        check_seconds(timeout_s, "timeout_s")
        self._timeout_s = timeout_s
        self._io = IoThread(
            endpoints,
            client_id,
            create_topics=create_topics,
            cluster_key=cluster_key,
            credentials=credentials,
        )
        self._open: weakref.WeakSet[
            Producer | Consumer | GroupConsumer | PushConsumer | SubscriptionConsumer
        ] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._parking: Producer | None = None
        """The producer of `park`."""
        self.admin = Admin(self._io, timeout_s)
        """The administration of the cluster."""
        self.dead_letters = DeadLetterAdmin(self._io, timeout_s)
        """The dead letters of its groups and subscriptions."""

    def wait_connected(self) -> None:
        """Wait until a node has described the cluster.

        Raises:
            TimedOut: no node did so within the client's time-out.
        """
        run(self._io, Connect(self._timeout_s))

    def producer(
        self,
        *,
        acks: Acks = "all",
        linger_ms: float = 0,
        compression: str = "none",
        max_batch_bytes: int = 1024 * 1024,
        buffer_bytes: int = 64 * 1024 * 1024,
        delivery_timeout_s: float = 120.0,
        tracing: bool = False,
    ) -> Producer:
        """Create a producer. It is idempotent: a retry never stores a message twice. (With
        acks="none" a message is sent once, without retries.)

        Args:
            acks: the replicas that must have a message on disk before it is acknowledged: "all"
                in-sync replicas, the "leader", or "none".
            linger_ms: how long a batch waits to fill. It also fills while another is in flight.
            compression: "none", "lz4" or "zstd".
            buffer_bytes: bytes that may wait for acknowledgement. When they are exceeded, sending
                waits.
            delivery_timeout_s: seconds for which a message is retried before its future fails.
            tracing: spans and metrics by OpenTelemetry; messages that are sent within a sampled
                span carry its trace in the header `traceparent`.

        Raises:
            InvalidRequest: an option is invalid, or OpenTelemetry is not installed.
        """
        options = ProducerOptions(
            acks,
            linger_ms,
            compression,
            max_batch_bytes,
            buffer_bytes,
            delivery_timeout_s,
            tracing,
        )
        made = Producer(self._io, options, self._timeout_s)
        self._open.add(made)
        return made

    @overload
    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        queues: Sequence[int] | None = None,
        tags: str | Sequence[str] | None = None,
        filter: str | Filter | None = None,
        start: Begin = "first",
        prefetch_bytes: int = PREFETCH_BYTES,
        isolation: Isolation = "read_committed",
        read_compacted: bool = False,
        tracing: bool = False,
    ) -> Consumer: ...

    @overload
    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        tags: str | Sequence[str] | None = None,
        filter: str | Filter | None = None,
        start: Begin = "first",
        prefetch_bytes: int = PREFETCH_BYTES,
        isolation: Isolation = "read_committed",
        instance: str = "",
        room: str = "",
        subscription: str = "same",
        commit_every_s: float = COMMIT_EVERY_S,
        max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS,
        offsets_file: str | os.PathLike[str] | None = None,
        tracing: bool = False,
        **settings: Any,
    ) -> GroupConsumer: ...

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str | None = None,
        queues: Sequence[int] | None = None,
        tags: str | Sequence[str] | None = None,
        filter: str | Filter | None = None,
        start: Begin = "first",
        prefetch_bytes: int = PREFETCH_BYTES,
        isolation: Isolation = "read_committed",
        instance: str = "",
        room: str = "",
        subscription: str = "same",
        commit_every_s: float = COMMIT_EVERY_S,
        max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS,
        offsets_file: str | os.PathLike[str] | None = None,
        read_compacted: bool = False,
        tracing: bool = False,
        **settings: Any,
    ) -> Consumer | GroupConsumer:
        """Create a consumer.

        With `group` it is a member of that consumer group: it shares the queues with the other
        members, and its acknowledgements are committed for the group. Without, it reads the given
        queues, or all, and commits nothing.

        Args:
            queues: the queues to read; None: all. Not for a group.
            tags: read only messages with one of these tags: "a || b", or a list.
            filter: read only messages whose headers match: "price > 3 AND region = 'eu'", or a
                `Filter`.
            start: "first", "last", or a message time: ms since 1970 UTC, a datetime with its zone,
                or ISO 8601 text such as "2026-11-21T10:00:00Z". A queue without a message at or after
                that time is read from its end at that moment. It counts only for a group that is
                new.
            prefetch_bytes: bytes that are read ahead, of all queues together; one message always
                has room.
            isolation: with "read_uncommitted" the messages of a committed transaction are delivered
                while a queue is still releasing them. Nobody sees them before the commit.
            instance: the name of a static member, which keeps its queues across a restart within
                the session time-out.
            room: the place where this process runs, for assignment strategies by room.
            subscription: "same": join only if the group has the same; "replace": change it for all
                members.
            commit_every_s: seconds between commits; 0: commit only on `commit`, and when a queue
                moves.
            max_poll_interval_ms: if this member neither polls nor acknowledges for so long, it
                leaves and others get its queues; its next poll joins again. 0: it never leaves.
            offsets_file: with mode="broadcasting", the file in which this member keeps its offsets;
                None: ~/.logboom/offsets/<group>.json.
            read_compacted: of a compacted topic, read only the latest message of each key up to the
                horizon of compaction, and every message after it. Not for a group.
            tracing: spans and metrics of `poll` and `process` by OpenTelemetry.
            settings: settings of the group, if it is new, as named in `GroupConfig`: session_ms,
                heartbeat_ms, drain_ms, max_attempts, strategy … With mode="broadcasting" every
                member reads every queue.

        Raises:
            GroupError: SUBSCRIPTION_MISMATCH; the text states the difference.
            UnknownResource: there is no such topic.
            InvalidRequest: an argument or a setting is invalid.
        """
        wanted = wanted_of(tags, filter)
        if group is None:
            check_groupless(
                self.consumer,
                settings,
                instance=instance,
                room=room,
                offsets_file=offsets_file,
                subscription=subscription,
                commit_every_s=commit_every_s,
                max_poll_interval_ms=max_poll_interval_ms,
            )
            selected = TopicSelection(
                [topics] if isinstance(topics, str) else list(topics),
                queues,
                check_start(start),
                wanted,
                uncommitted=reads_uncommitted(isolation),
                compacted=read_compacted,
            )
            reader = Consumer(self._io, selected, prefetch_bytes, self._timeout_s)
            if tracing:
                reader.trace(load_consumer_tracer())
            return self._keep(reader)
        check_whole(read_compacted=read_compacted)
        options = member_options(
            topics,
            group,
            self._io.member_id(),
            queues=queues,
            wanted=wanted,
            start=start,
            instance=instance,
            room=room,
            subscription=subscription,
            commit_every_s=commit_every_s,
            max_poll_interval_ms=max_poll_interval_ms,
            prefetch_bytes=prefetch_bytes,
            isolation=isolation,
            settings=settings,
            call=self.consumer,
        )
        member = GroupConsumer(
            self._io,
            options,
            self._timeout_s,
            store=store_of(options, offsets_file),
        )
        if tracing:
            member.trace(load_consumer_tracer(group))
        return self._keep(member)

    def push_consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        listener: Callable[..., object],
        threads: int = 20,
        orderly: bool = False,
        batch: int = 1,
        tags: str | Sequence[str] | None = None,
        filter: str | Filter | None = None,
        start: Begin = "first",
        instance: str = "",
        room: str = "",
        subscription: str = "same",
        commit_every_s: float = COMMIT_EVERY_S,
        offsets_file: str | os.PathLike[str] | None = None,
        isolation: Isolation = "read_committed",
        options: PushOptions | None = None,
        tracing: bool = False,
        **settings: Any,
    ) -> PushConsumer:
        """Create a consumer that calls `listener` with each message of a group.

        The arguments that are not listed here, and the errors, are those of `consumer`.

        Args:
            listener: called with a message, or with a message and a Context. It returns None or
                True when the message is handled. After False, `Later(seconds)` or an exception the
                message is delivered again.
            threads: the number of listeners that may run at the same time.
            orderly: handle the messages of a queue one at a time, in order. A failure suspends the
                queue.
            batch: if greater than 1, the listener is called with lists of up to this many messages
                of one queue.
            options: all other options; `threads`, `orderly` and `batch` given here override it.
            tracing: spans and metrics of each call of the listener, by OpenTelemetry.
        """
        if tracing:
            listener = traced(listener, load_consumer_tracer(group))
        chosen = dataclasses.replace(
            options or PushOptions(), threads=threads, orderly=orderly, batch=batch
        )
        member = member_options(
            topics,
            group,
            self._io.member_id(),
            wanted=wanted_of(tags, filter),
            start=start,
            instance=instance,
            room=room,
            subscription=subscription,
            commit_every_s=commit_every_s,
            isolation=isolation,
            settings=settings,
            call=self.push_consumer,
        )
        return self._keep(
            PushConsumer(
                self._io,
                member,
                chosen,
                listener,
                self._timeout_s,
                store=store_of(member, offsets_file),
            )
        )

    def subscribe(
        self,
        topic: str,
        *,
        subscription: str,
        type: str = "exclusive",
        name: str = "",
        tags: str | Sequence[str] | None = None,
        filter: str | Filter | None = None,
        start: Begin = "last",
        priority: int = 0,
        ranges: Sequence[tuple[int, int]] | None = None,
        hashing: str = "auto_split",
        window: int = WINDOW,
        ack_timeout_s: float = 0.0,
        tracing: bool = False,
        **settings: Any,
    ) -> SubscriptionConsumer:
        """Create a consumer of a subscription, which several consumers may share: the brokers
        decide who gets which message. A subscription that does not exist is created.

        Args:
            type: "exclusive" (one consumer), "failover" (one at a time, by `priority` and name),
                "shared" (a message goes to any consumer) or "key_shared" (the messages of a key go
                to one consumer at a time, in order).
            name: the name of this consumer, unique in the subscription; "": a new one. While another
                process has it, opening the consumer fails with INSTANCE_TAKEN.
            tags: as in `consumer`. Messages that do not match count as acknowledged.
            filter: as in `consumer`. Messages that do not match count as acknowledged.
            start: where a new subscription begins: "first", "last", or a message time as in
                `consumer`.
            priority: 0 is the best. Consumers with a worse priority get messages only when the
                better ones cannot take them.
            ranges: the key slots of this consumer, as (first, last) of 65,536. With key_shared and
                none, `hashing` distributes the slots. With exclusive, messages of other slots count
                as acknowledged; none: all slots.
            hashing: the distribution of slots with key_shared: "auto_split" or "consistent".
            window: number of messages of one queue that may be in flight.
            ack_timeout_s: seconds after which a message that is not acknowledged is delivered again;
                0: never.
            tracing: spans and metrics of `poll` and `process` by OpenTelemetry.
            settings: settings of the subscription, as named in `SubscriptionConfig`: most_unacked,
                failover_delay_s, look_ahead, messages_per_s, session_ms … All consumers of a
                subscription must agree in its type, filter and settings.

        Raises:
            Refused: CONSUMER_BUSY: another consumer has the exclusive subscription.
            GroupError: SUBSCRIPTION_MISMATCH; the text states the difference. INSTANCE_TAKEN: another
                process has this consumer's name; it is raised by reads and flushes, too.
            UnknownResource: there is no such topic.
            InvalidRequest: an argument or a setting is invalid.
        """
        options = subscriber_options(
            topic,
            subscription,
            type,
            name or self._io.member_id(),
            tags=tags,
            where=filter,
            start=start,
            priority=priority,
            ranges=ranges,
            hashing=hashing,
            window=window,
            settings={"ack_timeout_s": ack_timeout_s, **settings},
        )
        consumer = SubscriptionConsumer(self._io, options, self._timeout_s)
        if tracing:
            consumer.trace(load_consumer_tracer(subscription=subscription))
        return self._keep(consumer)

    def _keep(self, made: R) -> R:
        """Begin a consumer that is closed with the client."""
        begun = begin(made)
        self._open.add(begun)
        return begun

    def pull(
        self,
        topic: str,
        queue: int,
        offset: int,
        max_messages: int = 32,
        wait_ms: int = 0,
        *,
        tags: str | Sequence[str] | None = None,
        filter: str | Filter | None = None,
        isolation: Isolation = "read_committed",
        read_compacted: bool = False,
    ) -> PullResult:
        """Read from one queue. At its end, wait up to `wait_ms` for new messages.

        `tags`, `filter`, `isolation` and `read_compacted` are those of `consumer`. The `status` of
        the result is FOUND, NO_NEW_MESSAGE, NO_MATCHED_MESSAGE, or OFFSET_ILLEGAL; then
        `next_offset` is the nearest offset that exists.
        """
        wanted = wanted_of(tags, filter)
        flow = message_flows.pull(
            topic,
            queue,
            offset,
            max_messages,
            wait_ms,
            wanted,
            self._timeout_s,
            uncommitted=reads_uncommitted(isolation),
            compacted=read_compacted,
        )
        return drive(self._io, flow)

    def park(
        self, batches: Iterable[ToPark], app_id: str, attempt: int, sequence: int = 0
    ) -> list[ParkedHandle]:
        """Park batches for a transaction that is decided elsewhere, by `decide` with the handles.
        It returns when all batches are safe. Batches that no decision names within 15 minutes are
        dropped.

        Args:
            batches: (topic, queue, messages): an encoded batch, `Columns`, or values alone.
            attempt: the number of the attempt to process this sequence, the same for all processes
                that work on it. A decision lists the handles of one attempt, and drops all others.

        Raises:
            TransactionError: TRANSACTION_CLOSED or TRANSACTION_ABORTED: it was decided before.
            InvalidRequest: an argument is invalid; or TOO_LARGE.
            LogboomError: a batch could not be parked. Others may be parked until they are dropped.
        """
        check_chosen(app_id)
        parks = parks_of(app_id, attempt, sequence)
        parked = self._parker().send_batches(batches, parks, wall_ms())
        for batch in parked:
            wait_done(batch)
        return [handle_of(batch) for batch in parked]

    def take_over(self, app_id: str, *, owner: str = "", replaces: str = "") -> tuple[int, int]:
        """Take an application id over: commits in an older epoch are refused from now on.

        Args:
            owner: who numbers the sequences, for example a job by the id of its checkpoint: the
                first owner named keeps the id, and others are refused. "": anybody may take it
                over.
            replaces: the owner that `owner` takes the place of.

        Returns:
            The epoch for `decide`, and the greatest committed sequence (-1: none).

        Raises:
            InvalidRequest: the application id is invalid.
            TransactionError: APPLICATION_TAKEN: it has another owner, which the field `owner` names.
            TimedOut: no name server answered.
        """
        flow = take_over(app_id, wall_ms(), self._timeout_s, owner, replaces)
        return drive(self._io, flow)

    def decide(
        self,
        app_id: str,
        sequence: int,
        handles: Sequence[ParkedHandle],
        *,
        commit: bool = True,
        epoch: int | None = None,
    ) -> Decision:
        """Publish parked batches, all or none, or drop them. It returns when every queue has done
        so.

        Only the first commit of a sequence publishes anything; for a later one, `again` of the
        result is true. A commit drops all batches of the sequence that it does not name.

        Args:
            epoch: the epoch that `take_over` returned, for a commit; None: others may decide, too.

        Raises:
            Refused: FENCED: another process has taken the application id over. Nothing is decided.
            TransactionError: UNKNOWN_HANDLES: a handle is no longer parked, and the attempt is
                aborted. TRANSACTION_ABORTED: it was aborted before.
            InvalidRequest: the handles belong to several transactions or attempts; or TOO_LARGE.
                Nothing is decided.
            TimedOut: with a field `decided`: it is decided, and a queue is late. Without it the
                outcome is unknown: decide again.
        """
        listed = list(handles)
        flow = decide_handles(
            app_id, sequence, listed, wall_ms(), self._timeout_s, commit=commit, epoch=epoch
        )
        return drive(self._io, flow)

    def read_parked(self, handles: Sequence[ParkedHandle]) -> list[Columns]:
        """Read the batches of handles of one queue, beginning with the first: as many as one answer
        holds (about 4 MiB).

        Raises:
            TransactionError: UNKNOWN_HANDLES: the first handle is no longer parked.
            Refused: UNSUPPORTED_VERSION: the broker of the queue has an older version.
        """
        return drive(self._io, read_parked(handles, self._timeout_s))

    def _parker(self) -> Producer:
        with self._lock:
            if self._parking is None:
                options = ProducerOptions(delivery_timeout_s=PARK_S)
                self._parking = Producer(self._io, options, self._timeout_s)
                self._open.add(self._parking)
            return self._parking

    def read_range(
        self,
        topic: str,
        queue: int,
        start: int,
        stop: int,
        *,
        prefetch_bytes: int = RANGE_BYTES,
        timeout_s: float | None = None,
    ) -> Iterator[Columns]:
        """Read a queue from offset `start` to before `stop`, as columns, reading ahead.

        Where retention has removed messages, the next columns begin later; compare their
        `base_offset` with the offset that you expect. Of a compacted topic, the messages that
        compaction keeps come first, and then every message of the log.

        Args:
            stop: an offset that the queue has reached.
            timeout_s: how long to wait for the next batch; None: the client's time-out.

        Raises:
            TimedOut: nothing arrived in time; the text names the offset and the leader.
            UnknownResource: there is no such topic or queue.
        """
        patience = self._timeout_s if timeout_s is None else timeout_s
        return read_range(self._io, topic, queue, start, stop, prefetch_bytes, patience)

    def lookout(self) -> Lookout:
        """Create a lookout, which waits for new messages in many queues at once."""
        return Lookout(self._io)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and close all producers, close all consumers, and disconnect. A second call does
        nothing.

        Args:
            timeout_s: seconds for the flush of each producer (None: until every message is
                acknowledged or given up), and for running listeners (None: their
                `await_termination_s`).
        """
        if self._io.running:
            for each in list(self._open):
                if isinstance(each, Producer | PushConsumer):
                    each.close(timeout_s)
                else:
                    each.close()
        stop(self._io)

    def _leave(self, error: BaseException | None) -> None:
        self.close(None if error is None else ABANDON_S)
