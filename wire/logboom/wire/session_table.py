"""The dialling side of one process, pure: a session per endpoint, and the requests under way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from logboom.wire.actor import Effects, HandshakeFailed
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity
from logboom.wire.session import Reply, Session


class RequestHandle(NamedTuple):
    """One outstanding request, to cancel it."""

    session: Session
    number: int

    def cancel(self) -> None:
        """Forget the request: its answer is dropped, and no reply comes."""
        self.session.cancel(self.number)


class SessionTable:
    """Sessions by endpoint, opened when first used."""

    def __init__(self, identity: Identity, rng: random.Random) -> None:
        self._identity = identity
        self._rng = rng
        self._sessions: dict[str, Session] = {}

    def session(self, endpoint: str, out: Effects, now: float) -> Session:
        """Return the session with an endpoint, a new one if there is none."""
        session = self._sessions.get(endpoint)
        if session is None:
            if endpoint in out.hangups:
                # Closed earlier in the same turn. Answers that are on their way over that connection
                # carry numbers which this session uses again: it needs another connection.
                out.hangups.remove(endpoint)
                out.redials.append(endpoint)
            session = Session(endpoint, self._identity, self._rng, now)
            self._sessions[endpoint] = session
        return session

    def find(self, endpoint: str) -> Session | None:
        """Return the session with an endpoint, if there is one."""
        return self._sessions.get(endpoint)

    def is_open(self, endpoint: str) -> bool:
        """True if the session with an endpoint is established, as far as is known."""
        session = self._sessions.get(endpoint)
        return session is not None and session.state == "open"

    def receive(
        self, endpoint: str, frames: Sequence[Frame], out: Effects, now: float
    ) -> Sequence[Reply]:
        """Take frames from an endpoint, and return the requests that ended."""
        session = self._sessions.get(endpoint)
        return () if session is None else session.receive(frames, out, now)

    def handshake_failed(
        self, failure: HandshakeFailed, now: float, since: float | None = None
    ) -> Sequence[Reply]:
        """Take a failed handshake with an endpoint, and return the requests that ended.

        `since`: see `Session.handshake_failed`.
        """
        session = self._sessions.get(failure.endpoint)
        return () if session is None else session.handshake_failed(failure.reason, now, since)

    def tick(self, out: Effects, now: float) -> Iterable[Reply]:
        """Ping, redial and expire what is due; return the requests that end, as they end."""
        # Called in every turn, and nearly always nothing is due.
        sessions = self._sessions.values()
        due = [s for s in sessions if (at := s.deadline()) is not None and at <= now]
        return (reply for session in due for reply in session.tick(out, now)) if due else ()

    def deadline(self) -> float | None:
        """Time of the next `tick`, or None if none is needed."""
        wanted = None
        for session in self._sessions.values():
            due = session.deadline()
            if due is not None and (wanted is None or due < wanted):
                wanted = due
        return wanted

    def hang_up(self, unused: Callable[[str], bool], out: Effects) -> None:
        """Close the connections to unused endpoints, unless requests are outstanding there."""
        for endpoint, session in list(self._sessions.items()):
            if not session.pending() and unused(endpoint):
                del self._sessions[endpoint]
                out.hangups.append(endpoint)

    def clear(self, out: Effects) -> None:
        """Close all connections: no reply comes."""
        out.hangups.extend(self._sessions)
        self._sessions.clear()
