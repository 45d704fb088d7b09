"""The client: `connect`, and everything that it gives out."""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, overload

from logboom.client.aio.admin import Admin
from logboom.client.aio.bridge import OpenContext, begin, drive, run, stop, wait_done
from logboom.client.aio.consumer import Consumer
from logboom.client.aio.group_consumer import GroupConsumer
from logboom.client.aio.lookout import Lookout
from logboom.client.aio.producer import Producer
from logboom.client.aio.push_consumer import PushConsumer
from logboom.client.aio.range_reader import RANGE_BYTES, read_range
from logboom.client.aio.resource import Scope
from logboom.client.aio.subscription_consumer import SubscriptionConsumer
from logboom.client.calls import Connect
from logboom.client.fetch import message_flows
from logboom.client.fetch.fetch_collector import check_start
from logboom.client.fetch.message_filter import wanted_of
from logboom.client.fetch.topic_selection import TopicSelection
from logboom.client.group_options import check_groupless, check_whole, member_options
from logboom.client.groups.member import COMMIT_EVERY_S, MAX_POLL_INTERVAL_MS
from logboom.client.groups.offsets_file import store_of
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.producer_options import (
    ABANDON_S,
    Begin,
    Isolation,
    ProducerOptions,
    reads_uncommitted,
)
from logboom.client.push_options import PushOptions
from logboom.client.results import PullResult
from logboom.client.subscription_options import subscriber_options
from logboom.client.subscriptions.subscriber_state import WINDOW
from logboom.client.transactions.applications import check_chosen, take_over
from logboom.client.transactions.decisions import (
    Decision,
    ParkedHandle,
    decide_handles,
    read_parked,
)
from logboom.client.transactions.parked_batches import ToPark, handle_of, parks_of
from logboom.wire.columns import Columns
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.filters.filter import Filter
from logboom.wire.messages import Acks
from logboom.wire.sockets import check_endpoint

R = TypeVar("R", Consumer, GroupConsumer, PushConsumer, SubscriptionConsumer)

PARK_S: Final = 60.0
"""How long `park` tries a batch."""
PREFETCH_BYTES: Final = 32 * 1024 * 1024
"""What a consumer reads ahead, all its queues together."""


def connect(
    endpoints: str | Sequence[str],
    *,
    timeout_s: float = 10.0,
    client_id: str = "",
    create_topics: bool = False,
    cluster_key: bytes = b"",
) -> OpenContext[Client]:
    """Open a client: `boom = await connect(…)` or `async with connect(…) as boom`. It is open once a
    node has told of the cluster.

    Args:
        endpoints: host:port of any nodes: a list, or one comma-separated string.
        timeout_s: bound of this call, and of each request of `admin` and `pull`.
        client_id: shown in the nodes' logs.
        create_topics: create a topic on first use (development, embedded clusters).
        cluster_key: what the cluster key file holds; only an operator needs it, for
            `admin.add_name_server`, `remove_name_server` and `remove_broker`.

    Raises:
        InvalidRequest: an endpoint that is none.
        TimedOut: no node answered in time.
        Refused: UNSUPPORTED_VERSION; UNAUTHENTICATED, the cluster has another key.
    """
    make = partial(
        Client,
        parse_endpoints(endpoints),
        timeout_s,
        client_id,
        create_topics=create_topics,
        cluster_key=cluster_key,
    )
    return OpenContext(_connected(make))


async def _connected(make: Callable[[], Client]) -> Client:
    client = make()
    try:
        await client.wait_connected()
    # Ctrl-C and a cancellation too: thread and sockets are given back. It is raised on.
    except BaseException:
        await client.close()
        raise
    return client


def parse_endpoints(endpoints: str | Sequence[str]) -> tuple[str, ...]:
    """host:port, each checked.

    Raises:
        InvalidRequest: one is none, or there is none.
    """
    parts = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
    try:
        found = tuple(check_endpoint(part.strip()) for part in parts if part.strip())
    except StartError as error:
        raise InvalidRequest(error.text) from None
    if not found:
        raise InvalidRequest("give at least one endpoint, e.g. 127.0.0.1:7711")
    return found


