"""Which connection a peer's address stands for, on listeners with keys; pure.

ZeroMQ knows a connection by its routing id alone, and whoever dials may choose that of a connection
that has ended. So the address of a peer has the principal in it as well, and leads nowhere once its
connection has ended or the routing id has gone to somebody else: an answer that has waited never
reaches another user (S3).

Connections are identified by their listener and file descriptor. Reports of one listener come in
order: the end of a connection before any other with its descriptor. Those of two listeners do not.
"""

from __future__ import annotations

from typing import NamedTuple

from logboom.wire.actor import PeerAddress


class _Connection(NamedTuple):
    listener: str
    descriptor: int


class _Route(NamedTuple):
    descriptor: int
    routing_id: bytes
    principal: str


class PeerRoutes:
    """The connections of all listeners, and who has sent a message to those with keys."""

    def __init__(self) -> None:
        self._addresses: dict[tuple[str, bytes], PeerAddress] = {}
        """(listener, routing id) → the address whose connection it is."""
        self._routes: dict[PeerAddress, _Route] = {}
        self._by_connection: dict[_Connection, PeerAddress] = {}
        self._open: set[_Connection] = set()
        self._ended: dict[_Connection, PeerAddress] = {}
        """Connection → the address of the last one with its descriptor that has ended."""

    def __len__(self) -> int:
        return len(self._routes)

    def known(
        self, listener: str, routing_id: bytes, principal: str, descriptor: int
    ) -> PeerAddress | None:
        """Return the address of one who has been heard on a connection before; None: it is new.

        All reports that have come are to be taken before it is `heard`.
        """
        known = self._addresses.get((listener, routing_id))
        if known is not None:
            route = self._routes[known]
            if route.descriptor == descriptor and route.principal == principal:
                return known
        return None

    def heard(
        self, listener: str, routing_id: bytes, principal: str, descriptor: int
    ) -> PeerAddress:
        """Return the address of the one who sent a message.

        It leads nowhere if the connection has ended since.
        """
        known = self.known(listener, routing_id, principal, descriptor)
        if known is not None:
            return known
        before = self._addresses.get((listener, routing_id))
        if before is not None:
            self._forget(before)
        connection = _Connection(listener, descriptor)
        address = PeerAddress(listener, b"%b/%b" % (routing_id, principal.encode()))
        if connection not in self._open:
            return address
        if address.is_used_once and self._ended.get(connection) == address:
            # The descriptor has gone to another connection, and this was sent before.
            return address
        # Another peer of this connection is none: its own had ended before it was heard.
        self._leave(connection)
        self._addresses[listener, routing_id] = address
        self._routes[address] = _Route(descriptor, routing_id, principal)
        self._by_connection[connection] = address
        return address

    def routing_id(self, address: PeerAddress) -> bytes | None:
        """Return where to send, or None if the connection has ended."""
        route = self._routes.get(address)
        return None if route is None else route.routing_id

    def is_open(self, listener: str, descriptor: int) -> bool:
        """Return True if a connection has been reported, and not its end."""
        return (listener, descriptor) in self._open

    def opened(self, listener: str, descriptor: int) -> None:
        """Take the report of a new connection."""
        self.gone(listener, descriptor)
        self._open.add(_Connection(listener, descriptor))

    def gone(self, listener: str, descriptor: int) -> None:
        """Forget a connection that has ended."""
        connection = _Connection(listener, descriptor)
        self._open.discard(connection)
        address = self._leave(connection)
        if address is not None:
            self._ended[connection] = address

    def _leave(self, connection: _Connection) -> PeerAddress | None:
        address = self._by_connection.get(connection)
        if address is not None:
            self._forget(address)
        return address

    def _forget(self, address: PeerAddress) -> None:
        route = self._routes.pop(address)
        self._addresses.pop((address.listener, route.routing_id), None)
        self._by_connection.pop(_Connection(address.listener, route.descriptor), None)
