"""The socket that the console or the exporter listens on, and uvicorn with bounds on its connections.

uvicorn has no time-out for a request that does not come, and accepts until there are no descriptors.
So the socket counts what is accepted from it, before a handshake of TLS begins, and the protocol says which
connections wait. Which of them end is decided by `wire/http_connections.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
import socket
import time
from typing import Any, Final, Literal, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from logboom.console.sign_in_limits import network_of
from logboom.wire.errors import StartError
from logboom.wire.http_connections import HttpBounds, HttpConnections, within_descriptors
from logboom.wire.tls_files import TlsFiles

CONSOLE_BOUNDS: Final = HttpBounds(total=1_000, per_address=100)
"""Connections of a console; a browser opens six."""
EXPORTER_BOUNDS: Final = HttpBounds(total=64, per_address=16)
REQUEST_S: Final = 10.0
"""Seconds for a request, head and body, of somebody who has not signed in; for the head of all others; and
for a peer to take any part of an answer."""
MAX_HEAD_BYTES: Final = 32 * 1024
PIECE_BYTES: Final = 16 * 1024
"""Bytes of a request that are looked at together, so that a longer head is noticed before it is read."""
ENDING: Final = 16
"""Connections that were ended and are not closed yet, when no more are accepted for a moment."""
LOOK_TICKS: Final = 5
"""Ticks of uvicorn, of 0.1 s each, between two looks at connections that wait too long."""


class AcceptedSocket(socket.socket):
    """A connection, which tells its listener when it ends, and when the peer takes anything."""

    listener: BoundedListener
    transport: asyncio.Transport | None = None
    """What asyncio has made of it, once its handshake is over."""

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Send, and note that something was taken."""
        sent = super().send(data, flags)
        self.listener.connections.took(self.fileno(), time.monotonic())
        return sent

    def sendmsg(self, *args: Any) -> int:
        """Send, as newer versions of asyncio do, and note that something was taken."""
        sent = super().sendmsg(*args)
        self.listener.connections.took(self.fileno(), time.monotonic())
        return sent

    def close(self) -> None:
        """Close, and make room for others."""
        self.listener.forget(self)
        super().close()

    def end(self) -> None:
        """Let whoever serves the connection find it ended."""
        if self.transport is not None:
            self.transport.abort()
            return
        # The peer may have been faster.
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


class BoundedListener(socket.socket):
    """A listening socket whose connections are bounded, whoever accepts from it."""

    def __init__(self, family: int, bounds: HttpBounds, proxy: str = "") -> None:
        """Make the socket.

        Args:
            proxy: the address of a proxy, whose connections are those of many.
        """
        super().__init__(family, socket.SOCK_STREAM)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        bounds = within_descriptors(bounds, descriptors)
        self.connections = HttpConnections(bounds, REQUEST_S)
        self._proxy = proxy
        self._most = bounds.total + ENDING
        self._accepted: dict[int, AcceptedSocket] = {}
        """Open connections by their descriptors."""

    def accept(self) -> tuple[AcceptedSocket, Any]:
        """Accept a connection.

        Raises:
            ConnectionAbortedError: there was no room for it.
            BlockingIOError: some have to be closed first that were ended.
        """
        if len(self._accepted) >= self._most:
            raise BlockingIOError("connections are being closed")
        plain, address = super().accept()
        made = AcceptedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
        made.listener = self
        number = made.fileno()
        leaving = self.connections.opened(
            number,
            network_of(address[0]),
            time.monotonic(),
            is_exempt=is_of_proxy(self._proxy, address[0]),
        )
        if leaving == number:
            made.close()
            raise ConnectionAbortedError("there are too many connections")
        if leaving is not None:
            self._accepted[leaving].end()
        self._accepted[number] = made
        return made, address

    def accepted(self, number: int) -> AcceptedSocket | None:
        """Return the open connection with a descriptor."""
        return self._accepted.get(number)

    def forget(self, connection: AcceptedSocket) -> None:
        """Note that a connection is about to be closed. Idempotent."""
        number = connection.fileno()
        if self._accepted.get(number) is connection:
            del self._accepted[number]
            self.connections.closed(number)

    def end_late(self) -> None:
        """End the connections that have waited too long."""
        for number in self.connections.late(time.monotonic()):
            self._accepted[number].end()


