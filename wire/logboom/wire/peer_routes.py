"""Which connection a peer's address stands for, on listeners with keys; pure.

ZeroMQ knows a connection by its routing id alone, and whoever dials may choose that of a connection
that has ended. So the address of a peer has the principal in it as well, and leads nowhere once its
connection has ended or the routing id has gone to somebody else: an answer that has waited never
reaches another user (S3).

Connections are identified by their file descriptors.
"""

from __future__ import annotations

from typing import NamedTuple

from logboom.wire.actor import PeerAddress


class _Route(NamedTuple):
    connection: int
    routing_id: bytes
    principal: str


class PeerRoutes:
    """The connections of all listeners with keys that have sent a message."""

    def __init__(self) -> None:
        self._addresses: dict[tuple[str, bytes], PeerAddress] = {}
        """(listener, routing id) → the address whose connection it is."""
        self._routes: dict[PeerAddress, _Route] = {}
        self._by_connection: dict[int, PeerAddress] = {}
        self._open: set[int] = set()

    def __len__(self) -> int:
        return len(self._routes)

    def heard(
        self, listener: str, routing_id: bytes, principal: str, connection: int
    ) -> PeerAddress:
        """Return the address of the one who sent a message.

        It leads nowhere if the connection has ended since.
        """
        known = self._addresses.get((listener, routing_id))
        if known is not None:
            route = self._routes[known]
            if route.connection == connection and route.principal == principal:
                return known
            self._forget(known)
        # Another peer of this connection: it is none, its end was reported late.
        self._leave(connection)
        address = PeerAddress(listener, b"%b/%b" % (routing_id, principal.encode()))
        if connection not in self._open:
            return address
        self._addresses[listener, routing_id] = address
        self._routes[address] = _Route(connection, routing_id, principal)
        self._by_connection[connection] = address
        return address

    def routing_id(self, address: PeerAddress) -> bytes | None:
        """Return where to send, or None if the connection has ended."""
        route = self._routes.get(address)
        return None if route is None else route.routing_id

    def is_open(self, connection: int) -> bool:
        """Return True if a connection has been reported, and not its end."""
        return connection in self._open

    def opened(self, connection: int) -> None:
        """Take the report of a new connection."""
        self.gone(connection)
        self._open.add(connection)

    def gone(self, connection: int) -> None:
        """Forget a connection that has ended."""
        self._open.discard(connection)
        self._leave(connection)

    def _leave(self, connection: int) -> None:
        address = self._by_connection.get(connection)
        if address is not None:
            self._forget(address)

    def _forget(self, address: PeerAddress) -> None:
        route = self._routes.pop(address)
        self._addresses.pop((address.listener, route.routing_id), None)
        self._by_connection.pop(route.connection, None)
