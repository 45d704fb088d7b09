"""Runs the exporter alone: a socket, uvicorn, and a client of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette

from logboom.client.aio import connect
from logboom.console.exporter.cluster_sampler import ClusterExporter
from logboom.console.exporter.exporter_families import DEFAULT_MAX_SERIES
from logboom.console.exporter.scrape_app import scrape_routes
from logboom.console.http_listener import (
    EXPORTER_BOUNDS,
    BoundedConfig,
    BoundedServer,
    listen,
    local_url,
)
from logboom.wire.credentials import Credentials
from logboom.wire.tls_files import TlsFiles

BACKLOG: Final = 16
END_S: Final = 2
"""Seconds that open requests have to end."""
CLIENT_TIMEOUT_S: Final = 8.0
"""Seconds that a node has to answer. A scrape is answered before, with what was known."""


class ExporterServer:
    """The exporter on its socket; `run` serves until `stop`, Ctrl-C or SIGTERM."""

    def __init__(
        self,
        host: str,
        port: int,
        endpoints: Sequence[str],
        credentials: Credentials | None,
        *,
        queues: bool = False,
        max_series: int = DEFAULT_MAX_SERIES,
        tls: TlsFiles | None = None,
    ) -> None:
        """Bind the socket; port 0 is any free one.

        Args:
            tls: the certificate; None: it speaks HTTP.

        Raises:
            StartError: the port is in use, or the address is not this machine's.
        """
        self._endpoints = list(endpoints)
        self._credentials = credentials
        self._queues = queues
        self._max_series = max_series
        self._host = host
        self._tls = tls
        self._socket = listen(host, port, BACKLOG, EXPORTER_BOUNDS)
        self._server: BoundedServer | None = None

    @property
    def url(self) -> str:
        """Where Prometheus on this machine finds it."""
        scheme = "http" if self._tls is None else "https"
        return local_url(scheme, self._host, self._socket.getsockname()[1]) + "metrics"

    def run(self) -> None:
        """Connect to the cluster and serve.

        Raises:
            LogboomError: as `connect` does.
        """
        try:
            asyncio.run(self._run())
        finally:
            self._socket.close()

    def stop(self) -> None:
        """End; may be called from any thread."""
        if self._server is not None:
            self._server.should_exit = True

    async def _run(self) -> None:
        client = connect(
            self._endpoints,
            credentials=self._credentials,
            timeout_s=CLIENT_TIMEOUT_S,
            client_id="logboom-exporter",
        )
        async with (
            client as boom,
            _closing(
                ClusterExporter(boom, queues=self._queues, max_series=self._max_series)
            ) as exporter,
        ):
            config = BoundedConfig(
                Starlette(routes=scrape_routes(exporter)),
                self._socket,
                BACKLOG,
                end_s=END_S,
                tls=self._tls,
            )
            self._server = BoundedServer(config)
            await self._server.serve([self._socket])


@asynccontextmanager
async def _closing(exporter: ClusterExporter) -> AsyncIterator[ClusterExporter]:
    try:
        yield exporter
    finally:
        await exporter.aclose()
