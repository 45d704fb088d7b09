"""The time from a request's arrival to its answer, by the request's type.

A request arrives with its turn, and its answer leaves when the turn's effects are carried out. The
core has no clock, so the skin says when that was. A core without a skin counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.base import WireMessage
from logboom.wire.group_messages import GroupCommit
from logboom.wire.messages import Produce, Pull, Replicate
from logboom.wire.stats import Histogram, Statistics
from logboom.wire.subscription_messages import Receive, SettleMessages

TYPES: Final[dict[type, str]] = {
    Produce: "produce",
    Pull: "pull",
    GroupCommit: "commit",
    Replicate: "replicate",
    Receive: "receive",
    SettleMessages: "settle",
}
"""Requests that are timed → their type in figures."""
MAX_UNDER_WAY: Final = 4096
"""Requests of one session that are timed at once; of more, the oldest are left out."""


class RequestTimes:
    """The requests under way, and the histograms of their durations."""

    def __init__(
        self, stats: Statistics, find_session: Callable[[PeerAddress], PeerSession | None]
    ) -> None:
        """Create it; `find_session` returns the session at an address."""
        self._find_session = find_session
        self._histograms = {
            kind: stats.histograms[f"request.{name}"] for kind, name in TYPES.items()
        }
        self._answered: list[tuple[Histogram, float]] = []
        """Answered in this turn: histogram and time of arrival."""

    def arrived(self, session: PeerSession, message: WireMessage, now: float) -> None:
        """Note a request."""
        histogram = self._histograms.get(type(message))
        if histogram is None or not message.id:
            return
        under_way = session.under_way
        if len(under_way) >= MAX_UNDER_WAY:
            # Requests that nobody answers, since those who asked do not wait any more.
            del under_way[next(iter(under_way))]
        under_way[message.id] = (histogram, now)

    def answered(self, address: PeerAddress, number: int) -> None:
        """Note that request `number` of a peer is answered in this turn."""
        session = self._find_session(address)
        timed = session.under_way.pop(number, None) if session is not None else None
        if timed is not None:
            self._answered.append(timed)

    def begin(self) -> None:
        """Begin a turn."""
        if self._answered:
            self._answered.clear()

    def sent(self, now: float) -> None:
        """Count the durations of all requests that the turn has answered: they have been sent."""
        if self._answered:
            for histogram, arrived in self._answered:
                histogram.add(now - arrived)
            self._answered.clear()
