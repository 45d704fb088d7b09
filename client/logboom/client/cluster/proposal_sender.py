"""The commands that a client proposes, each with a deadline of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeAlias

from logboom.client.cluster.connections import Connections
from logboom.client.core_context import CoreTurn
from logboom.wire.command_queue import CommandQueue
from logboom.wire.commands import AnyCommand, Barrier, CommandResult
from logboom.wire.errors import LogboomError, RetryableError, TimedOut, error_for
from logboom.wire.messages import Propose
from logboom.wire.name_servers import NameServers
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle

WINDOW: Final = 48
"""Difference between the oldest and the newest number under way.

The name servers keep 64 results of a proposer, and could not answer a repeated command that is
older.
"""
BACKOFF: Final = 0.05
"""Mean seconds between tries while the name servers elect a leader."""

OnResult: TypeAlias = Callable[[CommandResult | LogboomError], None]


class ProposalSender:
    """All commands of one client."""

    def __init__(
        self, proposer: str, connections: Connections, turn: CoreTurn, rng: random.Random
    ) -> None:
        self._connections = connections
        self._turn = turn
        self.servers = NameServers(())
        """The endpoints of the name servers, empty until the metadata has arrived."""
        self._queue = CommandQueue[CoreTurn](
            proposer,
            self,
            self.servers,
            WINDOW,
            lambda error: not isinstance(error, RetryableError),
            lambda: BACKOFF * (0.5 + rng.random()),
        )

    def propose(self, command: AnyCommand, done: OnResult, timeout: float) -> None:
        """Commit a command; `done` gets its result, or an error within `timeout` seconds."""

        def decided(result: CommandResult, _turn: CoreTurn) -> None:
            expiry.cancel()  # it would keep the result in memory
            code, text, fields = result.code, result.text, result.fields
            done(error_for(code, text, dict(fields)) if code else result)

        def expire() -> None:
            if self._queue.withdraw(number):
                last = self._queue.last_error
                why = f" ({last})" if last is not None else ""
                text = f"no name server accepted the command in time{why}"
                done(TimedOut(f"{text}: check `logboom cluster status`"))

        expiry = self._turn.after(timeout, expire)
        number = self._queue.propose(command, decided, self._turn)

    def barrier(self, done: Callable[[int | LogboomError], None], timeout: float) -> None:
        """Commit a barrier; `done` gets the metadata version that includes all earlier commits."""
        self.propose(
            Barrier(), lambda r: done(r.version if isinstance(r, CommandResult) else r), timeout
        )

    def step(self) -> None:
        """Send the commands that are due."""
        self._queue.step(self._turn)

    def deadline(self) -> float | None:
        """Time of the next `step`, or None if none is needed."""
        wanted = self._queue.deadline()
        return None if wanted == float("inf") else wanted

    def request(
        self,
        endpoint: str,
        message: Propose,
        turn: CoreTurn,
        answered: Callable[[Reply, CoreTurn], None],
        deadline: float,
    ) -> RequestHandle:
        """Send a command (`wire.command_queue.CommandHost`)."""
        return self._connections.request(
            endpoint, message, (), lambda reply: answered(reply, turn), deadline - turn.now
        )
