"""Runs the web console: a socket, uvicorn, and the application on it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from starlette.routing import BaseRoute

from logboom.console import http_listener
from logboom.console.cluster_source import ClusterSources
from logboom.console.console_audit import ConsoleAudit
from logboom.console.http_listener import BoundedConfig, BoundedServer, listen, local_url
from logboom.console.request_checks import is_loopback
from logboom.console.sign_in import SignInRoutes
from logboom.console.site import ConsoleSettings
from logboom.console.viewers import LocalViewerBook, ViewerBook
from logboom.console.viewers_file import ViewersFile
from logboom.console.web_app import WebConsole
from logboom.wire.errors import StartError
from logboom.wire.tls_files import TlsFiles

BACKLOG: Final = 128
END_S: Final = 5
"""Seconds that open requests have to end."""


class ConsoleServer:
    """A console on its socket; `run` serves until `stop`."""

    def __init__(
        self,
        settings: ConsoleSettings,
        endpoints: Sequence[str],
        credentials: Path | None,
        audit_folder: Path,
        viewers: ViewersFile | None = None,
        cluster_key: bytes = b"",
    ) -> None:
        """Bind the socket; port 0 is any free one.

        Args:
            viewers: who signs in; None: everybody who reaches it is the local viewer.
            cluster_key: of a cluster without users; its administration needs it.

        Raises:
            StartError: the port is in use, the address is not this machine's, other machines reach
                it, by themselves or by a proxy, and there are no viewers, or the certificate cannot
                be used.
        """
        book: ViewerBook = viewers or LocalViewerBook()
        extra_routes: Sequence[BaseRoute] = () if viewers is None else SignInRoutes(viewers).routes
        if not is_loopback(settings.host) and not book.must_sign_in:
            raise StartError(
                f"other machines reach {settings.host}, and the console has no viewers: add one "
                "with `logboom console viewer add NAME`, or listen at 127.0.0.1"
            )
        if settings.proxy and not book.must_sign_in:
            raise StartError(
                f"whoever reaches the proxy at {settings.proxy} reaches the console, and it has no "
                "viewers: add one with `logboom console viewer add NAME`, or leave --proxy out"
            )
        tls = TlsFiles(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
        self._socket = listen(
            settings.host, settings.port, BACKLOG, http_listener.CONSOLE_BOUNDS, settings.proxy
        )
        port = self._socket.getsockname()[1]
        self.settings = replace(settings, port=port)
        try:
            self._audit = ConsoleAudit(audit_folder)
        except StartError:
            self._socket.close()
            raise
        self._console = WebConsole(
            self.settings,
            lambda: ClusterSources(tuple(endpoints), credentials, cluster_key),
            book,
            self._audit,
            extra_routes,
        )
        config = BoundedConfig(
            self._console.app,
            self._socket,
            BACKLOG,
            end_s=END_S,
            lifespan="on",
            proxy=settings.proxy,
            tls=tls,
        )
        self._server = _Server(config, self._console)

    @property
    def url(self) -> str:
        """Where a browser of this machine finds it."""
        scheme = "https" if self.settings.tls_cert else "http"
        return local_url(scheme, self.settings.host, self.settings.port)

    @property
    def audit_path(self) -> Path:
        """The file of its audit log."""
        return self._audit.path

    def run(self) -> None:
        """Serve until `stop`, or until Ctrl-C in the main thread."""
        try:
            asyncio.run(self._server.serve([self._socket]))
        finally:
            self._socket.close()
            self._audit.close()

    def stop(self) -> None:
        """End; may be called from any thread."""
        self._server.should_exit = True


class _Server(BoundedServer):
    """uvicorn, which ends our streams before it waits for open requests."""

    def __init__(self, config: BoundedConfig, console: WebConsole) -> None:
        super().__init__(config)
        self._console = console

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._console.stop_streams()
        await super().shutdown(sockets)


@contextmanager
def console_thread(server: ConsoleServer) -> Iterator[ConsoleServer]:
    """Run a console in a thread of this process."""
    thread = threading.Thread(target=server.run, name="logboom-console", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
