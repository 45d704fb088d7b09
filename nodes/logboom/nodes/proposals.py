"""Commands that this broker proposes to the raft leader, one at a time, until each has its result.

A command keeps its number through every retry, so that the name server answers a repeated one with
its first result: an unknown outcome always becomes known (Q6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from logboom.nodes.links import Links
from logboom.nodes.name_servers import NameServers
from logboom.nodes.turn import Turn
from logboom.wire.commands import AnyCommand, Result
from logboom.wire.messages import Propose, Proposed
from logboom.wire.session import Reply

ANSWER_WITHIN: Final = 1.5
"""Seconds after which another name server is asked."""
PAUSE: Final = 0.1
"""Seconds before a refused command is sent again."""

Decided: TypeAlias = Callable[[Result, Turn], None]


class _Wish(NamedTuple):
    number: int
    command: AnyCommand
    decided: Decided


class Proposals:
    """The queue of commands; `proposer` is unique to this process."""

    def __init__(self, proposer: str, links: Links, servers: NameServers) -> None:
        self._proposer = proposer
        self._links = links
        self._servers = servers
        self._wishes: deque[_Wish] = deque()
        self._numbered = 0
        self._asked: tuple[str, int] | None = None
        self._retry_at = 0.0

    def __len__(self) -> int:
        return len(self._wishes)

    def propose(self, command: AnyCommand, decided: Decided, turn: Turn) -> None:
        """Propose a command; `decided` is called once, with its result from the log."""
        self._numbered += 1
        self._wishes.append(_Wish(self._numbered, command, decided))
        self.step(turn)

    def drop_all(self) -> None:
        """Forget every wish: this broker's instance epoch is over, they would be refused."""
        self._wishes.clear()
        if self._asked is not None:
            self._links.cancel(*self._asked)
            self._asked = None

    def step(self, turn: Turn) -> None:
        """Send the first wish if it is not under way and its pause is over."""
        if not self._wishes or self._asked is not None or turn.mono < self._retry_at:
            return
        wish = self._wishes[0]
        endpoint = self._servers.leader()
        message = Propose(0, int(ANSWER_WITHIN * 1000), self._proposer, wish.number, wish.command)
        deadline = turn.mono + ANSWER_WITHIN
        number = self._links.request(
            endpoint,
            message,
            turn,
            lambda reply, later: self._answered(wish, endpoint, reply, later),
            deadline,
        )
        self._asked = (endpoint, number)

    def _answered(self, wish: _Wish, endpoint: str, reply: Reply, turn: Turn) -> None:
        if not self._wishes or self._wishes[0] is not wish:
            return
        self._asked = None
        if isinstance(reply.message, Proposed):
            self._servers.accepted(endpoint)
            self._wishes.popleft()
            wish.decided(reply.message.result, turn)
        elif reply.error is None or not self._servers.refused(endpoint, reply.error):
            self._retry_at = turn.mono + PAUSE
        self.step(turn)

    def deadline(self) -> float:
        """When `step` is wanted; infinity while an answer is awaited."""
        if not self._wishes or self._asked is not None:
            return float("inf")
        return self._retry_at
