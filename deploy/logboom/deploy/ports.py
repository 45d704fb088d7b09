"""Ports of the nodes on one machine: the customary ports, or free ports that stay reserved.

A free port is reserved by a socket that is bound but never listens. With SO_REUSEADDR on both sides
the node can still listen there, and the system gives the port to nobody else, not even between
a kill and the next start. Where the node's metrics are by default is reserved along with it: else
the metrics of one cluster would take a port that another has reserved for a node.
"""

from __future__ import annotations

import socket
from typing import Final, Literal

from logboom.wire.errors import InvalidRequest
from logboom.wire.listeners import metrics_address

NAME_SERVER_PORT: Final = 7701
"""First port of the name servers; the brokers' and the Raft ports keep this distance."""
BROKER_PORT: Final = 7711
RAFT_PORT: Final = 7721
MAX_OF_A_KIND: Final = BROKER_PORT - NAME_SERVER_PORT
"""Nodes of one kind that fit between two of the customary first ports."""

LAST_BASE: Final = 65_535 - (RAFT_PORT - NAME_SERVER_PORT) - MAX_OF_A_KIND
"""The last first port that leaves room for all kinds of ports."""
LOOPBACK: Final = "127.0.0.1"


class Ports:
    """The endpoints of a cluster's nodes, given out one after the other per kind of listener.

    `base` is the port of the first name server, or "free".
    """

    def __init__(
        self, base: int | Literal["free"] = NAME_SERVER_PORT, host: str = LOOPBACK
    ) -> None:
        """Check the first port.

        Raises:
            InvalidRequest: there are no such ports.
        """
        if base != "free" and not 1 <= base <= LAST_BASE:
            raise InvalidRequest(f"port {base}: give 1 to {LAST_BASE}; other nodes listen above it")
        self._base = base
        self._host = host
        self._given: dict[int, int] = {}
        self._held: list[socket.socket] = []

    def name_server(self) -> str:
        """Return the endpoint of another name server."""
        return self._next(NAME_SERVER_PORT)

    def raft(self) -> str:
        """Return the Raft endpoint of another name server."""
        return self._next(RAFT_PORT)

    def broker(self) -> str:
        """Return the endpoint of another broker."""
        return self._next(BROKER_PORT)

    def metrics(self) -> str:
        """Return the setting `metrics_listen` of another node.

        Beside ports that are free by chance, the usual one may be somebody else's.
        """
        return f"{self._host}:{self._hold()}" if self._base == "free" else "auto"

    def _next(self, first: int) -> str:
        if self._base == "free":
            return f"{self._host}:{self._hold()}"
        number = self._given[first] = self._given.get(first, -1) + 1
        if number >= MAX_OF_A_KIND:
            number += MAX_OF_A_KIND  # past the ports of the next kind; only brokers are this many
        port = self._base + (first - NAME_SERVER_PORT) + number
        if port > 65_535:
            raise InvalidRequest(
                f"no port is left above {self._base} for so many nodes: give a lower"
            )
        return f"{self._host}:{port}"

    def _hold(self) -> int:
        while True:
            port: int = self._held_at(self._host, 0).getsockname()[1]
            host, _, beside = metrics_address("auto", f"{self._host}:{port}").rpartition(":")
            try:
                self._held_at(host, int(beside))
            except OSError:
                # Somebody has it. The first one stays reserved, so that it does not come again.
                continue
            return port

    def _held_at(self, host: str, port: int) -> socket.socket:
        holder = socket.socket()
        self._held.append(holder)
        # Only afterwards may others bind it: with the option, two who reserve would share a port.
        holder.bind((host, port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return holder

    def release(self) -> None:
        """Release the reserved ports."""
        for holder in self._held:
            holder.close()
        self._held.clear()
