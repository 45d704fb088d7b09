"""A client straight on the wire's session and route view: requests, metadata, admin commands.

`WireProducer` and `WireReader` build on it. They stand beside `logboom.client` in the simulation as
a client of another language would: they retry at once, keep five batches in flight and check every
single answer against the protocol's promises.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from logboom.wire.actor import (
    Call,
    Effects,
    Event,
    HandshakeFailed,
    Instant,
    PeerAddress,
    Received,
)
from logboom.wire.base import WireMessage
from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity
from logboom.wire.messages import AnyMessage, Propose, Proposed, Watch, WatchResult
from logboom.wire.routes import Routes
from logboom.wire.session import Reply, Session
from tests.sim.world.trace import BrokenProperty

WATCH_MS: Final = 1_000
Answered: TypeAlias = Callable[[AnyMessage | None, Sequence[Frame], LogboomError | None], None]


class WireClient:
    """Sessions, routes and timers of one client; a `Core`."""

    def __init__(self, name: str, endpoints: Sequence[str], rng: random.Random) -> None:
        self.name = name
        self.identity = Identity(name)
        self.rng = rng
        self.routes = Routes()
        self.now = Instant(0.0, 0)
        self.out = Effects()
        self._endpoints = list(endpoints)
        self._sessions: dict[str, Session] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._asked = 0
        self._proposed = 0
        self._watching = False
        self._leader: str | None = None
        """The name server that last took a command."""

    # -- the core ---------------------------------------------------------------------------

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """One turn."""
        self.now, self.out = now, Effects()
        if not self._watching:
            self._watching = True
            self._watch(self.rng.choice(self._endpoints))
        for event in events:
            if isinstance(event, Received):
                assert not isinstance(event.peer, PeerAddress), "nobody dials a client"
                session = self._sessions.get(event.peer)
                if session is not None:
                    self._end(session.receive(event.frames, self.out, now.mono))
            elif isinstance(event, HandshakeFailed):
                session = self._sessions.get(event.endpoint)
                if session is not None:
                    self._end(session.handshake_failed(event.reason, now.mono))
            elif isinstance(event, Call):
                event.request()
        while self._timers and self._timers[0][0] <= now.mono:
            heapq.heappop(self._timers)[2]()
        for session in list(self._sessions.values()):
            due = session.deadline()
            if due is not None and due <= now.mono:
                self._end(session.tick(self.out, now.mono))
        return self.out

    def deadline(self) -> float | None:
        """The earliest timer of this client and its sessions."""
        due = [d for s in self._sessions.values() if (d := s.deadline()) is not None]
        if self._timers:
            due.append(self._timers[0][0])
        return min(due, default=None)

    def _end(self, replies: Sequence[Reply]) -> None:
        for context, message, batches, error in replies:
            context(message, batches, error)

    # -- for those that build on it ---------------------------------------------------------

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something in so many seconds."""
        self._asked += 1
        heapq.heappush(self._timers, (self.now.mono + seconds, self._asked, action))

    def request(
        self,
        endpoint: str,
        message: WireMessage,
        answered: Answered,
        seconds: float,
        batches: Sequence[Frame] = (),
    ) -> None:
        """Ask a node; `answered` is called once."""
        session = self._sessions.get(endpoint)
        if session is None:
            session = Session(endpoint, self.identity, self.rng, self.now.mono)
            self._sessions[endpoint] = session
        session.request(
            message, batches, answered, self.now.mono + seconds, self.out, self.now.mono
        )

    def changed(self, topics: Sequence[str]) -> None:
        """Called with the names of topics whose routes changed."""

    def watch_message(self, asked: int) -> Watch:
        """The request for metadata newer than a version."""
        return Watch(0, WATCH_MS, asked, None, WATCH_MS)

    def propose(self, command: AnyCommand, done: Callable[[CommandResult], None]) -> None:
        """Have a command decided, however many tries it takes."""
        self._proposed += 1
        endpoint = self._leader or self._a_name_server()
        self._try_propose(command, self._proposed, done, endpoint)

    def _a_name_server(self) -> str:
        known = [server.endpoint for server in self.routes.name_servers]
        return self.rng.choice(known or [e for e in self._endpoints if e.startswith("name-")])

    def operate(
        self,
        message: WireMessage,
        answered: Callable[[AnyMessage | None, LogboomError | None], None],
    ) -> None:
        """Send a request to the raft leader, as far as it is known; `answered` is called once."""
        endpoint = self._leader or self._a_name_server()

        def done(
            answer: AnyMessage | None, _batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            hint = error.fields.get("endpoint") if error is not None else None
            self._leader = hint if isinstance(hint, str) and hint else None
            answered(answer, error)

        self.request(endpoint, message, done, 3.0)

    def _try_propose(
        self, command: AnyCommand, number: int, done: Callable[[CommandResult], None], endpoint: str
    ) -> None:
        def answered(
            message: AnyMessage | None, _batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if isinstance(message, Proposed):
                self._leader = endpoint
                done(message.result)
                return
            self._leader = None
            hint = error.fields.get("endpoint") if error is not None else None
            next_one = hint if isinstance(hint, str) and hint else self._a_name_server()
            self.later(0.1, lambda: self._try_propose(command, number, done, next_one))

        self.request(endpoint, Propose(0, 2_000, self.name, number, command), answered, 2.0)

    def _watch(self, endpoint: str) -> None:
        def answered(
            message: AnyMessage | None, _batches: Sequence[Frame], _error: LogboomError | None
        ) -> None:
            if isinstance(message, WatchResult):
                if message.view.version < asked:
                    detail = f"{endpoint} told {self.name} {message.view.version} after {asked}"
                    raise BrokenProperty("metadata never goes back", detail)
                changed = self.routes.update(message.view)
                if changed:
                    self.changed(changed)
                self._watch(endpoint)
            else:
                nodes = self.routes.node_endpoints() or self._endpoints
                self.later(0.05, lambda: self._watch(self.rng.choice(nodes)))

        asked = self.routes.version
        self.request(endpoint, self.watch_message(asked), answered, 2.0)
