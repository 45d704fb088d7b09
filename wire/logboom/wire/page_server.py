"""A small HTTP server for pages that anybody may read: a thread, and one for each connection.

It answers GET and HEAD and closes. A connection has some seconds for everything, and there are few
at once. One whose request has not come gives way to a new one, so whoever is slow holds up nobody
else. It has no users, and encryption if it is given a context of TLS for each connection.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, NamedTuple, TypeAlias

from logboom.wire.errors import StartError
from logboom.wire.http_connections import HttpBounds, HttpConnections

MAX_CONNECTIONS: Final = 16
"""Connections at once; further ones are refused while all of these are answered."""
IDLE_S: Final = 5.0
"""Seconds that a peer gets to send or take anything."""
WHOLE_S: Final = 10.0
"""Seconds that a connection may take in all."""
LOOK_S: Final = 1.0
"""Seconds between two looks at connections that take too long."""
UNREAD_BYTES: Final = 64 * 1024
"""Bytes of a request's body that are read after the answer, so that it arrives."""
UNREAD_S: Final = 0.2
SHORT_S: Final = 0.2
"""Seconds for which no connection is accepted after there was no descriptor or memory for one."""
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
TEXT: Final = "text/plain; charset=utf-8"
_log = logging.getLogger("logboom.wire.metrics")


class Page(NamedTuple):
    """An answer."""

    status: HTTPStatus
    content_type: str
    body: bytes
    retry_after_s: int = 0
    """Seconds after which to ask again; 0: nothing is said about that."""


FindPage: TypeAlias = Callable[[str, str], Page | None]
"""Returns the page at a path in the format that an `Accept` header asks for, or None."""
FindContext: TypeAlias = Callable[[], ssl.SSLContext]
"""Returns the context of TLS for a new connection."""


class PageServer:
    """A bound port; `start` begins to answer."""

    def __init__(
        self, address: str, find_page: FindPage, find_context: FindContext | None = None
    ) -> None:
        """Bind an address, "host:port"; port 0 takes a free one.

        Args:
            find_context: None: connections are not encrypted.

        Raises:
            StartError: PORT_IN_USE, or BAD_CONFIG for an address that is not of this machine.
        """
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            self._server = _Server(host, int(port), find_page, find_context)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                text = (
                    f"port of {address} is in use: stop what listens there, or choose another port"
                )
                raise StartError(text, "PORT_IN_USE", address=address) from None
            text = f"cannot listen on {address!r} ({error}): give host:port of this machine"
            raise StartError(text, "BAD_CONFIG", address=address) from None
        bound = self._server.server_address[1]
        self.endpoint = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        """The host:port that is bound."""
        self._ending, self._end = socket.socketpair()
        """The first is readable once the server has to end, which ends the wait for connections."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Answer from now on, in a thread."""
        self._thread = threading.Thread(target=self._serve, name="logboom-pages", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._ending, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(LOOK_S)]
                if self._ending in ready:
                    return
                if ready:
                    self._server.handle_request()
                self._server.service_actions()
                if self._server.is_short:
                    self._server.is_short = False
                    # The connection stays in the backlog, so the listener is ready all the time.
                    selector.unregister(self._server)
                    is_ending = bool(selector.select(SHORT_S))
                    selector.register(self._server, selectors.EVENT_READ)
                    if is_ending:
                        return

    def close(self) -> None:
        """Release the port, and end all connections. Idempotent."""
        if self._thread is not None:
            self._end.send(b"\0")
            self._thread.join()
            self._thread = None
        self._server.server_close()
        self._ending.close()
        self._end.close()


