"""Accepted TCP connections of a node, below ZeroMQ: how much they received, and how to close one.

ZeroMQ owns the descriptors. This module inspects and resets them but never closes them; a socket
cookie tells whether a descriptor still is the same connection. It works on Linux only and does
nothing elsewhere.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import os
import re
import select
import socket
import struct
import termios
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final

from logboom.wire.actor import PeerAddress
from logboom.wire.connection_info import ConnectionInfo
from logboom.wire.connection_limits import (
    DEFAULT_LIMITS,
    ConnectionBook,
    ConnectionLimits,
    RefusalReason,
    UnheardConnections,
    refusal_text,
)
from logboom.wire.event_log import log_event
from logboom.wire.packet_filters import SMALL_PACKETS, detach_filter
from logboom.wire.refusal_counter import RefusalCounter
from logboom.wire.unfinished_messages import Excess, Standing, UnfinishedLimits, UnfinishedMessages

LOOK_S: Final = 0.05
"""Seconds between two inspections of the connections."""
PEEKED_FROM: Final = 64 * 1024
"""Unfinished bytes from which on a connection's buffer is inspected."""
PEEKED_BYTES: Final = 4096
"""Bytes of the buffer that are inspected."""
MAX_PEEKED: Final = 64
"""Connections whose buffers are inspected at once."""
_BODIES: Final = b"|".join(b"%b.{%d}" % (re.escape(bytes((n,))), n) for n in range(32))
TINY_FRAMES: Final = re.compile(
    b"(?:\\x01(?:%b)|\\x03\\x00{7}(?:%b)){64}" % (_BODIES, _BODIES), re.DOTALL
)
"""Many frames of less than 32 bytes in a row, none of which is the last of a message."""
ROTATED: Final = 32
"""Connections that every inspection samples in any case."""
MAX_SAMPLED: Final = 1_000
"""Connections with news, and as many with an unfinished message, that one inspection samples."""
LOG_S: Final = 10.0
"""Seconds between two log lines about closed connections."""
SO_COOKIE: Final = 57
"""socket(7): a number that no other socket of this machine has had (asm-generic/socket.h)."""
PROBED_AFTER_S: Final = 2
"""Seconds after which a silent peer's system is asked if the connection still exists."""
PROBES: Final = 3
"""Questions without an answer after which it does not."""
DEAD_AFTER_MS: Final = 1000 * PROBED_AFTER_S * (1 + PROBES)
"""Milliseconds without a sign of a peer's system after which its connection is reset. Of accepted
connections, the system's own limit, TCP_USER_TIMEOUT, is that of peers that live and do not read."""
ASKED: Final = 2
"""Offset of tcpi_retransmits and tcpi_probes in struct tcp_info (linux/tcp.h): what was sent again
since the last sign of the other side."""
LAST_ACK_RECEIVED: Final = 56
"""Offset of tcpi_last_ack_recv there, in milliseconds ago."""
BYTES_ACKED: Final = 120
"""Offset of tcpi_bytes_acked there."""
BYTES_RECEIVED: Final = 128
"""Offset of tcpi_bytes_received there."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class AcceptedConnections:
    """The connections that a node's listeners have accepted, with their unfinished messages."""

    def __init__(
        self, limits: UnfinishedLimits, callers: ConnectionLimits = DEFAULT_LIMITS
    ) -> None:
        self.account = UnfinishedMessages(limits)
        self.book = ConnectionBook(callers)
        self.unheard = UnheardConnections()
        self.refused = 0
        """Connections that were reset at once, since their address had or opened too many, or the
        process had too few descriptors left."""
        self._refusals = RefusalCounter[str, RefusalReason](self._tell_refusals)
        self.closed = 0
        """Connections closed because of their unfinished messages, or since too much waits."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._epoll: select.epoll | None = None
        """Created with the first connection: a client accepts none."""
        self._loan = _Loan()
        self._listeners: dict[int, str] = {}
        """Descriptor → the listener that has accepted the connection."""
        self._callers: dict[tuple[int, str], int] = {}
        """(descriptor, listener) → the listener's port: connections that were reported and not looked
        at yet."""
        self._cookies: dict[int, int] = {}
        self._rotation: list[int] = []
        """Descriptors that are still to be sampled in this rotation."""
        self._last_in_turn = -1
        """The last connection with an unfinished message that was sampled."""
        self._looked = False
        """True if an inspection has followed the last judgement."""
        self._next_look = 0.0
        self._next_line = 0.0
        self._untold = 0
        """Connections closed since the last log line."""

    def reported(self, descriptor: int, listener: str, port: int) -> None:
        """Take the report that a listener on `port` has accepted a connection."""
        if self._watching() is not None:
            # Its place is that of the last report.
            self._callers.pop((descriptor, listener), None)
            self._callers[descriptor, listener] = port

    @property
    def has_callers(self) -> bool:
        """True if connections were reported and not looked at yet."""
        return bool(self._callers)

    def take_callers(self, count: int, now: float, *, shut: RefusalReason | None) -> None:
        """Look at the next `count` connections that were reported."""
        for descriptor, listener in list(islice(self._callers, count)):
            self.take_caller(descriptor, listener, now, shut=shut)

    def take_caller(
        self, descriptor: int, listener: str, now: float, *, shut: RefusalReason | None
    ) -> None:
        """Look at one, if it was reported and not looked at yet."""
        port = self._callers.pop((descriptor, listener), None)
        if port is not None:
            self.accepted(descriptor, listener, port, now, shut=shut)

    def accepted(
        self,
        descriptor: int,
        listener: str,
        port: int,
        now: float,
        *,
        shut: RefusalReason | None = None,
    ) -> None:
        """Watch a connection that a listener on `port` accepted; it may be closed already.

        It is reset if its address has too many, or if the node is `shut` for a reason.
        """
        epoll = self._watching()
        if epoll is None:
            return
        with contextlib.suppress(OSError):
            # The event is old: the number may belong to another descriptor by now, such as a
            # dialled connection, or one of another listener whose report has been read.
            with self._loan.of(descriptor) as connection:
                if not _is_at(connection, port):
                    return
                self._forget(descriptor)
                self._listeners[descriptor] = listener
                address = connection.getpeername()[0]
                reason = shut or self.book.opened(descriptor, address, now)
                if reason is not None:
                    self._abort(connection)
                    self.refused += 1
                    self._refusals.add(address, reason, now)
                    return
                self._cookies[descriptor] = _cookie(connection)
                if self.unheard.opened(descriptor, now):
                    detach_filter(connection)
                else:
                    # It has it already, unless it is older than the filter of its listener.
                    SMALL_PACKETS.attach(connection)
            # Edge-triggered: a silent peer costs nothing. Writability is watched, too: ZeroMQ may
            # already have read what arrived, and then it is the only event.
            events = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET
            try:
                epoll.register(descriptor, events)
            except FileExistsError:
                # It was taken for its predecessor, whose report came late, as its own did.
                epoll.modify(descriptor, events)
            self.account.opened(descriptor, listener, now)

    def _watching(self) -> select.epoll | None:
        """Return what tells the connections that have received something; None: not on Linux."""
        if self._epoll is None and hasattr(select, "epoll"):
            self._epoll = select.epoll()
            self._loan.reserve()
        return self._epoll

    def is_accepted(self, descriptor: int, listener: str, port: int) -> bool:
        """Return True if a descriptor is a connection that a listener on `port` has accepted."""
        # Listeners on several addresses may have the same port.
        if self._listeners.get(descriptor, listener) == listener and self._watching() is not None:
            with contextlib.suppress(OSError), self._loan.of(descriptor) as connection:
                return _is_at(connection, port)
        return False

    def gone(self, descriptor: int, listener: str) -> None:
        """Forget a connection of a listener that has ended.

        Reports of several listeners have no order: the descriptor may be another's by now.
        """
        self._callers.pop((descriptor, listener), None)
        if self._listeners.get(descriptor) == listener:
            self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._listeners.pop(descriptor, None)
        self.book.closed(descriptor)
        self.unheard.closed(descriptor)
        if self._cookies.pop(descriptor, None) is not None:
            self.account.closed(descriptor)

    def heard(self, descriptor: int, peer: PeerAddress) -> None:
        """Learn whose connection it is, and let it send large packets, with its first message."""
        if self.account.heard(descriptor, peer) and self.unheard.closed(descriptor):
            self._unfilter(descriptor)

    def admit(self, now: float) -> None:
        """Let unheard connections send large packets, as far as that is their right now."""
        for descriptor in self.unheard.admit(now):
            self._unfilter(descriptor)

    def _unfilter(self, descriptor: int) -> None:
        with contextlib.suppress(OSError), self._loan.of(descriptor) as connection:
            # The number may have been given to another connection meanwhile.
            if self._cookies.get(descriptor) == _cookie(connection):
                detach_filter(connection)

    def is_connected(self, peer: PeerAddress) -> bool:
        """Return True if a peer's connection still exists, as far as that is known."""
        return self._epoll is None or self.account.connection_of(peer) is not None

    def inspect(self, peer: PeerAddress) -> ConnectionInfo | None:
        """Return what the system says of a peer's connection; None: it has none, or is unknown."""
        descriptor = self.account.connection_of(peer)
        if descriptor is None:
            return None
        try:
            with self._loan.of(descriptor) as connection:
                if self._cookies.get(descriptor) != _cookie(connection):
                    return None
                host, port = connection.getpeername()[:2]
        except OSError:
            return None
        info = self._tcp_info(descriptor)
        if info is None:
            return None
        sent, received = struct.unpack_from("<QQ", info, BYTES_ACKED)
        return ConnectionInfo(f"{host}:{port}", received, sent)

    def kick(self, peer: PeerAddress) -> None:
        """Reset a peer's connection, if it still exists."""
        descriptor = self.account.connection_of(peer)
        if descriptor is not None:
            self._shut_down(descriptor)
            self.account.closed(descriptor)

    def due(self, now: float) -> bool:
        """Return True if it is time for `look`, which is at most every `LOOK_S` seconds."""
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_S
        return True

    def look(self, now: float) -> None:
        """Sample all connections that have received something since the last inspection.

        Connections with an unfinished message, and some of all others in rotation, are sampled in
        any case: a peer that never reads is not writable, and may send without an event.
        """
        self._refusals.tick(now)
        if self._epoll is None or not self._cookies:
            return
        # Those for which there is no room have theirs with the next inspection.
        found = {fd for fd, _ in self._epoll.poll(0, MAX_SAMPLED)}
        unfinished = in_turn(self.account.unfinished(), self._last_in_turn, MAX_SAMPLED)
        if unfinished:
            self._last_in_turn = unfinished[-1]
        found.update(unfinished)
        found.update(self._in_rotation())
        self._looked = True
        peeked = 0
        for descriptor in found:
            info = self._tcp_info(descriptor)
            total = None if info is None else _read_by_zeromq(descriptor, info)
            if info is None or total is None:
                continue
            if _is_dead(info):
                self._shut_down(descriptor)
                self.account.closed(descriptor)
                continue
            tiny = None
            if peeked < MAX_PEEKED and self.account.bytes_of(descriptor) >= PEEKED_FROM:
                peeked += 1
                tiny = self._is_tiny(descriptor)
            self.account.sampled(descriptor, total, now, tiny=tiny)
        self.account.begin_rounds()

    def _is_tiny(self, descriptor: int) -> bool | None:
        """Return True if a connection's next bytes are tiny frames, None if there are too few."""
        try:
            with self._loan.of(descriptor) as connection:
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

    def _tcp_info(self, descriptor: int) -> bytes | None:
        """Return the beginning of a connection's struct tcp_info."""
        info = ctypes.create_string_buffer(BYTES_RECEIVED + 8)
        size = ctypes.c_uint32(len(info))
        failed = self._libc.getsockopt(
            descriptor, socket.IPPROTO_TCP, socket.TCP_INFO, info, ctypes.byref(size)
        )
        return None if failed or size.value < len(info) else info.raw

    def close_excess(self, standing: Standing, now: float) -> None:
        """Shut down every connection that is past a limit."""
        found = self.account.excess(standing)
        if self._looked:
            self._looked = False
            found += self.account.swollen(self._loan.resident_bytes(), standing)
            found += self.account.overfull(standing)
        for excess in found:
            address = self._shut_down(excess.connection)
            if address is not None:
                self.closed += 1
                self._untold += 1
                self._tell(address, excess, now)

    def _shut_down(self, descriptor: int) -> str | None:
        """Reset a connection, so that ZeroMQ finds it broken and closes it; return its peer."""
        cookie = self._cookies.pop(descriptor, None)
        self.book.closed(descriptor)
        self.unheard.closed(descriptor)
        with contextlib.suppress(OSError), self._loan.of(descriptor) as connection:
            # The number may have been given to another connection meanwhile.
            if cookie == _cookie(connection):
                host, port = connection.getpeername()[:2]
                self._abort(connection)
                return f"{host}:{port}"
        return None

    def _abort(self, connection: socket.socket) -> None:
        """Reset a connection by a connect(2) to no address.

        After a mere shutdown(2) the system would go on to receive, and ZeroMQ to read, for as long
        as the peer sends.
        """
        address = struct.pack("=H14x", socket.AF_UNSPEC)
        self._libc.connect(connection.fileno(), address, len(address))

    def _tell(self, address: str, excess: Excess, now: float) -> None:
        if now < self._next_line:
            return
        self._next_line = now + LOG_S
        shared = "all such connections together" if excess.shared else "a connection"
        what = "requests that wait" if excess.is_waiting else "a message without its end"
        count, self._untold = self._untold, 0
        log_event(
            "connection_closed",
            count,
            address=address,
            unfinished_bytes=excess.unfinished_bytes,
            limit=excess.limit_bytes,
            text=f"{excess.unfinished_bytes} bytes of {what}; {shared} may have at "
            f"most {excess.limit_bytes}",
        )

    def _tell_refusals(self, address: str | None, reason: RefusalReason | None, count: int) -> None:
        text = "these came from many other addresses"
        if reason is not None:
            text = refusal_text(reason, self.book.limits)
        log_event("connections_refused", count, address=address, text=text)

    def close(self) -> None:
        """Stop watching."""
        if self._epoll is not None:
            self._epoll.close()
            self._loan.close()


