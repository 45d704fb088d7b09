"""The vocabulary of nodes and of the client's core: events in, effects out.

A core is `handle(events, now) -> Effects` and `deadline() -> float | None`. It holds no socket,
disk, clock, thread or randomness. The skin (or the simulation) carries out the effects in this
order: write `writes` to the store, begin the sync of `token`, redial, send, hang up, kick. A redial comes
with the HELLO to the new connection, so it precedes the sends. `Synced(token)` is an event of a
later turn, once everything up to that token is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from logboom.wire.event_table import Plain
from logboom.wire.frames import Frame


class Instant(NamedTuple):
    """One reading of a node's clocks."""

    mono: float
    """Seconds that never go back, for deadlines, leases and holds."""
    wall_ms: int
    """Milliseconds since 1970 UTC that may jump, for append times and retention."""


class PeerAddress(NamedTuple):
    """A peer that dialled one of our listeners; the routing id is an address, not an identity."""

    listener: str
    routing_id: bytes

    @property
    def is_used_once(self) -> bool:
        """True if ZeroMQ has chosen the routing id, for one connection; peers may repeat theirs."""
        return self.routing_id.startswith(b"\0")


Address: TypeAlias = PeerAddress | str
"""A peer: one that dialled this process, or the endpoint ("host:port") that it dials."""


class Received(NamedTuple):
    """Undecoded frames from a peer."""

    peer: Address
    frames: Sequence[Frame]
    unsent_bytes: int = 0
    """Bytes sent to this peer that it has not taken yet, as far as this is tracked."""
    principal: str | None = None
    """The user and the key with which the connection of this very message was opened
    (`wire.access.access_rules.principal_of`); None on a listener without keys."""


HandshakeFault: TypeAlias = Literal["key", "server", "unknown-server", "no-key"]
"""key: the node does not accept our key. server: it has another key than those known here, or it
speaks without keys. unknown-server: no key of it is known here, so it is not dialled. no-key: it was
dialled without a key, and wants one."""


class HandshakeFailed(NamedTuple):
    """A connection to a node that did not come about; ZeroMQ alone would be silent about it."""

    endpoint: str
    reason: HandshakeFault


class Synced(NamedTuple):
    """All writes up to and including this token are on disk."""

    token: int


class SyncFailed(NamedTuple):
    """A sync failed. The process must end, because a failed sync is never retried."""

    token: int
    reason: str


class Call(NamedTuple):
    """A request of this process itself (the client's API, a signal), in the core's own terms."""

    request: Any


Event: TypeAlias = Received | HandshakeFailed | Synced | SyncFailed | Call


class Send(NamedTuple):
    """Frames to a peer. The first to an endpoint dials it."""

    peer: Address
    frames: Sequence[Frame]


class Note(NamedTuple):
    """An event for the operator of the node, which the skin writes to the log."""

    event: str
    """Its name in `wire.event_table`."""
    fields: Mapping[str, Plain]
    """Its fields in the order of the table; None is left out."""
    times: int = 1
    """Number of events that this stands for."""


def note(event: str, **fields: Plain) -> Note:
    """Build the note of one event."""
    return Note(event, fields)


@dataclass(slots=True)
class Effects:
    """The actions for the skin after one turn."""

    sends: list[Send] = field(default_factory=list)
    redials: list[str] = field(default_factory=list)
    """Endpoints whose connection is to be closed and dialled again."""
    hangups: list[str] = field(default_factory=list)
    """Endpoints whose connection is to be closed."""
    kicks: list[PeerAddress] = field(default_factory=list)
    """Peers whose connection to this node is to be reset, after the sends."""
    writes: Any = None
    """A WriteSet of the core's own store, or None."""
    token: int = 0
    """Growing number of this turn's sync; 0 if there is nothing to sync."""
    notes: list[Note] = field(default_factory=list)
    stop: str | None = None
    """The reason why the node must end, "" for a graceful end, or None."""


class Core(Protocol):
    """A state machine that a skin or the simulation drives."""

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """Handle the events of a turn, or none if `deadline` has passed."""
        ...

    def deadline(self) -> float | None:
        """Return the monotonic time of the next turn that is needed without events.

        Any time up to now means at once.
        """
        ...
