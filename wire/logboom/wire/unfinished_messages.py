"""Messages that accepted connections began and have not finished, pure.

ZeroMQ hands over whole messages only, and keeps what came of an unfinished one without any bound. What
it has read from a connection beyond what the connection delivered is an unfinished message, once
everything complete has been taken from the listener. That last condition matters: while a node is
behind, complete messages wait as well, and a peer must not be blamed for those.

ZeroMQ also reads what it never hands over: handshakes and heartbeats. They are told from an unfinished
message by what comes later: a message can only be delivered when none is unfinished, so what is left
over then are such commands, as long as it is no more than commands can have been. A connection that
delivers nothing at all is charged for its heartbeats too, and reaches a limit after days.

Connections are numbered by their file descriptors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from logboom.wire.actor import PeerAddress
from logboom.wire.hello import PeerKind

Standing: TypeAlias = Callable[[PeerAddress], PeerKind | None]
"""The kind of the session behind an address; None: there is no session."""

TURNS_EACH: Final = 2
"""Messages per connection after which everybody with a complete message has had a turn: ZeroMQ
serves connections in rotation."""
FRAME_HEAD_BYTES: Final = 9
"""Most that ZMTP writes before a frame."""
COMMAND_BYTES_PER_S: Final = 1024
"""Most that commands of a healthy peer amount to: ten times what heartbeats every 100 ms need."""
MAX_COMMAND_BYTES: Final = 1024 * 1024
"""Most that is taken for commands between two deliveries, however far apart they are."""
NOTED_BYTES: Final = 4096
"""What is less is not followed: a handshake, and some heartbeats."""
TINY_BYTES: Final = 4 * 1024 * 1024
"""Unfinished bytes of tiny frames, of all connections together, from which they are looked into."""
SWELLING: Final = 8
"""Times that many bytes by which the process must have grown since, for them to be what it holds: an
empty frame takes two bytes on the wire and 64 in memory."""


class UnfinishedLimits(NamedTuple):
    """Bytes of unfinished messages that are taken; nodes with a session are exempt."""

    message_bytes: int
    """Of one connection."""
    strangers_bytes: int
    """Of all connections without a session together."""
    clients_bytes: int
    """Of all connections with the session of a client together."""


class Excess(NamedTuple):
    """A connection that must be closed."""

    connection: int
    unfinished_bytes: int
    limit_bytes: int
    shared: bool
    """True if the limit is the one that all strangers, or all clients, share."""


@dataclass(slots=True)
class _Connection:
    listener: str
    peer: PeerAddress | None = None
    """Known from the first message on."""
    excess: int = 0
    """Bytes that ZeroMQ has read beyond those that were delivered, as of the last look."""
    commands: int = 0
    """Of these, what is taken for commands."""
    settled_at: float = 0.0
    """When `commands` was last told, in monotonic seconds."""
    since: float = 0.0
    """When something of it was first seen to be unfinished."""
    delivered: int = 0
    """Bytes of all messages that were delivered."""
    has_delivered: bool = False
    """Whether there was a delivery since the last look."""
    tiny: bool = False
    """Whether what came last looks like tiny frames."""
    unknown: bool = False
    """Whether it delivered before it was known here: nothing is known until the next look."""


@dataclass(slots=True)
class _Round:
    """Samples of one listener that wait until everything complete has been taken from it."""

    samples: dict[int, int] = field(default_factory=dict)
    messages: int = 0
    """Taken from the listener since the samples."""


class UnfinishedMessages:
    """The account of all connections that a node has accepted."""

    def __init__(self, limits: UnfinishedLimits) -> None:
        self.limits = limits
        self._connections: dict[int, _Connection] = {}
        self._early: set[int] = set()
        """Connections that delivered before anybody said that they were accepted."""
        self._changed: dict[str, set[int]] = {}
        """Listener → connections with news since its last round began."""
        self._rounds: dict[str, _Round] = {}
        self._unfinished: dict[int, int] = {}
        """Connection → bytes that are known to be unfinished."""
        self._accepted: dict[str, int] = {}
        """Listener → its connections."""
        self._tiny: dict[int, int] = {}
        """Connection → unfinished bytes that came in tiny frames, by all that was seen of them."""
        self._resident_before = 0
        """Memory of the process when there was nothing in tiny frames."""
        self._judged = False
        """Whether a round ended since the last judgement."""

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes that are known to be unfinished, of all connections together."""
        return sum(self._unfinished.values())

    def unfinished(self) -> Iterable[int]:
        """The connections that have an unfinished message, as far as known."""
        return self._unfinished.keys()

    def opened(self, connection: int, listener: str, now: float) -> None:
        """A listener accepted a connection."""
        self.closed(connection)
        unknown = connection in self._early
        self._early.discard(connection)
        self._connections[connection] = _Connection(listener, settled_at=now, unknown=unknown)
        self._accepted[listener] = self._accepted.get(listener, 0) + 1

    def closed(self, connection: int) -> None:
        """A connection ended, or is about to."""
        gone = self._connections.pop(connection, None)
        if gone is not None:
            self._accepted[gone.listener] -= 1
            self._forget(connection, gone)

    def delivered(self, connection: int, peer: PeerAddress, frames: int, size: int) -> None:
        """A complete message of so many frames and bytes was taken from a connection."""
        known = self._connections.get(connection)
        if known is None:
            self._early.add(connection)
            return
        known.peer = peer
        known.delivered += size + frames * FRAME_HEAD_BYTES
        known.has_delivered = True
        self._forget(connection, known)

    def _forget(self, connection: int, known: _Connection) -> None:
        self._unfinished.pop(connection, None)
        self._tiny.pop(connection, None)
        if known.listener in self._rounds:
            self._rounds[known.listener].samples.pop(connection, None)
        if known.listener in self._changed:
            self._changed[known.listener].discard(connection)

    def bytes_of(self, connection: int) -> int:
        """What a connection is known to have unfinished."""
        return self._unfinished.get(connection, 0)

    def sampled(self, connection: int, total: int, now: float, *, tiny: bool | None = None) -> None:
        """ZeroMQ has read `total` bytes from a connection so far.

        `tiny`: whether what comes next is a run of tiny frames; None: nobody has looked, or nothing
        was there to be looked at.
        """
        known = self._connections.get(connection)
        if known is None:
            return
        excess = total - known.delivered
        if tiny is not None:
            known.tiny = tiny
        if known.tiny and not known.has_delivered and excess > known.excess:
            more = excess - known.excess
            self._tiny[connection] = self._tiny.get(connection, 0) + more
        if known.unknown:
            known.unknown = False
            known.commands = excess
        if known.has_delivered:
            known.has_delivered = False
            passed = now - known.settled_at
            possible = min(int(passed * COMMAND_BYTES_PER_S), MAX_COMMAND_BYTES)
            known.commands = min(excess, known.commands + possible)
            known.settled_at = known.since = now
        elif known.excess <= known.commands + NOTED_BYTES:
            known.since = now
        known.excess = excess
        if excess > known.commands + NOTED_BYTES:
            self._changed.setdefault(known.listener, set()).add(connection)

    def begin_rounds(self) -> None:
        """Put the samples to the test: what is taken from now on tells what of them is unfinished.

        A round that is still open goes on first.
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
        """So many messages were taken from a listener; `dry`: it had no more."""
        round_ = self._rounds.get(listener)
        if round_ is None:
            return
        round_.messages += messages
        if dry or round_.messages >= TURNS_EACH * self._accepted.get(listener, 0):
            del self._rounds[listener]
            self._unfinished.update(round_.samples)
            self._judged = True

    def excess(self, standing: Standing) -> list[Excess]:
        """The connections to close now; they are forgotten."""
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

    def swollen(self, resident_bytes: int, standing: Standing) -> list[Excess]:
        """The connections whose tiny frames have made the process grow; they are forgotten.

        What looks like tiny frames may be the content of a large one. Only together with the memory
        that such frames take are they believed.
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
        """Whose message has been unfinished for longest goes first: a healthy one ends soon."""
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
