"""The only module that uses ZeroMQ: ROUTERs that listen, DEALERs that dial, one wake-up.

Sockets belong to one thread; only `wake` may be called from others. Sends never block. Messages
that a peer cannot take yet wait in a bounded outbox of its own, and when that is full the newest
are dropped (their requests end by their deadlines, and are sent again). All peers that dialled this
node share one more bound. Beyond it, a peer with more than one waiting message gets BUSY in place
of answers until it reads, and a peer that takes nothing for `UNTAKEN_S` is disconnected. Unfinished
messages are bounded, too (`wire.unfinished_messages`). One `poll` returns at most `TURN_MESSAGES`
messages or `TURN_BYTES`, so that no peer starves timers and heartbeats.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from logboom.wire.accepted_connections import LOOK_S, AcceptedConnections
from logboom.wire.acceptor import error_frames
from logboom.wire.actor import Address, PeerAddress, Received, Send
from logboom.wire.errors import StartError, Unavailable
from logboom.wire.frames import Frame, id_of
from logboom.wire.hello import PeerKind
from logboom.wire.messages import MAX_BATCH_BYTES
from logboom.wire.unfinished_messages import UnfinishedLimits

TURN_MESSAGES: Final = 256
TURN_BYTES: Final = 2 * 1024 * 1024
OUTBOX_BYTES: Final = 64 * 1024 * 1024
"""Bytes that may wait for one slow peer, here and in ZeroMQ each."""
SHARED_BYTES: Final = 256 * 1024 * 1024
"""Bytes that may wait for all peers together that dialled this node. The same amount again is
reserved for those with at most one waiting message, and once more for small messages, so that
healthy peers are answered while others never read. (One message, not none: a peer may have read the
last and ask for the next before ZeroMQ reports that it has released it.)"""
UNTAKEN_S: Final = 30
"""Seconds for which a peer may take none of its waiting messages. Then the system ends its
connection (TCP_USER_TIMEOUT of tcp(7)), and their memory is released. ZeroMQ's heartbeats do not
find such a peer, because a ping waits behind the stuck message."""
FOLLOWED_BYTES: Final = 16 * 1024
"""Bytes to a peer, in one message or many, after which one message is tracked until ZeroMQ has sent
it, and with it all earlier ones."""
SHARED_FROM: Final = 64 * 1024
"""Size of a message from which on its large frames are given to ZeroMQ without a copy."""
KNOWN_PEERS: Final = 100_000
"""Peers that are remembered by their routing ids; beyond it they are learned again."""
HIGH_WATER: Final = 10_000
"""ZeroMQ's own bound per peer, in messages."""
DIALLED_HIGH_WATER: Final = 1_000
"""The same for messages to a peer that this process dials."""
CALLERS_WAITING: Final = 4_096
"""Length of a listener's queue of connections in the system (listen(2); the system's own bound,
net.core.somaxconn, may be lower). ZeroMQ's 100 are soon exceeded when all clients come back at once
after a restart; a client without a slot retries after 1, 3, 7, 15 seconds."""
MAX_FRAME_BYTES: Final = MAX_BATCH_BYTES + 4096
"""Largest frame that is received: a batch."""
REQUEST_ROOM_BYTES: Final = 1024 * 1024
"""Bytes of a request in addition to its largest frame."""
STRANGERS_BYTES: Final = 128 * 1024 * 1024
"""Bytes of unfinished messages of all connections without a session: two of the largest."""
CLIENTS_BYTES: Final = 512 * 1024 * 1024
"""The same of all connections with the session of a client."""
LIMITS: Final = UnfinishedLimits(
    MAX_FRAME_BYTES + REQUEST_ROOM_BYTES, STRANGERS_BYTES, CLIENTS_BYTES
)
HANDSHAKE_MS: Final = 5_000
"""Milliseconds for the ZMTP handshake of an accepted connection."""
REAP_S: Final = 5.0
"""Seconds after which tracked messages that ZeroMQ has sent are released for all peers."""
AT_ONCE: Final = int(zmq.NOBLOCK)
"""As a plain number: ZeroMQ's enumerations cost a microsecond in each message."""
MORE_AT_ONCE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
READABLE: Final = int(zmq.POLLIN)
HEARTBEAT_MS: Final = 2_000
RECONNECT_MS: Final = 50
RECONNECT_LAST_MS: Final = 2_000


