"""The client for asyncio: `connect`, and what it gives."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Self

from logboom.client import message_flows
from logboom.client.aio.admin import Admin
from logboom.client.aio.bridge import awaited, drive, run
from logboom.client.aio.consumer import Consumer
from logboom.client.aio.producer import Producer
from logboom.client.calls import Connect
from logboom.client.client import PREFETCH_BYTES, parse_endpoints
from logboom.client.intake import check_start
from logboom.client.io_thread import IoThread
from logboom.client.options import ProducerOptions
from logboom.client.picking import wanted_of
from logboom.client.producer import ABANDON_S
from logboom.client.results import PullResult
from logboom.wire.filters import Filter
from logboom.wire.messages import Acks


class Connecting:
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
) -> Connecting:
    """Open a client: `boom = await connect(…)` or `async with connect(…) as boom`.

    Arguments and errors are those of `logboom.client.connect`.
    """
    options = {"timeout_s": timeout_s, "client_id": client_id, "create_topics": create_topics}
    return Connecting(parse_endpoints(endpoints), options)


class Client:
    """A connection to a cluster, for one event loop. `connect` makes it."""

    def __init__(
        self,
        endpoints: tuple[str, ...],
        *,
        timeout_s: float,
        client_id: str = "",
        create_topics: bool = False,
    ) -> None:
        self._timeout_s = timeout_s
        self._create_topics = create_topics
        self._io = IoThread(endpoints, client_id, create_topics=create_topics)
        self._open: weakref.WeakSet[Producer | Consumer] = weakref.WeakSet()
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

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        queues: Sequence[int] | None = None,
        tags: str | Sequence[str] | None = None,
        filter: str | Filter | None = None,
        start: str | int = "first",
        prefetch_bytes: int = PREFETCH_BYTES,
    ) -> Consumer:
        """A consumer; the arguments are those of `logboom.client.Client.consumer`."""
        names = [topics] if isinstance(topics, str) else list(topics)
        made = Consumer(
            self._io,
            names,
            queues,
            check_start(start),
            wanted_of(tags, filter),
            prefetch_bytes,
            self._timeout_s,
            create_topics=self._create_topics,
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
    ) -> PullResult:
        """Read from one queue; as `logboom.client.Client.pull`."""
        wanted = wanted_of(tags, filter)
        flow = message_flows.pull(
            topic, queue, offset, max_messages, wait_ms, wanted, self._timeout_s
        )
        return await drive(self._io, flow)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and close all producers, close all consumers, hang up. A second call does
        nothing."""
        if self._io.running:
            for each in list(self._open):
                if isinstance(each, Producer):
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