class Client(Scope):
    """A connection to a cluster, for any number of tasks of one loop. `connect` makes it."""

    def __init__(
        self,
        endpoints: tuple[str, ...],
        timeout_s: float,
        client_id: str = "",
        *,
        create_topics: bool = False,
        cluster_key: bytes = b"",
    ) -> None:
        self._timeout_s = timeout_s
        self._create_topics = create_topics
        self._io = IoThread(
            endpoints, client_id, create_topics=create_topics, cluster_key=cluster_key
        )
        self._open: weakref.WeakSet[
            Producer | Consumer | GroupConsumer | PushConsumer | SubscriptionConsumer
        ] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._parking: Producer | None = None
        """What `park` sends with."""
        self.admin = Admin(self._io, timeout_s)
        """Topics, brokers, offsets, single messages."""

    async def wait_connected(self) -> None:
        """Wait until a node has told of the cluster.

        Raises:
            TimedOut: none did, within the client's time-out.
        """
        await run(self._io, Connect(self._timeout_s))

    def producer(
        self,
        *,
        acks: Acks = "all",
        linger_ms: float = 0,
        compression: str = "none",
        max_batch_bytes: int = 1024 * 1024,
        buffer_bytes: int = 64 * 1024 * 1024,
        delivery_timeout_s: float = 120.0,
    ) -> Producer:
        """A producer. It is idempotent: retries store nothing twice (except with acks="none",
        which is sent once and never answered).

        Args:
            acks: who must have a message on disk: "all" in-sync replicas, the "leader", or "none".
            linger_ms: how long a batch waits to fill. It also fills while one is in flight.
            compression: "none", "lz4" or "zstd".
            buffer_bytes: what may wait for acknowledgement; past it `send` blocks.
            delivery_timeout_s: how long a message is retried before its future fails.
        """
        options = ProducerOptions(
            acks, linger_ms, compression, max_batch_bytes, buffer_bytes, delivery_timeout_s
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
        **settings: Any,
    ) -> Consumer | GroupConsumer:
        """A consumer: of a group, or without one of the given queues or of all.

        Without a group it commits nothing. As a member of `group` it shares the queues with the
        group's other members, and what it acknowledges is the group's.

        Args:
            tags: only messages with one of these tags: "a || b", or a list.
            filter: only messages whose headers this holds of: "price > 3 AND region = 'eu'", or a
                whole `Filter`.
            start: "first", "last", or a message time: ms since 1970 UTC, a datetime with its zone,
                or ISO 8601 text such as "2026-11-21T10:00:00Z". Of a group: where it begins if it is
                new.
            prefetch_bytes: what is read ahead.
            isolation: "read_uncommitted" sees a transaction's messages while its queue is still
                releasing them (never before its commit).
            instance: a static member's name: it keeps its queues over a restart within the session.
            room: where this process runs, for strategies by room.
            subscription: "same" as the group's, or "replace" it for all members.
            commit_every_s: seconds between commits; 0: only on `commit`, and when a queue moves.
            max_poll_interval_ms: how long this member may neither poll nor acknowledge before it
                leaves, so that others get its queues; its next poll joins again. 0: for ever.
            offsets_file: with mode="broadcasting": where this member keeps its offsets; None:
                ~/.logboom/offsets/<group>.json.
            read_compacted: of a compacted topic, only the latest message of each key as far as the
                brokers have compacted, then everything. Not for a group.
            settings: of the group if it is new, as `GroupConfig` names them: session_ms,
                heartbeat_ms, drain_ms, max_attempts, strategy … With mode="broadcasting" it reads
                every queue, whoever else does.

        Raises:
            GroupError: SUBSCRIPTION_MISMATCH, with the difference.
            UnknownResource: no such topic.
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
            create = self._create_topics
            return self._keep(
                Consumer(self._io, selected, prefetch_bytes, self._timeout_s, create_topics=create)
            )
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
        return self._keep(
            GroupConsumer(
                self._io,
                options,
                self._timeout_s,
                create_topics=self._create_topics,
                store=store_of(options, offsets_file),
            )
        )

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
        **settings: Any,
    ) -> PushConsumer:
        """A consumer that calls `listener` with each message; begins at once.

        Args:
            listener: called with a message, or with a message and a Context. None or True: done;
                False, `Later(seconds)` or an exception: the message comes again.
            threads: how many listeners run at once at most.
            orderly: one message of a queue at a time, in order; a failure holds its queue up.
            batch: more than 1: the listener gets lists of up to so many messages of one queue.
            options: everything else, with its units; `threads`, `orderly` and `batch` here win.

        The others are those of `consumer`, and so are the errors.
        """
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
                create_topics=self._create_topics,
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
        ack_timeout: float = 0.0,
        **settings: Any,
    ) -> SubscriptionConsumer:
        """A consumer of a subscription, which several may share: the brokers decide who gets what.
        A subscription that does not exist is made.

        Args:
            type: "exclusive" (one consumer), "failover" (one at a time, by `priority` and name),
                "shared" (each message to anybody), "key_shared" (the messages of a key to one at a
                time, in order).
            name: of this consumer, unique in the subscription; "": one never used before.
            tags, filter: as in `consumer`; what is left out counts as acknowledged.
            start: where a new subscription begins: "first", "last", or a message time as in
                `consumer`.
            priority: 0 is the best; the next get something when these cannot take it.
            ranges: the slots (first, last) of keys for this consumer, of 65,536. Of key_shared; none:
                they are given out by `hashing`, "auto_split" or "consistent". Of exclusive: what lies
                outside counts as acknowledged; none: all.
            window: messages of one queue that may be on their way.
            ack_timeout: seconds after which what is not acknowledged comes again; 0: never.
            settings: of the subscription, as `SubscriptionConfig` names them: most_unacked,
                failover_delay_s, look_ahead, messages_per_s, session_ms … All consumers of a
                subscription must agree in its type, filter and settings.

        Raises:
            Refused: CONSUMER_BUSY: another has the exclusive subscription.
            GroupError: SUBSCRIPTION_MISMATCH, with the difference.
            UnknownResource: no such topic.
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
            settings={"ack_timeout_s": ack_timeout, **settings},
        )
        create = self._create_topics
        return self._keep(
            SubscriptionConsumer(self._io, options, self._timeout_s, create_topics=create)
        )

    def _keep(self, made: R) -> R:
        """Begin, and close it with the client."""
        begun = begin(made)
        self._open.add(begun)
        return begun

    async def pull(
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
        """Read from one queue; waits up to `wait_ms` at its end for something new.

        `tags`, `filter`, `isolation` and `read_compacted` as in `consumer`. `status` of the result is FOUND,
        NO_NEW_MESSAGE, NO_MATCHED_MESSAGE or OFFSET_ILLEGAL (then `next_offset` is the nearest that exists).
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
        return await drive(self._io, flow)

    async def park(
        self, batches: Iterable[ToPark], app_id: str, attempt: int, sequence: int = 0
    ) -> list[ParkedHandle]:
        """Park batches for a transaction that is decided elsewhere, by `decide` with the handles.
        Returns once all are safe; what no decision names within 15 minutes is dropped.

        Args:
            batches: (topic, queue, messages): an encoded batch, `Columns`, or values alone.
            attempt: which try of the sequence this is, for all that work on it: a decision lists
                the handles of one attempt, and drops all others.

        Raises:
            TransactionError: TRANSACTION_CLOSED or TRANSACTION_ABORTED, it was decided before.
            InvalidRequest: an argument that cannot be; TOO_LARGE.
            LogboomError: why a batch is not parked. Others may be, until they are dropped.
        """
        check_chosen(app_id)
        parks = parks_of(app_id, attempt, sequence)
        piles = await self._parker().send_batches(batches, parks, wall_ms())
        for pile in piles:
            await wait_done(pile)
        return [handle_of(pile) for pile in piles]

    async def take_over(self, app_id: str) -> tuple[int, int]:
        """Have an application id for oneself: `decide` refuses commits in an older epoch.

        Returns:
            The epoch for `decide`, and the greatest sequence that was committed (-1: none).

        Raises:
            InvalidRequest: it cannot be one.
            TimedOut: no name server answered.
        """
        return await drive(self._io, take_over(app_id, wall_ms(), self._timeout_s))

    async def decide(
        self,
        app_id: str,
        sequence: int,
        handles: Sequence[ParkedHandle],
        *,
        commit: bool = True,
        epoch: int | None = None,
    ) -> Decision:
        """Publish what is parked, all or nothing, or drop it; returns when every queue has.

        The first commit of a sequence counts, for ever: of a later one `again` is true, and nothing
        is published by it. A commit drops what the same sequence has parked and it does not name.

        Args:
            epoch: of a commit, that of `take_over`; None: others may decide beside.

        Raises:
            Refused: FENCED, somebody has taken the application id over since; nothing is decided.
            TransactionError: UNKNOWN_HANDLES: one is not parked (any more); the attempt is
                aborted. TRANSACTION_ABORTED: it was before.
            InvalidRequest: handles of two transactions or attempts; TOO_LARGE, nothing is decided.
            TimedOut: with a field `decided`: it is, and a queue is late. Without: nobody answered,
                and it may be; say it again.
        """
        listed = list(handles)
        flow = decide_handles(
            app_id, sequence, listed, wall_ms(), self._timeout_s, commit=commit, epoch=epoch
        )
        return await drive(self._io, flow)

    async def read_parked(self, handles: Sequence[ParkedHandle]) -> list[Columns]:
        """The batches that the first of some handles of one queue stand for, as many as come at once
        (some 4 MiB).

        Raises:
            TransactionError: UNKNOWN_HANDLES: the first is not parked (any more).
            Refused: UNSUPPORTED_VERSION: the queue's broker is of an older version.
        """
        return await drive(self._io, read_parked(handles, self._timeout_s))

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
    ) -> AsyncIterator[Columns]:
        """What a queue holds from offset `start` to before `stop`, as columns, read ahead.

        Where messages are missing (retention took them) the next columns begin behind: compare
        their `base_offset` with where you are. Of a compacted topic there is what compaction keeps of
        them, and then every message of the log.

        Args:
            stop: an offset that the queue has reached.
            timeout_s: how long to wait for the next batch; None: the client's time-out.

        Raises:
            TimedOut: nothing came in time; says from where.
            UnknownResource: no such topic or queue.
        """
        patience = self._timeout_s if timeout_s is None else timeout_s
        return read_range(self._io, topic, queue, start, stop, prefetch_bytes, patience)

    def lookout(self) -> Lookout:
        """Something to wait with for news of many queues at once."""
        return Lookout(self._io)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and close all producers, close all consumers, hang up. A second call does nothing.

        `timeout_s`: seconds for the flush of each producer (None: until acknowledged or given up)
        and for running listeners (None: their `await_termination_s`).
        """
        if self._io.running:
            for each in list(self._open):
                if isinstance(each, Producer | PushConsumer):
                    await each.close(timeout_s)
                else:
                    await each.close()
        await stop(self._io)

    async def _leave(self, error: BaseException | None) -> None:
        await self.close(None if error is None else ABANDON_S)