class Sockets:
    """All sockets of one node or client."""

    def __init__(
        self,
        listeners: Mapping[str, str] | None = None,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        limits: UnfinishedLimits = LIMITS,
    ) -> None:
        """Bind `listeners` (name → "host:port"; port 0 takes a free one).

        `max_frame_bytes` and `limits` apply to peers that dial this node.

        Raises:
            StartError: PORT_IN_USE, or BAD_CONFIG for an address that is invalid or not of this
                machine.
        """
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._own = zmq.Poller()
        """All sockets but the listeners, for `poll(listening=False)`."""
        self._listening: dict[str, zmq.Socket[bytes]] = {}
        self._dialled: dict[str, zmq.Socket[bytes]] = {}
        self._sources: dict[zmq.Socket[bytes], str] = {}
        self._inbound: dict[tuple[str, bytes], PeerAddress] = {}
        self._outboxes: dict[Address, deque[list[Frame]]] = {}
        self._outbox_bytes: dict[Address, int] = {}
        self._leaving: dict[Address, deque[tuple[zmq.MessageTracker, int]]] = {}
        """Messages that ZeroMQ may still hold for a peer: the last of each group, and the group's
        size."""
        self._leaving_bytes: dict[Address, int] = {}
        self._unfollowed: dict[Address, int] = {}
        """Bytes sent to a peer since the last tracked message."""
        self._reaped = False
        """True if this turn has already looked for messages that ZeroMQ has sent."""
        self._more: list[zmq.Socket[bytes]] = []
        self._next_reap = 0.0
        self._max_frame_bytes = max_frame_bytes
        self._connections = AcceptedConnections(limits)
        self._monitors: dict[zmq.Socket[bytes], tuple[str, int]] = {}
        """The socket that reports a listener's connections → the listener's name and port."""
        self.kind_of: Callable[[PeerAddress], PeerKind | None] = _nobody
        """Returns the kind of the session behind an address; set by the core."""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poller.register(self._wake_read, zmq.POLLIN)
        self._own.register(self._wake_read, zmq.POLLIN)
        self.endpoints: dict[str, str] = {}
        """Listener name → the "host:port" it is bound to."""
        self.dropped = 0
        """Messages dropped because an outbox or the shared bound was full, or the peer was gone."""
        self.waiting = 0
        """Tracked bytes that wait for peers that dialled this node."""
        try:
            for name, address in (listeners or {}).items():
                self._listen(name, address)
        # This includes Ctrl-C: the sockets that are bound already are closed, and the exception is
        # raised again.
        except BaseException:
            self.close()
            raise

    def _listen(self, name: str, address: str) -> None:
        check_endpoint(address)  # ZeroMQ takes 99999, and listens at 34463
        socket = self._socket(zmq.ROUTER)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.BACKLOG, CALLERS_WAITING)
        socket.setsockopt(zmq.TCP_MAXRT, UNTAKEN_S * 1000)
        socket.setsockopt(zmq.MAXMSGSIZE, self._max_frame_bytes)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        monitor = self._monitor(socket, name)
        try:
            socket.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            self._stop_monitor(socket, monitor)
            socket.close(linger=0)
            if error.errno == zmq.EADDRINUSE:
                text = (
                    f"port of {address} is in use: stop what listens there, or choose another port"
                )
                raise StartError(text, "PORT_IN_USE", address=address) from None
            text = (
                f"cannot listen on {address!r} ({error.strerror}): give host:port of this machine"
            )
            raise StartError(text, "BAD_CONFIG", address=address) from None
        bound = socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")
        self.endpoints[name] = bound
        self._listening[name] = socket
        self._monitors[monitor] = (name, int(bound.rpartition(":")[2]))
        self._sources[socket] = name
        self._poller.register(socket, zmq.POLLIN)

    def _monitor(self, socket: zmq.Socket[bytes], name: str) -> zmq.Socket[bytes]:
        """Return a socket on which ZeroMQ reports a listener's accepted and lost connections."""
        address = f"inproc://connections-of-{name}"
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED
        socket.monitor(address, events)
        monitor: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        monitor.setsockopt(zmq.LINGER, 0)
        # It has no bound: at a bound ZeroMQ's I/O thread would wait for this one.
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.connect(address)
        self._poller.register(monitor, zmq.POLLIN)
        return monitor

    def _stop_monitor(self, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
        self._poller.unregister(monitor)
        socket.disable_monitor()
        monitor.close(linger=0)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_BATCH_BYTES + 4096)
        socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
        return socket

    def poll(self, timeout: float | None, *, listening: bool = True) -> list[Received]:
        """Wait up to `timeout` seconds (None: for ever, 0: not at all) for messages or `wake`.

        With `listening` False, messages of peers that dialled this node are left in their sockets,
        and finally those peers wait, too.
        """
        now = time.monotonic()
        until = None if timeout is None else now + timeout
        while True:
            wait = None if until is None else max(0.0, until - now)
            if self._listening:
                # A connection that never ends a message does not wake the poll.
                wait = LOOK_S if wait is None else min(wait, LOOK_S)
                if self._connections.due(now):
                    self._look(now)
            ready, received = self._poll_once(wait, now, listening=listening)
            if self._listening:
                self._connections.close_excess(self.kind_of, now)
            now = time.monotonic()
            if ready or not self._listening or (until is not None and until <= now):
                return received

    def _look(self, now: float) -> None:
        """Sample the connections; their complete messages are taken before they are judged."""
        if now >= self._next_reap:
            self._next_reap = now + REAP_S
            # Peers that are gone get no more messages, whose sending releases the tracked ones of
            # others.
            for peer, leaving in list(self._leaving.items()):
                self._reap_one(peer, leaving)
        self._follow_connections(now)
        self._connections.look(now)

    def _follow_connections(self, now: float) -> None:
        """Handle the reports on connections that were accepted or ended."""
        for monitor, (name, port) in self._monitors.items():
            while True:
                try:
                    told = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))
                except zmq.Again:
                    break
                if told["event"] == zmq.EVENT_ACCEPTED:
                    self._connections.accepted(told["value"], name, port, now)
                else:
                    self._connections.gone(told["value"])

    def _poll_once(
        self, wait: float | None, now: float, *, listening: bool
    ) -> tuple[bool, list[Received]]:
        """Poll once; return the messages, and whether anything arrived (including `wake`)."""
        self._reaped = False
        self._flush()
        if self._more:
            wait = 0
        if self._outboxes:
            wait = 0.002 if wait is None else min(wait, 0.002)
        poller = self._poller if listening else self._own
        ready = poller.poll(None if wait is None else max(0, int(wait * 1000 + 0.999)))
        sockets: list[zmq.Socket[bytes]] = []
        woken = accepted = False
        for socket, _ in ready:
            if not isinstance(socket, zmq.Socket):
                woken = True
            elif socket in self._monitors:
                accepted = True
            else:
                sockets.append(socket)
        if woken:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if accepted:
            # Before their messages are taken.
            self._follow_connections(now)
        if listening:
            for name, listener in self._listening.items():
                if listener not in sockets:
                    self._connections.account.taken(name, 0, dry=True)
        more = self._more
        self._more = []
        return woken or bool(sockets or more or self._outboxes), self._drain(sockets)

    def _drain(self, sockets: list[zmq.Socket[bytes]]) -> list[Received]:
        received: list[Received] = []
        messages, size = TURN_MESSAGES, TURN_BYTES
        for socket in sockets:
            source = self._sources[socket]
            # A fair share for each socket that is ready.
            share = max(16, messages // len(sockets))
            if source in self._listening:
                size -= self._drain_listener(socket, source, share, size, received)
                continue
            while _readable(socket):
                if not share or size <= 0:
                    self._more.append(socket)
                    break
                try:
                    frames = socket.recv_multipart(AT_ONCE)
                except zmq.Again:
                    break
                share -= 1
                size -= sum(map(len, frames))
                received.append(Received(source, frames))
        return received

    def _drain_listener(
        self,
        socket: zmq.Socket[bytes],
        name: str,
        share: int,
        room: int,
        received: list[Received],
    ) -> int:
        """Take up to `share` messages, or slightly over `room` bytes; return the bytes taken."""
        account = self._connections.account
        size = taken = 0
        dry = False
        while taken < share and size < room:
            if not _readable(socket):
                dry = True
                break
            try:
                # The first frame, which ZeroMQ adds, knows the connection on which the message
                # arrived.
                routing = socket.recv(AT_ONCE, copy=False)
            except zmq.Again:
                dry = True
                break
            frames = socket.recv_multipart(AT_ONCE)
            taken += 1
            length = sum(map(len, frames))
            size += length
            peer = self._peer(name, routing.bytes)
            account.delivered(int(routing.get(zmq.SRCFD)), peer, len(frames), length)
            received.append(Received(peer, frames, self.unsent_bytes(peer)))
        account.taken(name, taken, dry=dry)
        if not dry:
            self._more.append(socket)
        return size

    def _peer(self, listener: str, routing_id: bytes) -> PeerAddress:
        key = (listener, routing_id)
        peer = self._inbound.get(key)
        if peer is None:
            if len(self._inbound) > KNOWN_PEERS:
                self._inbound.clear()
                self._unfollowed.clear()
            peer = self._inbound[key] = PeerAddress(listener, routing_id)
        return peer

    def send(self, sends: Sequence[Send]) -> None:
        """Send without blocking; messages that cannot leave yet wait in the peer's outbox."""
        for peer, frames in sends:
            outbox = self._outboxes.get(peer)
            if outbox is not None or not self._try(peer, frames):
                self._queue(peer, list(frames))

    def _try(self, peer: Address, frames: Sequence[Frame]) -> bool:
        """Send a message; return False if the peer cannot take it now."""
        try:
            if isinstance(peer, PeerAddress):
                listener = self._listening[peer.listener]
                return self._hand_over(listener, peer, [peer.routing_id, *frames])
            dialled = self._dialled.get(peer)
            if dialled is None:
                dialled = self._dial(peer)
            return self._hand_over(dialled, peer, frames)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.dropped += 1
        return True

    def _hand_over(self, socket: zmq.Socket[bytes], peer: Address, frames: Sequence[Frame]) -> bool:
        """Give ZeroMQ a message; return False while it holds a full outbox for the peer.

        ZeroMQ's own bound counts messages, and ten thousand of them may be any number of bytes.
        """
        size = sum(map(len, frames))
        leaving = self._leaving.get(peer)
        if leaving is not None:
            self._reap_one(peer, leaving)
            if self._leaving_bytes.get(peer, 0) >= OUTBOX_BYTES:
                return False
        if isinstance(peer, PeerAddress) and self._full(peer, size):
            self.dropped += 1
            if size >= FOLLOWED_BYTES:
                self._tell_busy(socket, peer, frames[1])
            return True
        unfollowed = self._unfollowed.get(peer, 0) + size
        if unfollowed < FOLLOWED_BYTES:
            for frame in frames[:-1]:
                socket.send(frame, MORE_AT_ONCE)
            socket.send(frames[-1], AT_ONCE)
            self._unfollowed[peer] = unfollowed
            return True
        # Frames leave in order: the last one stands for all.
        last = zmq.Frame(frames[-1], track=True, copy=False, copy_threshold=0)
        assert isinstance(last.tracker, zmq.MessageTracker)
        # Large frames are not copied: sixty peers that wait for the same batch share its memory.
        socket.send_multipart([*frames[:-1], last], zmq.NOBLOCK, copy=size < SHARED_FROM)
        self._leaving.setdefault(peer, deque()).append((last.tracker, unfollowed))
        self._leaving_bytes[peer] = self._leaving_bytes.get(peer, 0) + unfollowed
        self._unfollowed.pop(peer, None)
        self._count(peer, unfollowed)
        return True

    def _full(self, peer: PeerAddress, size: int) -> bool:
        """Return True if a message to `peer` must be dropped for the sake of the others."""
        if self.waiting + size <= SHARED_BYTES:
            return False
        if not self._reaped:
            self._reaped = True
            for other, leaving in list(self._leaving.items()):
                self._reap_one(other, leaving)
            if self.waiting + size <= SHARED_BYTES:
                return False
        if size < FOLLOWED_BYTES:
            return self.waiting + size > 3 * SHARED_BYTES
        return (
            len(self._leaving.get(peer, ())) > 1
            or peer in self._outboxes
            or self.waiting + size > 2 * SHARED_BYTES
        )

    def _tell_busy(self, socket: zmq.Socket[bytes], peer: PeerAddress, head: Frame) -> None:
        """Send BUSY in place of a dropped answer, so that the caller does not wait in vain."""
        number = id_of(head)
        if number:
            text = "too many answers wait for peers that do not read: ask again"
            busy = Unavailable(text, "BUSY")
            self._hand_over(socket, peer, [peer.routing_id, *error_frames(number, busy)])

    def _reap_one(self, peer: Address, leaving: deque[tuple[zmq.MessageTracker, int]]) -> None:
        """Release the messages that ZeroMQ has sent to a peer, or dropped with its connection."""
        while leaving and leaving[0][0].done:
            size = leaving.popleft()[1]
            self._leaving_bytes[peer] -= size
            self._count(peer, -size)
        if not leaving:
            del self._leaving[peer], self._leaving_bytes[peer]

    def _count(self, peer: Address, size: int) -> None:
        """Count bytes that wait for a peer; only peers that dialled this node share a bound."""
        if isinstance(peer, PeerAddress):
            self.waiting += size

    def _queue(self, peer: Address, frames: list[Frame]) -> None:
        size = sum(map(len, frames))
        waiting = self._outbox_bytes.get(peer, 0)
        shared = isinstance(peer, PeerAddress)
        if waiting + size > OUTBOX_BYTES or (shared and self.waiting + size > SHARED_BYTES):
            self.dropped += 1
            return
        self._count(peer, size)
        self._outboxes.setdefault(peer, deque()).append(frames)
        self._outbox_bytes[peer] = waiting + size

    def _flush(self) -> None:
        for peer in list(self._outboxes):
            outbox = self._outboxes[peer]
            while outbox and self._try(peer, outbox[0]):
                self._taken(peer, sum(map(len, outbox.popleft())))
            if not outbox:
                self._forget(peer)

    def _taken(self, peer: Address, size: int) -> None:
        """Count bytes of an outbox as taken by ZeroMQ, or dropped."""
        self._outbox_bytes[peer] -= size
        self._count(peer, -size)

    @property
    def connections_closed(self) -> int:
        """The number of connections that were closed for their unfinished messages."""
        return self._connections.closed

    def backlog(self, peer: Address) -> int:
        """Return the bytes that wait for a peer in its outbox."""
        return self._outbox_bytes.get(peer, 0)

    def unsent_bytes(self, peer: Address) -> int:
        """Return the tracked bytes that a peer has not taken yet, in its outbox or in ZeroMQ."""
        leaving = self._leaving.get(peer)
        if leaving is not None:
            self._reap_one(peer, leaving)
        return self.backlog(peer) + self._leaving_bytes.get(peer, 0)

    def _dial(self, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._socket(zmq.DEALER)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_LAST_MS)
        # IMMEDIATE is not set, though no message should wait for a dead peer. With it, a connection
        # that breaks takes its messages away from the reader, and if one of many frames is half
        # read, libzmq 4.3.5 aborts the process ("Assertion failed: !_more"). Waiting messages are
        # dropped with the next redial; late ones get NEED_HELLO (W1).
        socket.setsockopt(zmq.SNDHWM, DIALLED_HIGH_WATER)
        socket.connect(f"tcp://{endpoint}")
        self._dialled[endpoint] = socket
        self._sources[socket] = endpoint
        self._poller.register(socket, zmq.POLLIN)
        self._own.register(socket, zmq.POLLIN)
        return socket

    def redial(self, endpoint: str) -> None:
        """Drop a connection with its waiting messages; the next send dials again."""
        self.hang_up(endpoint)

    def hang_up(self, endpoint: str) -> None:
        """Close the connection to an endpoint."""
        self._forget(endpoint)
        self._leaving.pop(endpoint, None)
        self._leaving_bytes.pop(endpoint, None)
        self._unfollowed.pop(endpoint, None)
        socket = self._dialled.pop(endpoint, None)
        if socket is None:
            return
        del self._sources[socket]
        if socket in self._more:
            self._more.remove(socket)
        self._poller.unregister(socket)
        self._own.unregister(socket)
        socket.close(linger=0)

    def _forget(self, peer: Address) -> None:
        if self._outboxes.pop(peer, None) is not None:
            self._taken(peer, self._outbox_bytes[peer])
            del self._outbox_bytes[peer]

    def wake(self) -> None:
        """End a `poll` now; callable from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_write, b"\0")

    def close(self, flush_ms: int = 0) -> None:
        """Close everything; recent answers get up to `flush_ms` to leave."""
        for monitor, (name, _) in self._monitors.items():
            self._stop_monitor(self._listening[name], monitor)
        self._monitors.clear()
        self._connections.close()
        for socket in (*self._listening.values(), *self._dialled.values()):
            socket.close(linger=flush_ms)
        self._listening.clear()
        self._dialled.clear()
        self._sources.clear()
        if self._wake_read >= 0:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_read = self._wake_write = -1
        self._context.term()


def _readable(socket: zmq.Socket[bytes]) -> bool:
    """Return True if a whole message waits. To be told by an exception costs three times as much."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & READABLE)


def _nobody(_address: PeerAddress) -> None:
    return None


def check_endpoint(text: str) -> str:
    """Return `text` if it is "host:port".

    Raises:
        StartError: BAD_CONFIG, with the rule.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise StartError(f"{text!r} is not an endpoint: write host:port, e.g. 127.0.0.1:7711")
    return text
