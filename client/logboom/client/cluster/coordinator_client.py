"""Questions to a group's coordinator, wherever it is.

Any broker knows who coordinates a group: one that does not answers NOT_COORDINATOR with who does. So
a question goes to whoever is thought to be it, and follows; a broker that is silent, or gone from
the metadata, is left for another.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeAlias

from logboom.client.cluster.connections import Connections, RequestHandle
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.cluster.request_router import backoff
from logboom.client.core_context import CoreTurn
from logboom.wire.errors import InternalError, LogboomError, RetryableError, TimedOut
from logboom.wire.messages import AnyMessage, WireMessage
from logboom.wire.session import Reply

ATTEMPT_TIMEOUT_S: Final = 3.0
"""Seconds that a broker gets to answer what is not held."""
STUBBORN: Final = 4
"""Refusals in a row by the same broker before another is asked."""

Done: TypeAlias = Callable[[AnyMessage | LogboomError], None]


class CoordinatorRequest:
    """One question under way."""

    __slots__ = (
        "attempts",
        "deadline",
        "done",
        "ended",
        "last",
        "make",
        "patience",
        "ticket",
        "to",
    )

    def __init__(
        self, make: Callable[[int], WireMessage], done: Done, deadline: float, patience: float
    ) -> None:
        self.make = make
        self.done = done
        self.deadline = deadline
        self.patience = patience
        self.attempts = 0
        self.ended = False
        self.last: LogboomError | None = None
        self.ticket: RequestHandle | None = None
        self.to = ""

    def cancel(self) -> None:
        """`done` will not be called."""
        self.ended = True
        if self.ticket is not None:
            self.ticket.cancel()
            self.ticket = None


class CoordinatorClient:
    """The coordinator of one group, as far as it is known."""

    def __init__(
        self,
        group: str,
        connections: Connections,
        watching: MetadataUpdater,
        turn: CoreTurn,
        rng: random.Random,
    ) -> None:
        self._group = group
        self._connections = connections
        self._watching = watching
        self._turn = turn
        self._rng = rng
        self._endpoint = ""
        self._epoch = -1
        self._open: dict[int, CoordinatorRequest] = {}

    def ask(
        self,
        make: Callable[[int], WireMessage],
        done: Done,
        timeout: float,
        patience: float = ATTEMPT_TIMEOUT_S,
    ) -> CoordinatorRequest:
        """Ask until there is an answer or a final error, `timeout` seconds at most.

        `make` gets the milliseconds of one attempt; `patience` is how long that is.
        """
        asked = CoordinatorRequest(make, done, self._turn.now + timeout, patience)
        self._open[id(asked)] = asked
        self._try(asked)
        return asked

    def rerouted(self) -> None:
        """The metadata changed: who is fenced does not answer any more."""
        live = self._live()
        if self._endpoint not in live:
            self._endpoint = ""
        for asked in list(self._open.values()):
            if asked.ticket is not None and asked.to not in live:
                asked.ticket.cancel()
                asked.ticket = None
                self._try(asked)

    def _live(self) -> list[str]:
        return [b.endpoint for b in self._watching.routes.brokers.values() if b.alive]

    def _try(self, asked: CoordinatorRequest) -> None:
        if asked.ended:
            self._open.pop(id(asked), None)
            return
        if asked.ticket is not None:
            return
        left = asked.deadline - self._turn.now
        if left <= 0:
            self._end(asked, self._timed_out(asked))
            return
        if not self._endpoint:
            live = self._live()
            if not live:
                self._again(asked)
                return
            self._endpoint = self._rng.choice(sorted(live))
        left = min(left, asked.patience)
        asked.to = self._endpoint
        asked.ticket = self._connections.request(
            asked.to,
            asked.make(max(1, int(left * 1000))),
            (),
            lambda reply: self._answered(asked, reply),
            left,
        )

    def _answered(self, asked: CoordinatorRequest, reply: Reply) -> None:
        asked.ticket = None
        if asked.ended:
            self._open.pop(id(asked), None)
            return
        error = reply.error
        if error is None:
            answer = reply.message
            self._end(asked, InternalError("an empty reply") if answer is None else answer)
        elif error.code == "NOT_COORDINATOR":
            self._follow(asked, error)
        elif isinstance(error, RetryableError) and error.code != "STALE_EPOCH":
            asked.last = error
            asked.attempts += 1
            silent = isinstance(error, TimedOut)
            if asked.to == self._endpoint and (silent or asked.attempts % STUBBORN == 0):
                self._turn_away()
            self._again(asked)
        else:
            self._end(asked, error)

    def _follow(self, asked: CoordinatorRequest, error: LogboomError) -> None:
        """Go where it says, unless we know better."""
        asked.last = error
        asked.attempts += 1
        name, epoch = error.fields.get("coordinator"), error.fields.get("epoch")
        broker = self._watching.routes.brokers.get(name) if isinstance(name, str) else None
        endpoint = error.fields.get("endpoint") if broker is None else broker.endpoint
        if isinstance(endpoint, str) and isinstance(epoch, int) and epoch >= self._epoch:
            self._epoch, self._endpoint = epoch, endpoint
            if asked.to != endpoint:
                self._try(asked)
                return
        elif asked.to == self._endpoint:
            self._endpoint = ""
        self._again(asked)

    def _turn_away(self) -> None:
        """Try any other broker: it knows who coordinates."""
        others = [each for each in self._live() if each != self._endpoint]
        self._endpoint = self._rng.choice(sorted(others)) if others else self._endpoint

    def _again(self, asked: CoordinatorRequest) -> None:
        delay = backoff(asked.attempts, self._rng)
        self._turn.after(delay, lambda: self._try(asked))

    def _end(self, asked: CoordinatorRequest, answer: AnyMessage | LogboomError) -> None:
        if self._open.pop(id(asked), None) is not None and not asked.ended:
            asked.ended = True
            asked.done(answer)

    def _timed_out(self, asked: CoordinatorRequest) -> TimedOut:
        why = f": {asked.last}" if asked.last is not None else ": no broker is known to be alive"
        return TimedOut(f"the coordinator of group {self._group!r} did not answer in time{why}")
