"""The connections of a client to the nodes of its cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from logboom.client.core_context import CoreTurn
from logboom.wire.base import WireMessage
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle, SessionTable

IDLE: Final = 60.0
"""Seconds without a request after which a connection is closed."""
IDLE_CHECK_S: Final = 1.0
"""Seconds between two searches for such connections."""

OnReply: TypeAlias = Callable[[Reply], None]


class Connections:
    """The sessions with nodes, dialled when first used and closed when idle."""

    def __init__(self, identity: Identity, rng: random.Random, turn: CoreTurn) -> None:
        self._turn = turn
        self._sessions = SessionTable(identity, rng)
        self._idle_check_at = 0.0
        self._used: dict[str, float] = {}
        """Time of the last request, by endpoint."""
        self._opening: dict[str, list[Callable[[], None]]] = {}
        """Actions that wait for a connection to open; meanwhile it is not idle."""

    def request(
        self,
        endpoint: str,
        message: WireMessage,
        batches: Sequence[Frame],
        on_reply: OnReply,
        timeout: float,
    ) -> RequestHandle:
        """Send a request; `on_reply` gets one Reply within `timeout` seconds, unless cancelled."""
        turn = self._turn
        session = self._sessions.session(endpoint, turn.out, turn.now)
        self._used[endpoint] = turn.now
        number = session.request(message, batches, on_reply, turn.now + timeout, turn.out, turn.now)
        return RequestHandle(session, number)

    def tell(self, endpoint: str, message: WireMessage, batches: Sequence[Frame]) -> bool:
        """Send a message that has no answer; return False if the connection is not open yet."""
        turn = self._turn
        self._used[endpoint] = turn.now
        session = self._sessions.session(endpoint, turn.out, turn.now)
        return session.tell(message, batches, turn.out, turn.now)

    def when_open(self, endpoint: str, action: Callable[[], None]) -> None:
        """Run `action` once the connection is open; `tell` must have returned False in this turn.

        An action that already waits there runs once.
        """
        waiting = self._opening.setdefault(endpoint, [])
        if action not in waiting:
            waiting.append(action)

    def is_open(self, endpoint: str) -> bool:
        """True if the session with an endpoint is established, as far as is known."""
        return self._sessions.is_open(endpoint)

    def receive(self, endpoint: str, frames: Sequence[Frame]) -> None:
        """Take frames from a node."""
        self._deliver(self._sessions.receive(endpoint, frames, self._turn.out, self._turn.now))
        if self._opening and self.is_open(endpoint):
            for action in self._opening.pop(endpoint, ()):
                action()

    def tick(self) -> None:
        """Ping, redial and expire what is due; close idle connections."""
        self._deliver(self._sessions.tick(self._turn.out, self._turn.now))
        if self._turn.now >= self._idle_check_at:
            self._idle_check_at = self._turn.now + IDLE_CHECK_S
            self._sessions.hang_up(self._is_idle, self._turn.out)

    def deadline(self) -> float | None:
        """Time of the next `tick`, or None if none is needed."""
        return self._sessions.deadline()

    def _is_idle(self, endpoint: str) -> bool:
        return self._turn.now - self._used[endpoint] > IDLE and endpoint not in self._opening

    @staticmethod
    def _deliver(replies: Iterable[Reply]) -> None:
        for reply in replies:
            reply.context(reply)
