"""The connections that this broker dials: one session per endpoint, and who awaits each answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

from logboom.nodes.turn import BrokerTurn
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity
from logboom.wire.messages import Request
from logboom.wire.session import Reply, Session

Answered: TypeAlias = Callable[[Reply, BrokerTurn], None]
"""Called once with the end of a request; `reply.context` is what the asker gave."""


class PeerConnections:
    """Sessions by endpoint."""

    def __init__(self, identity: Identity, rng: random.Random) -> None:
        self._identity = identity
        self._rng = rng
        self._sessions: dict[str, Session] = {}

    def request(
        self,
        endpoint: str,
        message: Request,
        turn: BrokerTurn,
        answered: Answered,
        deadline: float,
        batches: Sequence[Frame] = (),
    ) -> int:
        """Ask the node at an endpoint; `answered` is called once, `deadline` the latest."""
        session = self._sessions.get(endpoint)
        if session is None:
            session = Session(endpoint, self._identity, self._rng, turn.mono)
            self._sessions[endpoint] = session
        return session.request(message, batches, answered, deadline, turn.out, turn.mono)

    def cancel(self, endpoint: str, number: int) -> None:
        """Forget a request: its answer is dropped (Q5)."""
        session = self._sessions.get(endpoint)
        if session is not None:
            session.cancel(number)

    def is_open(self, endpoint: str) -> bool:
        """Whether the session to an endpoint is established."""
        session = self._sessions.get(endpoint)
        return session is not None and session.state == "open"

    def refusal(self, endpoint: str) -> LogboomError | None:
        """Why the node at an endpoint would not have us, until it does."""
        session = self._sessions.get(endpoint)
        return None if session is None else session.refusal

    def generation(self, endpoint: str) -> int:
        """Grows each time that the session to an endpoint opens."""
        session = self._sessions.get(endpoint)
        return 0 if session is None else session.generation

    def receive(self, endpoint: str, frames: Sequence[Frame], turn: BrokerTurn) -> None:
        """Frames came from a node that we dialled."""
        session = self._sessions.get(endpoint)
        if session is not None:
            self._hand_out(session.receive(frames, turn.out, turn.mono), turn)

    def tick(self, turn: BrokerTurn) -> None:
        """Deadlines, pings and redials that are due."""
        for session in list(self._sessions.values()):
            due = session.deadline()
            if due is not None and due <= turn.mono:
                self._hand_out(session.tick(turn.out, turn.mono), turn)

    def deadline(self) -> float:
        """When `tick` is wanted next; infinity if never."""
        wanted = float("inf")
        for session in self._sessions.values():
            due = session.deadline()
            if due is not None and due < wanted:
                wanted = due
        return wanted

    def keep_only(self, endpoints: set[str], turn: BrokerTurn) -> None:
        """Hang up on endpoints that are of no more use and owe no answer."""
        for endpoint in [e for e in self._sessions if e not in endpoints]:
            if not self._sessions[endpoint].pending():
                del self._sessions[endpoint]
                turn.out.hangups.append(endpoint)

    @staticmethod
    def _hand_out(replies: list[Reply], turn: BrokerTurn) -> None:
        for reply in replies:
            answered: Answered = reply.context
            answered(reply, turn)
