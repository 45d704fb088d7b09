"""The client for asyncio: `connect`, and what it gives."""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, overload

from logboom.client.admin import wall_ms
from logboom.client.aio.admin import Admin
from logboom.client.aio.bridge import awaited, drive, run, settled
from logboom.client.aio.consumer import Consumer
from logboom.client.aio.group_consumer import GroupConsumer
from logboom.client.aio.producer import Producer
from logboom.client.aio.push_consumer import PushConsumer
from logboom.client.aio.subscription_consumer import SubscriptionConsumer
from logboom.client.calls import Connect
from logboom.client.client import PARK_S, PREFETCH_BYTES, parse_endpoints
from logboom.client.fetch import message_flows
from logboom.client.fetch.fetch_collector import check_start
from logboom.client.fetch.message_filter import wanted_of
from logboom.client.group_options import check_groupless, check_whole, member_options
from logboom.client.groups.member import COMMIT_EVERY_S, MAX_POLL_INTERVAL_MS
from logboom.client.groups.offsets_file import store_of
from logboom.client.io_thread import IoThread
from logboom.client.producer import ABANDON_S
from logboom.client.producer_options import Begin, Isolation, ProducerOptions, reads_uncommitted
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
from logboom.wire.filters.filter import Filter
from logboom.wire.messages import Acks


class ConnectContext:
    """What `connect` returns: `await` it, or enter it with `async with`."""

    def __init__(self, endpoints: tuple[str, ...], options: dict[str, Any]) -> None:
        self._endpoints = endpoints
        self._options = options
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._open().__await__()

    async def _open(self) -> Client:
        client = Client(self._endpoints, **self._options)
        try:
            await client.wait_connected()
        # A cancellation too: it is closed and raised on.
        except BaseException:
            await client.close()
            raise
        return client

    async def __aenter__(self) -> Client:
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close(None if kind is None else ABANDON_S)


def connect(
    endpoints: str | Sequence[str],
    *,
    timeout_s: float = 10.0,
    client_id: str = "",
    create_topics: bool = False,
    cluster_key: bytes = b"",
) -> ConnectContext:
    """Open a client: `boom = await connect(…)` or `async with connect(…) as boom`.

    Arguments and errors are those of `logboom.client.connect`.
    """
    options = {
        "timeout_s": timeout_s,
        "client_id": client_id,
        "create_topics": create_topics,
        "cluster_key": cluster_key,
    }
    return ConnectContext(parse_endpoints(endpoints), options)


class Client:
    """A connection to a cluster, for one event loop. `connect` makes it."""

    def __init__(
        self,
        endpoints: tuple[str, ...],
        *,
        timeout_s: float,
        client_id: str = "",
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
        """A producer; the arguments are those of `logboom.client.Client.producer`."""
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
        """A consumer; the arguments are those of `logboom.client.Client.consumer`."""
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
            names = [topics] if isinstance(topics, str) else list(topics)
            made = Consumer(
                self._io,
                names,
                queues,
                check_start(start),
                wanted,
                prefetch_bytes,
                self._timeout_s,
                create_topics=self._create_topics,
                uncommitted=reads_uncommitted(isolation),
                compacted=read_compacted,
            )
            self._open.add(made)
            return made
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
            create_topics=self._create_topics,
            store=store_of(options, offsets_file),
        )
        self._open.add(member)
        return member

    def push_consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        listener: Callable[..., Any],
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
        """A consumer that calls `listener`, a coroutine function, with each message; begins with
        `async with` or `open`. The arguments are those of `logboom.client.Client.push_consumer`;
        `threads` are tasks."""
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
        made = PushConsumer(
            self._io,
            member,
            chosen,
            listener,
            self._timeout_s,
            create_topics=self._create_topics,
            store=store_of(member, offsets_file),
        )
        self._open.add(made)
        return made

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
        """A consumer of a subscription; it attaches with `async with`, `open` or the first read. The
        arguments and errors are those of `logboom.client.Client.subscribe`."""
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
        made = SubscriptionConsumer(
            self._io, options, self._timeout_s, create_topics=self._create_topics
        )
        self._open.add(made)
        return made

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
        """Read from one queue; as `logboom.client.Client.pull`."""
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
        """Park batches for a transaction that is decided elsewhere; as
        `logboom.client.Client.park`."""
        check_chosen(app_id)
        parks = parks_of(app_id, attempt, sequence)
        if self._parking is None:
            options = ProducerOptions(delivery_timeout_s=PARK_S)
            self._parking = Producer(self._io, options, self._timeout_s)
            self._open.add(self._parking)
        piles = await self._parking.send_batches(batches, parks, wall_ms())
        for pile in piles:
            await settled(pile)
        return [handle_of(pile) for pile in piles]

    async def take_over(self, app_id: str) -> tuple[int, int]:
        """Have an application id for oneself; as `logboom.client.Client.take_over`."""
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
        """Publish what is parked, or drop it; as `logboom.client.Client.decide`."""
        listed = list(handles)
        flow = decide_handles(
            app_id, sequence, listed, wall_ms(), self._timeout_s, commit=commit, epoch=epoch
        )
        return await drive(self._io, flow)

    async def read_parked(self, handles: Sequence[ParkedHandle]) -> list[Columns]:
        """The batches that some handles stand for; as `logboom.client.Client.read_parked`."""
        return await drive(self._io, read_parked(handles, self._timeout_s))

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and close all producers, close all consumers, hang up. A second call does
        nothing."""
        if self._io.running:
            for each in list(self._open):
                if isinstance(each, Producer | PushConsumer):
                    await each.close(timeout_s)
                else:
                    await each.close()
        if self._io.forked:
            return
        self._io.begin_stop()
        await awaited(self._io.ended)
        self._io.stop()  # the thread has nothing left to do: joined at once

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(None if kind is None else ABANDON_S)
