"""Commands to the raft leader, wherever it is: same number again until an answer comes.

The name servers keep the results by (proposer, number), so a retry after a lost answer or a new
election gets the first result.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeAlias

from logboom.client.cluster.connections import Connections, RequestHandle
from logboom.client.core_context import CoreTurn, Timer
from logboom.wire.commands import AnyCommand, Barrier, CommandResult
from logboom.wire.errors import LogboomError, RetryableError, TimedOut, error_for
from logboom.wire.messages import Propose, Proposed
from logboom.wire.routes import Routes
from logboom.wire.session import Reply

ATTEMPT_TIMEOUT_S: Final = 1.5
"""Seconds after which an unanswered command is tried at another name server."""
WINDOW: Final = 48
"""Numbers from the oldest command under way to the newest: the name servers keep the results of 64,
and a command sent again that is older than these could not be answered."""
BACKOFF: Final = 0.05
"""Seconds between tries while the name servers elect."""

OnResult: TypeAlias = Callable[[CommandResult | LogboomError], None]


class _Proposal:
    __slots__ = (
        "command",
        "deadline",
        "done",
        "ended",
        "expiry",
        "last_error",
        "number",
        "ticket",
    )

    def __init__(self, command: AnyCommand, number: int, deadline: float, done: OnResult) -> None:
        self.command = command
        self.number = number
        self.deadline = deadline
        self.done = done
        self.ended = False
        self.expiry: Timer | None = None
        self.ticket: RequestHandle | None = None
        self.last_error: LogboomError | None = None


class ProposalSender:
    """All commands of one client."""

    def __init__(
        self, proposer: str, connections: Connections, turn: CoreTurn, rng: random.Random
    ) -> None:
        self._proposer = proposer
        self._connections = connections
        self._turn = turn
        self._rng = rng
        self._routes = Routes()
        self._number = 0
        self._under_way: dict[int, _Proposal] = {}
        """By number, the oldest first."""
        self._waiting: dict[int, _Proposal] = {}
        """Until the window reaches them."""
        self._target = ""

    def use(self, routes: Routes) -> None:
        """Where the name servers are."""
        self._routes = routes

    def propose(self, command: AnyCommand, done: OnResult, timeout: float) -> None:
        """Commit a command; `done` gets its result, or the error that it or the way has."""
        self._number += 1
        proposal = _Proposal(command, self._number, self._turn.now + timeout, done)
        proposal.expiry = self._turn.after(timeout, lambda: self._expire(proposal))
        self._waiting[proposal.number] = proposal
        self._begin()

    def _begin(self) -> None:
        """Send what the window allows."""
        while self._waiting:
            number = next(iter(self._waiting))
            if self._under_way and number >= next(iter(self._under_way)) + WINDOW:
                return
            self._under_way[number] = self._waiting.pop(number)
            self._try(self._under_way[number])

    def barrier(self, done: Callable[[int | LogboomError], None], timeout: float) -> None:
        """Commit a barrier; `done` gets the metadata version that all committed before is in."""
        self.propose(
            Barrier(), lambda r: done(r.version if isinstance(r, CommandResult) else r), timeout
        )

    def _try(self, proposal: _Proposal) -> None:
        if proposal.ended:
            return
        target = self._aim()
        if target is None:
            self._turn.after(BACKOFF, lambda: self._try(proposal))
            return
        left = proposal.deadline - self._turn.now
        message = Propose(0, int(left * 1000), self._proposer, proposal.number, proposal.command)
        proposal.ticket = self._connections.request(
            target,
            message,
            (),
            lambda reply: self._answered(proposal, target, reply),
            ATTEMPT_TIMEOUT_S,
        )

    def _aim(self) -> str | None:
        """The endpoint to try: the last that worked or was hinted at, else who seems to lead."""
        endpoints = [server.endpoint for server in self._routes.name_servers]
        if self._target:
            return self._target
        for server in self._routes.name_servers:
            if server.id == self._routes.raft_leader:
                return server.endpoint
        return self._rng.choice(endpoints) if endpoints else None

    def _answered(self, proposal: _Proposal, target: str, reply: Reply) -> None:
        proposal.ticket = None
        if isinstance(reply.message, Proposed):
            self._target = target
            result = reply.message.result
            if result.code:
                self._end(proposal, error_for(result.code, result.text, dict(result.fields)))
            else:
                self._end(proposal, result)
            return
        error = reply.error
        if error is not None and not isinstance(error, RetryableError):
            self._end(proposal, error)
            return
        proposal.last_error = error
        self._turn_to_next(target, error)
        delay = BACKOFF * (0.5 + self._rng.random())
        self._turn.after(delay, lambda: self._try(proposal))

    def _turn_to_next(self, target: str, error: LogboomError | None) -> None:
        if self._target not in ("", target):
            return  # another proposal has already turned elsewhere
        hint = error.fields.get("endpoint") if error is not None else None
        endpoints = [server.endpoint for server in self._routes.name_servers]
        if isinstance(hint, str) and hint != target:
            self._target = hint
        elif endpoints:
            place = endpoints.index(target) if target in endpoints else -1
            self._target = endpoints[(place + 1) % len(endpoints)]

    def _expire(self, proposal: _Proposal) -> None:
        if proposal.ended:
            return
        if proposal.ticket is not None:
            proposal.ticket.cancel()
        why = f" ({proposal.last_error})" if proposal.last_error is not None else ""
        text = f"no name server took the command in time{why}: check `logboom cluster status`"
        self._end(proposal, TimedOut(text))

    def _end(self, proposal: _Proposal, result: CommandResult | LogboomError) -> None:
        if not proposal.ended:
            proposal.ended = True
            self._under_way.pop(proposal.number, None)
            self._waiting.pop(proposal.number, None)
            if proposal.expiry is not None:
                proposal.expiry.cancel()
            proposal.done(result)
            self._begin()