class _Server(socketserver.TCPServer):
    """The listening socket and its connections."""

    allow_reuse_address = True
    request_queue_size = MAX_CONNECTIONS
    timeout = 0.0
    """A connection that was withdrawn is not waited for."""

    def __init__(
        self, host: str, port: int, find_page: FindPage, find_context: FindContext | None
    ) -> None:
        self.find_page = find_page
        self._find_context = find_context
        self.is_short = False
        """True if the last connection was not accepted for want of a descriptor or memory."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._open: dict[socket.socket, tuple[float, threading.Thread]] = {}
        """Connection → when it has to be done, in monotonic seconds, and its thread."""
        self._places = HttpConnections(HttpBounds(MAX_CONNECTIONS, 0), WHOLE_S)
        """Which of them give way to others."""
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and note if there is no room for one.

        Raises:
            OSError: there is none, or the peer is gone already; whoever calls this waits for the next.
        """
        try:
            request, address = super().get_request()
        except OSError as error:
            self.is_short = error.errno in _SHORT
            raise
        if self._find_context is not None:
            try:
                # `wrap_socket` would leave a connection open that was reset meanwhile.
                request.getpeername()
                # The handshake waits for the peer, and is made in the connection's own thread.
                request = self._find_context().wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
            except OSError:
                request.close()
                raise
        return request, address

    def process_request(self, request: Any, client_address: Any) -> None:
        number, now = request.fileno(), time.monotonic()
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name="logboom-page", daemon=True
        )
        with self._lock:
            leaving = self._places.opened(number, client_address[0], now)
            if leaving != number:
                self._open[request] = (now + WHOLE_S, thread)
            ended = [each for each in self._open if each.fileno() == leaving]
        if leaving == number:
            _refuse(request)
            self.shutdown_request(request)
            return
        for each in ended:
            _end(each)
        thread.start()

    def page_for(self, request: socket.socket, path: str, accept: str) -> Page | None:
        """Make the page that a connection asks for, which meanwhile gives way to nobody."""
        with self._lock:
            self._places.served(request.fileno())
        try:
            return self.find_page(path, accept)
        finally:
            with self._lock:
                self._places.waits(request.fileno(), time.monotonic())

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            if isinstance(request, ssl.SSLSocket):
                request.do_handshake()
            self.finish_request(request, client_address)
            _read_rest(request)
        except OSError:
            pass  # The peer is gone, or was too slow.
        # One bad request must not end the thread without a word.
        except Exception:  # noqa: BLE001 - whatever it is, it is logged, and the others go on
            _log.exception("a page could not be made")
        finally:
            self._forget(request)
            self.shutdown_request(request)

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            if self._open.pop(request, None) is not None:
                self._places.closed(request.fileno())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what a connection failed with before it had a thread."""
        self._forget(request)
        _log.exception("a connection could not be served")

    def service_actions(self) -> None:
        """End the connections that take too long; called every second."""
        now = time.monotonic()
        with self._lock:
            late = [request for request, (due, _) in self._open.items() if due <= now]
        for request in late:
            _end(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            left = [(request, thread) for request, (_, thread) in self._open.items()]
        for request, _ in left:
            _end(request)
        for _, thread in left:
            thread.join(IDLE_S)


def _end(request: socket.socket) -> None:
    """Let every read and write of a connection end."""
    # The peer may have been faster.
    with contextlib.suppress(OSError):
        # Not that of TLS, which would let the connection's thread go on without encryption.
        socket.socket.shutdown(request, socket.SHUT_RDWR)


def _refuse(request: socket.socket) -> None:
    """Answer, as far as that is possible at once, that there are too many connections."""
    if isinstance(request, ssl.SSLSocket):
        return
    try:
        request.setblocking(False)
        request.send(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n")
    except OSError:
        pass


def _read_rest(request: socket.socket) -> None:
    """Read what the peer has sent beside the request: a reset would take the answer away from it."""
    request.settimeout(UNREAD_S)
    if isinstance(request, ssl.SSLSocket):
        # Tell the peer that this was all. It need not say so, too.
        with contextlib.suppress(OSError):
            request.unwrap()
    request.shutdown(socket.SHUT_WR)
    left = UNREAD_BYTES
    while left > 0 and (found := request.recv(left)):
        left -= len(found)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Server
    timeout = IDLE_S
    default_request_version = "HTTP/1.0"
    """Of a request whose first line makes no sense; the answer has a head all the same."""
    server_version = "logboom"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the page."""
        accept = ",".join(self.headers.get_all("Accept") or ())
        page = self.server.page_for(self.connection, self.path.partition("?")[0], accept)
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._answer(page)

    do_HEAD = do_GET  # noqa: N815 - as `BaseHTTPRequestHandler` calls it

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with an error, in one line."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        if status is HTTPStatus.NOT_FOUND:
            text = "there is no such page: / lists them"
        elif status is HTTPStatus.METHOD_NOT_ALLOWED:
            text = "only GET and HEAD are answered"
        else:
            text = status.phrase
        self._answer(Page(status, TEXT, f"{text}\n".encode()))

    def _answer(self, page: Page) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if page.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if page.retry_after_s:
            self.send_header("Retry-After", str(page.retry_after_s))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as inherited
        """Log nothing: probes come every few seconds."""
