"""The only module that uses ZeroMQ: ROUTERs that listen, DEALERs that dial, one wake-up.

Sockets belong to one thread; only `wake` may be called from others. Sends never block. Messages
that a peer cannot take yet wait in a bounded outbox of its own, and when that is full the newest
are dropped (their requests end by their deadlines, and are sent again). All peers that dialled this
node share one more bound. Beyond it, a peer with more than one waiting message gets BUSY in place
of answers until it reads, and a peer that takes nothing for `UNTAKEN_S` is disconnected. Unfinished
messages are bounded, and so is all that waits to be taken (`wire.unfinished_messages`). One `poll` returns at most `TURN_MESSAGES`
messages or `TURN_BYTES`, and a node fewer after turns that lasted (`wire.turn_pace`), so that no peer
starves timers, heartbeats and others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from logboom.wire.accepted_connections import (
    DEAD_AFTER_MS,
    LOOK_S,
    PROBED_AFTER_S,
    PROBES,
    AcceptedConnections,
)
from logboom.wire.acceptor import error_frames
from logboom.wire.actor import (
    Address,
    HandshakeFailed,
    HandshakeFault,
    PeerAddress,
    Received,
    Send,
)
from logboom.wire.authenticator import Authenticate
from logboom.wire.connection_info import ConnectionInfo
from logboom.wire.connection_limits import DEFAULT_LIMITS, HANDSHAKE_S, ConnectionLimits
from logboom.wire.endpoints import endpoint_fault, listen_fault, may_be_dialled
from logboom.wire.errors import StartError, Unavailable
from logboom.wire.event_log import log_event
from logboom.wire.frames import Frame, id_of
from logboom.wire.hello import PeerKind
from logboom.wire.key_pair import KeyPair, Secret
from logboom.wire.listener_gate import ListenerGate
from logboom.wire.messages import MAX_BATCH_BYTES
from logboom.wire.peer_routes import PeerRoutes
from logboom.wire.server_keys import KeyChoice, ServerKeys
from logboom.wire.turn_pace import TurnPace
from logboom.wire.unfinished_messages import UnfinishedLimits, limits_for
from logboom.wire.zap_requests import ZapRequests, domain_of

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
connection (TCP_USER_TIMEOUT of tcp(7)), and their memory is released."""
FOLLOWED_BYTES: Final = 16 * 1024
"""Bytes to a peer, in one message or many, after which one message is tracked until ZeroMQ has sent
it, and with it all earlier ones."""
MUCH_UNREAD_BYTES: Final = 1024 * 1024
"""Bytes that wait for a client from which on it counts as a slow reader."""
SHARED_FROM: Final = 64 * 1024
"""Size of a message from which on its large frames are given to ZeroMQ without a copy."""
UNDIALLED: Final = 1_000
"""Endpoints that are remembered because they cannot be dialled; beyond it they are logged again."""
KNOWN_PEERS: Final = 20_000
"""Peers that are remembered by their routing ids; beyond it they are learned again."""
HIGH_WATER: Final = 10_000
"""ZeroMQ's own bound of messages to a peer."""
DIALLED_HIGH_WATER: Final = 1_000
"""The same for messages to a peer that this process dials."""
CALLERS_WAITING: Final = 4_096
"""Length of a listener's queue of connections in the system (listen(2); the system's own bound,
net.core.somaxconn, may be lower). ZeroMQ's 100 are soon exceeded when all clients come back at once
after a restart; a client without a slot retries after 1, 3, 7, 15 seconds."""
MAX_FRAME_BYTES: Final = MAX_BATCH_BYTES + 4096
"""Largest frame that is received in an answer: a batch. What listeners take is a setting."""
REPORT_S: Final = 0.01
"""Maximum seconds of waiting, in one turn, for ZeroMQ's reports on connections from which messages
have come."""
TURN_REPORTS: Final = 1_000
"""Reports on the connections of a listener that one turn reads: strangers make them."""
TURN_CALLERS: Final = 100
"""New connections that one turn looks at, which takes some ten times as long as to read a report."""
TURN_QUESTIONS: Final = 100
"""Questions of ZeroMQ about keys that one turn answers."""
REPORT: Final = struct.Struct("=Hi")
"""The first frame of a report: the event, and the descriptor of the connection."""
HANDSHAKE_MS: Final = int(HANDSHAKE_S * 1000)
"""Milliseconds for the ZMTP handshake of an accepted connection."""
REAP_S: Final = 5.0
"""Seconds after which tracked messages that ZeroMQ has sent are released for all peers."""
AT_ONCE: Final = int(zmq.NOBLOCK)
"""As a plain number: ZeroMQ's enumerations cost a microsecond in each message."""
ACCEPTED: Final = int(zmq.EVENT_ACCEPTED)
LISTENING: Final = int(zmq.EVENT_LISTENING)
MORE_AT_ONCE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
READABLE: Final = int(zmq.POLLIN)
CURVE_FRAME_BYTES: Final = 33
"""Bytes that encryption adds to each frame."""
ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
RECONNECT_MS: Final = 50
RECONNECT_LAST_MS: Final = 2_000


