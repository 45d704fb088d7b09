"""The handler of STATS: the figures of thousands of queues are gathered over several turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from logboom.nodes.turn import BrokerTurn, Figures, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.messages import Stats, StatsResult
from logboom.wire.stats import FigureTable, Statistics

STEPS_AT_ONCE: Final = 64
"""Steps that one turn takes; five milliseconds, and enough for all of a broker with few queues."""


class StatsHandler(Service):
    """Gathers the figures once for all who have asked before that began."""

    def __init__(
        self, me: str, stats: Statistics, begin: Callable[[float], Iterator[Figures]]
    ) -> None:
        """Create the handler; `begin` returns the steps that gather the figures of the broker."""
        self._me = me
        self._stats = stats
        self._begin = begin
        self._steps: Iterator[Figures] | None = None
        """Those that are left, while figures are gathered."""
        self._table: FigureTable = {}
        """What they have gathered."""
        self._served: list[tuple[PeerAddress, int]] = []
        """Who gets it: address and number of each request."""
        self._waiting: list[tuple[PeerAddress, int]] = []
        """Who has asked since."""
        self._worked_in: BrokerTurn | None = None
        """The turn that has taken steps last, which takes no more."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of STATS."""
        return {Stats: self._on_stats}

    def deadline(self) -> float:
        """Return when `step` is due: at once, while somebody waits."""
        return float("-inf") if self._waiting or self._served else float("inf")

    def step(self, turn: BrokerTurn) -> None:
        """Take the next steps, unless this turn has taken some, and answer once they are done."""
        if self._worked_in is turn or self.deadline() == float("inf"):
            return
        self._worked_in = turn
        if self._steps is None:
            self._served, self._waiting = self._waiting, []
            self._steps, self._table = self._begin(turn.mono), self._stats.flat()
        taken = 0
        for figures in islice(self._steps, STEPS_AT_ONCE):
            self._table.update(figures)
            taken += 1
        if taken == STEPS_AT_ONCE:
            return
        served, self._served, self._steps = self._served, [], None
        for address, number in served:
            turn.answer(address, StatsResult(number, self._me, "broker", self._table))

    def _on_stats(self, peer: PeerSession, message: Stats, turn: BrokerTurn) -> None:
        self._waiting.append((peer.address, message.id))
        if self._steps is None:
            self.step(turn)
