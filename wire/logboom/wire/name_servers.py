"""The name server to ask: the Raft leader as far as it is known, else each in turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from logboom.wire.errors import LogboomError
from logboom.wire.routes import Routes


class KnownServer(Struct, frozen=True):
    """A name server as a node remembers it across restarts."""

    endpoint: str
    keys: list[str] = []
    """Public keys that it has published for this endpoint; empty if it does not encrypt."""


class NameServers:
    """The endpoints of the name servers and the best guess of their leader."""

    def __init__(self, founding: Sequence[str], remembered: Iterable[str] = ()) -> None:
        """Begin with the endpoints of the configuration, then those that were remembered."""
        self._endpoints = list(dict.fromkeys([*founding, *remembered]))
        self._at = 0
        self._leader: str | None = None
        self._by_id: dict[str, str] = {}

    @property
    def endpoints(self) -> list[str]:
        """The endpoints of all known name servers."""
        return list(self._endpoints)

    def learn(self, routes: Routes) -> None:
        """Take members, and the leader if none is known, from the metadata."""
        if routes.name_servers:
            self._endpoints = [server.endpoint for server in routes.name_servers]
        self._by_id = {server.id: server.endpoint for server in routes.name_servers}
        for server in routes.name_servers:
            if server.id == routes.raft_leader and self._leader is None:
                self._leader = server.endpoint

    def leader(self) -> str:
        """Return the endpoint for a request to the Raft leader; "" while no name server is known."""
        if self._leader is not None or not self._endpoints:
            return self._leader or ""
        return self._endpoints[self._at % len(self._endpoints)]

    def accepted(self, endpoint: str) -> None:
        """Record that an endpoint answered as the leader."""
        self._leader = endpoint

    def refused(self, endpoint: str, error: LogboomError) -> bool:
        """Record that an endpoint refused; return True if it named another, to be asked at once.

        A node has an endpoint for each of its listeners, so that the metadata goes before what the
        refusal names.
        """
        hint = error.fields.get("endpoint") if error.code == "NOT_LEADER" else None
        if hint:
            hint = self._by_id.get(str(error.fields.get("leader")), hint)
        if isinstance(hint, str) and hint and hint != endpoint:
            self._leader = hint
            return True
        if error.code == "BUSY":
            return False  # It leads, and takes the request later.
        if self._leader == endpoint or self._leader is None:
            self._leader = None
            self._at += 1
        return False

    def next_any(self, current: str | None) -> str:
        """Return the name server after `current`, for a request that each of them answers."""
        if current not in self._endpoints:
            return self._endpoints[0]
        return self._endpoints[(self._endpoints.index(current) + 1) % len(self._endpoints)]
