"""A simulated network that breaks as ZeroMQ over TCP does.

A dialler keeps one socket per endpoint. While it is connected, each way is first in, first out.
A connection that breaks loses what is under way, tells nobody, and the socket dials anew: the
listener then sees a new routing id, and what waited at the dialler meanwhile arrives before any
new HELLO (SAFETY W1). In a partition what is under way waits; if the partition ends before ZeroMQ's
heartbeats give up (`GIVE_UP`), it arrives late and all at once, else the connection breaks.

Where listeners have a doorkeeper, it is asked at every dial who that is, as ZeroMQ asks by ZAP: each
message then comes with the principal of its connection. Who is refused is told so, what it had to
say is lost, and it dials no more by itself. A routing id is whatever its dialler says: who knows that of a broken connection may take it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias

from logboom.wire.actor import Address, HandshakeFailed, PeerAddress, Received
from logboom.wire.frames import Frame
from tests.sim.world.scheduler import Scheduler

GIVE_UP = 6.0
"""Seconds after which ZMTP heartbeats close a connection that carries nothing."""
OUTBOX_MESSAGES = 10_000
"""Messages that wait for one endpoint that is not connected; the newest beyond are lost."""
FAST, SLOW = (0.000_05, 0.000_6), (0.002, 0.060)
"""Seconds under way: nearly always, and now and then."""

Frames: TypeAlias = tuple[bytes, ...]
Watcher: TypeAlias = Callable[["Host", Address, Frames], None]
Ends: TypeAlias = Callable[["Host", PeerAddress, "Host"], None]


class Host(Protocol):
    """One running process on a machine; it has the machine's name."""

    name: str

    def deliver(self, event: Received | HandshakeFailed) -> None:
        """Take a message from the network."""
        ...


class Passed(NamedTuple):
    """A dialler may connect, under this name (None: the listener asks nobody for one)."""

    principal: str | None


Admission: TypeAlias = Passed | Literal["later", "refused", "silence"]
"""What a listener decides on a dialler: "later" has it dial again by itself, "silence" is no answer
at all, of a process that stands still."""
Doorkeeper: TypeAlias = Callable[["Host", str, "Host"], Admission]
"""Called with a listening process, the name of its listener, and the process that dials."""


@dataclass(slots=True, eq=False)
class _Lane:
    """One way of a connection."""

    source: str
    target: str
    deliver: Callable[[Frames], None]
    queue: deque[Frames] = field(default_factory=deque)
    stalled: int = 0
    last: float = 0.0
    open: bool = True


@dataclass(slots=True, eq=False)
class _Connection:
    socket: _Socket
    listener: Host
    inbound: PeerAddress
    there: _Lane
    back: _Lane
    principal: str | None = None


@dataclass(slots=True, eq=False)
class _Socket:
    """A dialler's end."""

    host: Host
    endpoint: str
    outbox: deque[Frames] = field(default_factory=deque)
    connection: _Connection | None = None
    dialling: bool = False
    closed: bool = False
    refused: bool = False
    """It dials no more."""


