"""The skin between pages and the cluster: clients, answers that viewers share, and samples."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from logboom.client.aio import Client, connect
from logboom.console.cluster_history import SAMPLE_S, ClusterHistory
from logboom.console.console_jobs import ConsoleJobs
from logboom.console.consumer_sampler import ConsumerSampler
from logboom.console.viewers import Viewer
from logboom.wire.errors import LogboomError
from logboom.wire.key_pair import SecretBytes

T = TypeVar("T")
CONNECT_S: Final = 5.0
"""Seconds that a first answer of the cluster may take, and each request."""
IDLE_S: Final = 600.0
"""Seconds after which the client of a viewer who looks no more is closed."""
MAX_CACHED: Final = 2_000
MAX_AT_ONCE: Final = 16
"""Questions of one page that are on their way together."""


class ClusterSource:
    """The cluster as one user sees it; `ClusterAccess` for loaders."""

    def __init__(self, client: Client) -> None:
        self.boom = client
        self.history = ClusterHistory()
        self.consumers = ConsumerSampler(client)
        self.jobs = ConsoleJobs(self.forget)
        self.used_mono_s = time.monotonic()
        self._cache: dict[str, tuple[float, asyncio.Future[Any]]] = {}
        self._renewals: dict[str, asyncio.Future[None]] = {}
        """What is being asked anew while the last answer is shown."""
        self._sampler = asyncio.create_task(self._sample())

    async def cached(
        self,
        key: str,
        make: Callable[[], Awaitable[T]],
        max_age_s: float = 2.0,
        stale_s: float = 0.0,
    ) -> T:
        """Return what `make` returned at most so long ago for this key, whoever asked."""
        now = time.monotonic()
        found = self._cache.get(key)
        if found is not None:
            age_s = now - found[0]
            if not found[1].done() or age_s <= max_age_s:
                # A viewer who goes away must not cancel what others wait for.
                return cast(T, await asyncio.shield(found[1]))
            if age_s <= stale_s:
                if key not in self._renewals:
                    self._renewals[key] = asyncio.ensure_future(self._renew(key, make))
                return cast(T, found[1].result())
        if len(self._cache) >= MAX_CACHED:
            self._cache = {of: each for of, each in self._cache.items() if not each[1].done()}
        made: asyncio.Future[Any] = asyncio.ensure_future(make())
        self._cache[key] = (now, made)
        made.add_done_callback(lambda done: self._made(key, done))
        return cast(T, await asyncio.shield(made))

    async def _renew(self, key: str, make: Callable[[], Awaitable[Any]]) -> None:
        """Ask anew for what is shown meanwhile as it was."""
        before = self._cache.get(key)
        try:
            # What cannot be told now is asked for again by the next viewer, who then sees why.
            with contextlib.suppress(LogboomError):
                made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                made.set_result(await make())
                if self._cache.get(key) is before:
                    self._cache[key] = (time.monotonic(), made)
        finally:
            self._renewals.pop(key, None)

    def _made(self, key: str, done: asyncio.Future[Any]) -> None:
        held = self._cache.get(key)
        if held is None or held[1] is not done:
            return
        if done.cancelled() or done.exception() is not None:
            del self._cache[key]
        else:
            self._cache[key] = (time.monotonic(), done)

    async def together(self, calls: Sequence[Awaitable[T]]) -> list[T]:
        """Wait for several questions at once, and return their answers in order."""
        limit = asyncio.Semaphore(MAX_AT_ONCE)

        async def ask(call: Awaitable[T]) -> T:
            async with limit:
                return await call

        tasks = [asyncio.ensure_future(ask(call)) for call in calls]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def pause(self, seconds: float) -> None:
        """Wait, between two pieces of a stream."""
        # Whoever follows a stream looks, though no page is asked for.
        self.used_mono_s = time.monotonic()
        await asyncio.sleep(seconds)

    def forget(self) -> None:
        """Ask the cluster anew for everything: something was changed."""
        self.consumers.forget()
        # Also what is being asked for, which may be answered as it was before the change.
        self._cache = {}

    async def _sample(self) -> None:
        while True:
            begun = time.monotonic()
            # A cluster that does not answer leaves a gap; pages tell the reason.
            with contextlib.suppress(LogboomError):
                # The client keeps the metadata, so that pages ask only for what has changed since.
                await self.boom.admin.view()
                self.history.add(time.time(), await self.boom.admin.stats())
            await asyncio.sleep(max(1.0, SAMPLE_S - (time.monotonic() - begun)))

    async def close(self) -> None:
        """Close the client."""
        self._sampler.cancel()
        renewals = [*self._renewals.values()]
        for renewal in renewals:
            renewal.cancel()
        await asyncio.gather(*renewals, return_exceptions=True)
        await self.jobs.close()
        await self.consumers.close()
        await asyncio.gather(self._sampler, return_exceptions=True)
        await self.boom.close()


class ClusterSources:
    """The clients of a console: its own, and one for each viewer's credentials."""

    def __init__(
        self, endpoints: tuple[str, ...], credentials: Path | None, cluster_key: bytes = b""
    ) -> None:
        """Connect to nothing yet.

        Args:
            cluster_key: of a cluster without users; its administration needs it.
        """
        self._cluster_key = SecretBytes(cluster_key)
        self._endpoints = endpoints
        self._credentials = credentials
        self._sources: dict[Path | None, ClusterSource] = {}
        self._lock = asyncio.Lock()

    async def of(self, viewer: Viewer) -> ClusterSource:
        """Return the cluster as a viewer sees it.

        Raises:
            LogboomError: the cluster does not answer, or does not know the credentials.
        """
        file = None if viewer.credentials is None else Path(viewer.credentials)
        async with self._lock:
            source = self._sources.get(file)
            if source is None:
                client = await connect(
                    self._endpoints,
                    credentials=file or self._credentials,
                    timeout_s=CONNECT_S,
                    client_id="console",
                    cluster_key=b"" if file else self._cluster_key,
                )
                source = self._sources[file] = ClusterSource(client)
            source.used_mono_s = time.monotonic()
            await self._close_idle()
        return source

    async def _close_idle(self) -> None:
        now = time.monotonic()
        for file, source in [*self._sources.items()]:
            # Work that goes on has nobody who looks, and is not ended for that.
            idle = now - source.used_mono_s > IDLE_S and not source.jobs.running
            if file is not None and idle:
                del self._sources[file]
                await source.close()

    async def close(self) -> None:
        """Close all clients."""
        sources, self._sources = self._sources, {}
        for source in sources.values():
            await source.close()
