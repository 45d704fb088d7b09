"""All of a client's connections, one `wire.session.Session` per endpoint."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from logboom.client.core_context import CoreTurn
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity
from logboom.wire.messages import WireMessage
from logboom.wire.session import Reply, Session

IDLE: Final = 60.0
"""Seconds after which a connection that nothing was asked of is hung up."""

OnReply: TypeAlias = Callable[[Reply], None]


class RequestHandle(NamedTuple):
    """One outstanding request, to cancel it."""

    session: Session
    number: int

    def cancel(self) -> None:
        """No reply will come."""
        self.session.cancel(self.number)


class Connections:
    """Sessions by endpoint, dialled when first asked and hung up when idle."""

    def __init__(self, identity: Identity, rng: random.Random, turn: CoreTurn) -> None:
        self._identity = identity
        self._rng = rng
        self._turn = turn
        self._sessions: dict[str, Session] = {}
        self._used: dict[str, float] = {}
        self._opening: dict[str, list[Callable[[], None]]] = {}
        """What waits for a connection to open; such a one is not hung up as idle."""

    def request(
        self,
        endpoint: str,
        message: WireMessage,
        batches: Sequence[Frame],
        on_reply: OnReply,
        timeout: float,
    ) -> RequestHandle:
        """Ask; `on_reply` gets exactly one Reply within `timeout` seconds, unless cancelled."""
        turn = self._turn
        session = self._session(endpoint)
        self._used[endpoint] = turn.now
        number = session.request(message, batches, on_reply, turn.now + timeout, turn.out, turn.now)
        return RequestHandle(session, number)

    def tell(self, endpoint: str, message: WireMessage, batches: Sequence[Frame]) -> bool:
        """Send what has no answer; False if the connection is not open yet."""
        self._used[endpoint] = self._turn.now
        return self._session(endpoint).tell(message, batches, self._turn.out, self._turn.now)

    def when_open(self, endpoint: str, action: Callable[[], None]) -> None:
        """Do `action` once the connection, refused by `tell` just now, is open; an action that
        waits there already waits once."""
        waiting = self._opening.setdefault(endpoint, [])
        if action not in waiting:
            waiting.append(action)

    def is_open(self, endpoint: str) -> bool:
        """Whether the session there is open, as far as is known."""
        session = self._sessions.get(endpoint)
        return session is not None and session.state == "open"

    def receive(self, endpoint: str, frames: Sequence[Frame]) -> None:
        """Take what a peer sent."""
        session = self._sessions.get(endpoint)
        if session is None:
            return
        self._deliver(session.receive(frames, self._turn.out, self._turn.now))
        if self._opening and session.state == "open":
            for action in self._opening.pop(endpoint, ()):
                action()

    def tick(self) -> None:
        """Deadlines, pings, redials; hang up what is idle."""
        turn = self._turn
        for endpoint, session in list(self._sessions.items()):
            wanted = session.deadline()
            if wanted is not None and wanted <= turn.now:
                self._deliver(session.tick(turn.out, turn.now))
            if session.pending() or endpoint in self._opening:
                continue
            if turn.now - self._used[endpoint] > IDLE:
                del self._sessions[endpoint], self._used[endpoint]
                turn.out.hangups.append(endpoint)

    def deadline(self) -> float | None:
        """When `tick` is wanted next."""
        wanted = [d for s in self._sessions.values() if (d := s.deadline()) is not None]
        return min(wanted, default=None)

    def _session(self, endpoint: str) -> Session:
        session = self._sessions.get(endpoint)
        if session is None:
            # Hung up earlier in this very turn: the connection is kept instead.
            if endpoint in self._turn.out.hangups:
                self._turn.out.hangups.remove(endpoint)
            session = Session(endpoint, self._identity, self._rng, self._turn.now)
            self._sessions[endpoint] = session
            self._used[endpoint] = self._turn.now
        return session

    @staticmethod
    def _deliver(replies: list[Reply]) -> None:
        for reply in replies:
            reply.context(reply)
