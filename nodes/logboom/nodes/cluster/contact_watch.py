"""What a broker says when it finds no Raft leader: which name servers do not answer, and what to do."""

from __future__ import annotations

from typing import Final

from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.cluster.registration import Registration
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.actor import note
from logboom.wire.name_servers import NameServers

FIRST_S: Final = 10.0
"""Seconds without a lease that are no event: an election, or a start of the whole cluster, takes less."""
REPEAT_S: Final = 60.0
"""Seconds after which it is said again."""


class ContactWatch(Service):
    """Looks whether the broker holds a lease, and says what is missing if it has had none for long."""

    def __init__(
        self, registration: Registration, links: PeerConnections, servers: NameServers
    ) -> None:
        self._registration = registration
        self._links = links
        self._servers = servers
        self._due = float("-inf")
        """When it is to be said if nothing changes; -inf while the broker holds a lease."""

    def step(self, turn: BrokerTurn) -> None:
        """Say what is missing if that is due."""
        if self._registration.lease.holds(turn.mono) or self._said_elsewhere():
            self._due = float("-inf")
        elif self._due == float("-inf"):
            self._due = turn.mono + FIRST_S
        elif turn.mono >= self._due:
            self._due = turn.mono + REPEAT_S
            self._say(turn)

    def deadline(self) -> float:
        """Return when `step` is due next."""
        if self._due > float("-inf"):
            return self._due
        return float("inf") if self._said_elsewhere() else self._registration.lease.until

    def _said_elsewhere(self) -> bool:
        """Return True if the broker is refused, or has given its lease up."""
        return bool(self._registration.refusal) or self._registration.lease.given_up

    def _say(self, turn: BrokerTurn) -> None:
        endpoints = self._servers.endpoints
        answering = [each for each in endpoints if self._links.is_open(each)]
        silent = [each for each in endpoints if each not in answering]
        if not answering:
            text = "none answers: start them, or correct `name_servers`"
        elif silent:
            text = "those that answer know no Raft leader: start the silent ones, a majority elects"
        else:
            text = "all answer, but none grants a lease: do they reach each other at `raft_listen`?"
        turn.out.notes.append(
            note("name_servers_silent", silent=[*silent], answering=[*answering], text=text)
        )
