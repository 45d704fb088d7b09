"""Commands on their way to the Raft leader, up to a window at a time, until each has its result.

A command keeps its number through all retries, so that the name servers answer a repeated one with
its first result and an unknown outcome always becomes known (see docs/SAFETY.md, Q6). With a window
above 1 commands may be applied in another order than they were proposed: whoever needs an order
waits for the first result.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.messages import Propose, Proposed
from logboom.wire.name_servers import NameServers
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle

ANSWER_TIMEOUT_S: Final = 1.5
"""Seconds after which another name server is asked."""
RETRY_DELAY_S: Final = 0.1
"""Seconds before a refused command is sent again."""
NOT_IN_THE_LOG: Final = -1
"""Version in the result of a command that the name servers refused to put into the log."""


class TimedTurn(Protocol):
    """The turn of a core, as far as a queue of commands needs it."""

    @property
    def mono(self) -> float:
        """Monotonic time of the turn in seconds."""
        ...


T = TypeVar("T", bound=TimedTurn)
T_contra = TypeVar("T_contra", bound=TimedTurn, contravariant=True)


class CommandHost(Protocol[T]):
    """The connections that carry commands."""

    def request(
        self,
        endpoint: str,
        message: Propose,
        turn: T,
        answered: Callable[[Reply, T], None],
        deadline: float,
        /,
    ) -> RequestHandle:
        """Send a request; `answered` is called once, at `deadline` at the latest."""
        ...


class _QueuedCommand(NamedTuple, Generic[T]):
    number: int
    command: AnyCommand
    decided: Callable[[CommandResult, T], None]


def is_refused(error: LogboomError) -> bool:
    """True if the name servers do not take the command itself.

    It is too large, or unknown to an older name server, and would block the queue for ever.
    """
    return isinstance(error, InvalidRequest)


class CommandQueue(Generic[T]):
    """The commands of one proposer, a name that no other process ever has."""

    def __init__(
        self,
        proposer: str,
        host: CommandHost[T],
        servers: NameServers,
        window: int = 1,
        is_final: Callable[[LogboomError], bool] = is_refused,
        retry_delay: Callable[[], float] = lambda: RETRY_DELAY_S,
    ) -> None:
        """Make an empty queue.

        Args:
            proposer: Name under which the name servers keep the results.
            host: Connections to the name servers.
            servers: Endpoints of the name servers.
            window: How far the numbers of commands under way may lie apart. The name servers keep
                64 results of a proposer, so it must be less.
            is_final: True for an error that retrying cannot cure: it becomes the result.
            retry_delay: Returns the seconds before a refused command is sent again.
        """
        self._proposer = proposer
        self._host = host
        self._servers = servers
        self._window = window
        self._is_final = is_final
        self._retry_delay = retry_delay
        self._queued: dict[int, _QueuedCommand[T]] = {}
        self._last_number = 0
        self._asked: dict[int, RequestHandle] = {}
        """Number of a command → the request with which it is under way."""
        self._retry_at = 0.0
        self.last_error: LogboomError | None = None
        """Why a command was last not taken; None: the last answer was a result."""

    def __len__(self) -> int:
        return len(self._queued)

    def propose(
        self, command: AnyCommand, decided: Callable[[CommandResult, T], None], turn: T
    ) -> int:
        """Propose a command and return its number; `decided` is called once with its result."""
        self._last_number += 1
        number = self._last_number
        self._queued[number] = _QueuedCommand(number, command, decided)
        self.step(turn)
        return number

    def withdraw(self, number: int) -> bool:
        """Give a command up, though it may still be applied; return False if it is decided."""
        if self._queued.pop(number, None) is None:
            return False
        request = self._asked.pop(number, None)
        if request is not None:
            request.cancel()
        return True

    def drop_all(self) -> None:
        """Give all commands up."""
        for number in list(self._queued):
            self.withdraw(number)

    def step(self, turn: T) -> None:
        """Send the first commands that are not under way, unless a retry delay runs."""
        if not self._queued or turn.mono < self._retry_at or not self._has_unasked():
            return
        last = next(iter(self._queued)) + self._window
        for queued in list(islice(self._queued.values(), self._window)):
            if queued.number < last and queued.number not in self._asked:
                self._ask(queued, turn)

    def deadline(self) -> float:
        """Time at which `step` has something to send; infinity while answers are awaited."""
        return self._retry_at if self._has_unasked() else float("inf")

    def _has_unasked(self) -> bool:
        """True if the window has room for a command that is not under way."""
        if not self._queued:
            return False
        last = next(iter(self._queued)) + self._window
        first = islice(self._queued, self._window)
        return any(number < last and number not in self._asked for number in first)

    def _ask(self, queued: _QueuedCommand[T], turn: T) -> None:
        endpoint = self._servers.leader()
        if not endpoint:
            self._retry_at = turn.mono + self._retry_delay()
            return
        timeout_ms = int(ANSWER_TIMEOUT_S * 1000)
        self._asked[queued.number] = self._host.request(
            endpoint,
            Propose(0, timeout_ms, self._proposer, queued.number, queued.command),
            turn,
            lambda reply, later: self._answered(queued, endpoint, reply, later),
            turn.mono + ANSWER_TIMEOUT_S,
        )

    def _answered(self, queued: _QueuedCommand[T], endpoint: str, reply: Reply, turn: T) -> None:
        if self._queued.get(queued.number) is not queued:
            return
        del self._asked[queued.number]
        error = reply.error
        if isinstance(reply.message, Proposed):
            self._servers.accepted(endpoint)
            self.last_error = None
            del self._queued[queued.number]
            queued.decided(reply.message.result, turn)
        elif error is not None and self._is_final(error):
            del self._queued[queued.number]
            queued.decided(
                CommandResult(NOT_IN_THE_LOG, error.code, error.text, error.fields), turn
            )
        else:
            self.last_error = error
            if error is None or not self._servers.refused(endpoint, error):
                self._retry_at = turn.mono + self._retry_delay()
        self.step(turn)
