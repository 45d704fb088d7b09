"""Accepted TCP connections of a node, below ZeroMQ: what they received, and how to close one.

ZeroMQ owns the descriptors. They are looked at and reset here, never closed, and a socket cookie
tells whether a descriptor is still the same connection. Linux only: elsewhere nothing is watched.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import logging
import os
import re
import select
import socket
import struct
import termios
from collections.abc import Iterator
from typing import Final

from logboom.wire.unfinished_messages import Excess, Standing, UnfinishedLimits, UnfinishedMessages

LOOK_S: Final = 0.05
"""Seconds between two looks at what connections received."""
PEEKED_FROM: Final = 64 * 1024
"""Unfinished bytes from which is looked at what they are."""
PEEKED_BYTES: Final = 4096
"""How much of it is looked at."""
MAX_PEEKED: Final = 64
"""Connections that are looked into at once."""
_BODIES: Final = b"|".join(b"%b.{%d}" % (re.escape(bytes((n,))), n) for n in range(32))
TINY_FRAMES: Final = re.compile(
    b"(?:\\x01(?:%b)|\\x03\\x00{7}(?:%b)){64}" % (_BODIES, _BODIES), re.DOTALL
)
"""Many frames of less than 32 bytes, one after the other, of which none is a message's last."""
ROTATED: Final = 32
"""Connections that are sampled in each look, whatever is reported of them."""
LOG_S: Final = 10.0
"""Seconds between two log lines about closed connections."""
SO_COOKIE: Final = 57
"""socket(7): a number that no other socket of this machine has had (asm-generic/socket.h)."""
BYTES_RECEIVED: Final = 128
"""Offset of tcpi_bytes_received in struct tcp_info (linux/tcp.h)."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_log = logging.getLogger("logboom.wire")


class AcceptedConnections:
    """The connections that the listeners of one node accepted, with their unfinished messages."""

    def __init__(self, limits: UnfinishedLimits) -> None:
        self.account = UnfinishedMessages(limits)
        self.closed = 0
        """Connections closed for what they left unfinished."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._epoll: select.epoll | None = None
        """Made for the first connection: a client accepts none."""
        self._cookies: dict[int, int] = {}
        self._rotation: list[int] = []
        """Descriptors that are still to be sampled in this rotation."""
        self._looked = False
        """Whether there was a look since the last judgement."""
        self._next_look = 0.0
        self._next_line = 0.0
        self._untold = 0
        """Connections closed since the last log line."""

    def accepted(self, descriptor: int, listener: str, port: int, now: float) -> None:
        """A listener on `port` accepted a connection; it may be gone already."""
        if not hasattr(select, "epoll"):
            return
        if self._epoll is None:
            self._epoll = select.epoll()
        self.gone(descriptor)
        with contextlib.suppress(OSError):
            # An old event: the number may be something else by now, such as a dialled connection.
            with _borrowed(descriptor) as connection:
                if connection.getsockname()[1] != port:
                    return
                self._cookies[descriptor] = _cookie(connection)
            # Edge-triggered: who sends nothing costs nothing. Also for being writable, since what
            # has arrived may have been read by ZeroMQ when we look: then only this is reported.
            self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
            self.account.opened(descriptor, listener, now)

    def gone(self, descriptor: int) -> None:
        """A connection ended."""
        if self._cookies.pop(descriptor, None) is not None:
            self.account.closed(descriptor)

    def due(self, now: float) -> bool:
        """Whether it is time for `look`, at most every `LOOK_S` seconds."""
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_S
        return True

    def look(self, now: float) -> None:
        """Sample all connections that received something since the last look.

        Those with an unfinished message, and some of all others in rotation, are sampled in any
        case: a peer that never reads is not writable, and may send without being reported.
        """
        if self._epoll is None or not self._cookies:
            return
        found = {fd for fd, _ in self._epoll.poll(0, len(self._cookies))}
        found.update(self.account.unfinished())
        found.update(self._in_rotation())
        self._looked = True
        peeked = 0
        for descriptor in found:
            total = self._read_by_zeromq(descriptor)
            if total is None:
                continue
            tiny = None
            if peeked < MAX_PEEKED and self.account.bytes_of(descriptor) >= PEEKED_FROM:
                peeked += 1
                tiny = self._is_tiny(descriptor)
            self.account.sampled(descriptor, total, now, tiny=tiny)
        self.account.begin_rounds()

    @staticmethod
    def _is_tiny(descriptor: int) -> bool | None:
        """Whether a connection's next bytes are tiny frames; None: there are too few."""
        try:
            with _borrowed(descriptor) as connection:
                flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
                said = connection.recv(PEEKED_BYTES, flags)
        except OSError:
            return None
        if len(said) < PEEKED_BYTES // 2:
            return None
        return TINY_FRAMES.search(said) is not None

    def _in_rotation(self) -> list[int]:
        if not self._rotation:
            self._rotation = list(self._cookies)
        chosen = self._rotation[-ROTATED:]
        del self._rotation[-ROTATED:]
        return chosen

    def _read_by_zeromq(self, descriptor: int) -> int | None:
        """Bytes that ZeroMQ has read from a connection."""
        info = ctypes.create_string_buffer(BYTES_RECEIVED + 8)
        size = ctypes.c_uint32(len(info))
        failed = self._libc.getsockopt(
            descriptor, socket.IPPROTO_TCP, socket.TCP_INFO, info, ctypes.byref(size)
        )
        if failed or size.value < len(info):
            return None
        received: int = struct.unpack_from("<Q", info.raw, BYTES_RECEIVED)[0]
        waiting = array.array("i", [0])
        try:
            fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
        except OSError:
            return None
        return received - waiting[0]

    def close_excess(self, standing: Standing, now: float) -> None:
        """Shut down every connection that is past a limit."""
        found = self.account.excess(standing)
        if self._looked:
            self._looked = False
            found += self.account.swollen(_resident_bytes(), standing)
        for excess in found:
            address = self._shut_down(excess.connection)
            if address is not None:
                self.closed += 1
                self._untold += 1
                self._tell(address, excess, now)

    def _shut_down(self, descriptor: int) -> str | None:
        """Reset a connection; ZeroMQ finds it broken and closes it. Returns who it was."""
        cookie = self._cookies.pop(descriptor, None)
        with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
            # The number may have been given to another connection meanwhile.
            if cookie == _cookie(connection):
                host, port = connection.getpeername()[:2]
                self._abort(connection)
                return f"{host}:{port}"
        return None

    def _abort(self, connection: socket.socket) -> None:
        """Reset a connection: connect(2) to no address. After a mere shutdown(2) the system would go
        on to receive, and ZeroMQ to read, for as long as the peer sends."""
        address = struct.pack("=H14x", socket.AF_UNSPEC)
        self._libc.connect(connection.fileno(), address, len(address))

    def _tell(self, address: str, excess: Excess, now: float) -> None:
        if now < self._next_line:
            return
        self._next_line = now + LOG_S
        shared = "all such connections together" if excess.shared else "a connection"
        more = f" ({self._untold - 1} more since the last line)" if self._untold > 1 else ""
        self._untold = 0
        _log.warning(
            "closed the connection from %s: %d bytes of a message without its end; %s may have "
            "at most %d%s",
            address,
            excess.unfinished_bytes,
            shared,
            excess.limit_bytes,
            more,
        )

    def close(self) -> None:
        """Stop watching."""
        if self._epoll is not None:
            self._epoll.close()


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A second descriptor of a connection, which nobody can close under us."""
    second = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=second)
    except OSError:
        # It is none of ours any more.
        os.close(second)
        raise
    with connection:
        yield connection


def _resident_bytes() -> int:
    """Memory that this process has (proc(5))."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - many times a second
        return int(file.read().split()[1]) * PAGE_BYTES


def _cookie(connection: socket.socket) -> int:
    return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), "little")