class Network:
    """All connections of a world."""

    def __init__(self, scheduler: Scheduler, rng: random.Random) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._listeners: dict[str, tuple[Host, str]] = {}
        self._sockets: dict[tuple[Host, str], _Socket] = {}
        self._connections: dict[tuple[Host, PeerAddress], _Connection] = {}
        self._blocked: dict[tuple[str, str], int] = {}
        self._dialled = 0
        self._blocks = 0
        self.lags: dict[tuple[str, str], float] = {}
        """(from, to) → seconds that messages take longer, this way."""
        self.delivered = 0
        self.lost = 0
        """Messages that a broken connection swallowed."""
        self.on_arrival: Watcher = lambda _host, _peer, _frames: None
        """Called for each message when it arrives."""
        self.on_departure: Watcher = lambda _host, _peer, _frames: None
        """Called for each message when it is sent, whatever becomes of it."""
        self.doorkeeper: Doorkeeper = lambda _host, _listener, _dialler: Passed(None)
        """Asked at every dial."""
        self.on_connect: Ends = lambda _host, _peer, _dialler: None
        """Called with the listener's end of a new connection, and who dialled."""
        self.on_break: Ends = lambda _host, _peer, _dialler: None
        """The same of a connection that is no more."""
        self._taken: dict[tuple[Host, str], PeerAddress] = {}
        """(dialler, endpoint) → the routing id that it gives itself when it dials next."""

    # -- what a process does ----------------------------------------------------------------

    def listen(self, host: Host, listener: str, endpoint: str) -> None:
        """Take connections at an endpoint."""
        assert endpoint not in self._listeners, f"{endpoint} is in use"
        self._listeners[endpoint] = (host, listener)
        self._dial_waiting()

    def send(self, host: Host, peer: Address, frames: Sequence[Frame]) -> None:
        """Send as ZeroMQ does: never blocks, tells nothing."""
        copied = tuple(map(bytes, frames))
        self.on_departure(host, peer, copied)
        if isinstance(peer, PeerAddress):
            connection = self._connections.get((host, peer))
            if connection is None:
                self.lost += 1
            else:
                self._post(connection.back, copied)
            return
        socket = self._sockets.get((host, peer))
        if socket is None:
            socket = self._sockets[host, peer] = _Socket(host, peer)
            self._dial_soon(socket, 0.0002)
        if socket.connection is not None:
            self._post(socket.connection.there, copied)
        elif len(socket.outbox) < OUTBOX_MESSAGES:
            socket.outbox.append(copied)

    def hang_up(self, host: Host, endpoint: str) -> None:
        """Close the socket to an endpoint; the next send dials anew."""
        socket = self._sockets.pop((host, endpoint), None)
        if socket is None:
            return
        socket.closed = True
        if socket.connection is not None:
            # The kernel may still deliver what has left; nothing comes back.
            self._break(socket.connection, drain=self._rng.random() < 0.5)

    def kick(self, host: Host, peer: PeerAddress) -> None:
        """Reset the connection of a peer that has dialled a process."""
        connection = self._connections.get((host, peer))
        if connection is not None:
            self._break(connection)

    def take_over(self, host: Host, endpoint: str, peer: PeerAddress) -> None:
        """The next dial to an endpoint names the routing id of another's broken connection."""
        self._taken[host, endpoint] = peer

    @property
    def whole(self) -> bool:
        """Whether everybody hears everybody, without delay."""
        return not self._blocked and not self.lags

    def principal_of(self, host: Host, peer: PeerAddress) -> str | None:
        """As whom a connection of a listener was opened; None: without a name, or it is broken."""
        connection = self._connections.get((host, peer))
        return None if connection is None else connection.principal

    # -- what befalls it --------------------------------------------------------------------

    def gone(self, host: Host) -> None:
        """A process ended, whatever the reason."""
        for endpoint in [e for e, (h, _) in self._listeners.items() if h is host]:
            del self._listeners[endpoint]
        for socket in [s for s in self._sockets.values() if s.host is host]:
            self.hang_up(host, socket.endpoint)
        for connection in [c for c in self._connections.values() if c.listener is host]:
            self._break(connection)

    def block(self, source: str, target: str) -> None:
        """From now on nothing passes from one machine to another, this way."""
        if (source, target) in self._blocked:
            return
        self._blocks += 1
        self._blocked[source, target] = number = self._blocks
        self._scheduler.after(GIVE_UP, lambda: self._give_up((source, target), number))

    def heal(self) -> None:
        """End all partitions and lags."""
        self.lags.clear()
        self.unblock(list(self._blocked))

    def unblock(self, ways: Iterable[tuple[str, str]]) -> None:
        """Let messages pass again, each way from one machine to another."""
        for way in ways:
            self._blocked.pop(way, None)
        for lane in [way for c in self._connections.values() for way in (c.there, c.back)]:
            if lane.stalled and (lane.source, lane.target) not in self._blocked:
                stalled, lane.stalled = lane.stalled, 0
                for _ in range(stalled):
                    self._travel(lane)
        self._dial_waiting()

    def break_between(self, one: str, other: str) -> int:
        """Break every connection between two machines; how many there were."""
        pair = {one, other}
        found = [c for c in self._connections.values() if {c.there.source, c.there.target} == pair]
        for connection in found:
            # What the listener's kernel has is still read, maybe after the next connection's HELLO.
            self._break(connection, drain=self._rng.random() < 0.3)
        return len(found)

    def half_open(self, dialler: str, listener: str) -> int:
        """The listener's end of each connection goes away; the dialler sends on into the void until
        it, or ZMTP's heartbeats, give up. How many there were."""
        found = [
            c
            for c in self._connections.values()
            if (c.there.source, c.there.target) == (dialler, listener)
        ]
        for connection in found:
            self._break(connection, half=True)
            self._scheduler.after(GIVE_UP, partial(self._break, connection))
        return len(found)

    def break_all(self, name: str) -> None:
        """Break every connection of one machine."""
        for connection in list(self._connections.values()):
            if name in (connection.there.source, connection.there.target):
                self._break(connection)

    # -- within -----------------------------------------------------------------------------

    def _post(self, lane: _Lane, frames: Frames) -> None:
        if not lane.open:
            self.lost += 1
            return
        lane.queue.append(frames)
        self._travel(lane)

    def _travel(self, lane: _Lane) -> None:
        dice = self._rng.random
        least, most = SLOW if dice() < 0.01 else FAST
        arrival = self._scheduler.now + (least + (most - least) * dice())
        if self.lags:
            arrival += self.lags.get((lane.source, lane.target), 0.0)
        arrival = max(arrival, lane.last)
        lane.last = arrival
        self._scheduler.at(arrival, partial(self._arrive, lane))

    def _arrive(self, lane: _Lane) -> None:
        if not lane.queue:
            return
        if (lane.source, lane.target) in self._blocked:
            lane.stalled += 1
            return
        frames = lane.queue.popleft()
        self.delivered += 1
        lane.deliver(frames)

    def _dial_soon(self, socket: _Socket, wait: float) -> None:
        if not socket.dialling and not socket.refused:
            socket.dialling = True
            self._scheduler.after(wait, lambda: self._dial(socket))

    def _dial_waiting(self) -> None:
        for socket in self._sockets.values():
            if socket.connection is None:
                self._dial_soon(socket, self._rng.uniform(0.02, 0.4))

    def _dial(self, socket: _Socket) -> None:
        socket.dialling = False
        found = self._listeners.get(socket.endpoint)
        if socket.closed or socket.connection is not None or found is None:
            return
        host, listener = found
        here, there = socket.host.name, host.name
        if (here, there) in self._blocked or (there, here) in self._blocked:
            return
        admission = self.doorkeeper(host, listener, socket.host)
        if not isinstance(admission, Passed):
            self._turn_away(socket, admission)
            return
        self._dialled += 1
        inbound = self._taken.pop((socket.host, socket.endpoint), None)
        if inbound is None or (host, inbound) in self._connections:
            # ZeroMQ lets nobody take the routing id of a connection that stands.
            inbound = PeerAddress(listener, b"\0" + self._dialled.to_bytes(4, "big"))
        connection = _Connection(
            socket,
            host,
            inbound,
            _Lane(here, there, partial(self._hand, host, inbound, admission.principal)),
            _Lane(there, here, partial(self._hand, socket.host, socket.endpoint, None)),
            admission.principal,
        )
        socket.connection = self._connections[host, inbound] = connection
        self.on_connect(host, inbound, socket.host)
        while socket.outbox:
            self._post(connection.there, socket.outbox.popleft())

    def _turn_away(self, socket: _Socket, admission: Admission) -> None:
        if admission != "refused":
            self._dial_soon(socket, self._rng.uniform(0.05, 0.5))
            return
        socket.refused = True
        wait = self._rng.uniform(*FAST)
        self._scheduler.after(wait, partial(self._tell_refused, socket))

    def _tell_refused(self, socket: _Socket) -> None:
        if not socket.closed:
            # As `Sockets` does: the next message to that endpoint dials again.
            self.hang_up(socket.host, socket.endpoint)
            socket.host.deliver(HandshakeFailed(socket.endpoint, "key"))

    def _hand(self, host: Host, peer: Address, principal: str | None, frames: Frames) -> None:
        self.on_arrival(host, peer, frames)
        host.deliver(Received(peer, frames, 0, principal))

    def _break(self, connection: _Connection, *, drain: bool = False, half: bool = False) -> None:
        """`drain`: what is under way to the listener arrives; `half`: the dialler does not notice."""
        key = (connection.listener, connection.inbound)
        if self._connections.get(key) is connection:
            del self._connections[key]
            self.on_break(*key, connection.socket.host)
        connection.there.open = False
        self.lost += len(connection.back.queue)
        connection.back.queue.clear()
        if not drain:
            self.lost += len(connection.there.queue)
            connection.there.queue.clear()
        socket = connection.socket
        if socket.connection is connection and not half:
            socket.connection = None
            if not socket.closed:
                self._dial_soon(socket, self._rng.uniform(0.05, 0.5))

    def _give_up(self, way: tuple[str, str], number: int) -> None:
        if self._blocked.get(way) == number:
            self.break_between(*way)
