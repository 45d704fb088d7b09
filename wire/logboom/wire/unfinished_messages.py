"""Messages that accepted connections have begun and not finished, pure.

ZeroMQ returns whole messages only, and keeps the parts of an unfinished one without any bound.
Bytes that it has read from a connection beyond the delivered messages are an unfinished message,
once all complete messages have been taken from the listener. The last condition matters: while a
node is behind, complete messages wait as well, and a peer must not be blamed for them.

ZeroMQ also reads bytes that it never returns: handshakes and heartbeats. They can be told from an
unfinished message later: a message can only be delivered when none is unfinished, so the remaining
bytes are such commands, unless there are too many. A connection that delivers nothing at all is
charged for its heartbeats, too, and reaches a limit after days.

What waits, complete or not, is bounded as well, since ZeroMQ itself has no bound here (see
`wire.sockets`). A node that falls behind so far resets the connections that have sent most.

Connections are identified by their file descriptors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from logboom.wire.actor import PeerAddress
from logboom.wire.hello import PeerKind

Standing: TypeAlias = Callable[[PeerAddress], PeerKind | None]
"""Returns the kind of the session behind an address, or None if there is no session."""

TURNS_EACH: Final = 2
"""Messages per connection after which every connection with a complete message has had a turn:
ZeroMQ serves connections in rotation."""
FRAME_HEAD_BYTES: Final = 9
"""Maximum length of the header that ZMTP writes before a frame."""
SHORT_HEAD_BYTES: Final = 2
"""Length of the header before a frame of at most `SHORT_FRAME_BYTES`."""
SHORT_FRAME_BYTES: Final = 255
COMMAND_BYTES_PER_S: Final = 1024
"""Maximum rate of commands of a healthy peer: ten times the need of heartbeats every 100 ms."""
MAX_COMMAND_BYTES: Final = 1024 * 1024
"""Maximum bytes that are regarded as commands between two deliveries, however far apart."""
NOTED_BYTES: Final = 4096
"""Bytes below which a connection is not tracked: a handshake, and some heartbeats."""
TINY_BYTES: Final = 4 * 1024 * 1024
"""Unfinished bytes of tiny frames, of all connections together, from which on they are checked."""
SWELLING: Final = 8
"""Growth of the process, as a multiple of the unfinished bytes, that proves tiny frames: an empty
frame takes two bytes on the wire and 64 in memory."""
FRAME_BYTES: Final = 64
"""Memory that ZeroMQ needs for a frame besides its content."""
MEASURED_FRAMES: Final = 1_000
"""Frames from whose sizes those of what waits are estimated: a few small ones say nothing."""
WAITING_BYTES: Final = 256 * 1024 * 1024
"""Memory of requests that may wait of one client: four times what a producer sends before it waits
for acknowledgements."""
REQUEST_ROOM_BYTES: Final = 1024 * 1024
"""Bytes of a request in addition to its largest frame."""
MIN_STRANGERS_BYTES: Final = 16 * 1024 * 1024
MAX_STRANGERS_BYTES: Final = 128 * 1024 * 1024
"""Bytes of unfinished messages of all connections without a session: two of the largest at all."""


class UnfinishedLimits(NamedTuple):
    """Limits of the bytes of unfinished messages; nodes with a session are exempt."""

    message_bytes: int
    """Limit of one connection."""
    strangers_bytes: int
    """Limit of all connections without a session together."""
    clients_bytes: int
    """Limit of all connections with the session of a client together."""
    strangers_waiting_bytes: int = WAITING_BYTES
    """Limit of what waits, complete or not, of all connections without a session together."""
    client_waiting_bytes: int = WAITING_BYTES
    """Limit of what waits of one connection with the session of a client."""
    clients_waiting_bytes: int = 4 * WAITING_BYTES
    """Limit of what waits of all connections with the session of a client together."""

    @property
    def waiting_bytes(self) -> int:
        """Limit of what waits at all, near which a node accepts no more connections."""
        return self.strangers_waiting_bytes + self.clients_waiting_bytes


def limits_for(max_frame_bytes: int) -> UnfinishedLimits:
    """Return the limits of a node whose largest frame has this size.

    All connections without a session together may have eight of the largest frames, and at least
    16 MiB and not more than 128 MiB; those of clients four times as much.
    """
    together = min(max(8 * max_frame_bytes, MIN_STRANGERS_BYTES), MAX_STRANGERS_BYTES)
    together = max(together, max_frame_bytes + REQUEST_ROOM_BYTES)
    return UnfinishedLimits(max_frame_bytes + REQUEST_ROOM_BYTES, together, 4 * together)


class Excess(NamedTuple):
    """A connection that must be closed."""

    connection: int
    unfinished_bytes: int
    limit_bytes: int
    shared: bool
    """True if the limit is the one that all strangers, or all clients, share."""
    is_waiting: bool = False
    """True if it is about all that waits, else about a message without its end."""


@dataclass(slots=True)
class _Connection:
    listener: str
    peer: PeerAddress | None = None
    """Known from the first message on."""
    excess: int = 0
    """Bytes that ZeroMQ had read beyond the delivered ones at the last inspection."""
    commands: int = 0
    """The part of these that is regarded as commands."""
    settled_at: float = 0.0
    """Time at which `commands` was last determined, in monotonic seconds."""
    since: float = 0.0
    """Time at which unfinished bytes were first seen."""
    total: int = 0
    """Bytes that ZeroMQ had read at the last inspection."""
    delivered: int = 0
    """Bytes of all messages that were delivered."""
    frames: int = 0
    """Frames of all messages that were delivered."""
    counted: tuple[int, int] = (0, 0)
    """`delivered` and `frames` when `frames_per_byte` was last measured."""
    frames_per_byte: float = 0.0
    """Frames per byte of what was delivered before that; 0: too few to say."""
    has_delivered: bool = False
    """True if there was a delivery since the last inspection."""
    tiny: bool = False
    """True if the last bytes look like tiny frames."""


@dataclass(slots=True)
class _Round:
    """Samples of one listener that wait until all complete messages have been taken from it."""

    samples: dict[int, int] = field(default_factory=dict)
    messages: int = 0
    """Messages taken from the listener since the samples."""


class UnfinishedMessages:
    """The account of all connections that a node has accepted."""

    def __init__(self, limits: UnfinishedLimits) -> None:
        self.limits = limits
        self._connections: dict[int, _Connection] = {}
        self._by_peer: dict[PeerAddress, int] = {}
        """Peer → the connection on which it was heard last."""
        self._ended: dict[int, PeerAddress] = {}
        """Connection → the peer of the last one of this number that has ended."""
        self._changed: dict[str, set[int]] = {}
        """Listener → connections with news since its last round began."""
        self._rounds: dict[str, _Round] = {}
        self._unfinished: dict[int, int] = {}
        """Connection → bytes that are known to be unfinished."""
        self._accepted: dict[str, int] = {}
        """Listener → number of its connections."""
        self._tiny: dict[int, int] = {}
        """Connection → unfinished bytes in tiny frames, as far as they were inspected."""
        self._resident_before = 0
        """Memory of the process before there were any tiny frames."""
        self._judged = False
        """True if a round has ended since the last judgement."""
        self._waiting: dict[int, None] = {}
        """Connections of which something waits, as far as the last inspection has found."""
        self._left: dict[str, int] = {}
        """Listener → memory of what ended connections have left there."""

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of all connections together that are known to be unfinished."""
        return sum(self._unfinished.values())

    def unfinished(self) -> Collection[int]:
        """The connections that are known to have an unfinished message."""
        return self._unfinished.keys()

    def opened(self, connection: int, listener: str, now: float) -> None:
        """Track a connection that a listener has accepted."""
        self.closed(connection)
        self._connections[connection] = _Connection(listener, settled_at=now)
        self._accepted[listener] = self._accepted.get(listener, 0) + 1

    def closed(self, connection: int) -> None:
        """Forget a connection that has ended, or is about to."""
        gone = self._connections.pop(connection, None)
        if gone is not None:
            if self._waiting.pop(connection, 0) is None:
                self._left[gone.listener] = self._left.get(gone.listener, 0) + _memory_of(gone)
            if gone.peer is not None:
                self._ended[connection] = gone.peer
                self._leave(connection, gone.peer)
            self._accepted[gone.listener] -= 1
            self._forget(connection, gone)

    def heard(self, connection: int, peer: PeerAddress) -> bool:
        """Learn whose connection it is; return False if the one that the peer had has ended.

        What was sent over a connection may be taken after the next one of its number was opened.
        """
        known = self._connections.get(connection)
        if known is None or known.listener != peer.listener:
            return False
        if peer.is_used_once and self._ended.get(connection) == peer:
            return False
        if known.peer is not None:
            self._leave(connection, known.peer)
        known.peer = peer
        self._by_peer[peer] = connection
        return True

    def _leave(self, connection: int, peer: PeerAddress) -> None:
        if self._by_peer.get(peer) == connection:
            del self._by_peer[peer]

    def delivered(self, connection: int, peer: PeerAddress, frames: int, size: int) -> bool:
        """Count a complete message that was taken from a connection.

        Return False, and count nothing, unless this peer was the last that was heard there.
        """
        known = self._connections.get(connection)
        if known is None or known.peer is not peer:
            return False
        # Whose frames are longer than `SHORT_FRAME_BYTES` is not known, but not more can be than this.
        longer = min(frames, size // (SHORT_FRAME_BYTES + 1))
        heads = frames * SHORT_HEAD_BYTES + longer * (FRAME_HEAD_BYTES - SHORT_HEAD_BYTES)
        known.delivered += size + heads
        known.frames += frames
        known.has_delivered = True
        self._forget(connection, known)
        return True

    def orphaned(self, listener: str, frames: int, size: int) -> None:
        """Count a message that was taken after its connection had ended."""
        left = self._left.get(listener)
        if left is not None:
            self._left[listener] = max(0, left - size - frames * FRAME_BYTES)

    def connection_of(self, peer: PeerAddress) -> int | None:
        """Return the connection of a peer, if it has delivered a message and is still open."""
        return self._by_peer.get(peer)

    def _forget(self, connection: int, known: _Connection) -> None:
        self._unfinished.pop(connection, None)
        self._tiny.pop(connection, None)
        if known.listener in self._rounds:
            self._rounds[known.listener].samples.pop(connection, None)
        if known.listener in self._changed:
            self._changed[known.listener].discard(connection)

    def bytes_of(self, connection: int) -> int:
        """Return the bytes that a connection is known to have unfinished."""
        return self._unfinished.get(connection, 0)

    def sampled(self, connection: int, total: int, now: float, *, tiny: bool | None = None) -> None:
        """Take a sample: ZeroMQ has read `total` bytes from a connection so far.

        `tiny` is true if the next bytes are a run of tiny frames, and None if that was not
        inspected or there was nothing to inspect.
        """
        known = self._connections.get(connection)
        if known is None:
            return
        excess = total - known.delivered
        known.total = total
        if tiny is not None:
            known.tiny = tiny
        if known.tiny and not known.has_delivered and excess > known.excess:
            more = excess - known.excess
            self._tiny[connection] = self._tiny.get(connection, 0) + more
        if known.has_delivered:
            known.has_delivered = False
            size, frames = known.delivered - known.counted[0], known.frames - known.counted[1]
            if frames >= MEASURED_FRAMES:
                known.frames_per_byte = frames / size
                known.counted = known.delivered, known.frames
            passed = now - known.settled_at
            possible = min(int(passed * COMMAND_BYTES_PER_S), MAX_COMMAND_BYTES)
            known.commands = min(excess, known.commands + possible)
            known.settled_at = known.since = now
        elif known.excess <= known.commands + NOTED_BYTES:
            known.since = now
        known.excess = excess
        if excess > known.commands + NOTED_BYTES:
            self._waiting[connection] = None
            self._changed.setdefault(known.listener, set()).add(connection)

    def begin_rounds(self) -> None:
        """Begin to test the samples against the messages that are taken from now on.

        A round that is still open continues first.
        """
        for listener, changed in self._changed.items():
            if changed and listener not in self._rounds:
                samples = {c: self._unfinished_of(c) for c in changed}
                self._rounds[listener] = _Round(samples)
                changed.clear()

    def _unfinished_of(self, connection: int) -> int:
        known = self._connections[connection]
        return known.excess - known.commands

    def taken(self, listener: str, messages: int, *, dry: bool) -> None:
        """Count messages that were taken from a listener; `dry`: it had no more."""
        if dry:
            self._left.pop(listener, None)
        round_ = self._rounds.get(listener)
        if round_ is None:
            return
        round_.messages += messages
        if dry or round_.messages >= TURNS_EACH * self._accepted.get(listener, 0):
            del self._rounds[listener]
            self._unfinished.update(round_.samples)
            self._judged = True

    def excess(self, standing: Standing) -> list[Excess]:
        """Return the connections to close now, and forget them."""
        if not self._judged:
            return []
        self._judged = False
        found = self._own_excess(standing)
        if self.unfinished_bytes > min(self.limits.strangers_bytes, self.limits.clients_bytes):
            strangers: list[int] = []
            clients: list[int] = []
            for connection in self._unfinished:
                kind = self._kind(connection, standing)
                if kind is None:
                    strangers.append(connection)
                elif kind == "client":
                    clients.append(connection)
            found += self._shared_excess(strangers, self.limits.strangers_bytes)
            found += self._shared_excess(clients, self.limits.clients_bytes)
        return found

    def waiting_bytes(self) -> int:
        """Return the memory of all that waits, also of connections that have ended."""
        for connection in list(self._waiting):
            known = self._connections[connection]
            if known.total - known.delivered <= known.commands + NOTED_BYTES:
                del self._waiting[connection]
        together = sum(_memory_of(self._connections[c]) for c in self._waiting)
        return together + sum(self._left.values())

    def overfull(self, standing: Standing) -> list[Excess]:
        """Return the connections of which too much waits, complete or not, and forget them.

        Where all together have too much, those that have most go first.
        """
        limits = self.limits
        if self.waiting_bytes() <= min(limits.strangers_waiting_bytes, limits.client_waiting_bytes):
            return []
        strangers: dict[int, int] = {}
        clients: dict[int, int] = {}
        for connection in self._waiting:
            kind = self._kind(connection, standing)
            if kind is None:
                strangers[connection] = _memory_of(self._connections[connection])
            elif kind == "client":
                clients[connection] = _memory_of(self._connections[connection])
        each, every = limits.client_waiting_bytes, limits.clients_waiting_bytes
        found = self._most(clients, each, every)
        each = limits.strangers_waiting_bytes
        return found + self._most(strangers, each, each)

    def _most(self, waiting: dict[int, int], each: int, every: int) -> list[Excess]:
        """Return connections to close until no other has more than `each`, and all `every`."""
        together = sum(waiting.values())
        found: list[Excess] = []
        for connection, size in sorted(waiting.items(), key=lambda found: -found[1]):
            if size <= each and together <= every:
                break
            together -= size
            shared = size <= each
            limit = every if shared else each
            found.append(Excess(connection, size, limit, shared, is_waiting=True))
            self.closed(connection)
        return found

    def swollen(self, resident_bytes: int, standing: Standing) -> list[Excess]:
        """Return the connections whose tiny frames have made the process grow, and forget them.

        Bytes that look like tiny frames may be the content of a large one. They count only together
        with the memory that such frames take.
        """
        suspects = {
            connection: size
            for connection, size in self._tiny.items()
            if self._kind(connection, standing) in (None, "client")
        }
        size = sum(suspects.values())
        if not size:
            self._resident_before = resident_bytes
        if size < TINY_BYTES or resident_bytes - self._resident_before < SWELLING * size:
            return []
        for connection in suspects:
            self.closed(connection)
        return [Excess(c, n, TINY_BYTES, shared=True) for c, n in suspects.items()]

    def _kind(self, connection: int, standing: Standing) -> PeerKind | None:
        peer = self._connections[connection].peer
        return None if peer is None else standing(peer)

    def _own_excess(self, standing: Standing) -> list[Excess]:
        limit = self.limits.message_bytes
        found = [
            Excess(connection, size, limit, shared=False)
            for connection, size in self._unfinished.items()
            if size > limit and self._kind(connection, standing) in (None, "client")
        ]
        for each in found:
            self.closed(each.connection)
        return found

    def _shared_excess(self, connections: Iterable[int], limit: int) -> list[Excess]:
        """Return connections to close until the others are within a limit.

        Those whose message has been unfinished for longest go first: a healthy one ends soon.
        """
        by_age = sorted(connections, key=lambda c: self._connections[c].since)
        together = sum(self._unfinished[c] for c in by_age)
        found: list[Excess] = []
        for connection in by_age:
            if together <= limit:
                break
            size = self._unfinished[connection]
            together -= size
            found.append(Excess(connection, size, limit, shared=True))
            self.closed(connection)
        return found


def _memory_of(known: _Connection) -> int:
    """Return the memory of what waits of a connection, its frames taken to be as those before."""
    waiting = max(0, known.total - known.delivered - known.commands)
    return int(waiting * (1 + FRAME_BYTES * known.frames_per_byte))