class _Loan:
    """Descriptors that are reserved, so that connections can be reset when no others are left."""

    def __init__(self) -> None:
        self._second = self._nothing = self._memory = -1

    def reserve(self) -> None:
        """Open what will be needed."""
        self._nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._second = os.dup(self._nothing)
        self._memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    @contextlib.contextmanager
    def of(self, descriptor: int) -> Iterator[socket.socket]:
        """Yield a second descriptor of a connection, which nobody else can close."""
        os.dup2(descriptor, self._second, inheritable=False)
        try:
            connection = socket.socket(fileno=self._second)
            try:
                yield connection
            finally:
                connection.detach()
        finally:
            # The connection must not stay open for it.
            os.dup2(self._nothing, self._second, inheritable=False)

    def resident_bytes(self) -> int:
        """Return the resident memory of this process (proc(5))."""
        return int(os.pread(self._memory, 256, 0).split()[1]) * PAGE_BYTES

    def close(self) -> None:
        """Close all."""
        for descriptor in (self._second, self._nothing, self._memory):
            os.close(descriptor)


def in_turn(connections: Collection[int], last: int, count: int) -> Sequence[int]:
    """Return at most `count` connections, beginning with the one after `last`."""
    ordered = sorted(connections)
    start = bisect_right(ordered, last)
    return (ordered[start:] + ordered[:start])[:count]


def _is_at(connection: socket.socket, port: int) -> bool:
    """Return True if this is the near end of a TCP connection to `port`."""
    is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
    return is_tcp and bool(connection.getsockname()[1] == port)


def _cookie(connection: socket.socket) -> int:
    return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), "little")


def _read_by_zeromq(descriptor: int, info: bytes) -> int | None:
    """Return the number of bytes that ZeroMQ has read from a connection."""
    received: int = struct.unpack_from("<Q", info, BYTES_RECEIVED)[0]
    waiting = array.array("i", [0])
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    except OSError:
        return None
    return received - waiting[0]


def _is_dead(info: bytes) -> bool:
    """Return True if the other side's system has not answered for too long, though it was asked."""
    (silent_ms,) = struct.unpack_from("<I", info, LAST_ACK_RECEIVED)
    return silent_ms >= DEAD_AFTER_MS and info[ASKED] + info[ASKED + 1] >= PROBES