class Sockets:
    """All sockets of one node or client."""

    def __init__(
        self,
        listeners: Mapping[str, str] | None = None,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        limits: UnfinishedLimits | None = None,
        callers: ConnectionLimits = DEFAULT_LIMITS,
        key_pair: KeyPair | None = None,
        curve: Collection[str] = (),
    ) -> None:
        """Bind `listeners` (name → "host:port"; port 0 takes a free one).

        Those named in `curve` encrypt and admit only the keys that `authenticate` accepts; they
        have the secret key of `key_pair`. With a key pair, all that is dialled is encrypted, too.

        `max_frame_bytes`, `limits` (default: those that such frames need) and `callers` apply to
        peers that dial this node.

        Raises:
            StartError: PORT_IN_USE, or BAD_CONFIG for an address that is invalid or not of this
                machine, or if a listener lacks the key pair.
        """
        if curve and key_pair is None:
            name = min(curve)
            text = f"listener {name!r} encrypts, but this node has no key: set credentials_file"
            raise StartError(text)
        self._key_pair = key_pair
        self._curve = frozenset(curve)
        # Encryption is done by ZeroMQ's I/O threads.
        self._context = zmq.Context(io_threads=2 if curve else 1)
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
        self._pace = TurnPace(TURN_MESSAGES)
        self._turn_length = 0
        """Messages that the last turn has taken, …"""
        self._returned_at = float("inf")
        """… and this thread's processor time when it got them."""
        self._next_reap = 0.0
        self._max_frame_bytes = max_frame_bytes
        self._connections = AcceptedConnections(limits or limits_for(max_frame_bytes), callers)
        self._gate = ListenerGate()
        self._reports_read: dict[str, int] = {}
        """Listener → reports on its connections that were read in this turn."""
        self._report_wait_s = 0.0
        """What is left in this turn of `REPORT_S`."""
        self._held: dict[str, tuple[zmq.Frame, list[bytes]]] = {}
        """Listener → a message of a connection that may have been reported, but too much else was:
        it waits until all reports before it have been read."""
        self._monitors: dict[zmq.Socket[bytes], tuple[str, int]] = {}
        """The socket that reports a listener's connections → the listener's name and port."""
        self.kind_of: Callable[[PeerAddress], PeerKind | None] = _nobody
        """Returns the kind of the session behind an address; set by the core."""
        self._routes = PeerRoutes()
        self._zap_requests = ZapRequests(HANDSHAKE_MS / 1000)
        self._zap: zmq.Socket[bytes] | None = None
        """The socket on which ZeroMQ asks about keys; None without listeners that have some."""
        self.server_keys: ServerKeys = _no_keys
        """Returns the public keys of the node at an endpoint; set by the owner."""
        self.plain_allowed: Callable[[str], bool] = _never
        """Returns True if an endpoint without known keys may be dialled without encryption, though
        there is a key pair: for nodes of a cluster that is about to encrypt."""
        self._keys = KeyChoice()
        self._handshakes: dict[zmq.Socket[bytes], tuple[str, str]] = {}
        """The socket that reports failed handshakes of a dialled one → its endpoint, and the key of
        the node there, or "" if none was used."""
        self._handshake_of: dict[str, zmq.Socket[bytes]] = {}
        """The inverse: endpoint → the socket that reports."""
        self._dials = 0
        self._told_undialled: set[str] = set()
        """Endpoints that cannot be dialled, and of which the log says so."""
        self._failures: dict[str, HandshakeFault] = {}
        """Endpoint → the failure to report with the next poll."""
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
            if self._curve:
                self._answer_zap()
            for name, address in (listeners or {}).items():
                self._listen(name, address)
            self._follow_connections(time.monotonic())  # so that listeners have their filter
        # This includes Ctrl-C: the sockets that are bound already are closed, and the exception is
        # raised again.
        except BaseException:
            self.close()
            raise

    def _listen(self, name: str, address: str) -> None:
        fault = listen_fault(address)
        if fault is not None:
            raise StartError(fault)
        socket = self._socket(zmq.ROUTER, address)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.BACKLOG, CALLERS_WAITING)
        socket.setsockopt(zmq.TCP_MAXRT, UNTAKEN_S * 1000)
        socket.setsockopt(zmq.MAXMSGSIZE, self._max_frame_bytes)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        if name in self._curve:
            self._encrypt_listener(socket, name)
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

    @property
    def authenticate(self) -> Authenticate:
        """Who may connect to the listeners with keys; until it is set, nobody may."""
        return self._zap_requests.authenticate

    @authenticate.setter
    def authenticate(self, verdict_on: Authenticate) -> None:
        self._zap_requests.authenticate = verdict_on

    def _answer_zap(self) -> None:
        """Bind the address at which ZeroMQ asks about each key."""
        self._zap = self._context.socket(zmq.ROUTER)
        self._zap.setsockopt(zmq.LINGER, 0)
        self._zap.bind(ZAP_ENDPOINT)
        # Nodes must be able to connect while the data of others waits.
        self._poller.register(self._zap, zmq.POLLIN)
        self._own.register(self._zap, zmq.POLLIN)

    def _encrypt_listener(self, socket: zmq.Socket[bytes], name: str) -> None:
        assert self._key_pair is not None, "checked at the start"
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._key_pair.secret.reveal().encode("ascii"))
        # Without both of these, libzmq lets any key in as long as nobody answers at ZAP_ENDPOINT.
        socket.setsockopt(zmq.ZAP_DOMAIN, domain_of(name).encode())
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def _follow_zap(self, now: float) -> None:
        """Answer what ZeroMQ asks about keys."""
        zap = self._zap
        if zap is None:
            return
        for _ in range(TURN_QUESTIONS):
            if not _readable(zap):
                break
            for answer in self._zap_requests.take(zap.recv_multipart(AT_ONCE), now):
                zap.send_multipart(answer, zmq.NOBLOCK)
        for answer in self._zap_requests.retry(now):
            zap.send_multipart(answer, zmq.NOBLOCK)

    def _monitor(self, socket: zmq.Socket[bytes], name: str) -> zmq.Socket[bytes]:
        """Return a socket on which ZeroMQ reports a listener's accepted and lost connections."""
        address = f"inproc://connections-of-{name}"
        events = (
            zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED
        )
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

    def _socket(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        options = {
            zmq.LINGER: 0,
            zmq.IPV6: int(endpoint.startswith("[")),
            zmq.MAXMSGSIZE: MAX_FRAME_BYTES,
            zmq.SNDHWM: HIGH_WATER,
            # At a bound ZeroMQ stops reading. If the connection breaks then, libzmq 4.3.5 aborts the
            # process ("Assertion failed: !_io_error", "_input_stopped") with the next heartbeat of
            # its own, or over one of the peer that it has read already. What waits is bounded
            # otherwise (`wire.unfinished_messages`), and dead peers are found by TCP.
            zmq.RCVHWM: 0,
            zmq.HEARTBEAT_IVL: 0,
            zmq.TCP_KEEPALIVE: 1,
            zmq.TCP_KEEPALIVE_IDLE: PROBED_AFTER_S,
            zmq.TCP_KEEPALIVE_INTVL: PROBED_AFTER_S,
            zmq.TCP_KEEPALIVE_CNT: PROBES,
        }
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        try:
            for option, value in options.items():
                socket.setsockopt(option, value)
        except zmq.ZMQError:
            socket.close(linger=0)
            raise
        return socket

    def poll(
        self, timeout: float | None, *, listening: bool = True
    ) -> list[Received | HandshakeFailed]:
        """Wait up to `timeout` seconds (None: for ever, 0: not at all) for messages or `wake`.

        With `listening` False, messages of peers that dialled this node are left in their sockets.
        Past a limit their connections are reset, and no more are accepted.
        """
        now = time.monotonic()
        until = None if timeout is None else now + timeout
        if self._listening:
            self._pace.took(self._turn_length, time.thread_time() - self._returned_at)
        while True:
            self._reports_read.clear()
            self._report_wait_s = REPORT_S
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
                self._turn_length, self._returned_at = len(received), time.thread_time()
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
        account = self._connections.account
        self._gate.follow_waiting(account.waiting_bytes(), account.limits.waiting_bytes)

    def _follow_connections(self, now: float) -> None:
        """Handle some of the reports on connections that were accepted or ended."""
        self._gate.follow(now)
        for monitor in self._monitors:
            self._read_reports(monitor)
        self._connections.take_callers(TURN_CALLERS, now, shut=self._gate.reason)
        self._connections.admit(now)

    def _read_reports(self, monitor: zmq.Socket[bytes]) -> bool:
        """Read what reports there are, `TURN_REPORTS` a turn; return True if there are no more."""
        name, port = self._monitors[monitor]
        read = self._reports_read.get(name, 0)
        while _readable(monitor):
            if read >= TURN_REPORTS:
                self._reports_read[name] = read
                return False
            read += 1
            event, descriptor = REPORT.unpack_from(monitor.recv_multipart(AT_ONCE)[0])
            if event == ACCEPTED:
                self._routes.opened(name, descriptor)
                self._connections.reported(descriptor, name, port)
            elif event == LISTENING:
                self._gate.listening(descriptor)
            else:
                self._routes.gone(name, descriptor)
                self._connections.gone(descriptor, name)
        self._reports_read[name] = read
        return True

    def _follow_newcomer(self, listener: str, descriptor: int) -> bool:
        """Handle the reports that concern a connection on which a peer is heard the first time.

        The end of an earlier connection with its descriptor was reported before it was accepted. The
        report that it was accepted is waited for: ZeroMQ makes it after another of its threads may
        have begun to serve the connection. Return False if this turn has read too many already.
        """
        reports, port = next((m, p) for m, (name, p) in self._monitors.items() if name == listener)
        if not self._read_reports(reports):
            return False
        while (
            self._report_wait_s > 0
            and not self._routes.is_open(listener, descriptor)
            and self._connections.is_accepted(descriptor, listener, port)
        ):
            began = time.monotonic()
            reports.poll(1)
            self._report_wait_s -= time.monotonic() - began
            if not self._read_reports(reports):
                return False
        self._connections.take_caller(
            descriptor, listener, time.monotonic(), shut=self._gate.reason
        )
        return True

    def _poll_once(
        self, wait: float | None, now: float, *, listening: bool
    ) -> tuple[bool, list[Received | HandshakeFailed]]:
        """Poll once; return the messages, and whether anything arrived (including `wake`)."""
        self._reaped = False
        self._flush()
        if self._more or self._failures or self._connections.has_callers:
            wait = 0
        if self._outboxes:
            wait = 0.002 if wait is None else min(wait, 0.002)
        poller = self._poller if listening else self._own
        ready = poller.poll(None if wait is None else max(0, int(wait * 1000 + 0.999)))
        sockets: list[zmq.Socket[bytes]] = []
        reports: list[zmq.Socket[bytes]] = []
        woken = accepted = False
        for socket, _ in ready:
            if not isinstance(socket, zmq.Socket):
                woken = True
            elif socket in self._sources:
                sockets.append(socket)
            elif socket in self._monitors:
                accepted = True
            elif socket in self._handshakes:
                reports.append(socket)
        if woken:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if accepted or self._connections.has_callers:
            # Before their messages are taken.
            self._follow_connections(now)
        if self._zap is not None:
            self._follow_zap(now)
        if listening and self._held:
            held = (self._listening[name] for name in self._held)
            sockets += (socket for socket in held if socket not in sockets)
        if reports:
            self._follow_handshakes(reports)
            sockets = [socket for socket in sockets if socket in self._sources]
        if listening:
            for name, listener in self._listening.items():
                if listener not in sockets:
                    self._connections.account.taken(name, 0, dry=True)
        more = self._more
        self._more = []
        received = self._drain(sockets)
        if self._failures:
            received += (HandshakeFailed(*failure) for failure in self._failures.items())
            self._failures.clear()
        return woken or bool(sockets or more or self._outboxes or received), received

    def _drain(self, sockets: list[zmq.Socket[bytes]]) -> list[Received | HandshakeFailed]:
        received: list[Received | HandshakeFailed] = []
        messages, size = self._pace.messages, TURN_BYTES
        for socket in sockets:
            source = self._sources[socket]
            # A fair share for each socket that is ready.
            share = max(min(16, messages), messages // len(sockets))
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
            if source in self._handshake_of and not self._is_encrypted(source):
                # It is a node without keys, and stays one.
                self._stop_following(source)
        return received

    def _drain_listener(
        self,
        socket: zmq.Socket[bytes],
        name: str,
        share: int,
        room: int,
        received: list[Received | HandshakeFailed],
    ) -> int:
        """Take up to `share` messages, or slightly over `room` bytes; return the bytes taken."""
        account = self._connections.account
        curve = name in self._curve
        size = taken = 0
        dry = False
        while taken < share and size < room:
            held = self._held.pop(name, None) if self._held else None
            if held is not None:
                routing, frames = held
            elif not _readable(socket):
                dry = True
                break
            else:
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
            if curve:
                found = self._of_principal(name, routing, frames, length)
                if found is not None:
                    received.append(found)
                elif name in self._held:
                    break
                continue
            try:
                descriptor = int(routing.get(zmq.SRCFD))
            except zmq.ZMQError:
                # Messages of ZMTP 1 do not know their connection. What it sends counts as one
                # message that never ends, so it is closed sooner or later.
                self.dropped += 1
                continue
            peer = self._peer(name, routing.bytes)
            if not account.delivered(descriptor, peer, len(frames), length):
                if not self._follow_newcomer(name, descriptor):
                    self._held[name] = routing, frames
                    break
                self._connections.heard(descriptor, peer)
                if not account.delivered(descriptor, peer, len(frames), length):
                    account.orphaned(name, len(frames), length)
            received.append(Received(peer, frames, self.unsent_bytes(peer)))
        account.taken(name, taken, dry=dry)
        if not dry:
            self._more.append(socket)
        return size

    def _of_principal(
        self, name: str, routing: zmq.Frame, frames: list[bytes], length: int
    ) -> Received | None:
        """Return a message that arrived on a listener with keys, with its principal (S1).

        Return None if it must not be taken, or is held.
        """
        try:
            # The connection's own, as ZAP answered for it; ZeroMQ attaches it to each message.
            principal = str(routing.get("User-Id"))
        except zmq.ZMQError:
            # It was let in without a question, which must not happen (S4).
            self.dropped += 1
            return None
        descriptor = int(routing.get(zmq.SRCFD))
        peer = self._routes.known(name, routing.bytes, principal, descriptor)
        if peer is None:
            if not self._follow_newcomer(name, descriptor):
                self._held[name] = routing, frames
                return None
            peer = self._routes.heard(name, routing.bytes, principal, descriptor)
        length += CURVE_FRAME_BYTES * len(frames)
        account = self._connections.account
        if not account.delivered(descriptor, peer, len(frames), length):
            self._connections.heard(descriptor, peer)
            if not account.delivered(descriptor, peer, len(frames), length):
                account.orphaned(name, len(frames), length)
        return Received(peer, frames, self.unsent_bytes(peer), principal)

    def _peer(self, listener: str, routing_id: bytes) -> PeerAddress:
        key = (listener, routing_id)
        peer = self._inbound.get(key)
        if peer is None:
            if len(self._inbound) > KNOWN_PEERS:
                self._inbound.clear()
                self._unfollowed.clear()
            peer = self._inbound[key] = PeerAddress(listener, routing_id)
        return peer

    def is_connected(self, peer: PeerAddress) -> bool:
        """Return True if the connection of a peer still exists, as far as that is known."""
        return self._connections.is_connected(peer)

    def inspect(self, peer: PeerAddress) -> ConnectionInfo | None:
        """Return what the system says of a peer's connection; None: it has none, or is unknown."""
        return self._connections.inspect(peer)

    def kick(self, peer: PeerAddress) -> None:
        """Reset the connection of a peer; it may dial again."""
        self._connections.kick(peer)

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
                routing_id: bytes | None = peer.routing_id
                if peer.listener in self._curve:
                    routing_id = self._routes.routing_id(peer)
                if routing_id is not None:
                    return self._hand_over(listener, peer, [routing_id, *frames])
                self.dropped += 1
                return True
            dialled = self._dialled.get(peer) or self._dial(peer)
            if dialled is not None:
                return self._hand_over(dialled, peer, frames)
            self.dropped += 1
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
                self._tell_busy(socket, peer, frames)
            return True
        unfollowed = self._unfollowed.get(peer, 0) + size
        if unfollowed < FOLLOWED_BYTES:
            for frame in frames[:-1]:
                socket.send(frame, MORE_AT_ONCE)
            socket.send(frames[-1], AT_ONCE)
            if len(self._unfollowed) > KNOWN_PEERS:
                # On listeners with keys each connection is a new peer, and leaves its count here.
                # What is forgotten is less than FOLLOWED_BYTES of each.
                self._unfollowed.clear()
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

    def _tell_busy(
        self, socket: zmq.Socket[bytes], peer: PeerAddress, frames: Sequence[Frame]
    ) -> None:
        """Send BUSY in place of a dropped answer, so that the caller does not wait in vain."""
        number = id_of(frames[1])
        if number:
            text = "too many answers wait for peers that do not read: ask again"
            busy = Unavailable(text, "BUSY")
            self._hand_over(socket, peer, [frames[0], *error_frames(number, busy)])

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

    def ip_address_of(self, peer: PeerAddress) -> str:
        """Return the IP address of a peer that dialled this node; "" if it is gone."""
        connection = self._connections.account.connection_of(peer)
        return "" if connection is None else self._connections.book.address_of(connection)

    def figures(self) -> dict[str, int]:
        """Return the figures of the connections that this node has accepted, for STATS."""
        return {
            "connections": len(self._connections.book),
            "connections_refused": self._connections.refused,
            "accepting": int(self._gate.is_open),
            "slow_readers": len(self._slow_readers()),
        }

    def _slow_readers(self) -> set[Address]:
        """Return the clients that do not read what waits for them."""
        behind = {peer for peer, size in self._leaving_bytes.items() if size >= MUCH_UNREAD_BYTES}
        behind.update(self._outboxes)
        return {
            peer
            for peer in behind
            if isinstance(peer, PeerAddress) and self.kind_of(peer) == "client"
        }

    def backlog(self, peer: Address) -> int:
        """Return the bytes that wait for a peer in its outbox."""
        return self._outbox_bytes.get(peer, 0)

    def unsent_bytes(self, peer: Address) -> int:
        """Return the tracked bytes that a peer has not taken yet, in its outbox or in ZeroMQ."""
        leaving = self._leaving.get(peer)
        if leaving is not None:
            self._reap_one(peer, leaving)
        return self.backlog(peer) + self._leaving_bytes.get(peer, 0)

    def _dial(self, endpoint: str) -> zmq.Socket[bytes] | None:
        """Dial an endpoint; return None if it must not be dialled, which is reported, or cannot be:
        the peer is then unreachable, like one that does not run."""
        if not may_be_dialled(endpoint):
            self._undialled(endpoint, "it is not an endpoint: write host:port")
            return None
        key = None
        if self._key_pair is not None:
            key = self._keys.choose(endpoint, self.server_keys(endpoint))
            if key is None and not self.plain_allowed(endpoint):
                self._failures[endpoint] = "unknown-server"
                return None
        try:
            socket = self._connected(endpoint, key)
        except (zmq.ZMQError, ValueError) as error:
            self._undialled(endpoint, str(error))
            return None
        self._told_undialled.discard(endpoint)
        self._sources[socket] = endpoint
        self._poller.register(socket, zmq.POLLIN)
        self._own.register(socket, zmq.POLLIN)
        return socket

    def _undialled(self, endpoint: str, why: str) -> None:
        """Log once that an endpoint cannot be dialled; its sessions dial again and again."""
        if endpoint in self._told_undialled:
            return
        if len(self._told_undialled) >= UNDIALLED:
            self._told_undialled.clear()
        self._told_undialled.add(endpoint)
        log_event("dial_failed", endpoint=endpoint[:160], error=why)

    def _connected(self, endpoint: str, key: str | None) -> zmq.Socket[bytes]:
        """Return a socket that dials an endpoint.

        Raises:
            ZMQError: ZeroMQ refuses to; nothing is left open.
            ValueError: the same.
        """
        socket = self._dialled[endpoint] = self._socket(zmq.DEALER, endpoint)
        try:
            self._set_up(socket, endpoint, key)
        except (zmq.ZMQError, ValueError):
            self._stop_following(endpoint)
            del self._dialled[endpoint]
            # An open socket would keep the context from ending.
            socket.close(linger=0)
            raise
        return socket

    def _set_up(self, socket: zmq.Socket[bytes], endpoint: str, key: str | None) -> None:
        if self._key_pair is not None and key is not None:
            socket.setsockopt(zmq.CURVE_PUBLICKEY, self._key_pair.public.encode("ascii"))
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._key_pair.secret.reveal().encode("ascii"))
            socket.setsockopt(zmq.CURVE_SERVERKEY, key.encode("ascii"))
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_LAST_MS)
        # IMMEDIATE is not set, though no message should wait for a dead peer. With it, a connection
        # that breaks takes its messages away from the reader, and if one of many frames is half
        # read, libzmq 4.3.5 aborts the process ("Assertion failed: !_more"). Waiting messages are
        # dropped with the next redial; late ones get NEED_HELLO (W1).
        socket.setsockopt(zmq.SNDHWM, DIALLED_HIGH_WATER)
        socket.setsockopt(zmq.TCP_MAXRT, DEAD_AFTER_MS)
        self._follow_handshake(socket, endpoint, key or "")
        socket.connect(f"tcp://{endpoint}")

    def _follow_handshake(self, socket: zmq.Socket[bytes], endpoint: str, key: str) -> None:
        """Let ZeroMQ report failed handshakes of a dialled socket."""
        self._dials += 1
        address = f"inproc://handshake-{self._dials}"
        events = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        socket.monitor(address, events | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        reports: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        try:
            reports.setsockopt(zmq.LINGER, 0)
            reports.setsockopt(zmq.RCVHWM, 0)
            reports.connect(address)
        except zmq.ZMQError:
            reports.close(linger=0)
            raise
        self._poller.register(reports, zmq.POLLIN)
        self._own.register(reports, zmq.POLLIN)
        self._handshakes[reports] = (endpoint, key)
        self._handshake_of[endpoint] = reports

    def _is_encrypted(self, endpoint: str) -> bool:
        return bool(self._handshakes[self._handshake_of[endpoint]][1])

    def _stop_following(self, endpoint: str) -> None:
        reports = self._handshake_of.pop(endpoint, None)
        if reports is None:
            return
        del self._handshakes[reports]
        self._poller.unregister(reports)
        self._own.unregister(reports)
        self._dialled[endpoint].disable_monitor()
        reports.close(linger=0)

    def _follow_handshakes(self, reporting: list[zmq.Socket[bytes]]) -> None:
        """Note the handshakes that have failed, and close their sockets.

        Some of these sockets would never dial again, and others without a pause.
        """
        for reports in reporting:
            endpoint, key = self._handshakes[reports]
            while _readable(reports):
                told = parse_monitor_message(reports.recv_multipart(AT_ONCE))
                fault = _fault_of(told["event"], told["value"], encrypted=bool(key))
                if fault is None:
                    continue
                if fault == "server":
                    self._keys.failed(endpoint, key)
                self._failures[endpoint] = fault
                self.hang_up(endpoint)
                break

    def redial(self, endpoint: str) -> None:
        """Drop a connection with its waiting messages; the next send dials again."""
        self.hang_up(endpoint)

    def hang_up(self, endpoint: str) -> None:
        """Close the connection to an endpoint."""
        self._forget(endpoint)
        self._leaving.pop(endpoint, None)
        self._leaving_bytes.pop(endpoint, None)
        self._unfollowed.pop(endpoint, None)
        self._stop_following(endpoint)
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
        for endpoint in list(self._handshake_of):
            self._stop_following(endpoint)
        if self._zap is not None:
            self._zap.close()
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
        # With every socket that may be left, for an open one would let it wait for ever.
        self._context.destroy(linger=0)


def _readable(socket: zmq.Socket[bytes]) -> bool:
    """Return True if a whole message waits. To be told by an exception costs three times as much."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & READABLE)


def _nobody(_address: PeerAddress) -> None:
    return None


def _no_keys(_endpoint: str) -> Sequence[str]:
    return ()


def _never(_endpoint: str) -> bool:
    return False


def _fault_of(event: int, value: int, *, encrypted: bool) -> HandshakeFault | None:
    """Return what a report of ZeroMQ on a handshake means, or None if it means nothing yet."""
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return "key"
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        if encrypted:
            return "server"
        return "no-key" if value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH else None
    # The node ends the connection in an orderly way if it cannot decrypt the first command.
    return "server" if encrypted and value == errno.EPIPE else None


def make_key_pair() -> KeyPair:
    """Return a new key pair."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode("ascii"), Secret(secret.decode("ascii")))


def public_key_of(secret: Secret) -> str:
    """Return the public key that belongs to a secret one."""
    return zmq.curve_public(secret.reveal().encode("ascii")).decode("ascii")


def check_endpoint(text: str) -> str:
    """Return `text` if it is an endpoint, "host:port", that others dial.

    Raises:
        StartError: BAD_CONFIG, with the rule.
    """
    fault = endpoint_fault(text)
    if fault is not None:
        raise StartError(fault)
    return text
