"""The connections that this broker dials, and who awaits each answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.actor import HandshakeFailed
from logboom.wire.base import Request
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle, SessionTable

Answered: TypeAlias = Callable[[Reply, BrokerTurn], None]
"""Called once with the end of a request."""


class PeerConnections(Service):
    """The sessions with other nodes; each answer is passed to the callback of its request."""

    def __init__(self, identity: Identity, rng: random.Random) -> None:
        self.identity = identity
        """Who greets; its keys may change."""
        self._sessions = SessionTable(identity, rng)

    def request(
        self,
        endpoint: str,
        message: Request,
        turn: BrokerTurn,
        answered: Answered,
        deadline: float,
        batches: Sequence[Frame] = (),
    ) -> RequestHandle:
        """Send a request; `answered` is called once, at `deadline` at the latest."""
        session = self._sessions.session(endpoint, turn.out, turn.mono)
        number = session.request(message, batches, answered, deadline, turn.out, turn.mono)
        return RequestHandle(session, number)

    def is_open(self, endpoint: str) -> bool:
        """True if the session with an endpoint is established."""
        return self._sessions.is_open(endpoint)

    def refusal(self, endpoint: str) -> LogboomError | None:
        """Return why the node at an endpoint refuses this broker, if it does."""
        session = self._sessions.find(endpoint)
        return None if session is None else session.refusal

    def receive(self, endpoint: str, frames: Sequence[Frame], turn: BrokerTurn) -> None:
        """Take frames from a node that this broker dialled."""
        self._hand_out(self._sessions.receive(endpoint, frames, turn.out, turn.mono), turn)

    def handshake_failed(self, failure: HandshakeFailed, turn: BrokerTurn) -> None:
        """Take the failure of a connection that this broker dialled."""
        self._hand_out(self._sessions.handshake_failed(failure, turn.mono), turn)

    def step(self, turn: BrokerTurn) -> None:
        """Ping, redial and expire what is due."""
        self._hand_out(self._sessions.tick(turn.out, turn.mono), turn)

    def deadline(self) -> float:
        """Return when `step` is wanted next; infinity if never."""
        wanted = self._sessions.deadline()
        return float("inf") if wanted is None else wanted

    def keep_only(self, endpoints: set[str], turn: BrokerTurn) -> None:
        """Close the connections to all other endpoints that owe no answer."""
        self._sessions.hang_up(lambda endpoint: endpoint not in endpoints, turn.out)

    @staticmethod
    def _hand_out(replies: Iterable[Reply], turn: BrokerTurn) -> None:
        for reply in replies:
            answered: Answered = reply.context
            answered(reply, turn)