class BoundedConfig(uvicorn.Config):
    """The settings of a server on a bounded listener."""

    def __init__(
        self,
        app: ASGIApp,
        listener: BoundedListener,
        backlog: int,
        *,
        end_s: int,
        lifespan: Literal["auto", "on"] = "auto",
        proxy: str = "",
        tls: TlsFiles | None = None,
    ) -> None:
        """Make the settings.

        Args:
            end_s: seconds that open connections have once the server is told to stop.
            lifespan: "on" if the application has to begin before anybody is served.
            proxy: addresses whose headers say who asks; of anybody else they are not believed.
        """
        super().__init__(
            app,
            http=BoundedProtocol,
            lifespan=lifespan,
            proxy_headers=bool(proxy),
            forwarded_allow_ips=proxy,
            ssl_context_factory=None if tls is None else lambda *_: tls.listening_context(),
            timeout_graceful_shutdown=end_s,
            ws="none",
            backlog=backlog,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            # Its warnings are of requests that are no HTTP, and anybody can send those.
            log_level="error",
            access_log=False,
            server_header=False,
        )
        self.listener = listener


class BoundedServer(uvicorn.Server):
    """uvicorn, which ends connections that wait too long."""

    def __init__(self, config: BoundedConfig) -> None:
        super().__init__(config)
        self._listener = config.listener

    async def on_tick(self, counter: int) -> bool:
        """Look at the connections now and then."""
        if counter % LOOK_TICKS == 0:
            self._listener.end_late()
        return await super().on_tick(counter)


class BoundedProtocol(H11Protocol):
    """A connection of uvicorn, which says whether it waits.

    The application finds it in the state of a request, and says there who has signed in.
    """

    _connection: AcceptedSocket | None = None
    _is_known = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: a handshake is over."""
        transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)
        self.app_state = {**self.app_state, "connection": self}
        if isinstance(self.config, BoundedConfig):
            number = transport.get_extra_info("socket").fileno()
            self._connection = self.config.listener.accepted(number)
        if self._connection is None:
            # It had to end within its handshake.
            transport.abort()
            return
        self._connection.transport = transport

    def data_received(self, data: bytes) -> None:
        """Take what was received."""
        for place in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[place : place + PIECE_BYTES])
        self._follow()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._is_known = False
        super().on_response_complete()
        self._follow()

    def pause_writing(self) -> None:
        """Wait until the peer takes something."""
        super().pause_writing()
        self._follow()

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        self._follow()

    def note_known(self) -> None:
        """Note that the request is of somebody who has signed in, who may take longer for its body."""
        self._is_known = True
        self._follow()

    def _follow(self) -> None:
        """Tell the listener whether the connection waits."""
        if self._connection is None or not isinstance(self.config, BoundedConfig):
            return
        number = self._connection.fileno()
        # None before the first request, though uvicorn declares otherwise.
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        is_served = (
            cycle is not None
            and not cycle.response_complete
            and not self.flow.write_paused
            and (self._is_known or not cycle.more_body)
        )
        if is_served:
            self.config.listener.connections.served(number)
        else:
            self.config.listener.connections.waits(number, time.monotonic())


def is_of_proxy(proxy: str, address: str) -> bool:
    """Return True for an address of the proxy, which may be said as uvicorn reads it: some addresses or networks
    with commas between them, or *."""
    for each in filter(None, map(str.strip, proxy.split(","))):
        if each in ("*", address):
            return True
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(address) in ipaddress.ip_network(each, strict=False):
                return True
    return False


def listen(
    host: str, port: int, backlog: int, bounds: HttpBounds, proxy: str = ""
) -> BoundedListener:
    """Return a socket that listens; port 0 is any free one.

    Raises:
        StartError: the port is in use, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = BoundedListener(family, bounds, proxy)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(backlog)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise StartError(
            f"{host}:{port} cannot be listened at ({error.strerror or error}): choose another with "
            "--listen 127.0.0.1:PORT"
        ) from None
    return made


def local_url(scheme: str, host: str, port: int) -> str:
    """Return where programs of this machine find a listener, with a slash at the end."""
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}/"
