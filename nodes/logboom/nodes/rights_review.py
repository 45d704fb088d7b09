"""Refusal of requests that wait and are not allowed any more, after users or rules have changed.

To look at all of them in one turn would stall the loop, so each turn looks at some. Until all have been
looked at, no request that has waited is answered before it was checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from logboom.nodes.turn import BrokerTurn, HeldRequest, Service
from logboom.wire.acceptor import Acceptor
from logboom.wire.actor import PeerAddress
from logboom.wire.base import WireMessage

TURN_UNITS: Final = 10_000
"""Units of work (`AccessBook.units`, some 0.2 µs each) of one turn, …"""
LOOK_UNITS: Final = 10
"""… of a look at a request whose rights are decided, …"""
REFUSED_UNITS: Final = 200
"""… and of a refusal."""


class RightsReview(Service):
    """The requests that wait and were not checked since the last change, of all services."""

    def __init__(self, acceptor: Acceptor) -> None:
        self.services: Sequence[Service] = ()
        """Those whose requests are checked; the owner sets them."""
        self._acceptor = acceptor
        self._at = 0
        """Index of the service whose requests are checked now, or next."""
        self._current: Iterator[HeldRequest | None] | None = None
        """What is left of them."""
        self._passes = 0
        """Services that have yet to be passed over, with that one."""

    def begin(self) -> None:
        """Check all requests that wait: users or rules have changed.

        A service that is passed over now is passed over once more at the end, so that all are reached
        however often this is called.
        """
        self._passes = len(self.services) + (self._current is not None)

    @property
    def under_way(self) -> bool:
        """True while requests wait that were not checked."""
        return self._passes > 0

    def allows(self, address: PeerAddress, message: WireMessage, turn: BrokerTurn) -> bool:
        """Return True if a request that has waited may be answered; refuse it if not."""
        error = self._acceptor.recheck(address, message) if self._passes else None
        if error is not None:
            turn.refuse(address, message.id, error)
        return error is None

    def step(self, turn: BrokerTurn) -> None:
        """Check the next requests."""
        book = self._acceptor.authorizer.book
        units = -book.units
        while self._passes and units + book.units < TURN_UNITS:
            if self._current is None:
                self._current = self.services[self._at].held()
            try:
                held = next(self._current)
            except StopIteration:
                self._current = None
                self._at = (self._at + 1) % len(self.services)
                self._passes -= 1
                continue
            units += LOOK_UNITS
            if held is not None:
                units += held.units
                check = held.check or self._acceptor.recheck
                error = check(held.address, held.message)
                if error is not None:
                    units += REFUSED_UNITS
                    held.drop()
                    turn.refuse(held.address, held.message.id, error)

    def deadline(self) -> float:
        """Return when `step` is wanted next: at once, while not all is checked."""
        return float("-inf") if self._passes else float("inf")
