"""The vocabulary of every node and of the client's core: events in, effects out.

A core is `handle(events, now) -> Effects` and `deadline() -> float | None`. It holds no socket,
disk, clock, thread or randomness; the skin (or the simulation) does what the effects say, in this
order: write `writes` to the store, begin the sync of `token`, redial, send, hang up. (A redial
comes with the HELLO to the new connection, so it goes first.) `Synced(token)` comes back as an event
of a later turn once everything up to that token is on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from logboom.wire.frames import Frame


class Instant(NamedTuple):
    """One reading of a node's clocks."""

    mono: float
    """Seconds, never back: deadlines, leases, holds."""
    wall_ms: int
    """Milliseconds since 1970 UTC, may jump: append times, retention."""


class PeerAddress(NamedTuple):
    """A peer that dialled one of our listeners; the routing id is an address, not an identity."""

    listener: str
    routing_id: bytes


Address: TypeAlias = PeerAddress | str
"""A peer: one that dialled us, or the endpoint ("host:port") that we dial."""


class Received(NamedTuple):
    """Frames came from a peer, undecoded."""

    peer: Address
    frames: Sequence[Frame]
    untaken: int = 0
    """Bytes sent to this peer that it has not taken yet, as far as they are followed."""


class Synced(NamedTuple):
    """All writes up to and with this token are on disk."""

    token: int


class SyncFailed(NamedTuple):
    """The disk refused: the process must end, a sync is never retried (Q14)."""

    token: int
    reason: str


class Call(NamedTuple):
    """A wish from this process's own side (the client's API, a signal), in the core's own terms."""

    request: Any


Event: TypeAlias = Received | Synced | SyncFailed | Call


class Send(NamedTuple):
    """Frames to a peer. A first Send to an endpoint dials it."""

    peer: Address
    frames: Sequence[Frame]


class Note(NamedTuple):
    """Something that whoever operates the node should read; the skin logs it."""

    severity: Literal["info", "warning", "error"]
    text: str


@dataclass(slots=True)
class Effects:
    """What the skin is to do after one turn."""

    sends: list[Send] = field(default_factory=list)
    redials: list[str] = field(default_factory=list)
    """Endpoints whose connection is to be closed and dialled anew."""
    hangups: list[str] = field(default_factory=list)
    """Endpoints that are dialled no longer."""
    writes: Any = None
    """A WriteSet of the core's own store, or None."""
    token: int = 0
    """Number of this turn's sync, growing; 0: nothing to sync."""
    notes: list[Note] = field(default_factory=list)
    stop: str | None = None
    """Why the node must end, or "" for a graceful end."""


class Core(Protocol):
    """A state machine that a skin or the simulation drives."""

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """Take a turn's events; also called without any when `deadline` has come."""
        ...

    def deadline(self) -> float | None:
        """Monotonic time of the next turn that is wanted without events; ≤ now: at once."""
        ...
