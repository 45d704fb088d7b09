"""Commands that this broker proposes to the raft leader, a few at a time, until each has its result.

A command keeps its number through every retry, so that the name server answers a repeated one with
its first result: an unknown outcome always becomes known (Q6). With a `window` above 1 commands may
be applied in another order than they were proposed: who needs an order awaits the first result.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from logboom.nodes.cluster.name_servers import NameServers
from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.turn import BrokerTurn
from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.errors import InvalidRequest
from logboom.wire.messages import Propose, Proposed
from logboom.wire.session import Reply

ANSWER_WITHIN: Final = 1.5
"""Seconds after which another name server is asked."""
RETRY_DELAY_S: Final = 0.1
"""Seconds before a refused command is sent again."""
NOT_IN_THE_LOG: Final = -1
"""Version in a result of a command that the name servers would not even take."""

Decided: TypeAlias = Callable[[CommandResult, BrokerTurn], None]


class _QueuedProposal(NamedTuple):
    number: int
    command: AnyCommand
    decided: Decided


class ProposalQueue:
    """The queue of commands; `proposer` is unique to this process."""

    def __init__(
        self, proposer: str, links: PeerConnections, servers: NameServers, window: int = 1
    ) -> None:
        """`window`: how far the numbers of commands under way may lie apart. The name servers keep
        64 results of a proposer, so that it stays below that."""
        self._proposer = proposer
        self._links = links
        self._servers = servers
        self._window = window
        self._wishes: dict[int, _QueuedProposal] = {}
        self._numbered = 0
        self._asked: dict[int, tuple[str, int]] = {}
        """Number of a wish → where it is under way, as which request."""
        self._retry_at = 0.0

    def __len__(self) -> int:
        return len(self._wishes)

    def propose(self, command: AnyCommand, decided: Decided, turn: BrokerTurn) -> None:
        """Propose a command; `decided` is called once, with its result from the log."""
        self._numbered += 1
        self._wishes[self._numbered] = _QueuedProposal(self._numbered, command, decided)
        self.step(turn)

    def drop_all(self) -> None:
        """Forget every wish: this broker's instance epoch is over, they would be refused."""
        self._wishes.clear()
        for endpoint, number in self._asked.values():
            self._links.cancel(endpoint, number)
        self._asked.clear()

    def step(self, turn: BrokerTurn) -> None:
        """Send the first wishes that are not under way, if the pause is over."""
        if not self._wishes or turn.mono < self._retry_at or not self._unasked():
            return
        last = next(iter(self._wishes)) + self._window
        for wish in list(islice(self._wishes.values(), self._window)):
            if wish.number < last and wish.number not in self._asked:
                self._ask(wish, turn)

    def _unasked(self) -> bool:
        """Whether the window has room for a wish that is not under way."""
        if not self._wishes:
            return False
        last = next(iter(self._wishes)) + self._window
        first = islice(self._wishes, self._window)
        return any(number < last and number not in self._asked for number in first)

    def _ask(self, wish: _QueuedProposal, turn: BrokerTurn) -> None:
        endpoint = self._servers.leader()
        message = Propose(0, int(ANSWER_WITHIN * 1000), self._proposer, wish.number, wish.command)
        number = self._links.request(
            endpoint,
            message,
            turn,
            lambda reply, later: self._answered(wish, endpoint, reply, later),
            turn.mono + ANSWER_WITHIN,
        )
        self._asked[wish.number] = (endpoint, number)

    def _answered(
        self, wish: _QueuedProposal, endpoint: str, reply: Reply, turn: BrokerTurn
    ) -> None:
        if self._wishes.get(wish.number) is not wish:
            return
        del self._asked[wish.number]
        error = reply.error
        if isinstance(reply.message, Proposed):
            self._servers.accepted(endpoint)
            del self._wishes[wish.number]
            wish.decided(reply.message.result, turn)
        elif isinstance(error, InvalidRequest):
            # Too large, or unknown to an older name server: it would stand in the way for ever.
            del self._wishes[wish.number]
            wish.decided(CommandResult(NOT_IN_THE_LOG, error.code, error.text, error.fields), turn)
        elif error is None or not self._servers.refused(endpoint, error):
            self._retry_at = turn.mono + RETRY_DELAY_S
        self.step(turn)

    def deadline(self) -> float:
        """When `step` is wanted; infinity while answers are awaited."""
        return self._retry_at if self._unasked() else float("inf")
