"""The connections of a client to the nodes of its cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from logboom.client.core_context import CoreTurn
from logboom.wire.actor import HandshakeFailed
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle, SessionTable

IDLE: Final = 60.0
"""Seconds without a request after which a connection is closed."""
IDLE_CHECK_S: Final = 1.0
"""Seconds between two searches for such connections."""
REFUSALS_APART_S: Final = 3.0
"""Most seconds between two refusals of the client's key that are told as one."""

OnReply: TypeAlias = Callable[[Reply], None]


class Connections:
    """The sessions with nodes, dialled when first used and closed when idle."""

    def __init__(self, identity: Identity, rng: random.Random, turn: CoreTurn) -> None:
        self._turn = turn
        self._sessions = SessionTable(identity, rng)
        self._idle_check_at = 0.0
        self._used: dict[str, float] = {}
        """Time of the last request, by endpoint."""
        self._refused_since = self._refused_at = float("-inf")
        """Times of the first and the last handshake that failed because of the client's key, on any
        node, since one last accepted it."""
        self._opening: dict[str, list[Callable[[], None]]] = {}
        """Actions that wait for a connection to open; meanwhile it is not idle."""

    def request(
        self,
        endpoint: str,
        message: WireMessage,
        batches: Sequence[Frame],
        on_reply: OnReply,
        timeout: float,
        latest: float | None = None,
    ) -> RequestHandle:
        """Send a request; `on_reply` gets one Reply within `timeout` seconds, unless cancelled.

        While the node delays it because of a quota, the timeout begins anew, up to the monotonic
        time `latest`; None: never.
        """
        turn = self._turn
        session = self._sessions.session(endpoint, turn.out, turn.now)
        self._used[endpoint] = turn.now
        deadline = turn.now + timeout
        number = session.request(message, batches, on_reply, deadline, turn.out, turn.now, latest)
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

    def hindrance(self, endpoint: str) -> LogboomError | None:
        """Return why a node does not open a session now, though it may later; None: no reason known."""
        session = self._sessions.find(endpoint)
        return None if session is None else session.hindrance

    def throttled_s(self, endpoint: str) -> float:
        """Return for how many seconds a node would delay further requests because of a quota."""
        session = self._sessions.find(endpoint)
        return 0.0 if session is None else max(0.0, session.throttled_until - self._turn.now)

    def receive(self, endpoint: str, frames: Sequence[Frame]) -> None:
        """Take frames from a node."""
        self._refused_at = float("-inf")
        self._deliver(self._sessions.receive(endpoint, frames, self._turn.out, self._turn.now))
        if self._opening and self.is_open(endpoint):
            for action in self._opening.pop(endpoint, ()):
                action()

    def handshake_failed(self, failure: HandshakeFailed) -> None:
        """Take the failure of a connection to a node."""
        since = self._note_refusal() if failure.reason in ("key", "no-key") else None
        self._deliver(self._sessions.handshake_failed(failure, self._turn.now, since))

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

    def _note_refusal(self) -> float:
        """Return since when nodes refuse the key, so that it is not tried for long at each of them."""
        now = self._turn.now
        if now - self._refused_at > REFUSALS_APART_S:
            self._refused_since = now
        self._refused_at = now
        return self._refused_since

    @staticmethod
    def _deliver(replies: Iterable[Reply]) -> None:
        for reply in replies:
            reply.context(reply)
