"""How many connections a node accepts, before it knows who is there, pure.

Each address has a bound on its connections at a time, and on how fast it opens new ones: a handshake
with encryption costs half a millisecond. Loopback is exempt: whoever is on the machine has simpler
ways to slow it down. All connections together are bounded by the file descriptors of the process,
because ZeroMQ would otherwise try to accept without a pause, and the store could open no files.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, Literal, NamedTuple, TypeAlias

MAX_PER_ADDRESS: Final = 1_000
"""Default maximum number of connections of one address at a time."""
OPENED_PER_S: Final = 100
"""New connections per second of one address, once it has used up its burst. The burst is as large as
the number of connections that it may have, because all of them come back at once after a restart."""
FORGOTTEN_EVERY_S: Final = 10.0
"""Seconds between two passes that forget addresses without connections."""
SHUT_SHARE: Final = 0.9
"""Share of the descriptors in use from which on a node accepts no connections."""
OPEN_SHARE: Final = 0.8
"""Share of the descriptors in use below which it accepts them again."""
ADMITTED: Final = 8
"""Connections not heard yet that may send large packets: as many as the largest frames that all
connections without a session may have together."""
HANDSHAKE_S: Final = 5.0
"""Seconds after which ZeroMQ ends a connection whose handshake is not over."""
HANDSHAKE_OVER_S: Final = HANDSHAKE_S + 1.0
"""Seconds after which a connection that still exists has ended its handshake, though ZeroMQ's timer
may begin later than ours."""

RefusalReason: TypeAlias = Literal["connections", "rate", "descriptors", "waiting"]
"""Why a connection is refused: its address has too many, or opens them too fast, or the process has
no descriptors left, or too many requests wait."""


class ConnectionLimits(NamedTuple):
    """Limits of the connections of one address; 0: no limit."""

    per_address: int = MAX_PER_ADDRESS
    per_address_per_s: int = OPENED_PER_S


DEFAULT_LIMITS: Final = ConnectionLimits()


@dataclass(slots=True)
class _Caller:
    """An address that has connections, or had some a moment ago."""

    allowance: float
    """New connections that it may open at once."""
    at: float
    """Time at which the allowance was last computed, in monotonic seconds."""
    connections: int = 0


class ConnectionBook:
    """The connections that a node has accepted, by their addresses."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._addresses: dict[int, str] = {}
        """Connection → its address."""
        self._callers: dict[str, _Caller] = {}
        self._next_forgetting = 0.0

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def callers(self) -> int:
        """The number of addresses that are remembered."""
        return len(self._callers)

    def opened(self, connection: int, address: str, now: float) -> RefusalReason | None:
        """Count a new connection, unless it must be closed; return why."""
        self.closed(connection)
        if not is_exempt(address):
            caller = self._caller(address, now)
            if self.limits.per_address and caller.connections >= self.limits.per_address:
                return "connections"
            if self.limits.per_address and self.limits.per_address_per_s:
                if caller.allowance < 1:
                    return "rate"
                caller.allowance -= 1
            caller.connections += 1
        self._addresses[connection] = address
        return None

    def address_of(self, connection: int) -> str:
        """Return the address of a connection; "" if it has ended."""
        return self._addresses.get(connection, "")

    def closed(self, connection: int) -> None:
        """Forget a connection that has ended."""
        address = self._addresses.pop(connection, None)
        caller = self._callers.get(address) if address is not None else None
        if caller is not None:
            caller.connections -= 1

    def _caller(self, address: str, now: float) -> _Caller:
        burst, speed = self.limits.per_address, self.limits.per_address_per_s
        if now >= self._next_forgetting:
            self._next_forgetting = now + FORGOTTEN_EVERY_S
            for other, known in list(self._callers.items()):
                full = not speed or known.allowance + (now - known.at) * speed >= burst
                if full and not known.connections:
                    del self._callers[other]
        caller = self._callers.get(address)
        if caller is None:
            caller = self._callers[address] = _Caller(burst, now)
        caller.allowance = min(burst, caller.allowance + (now - caller.at) * speed)
        caller.at = now
        return caller


class UnheardConnections:
    """Connections of which no message has come yet: `ADMITTED` of them may send large packets.

    ZeroMQ has one limit for frames within the handshake and for requests, and reads a frame as fast
    as it comes. The others send small packets only, which is enough to greet.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        """Connection → when it was accepted, in this order."""
        self._restrained: dict[int, None] = {}
        """Those that are not admitted, in the same order."""

    def __contains__(self, connection: int) -> bool:
        return connection in self._since

    def opened(self, connection: int, now: float) -> bool:
        """Take a new connection; return True if it is admitted at once."""
        self.closed(connection)
        admitted = self._room > 0
        self._since[connection] = now
        if not admitted:
            self._restrained[connection] = None
        return admitted

    def closed(self, connection: int) -> bool:
        """Forget a connection that has ended or was heard; return True if it was not admitted."""
        was_restrained = connection in self._restrained
        self._since.pop(connection, None)
        self._restrained.pop(connection, None)
        return was_restrained

    def admit(self, now: float) -> list[int]:
        """Return those that are admitted now, because their handshake is over or there is room."""
        begun = takewhile(lambda each: now - each[1] >= HANDSHAKE_OVER_S, self._since.items())
        found = [connection for connection, _ in list(begun) if self.closed(connection)]
        for connection in list(islice(self._restrained, max(0, self._room))):
            del self._restrained[connection]
            found.append(connection)
        return found

    @property
    def _room(self) -> int:
        return ADMITTED - (len(self._since) - len(self._restrained))


class DescriptorGate:
    """Whether a node accepts connections, by the descriptors that its process uses.

    The same for the bytes of requests that wait.
    """

    def __init__(self) -> None:
        self.is_open = True

    def follow(self, used: int, limit: int) -> bool:
        """Take the number of descriptors in use; return True if the gate has changed."""
        was_open = self.is_open
        if was_open and used >= SHUT_SHARE * limit:
            self.is_open = False
        elif not was_open and used < OPEN_SHARE * limit:
            self.is_open = True
        return self.is_open != was_open


def is_exempt(address: str) -> bool:
    """Return True if the limits of an address do not apply to it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def refusal_text(reason: RefusalReason, limits: ConnectionLimits) -> str:
    """Return what the log says of a refused connection, with the remedy."""
    if reason == "connections":
        return (
            f"it has {limits.per_address} already: close some, or raise max_connections_per_address"
        )
    if reason == "rate":
        return (
            f"it opens more than {limits.per_address_per_s} a second: find out what dials without "
            "end, or raise max_connections_per_address, which is its burst too"
        )
    if reason == "waiting":
        return "too many requests wait already: wait, or add brokers if this lasts"
    return f"{SHUT_SHARE:.0%} of the file descriptors are in use: raise LimitNOFILE (ulimit -n)"
