"""One turn of the broker: its time, effects and writes, and the services that take part in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from logboom.nodes.log.storage import WriteSet
from logboom.wire.acceptor import PeerSession, error_frames
from logboom.wire.actor import Effects, Instant, PeerAddress, Send
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame, encode


class BrokerTurn:
    """One call of `Broker.handle`."""

    __slots__ = ("batches", "derived", "mono", "now", "out", "read", "unsent_bytes", "writes")

    def __init__(self, now: Instant) -> None:
        self.now = now
        self.mono = now.mono
        self.out = Effects()
        self.writes = WriteSet()
        self.derived = 0
        """Operations in `writes` that follow from the log. If they are lost with the power, they are
        derived again, so they do not need a sync of their own."""
        self.batches: Sequence[Frame] = ()
        """The batches of the request that is being served."""
        self.read = 0
        """Bytes of batches read for pulls."""
        self.unsent_bytes: dict[PeerAddress, int] = {}
        """Bytes that peers heard in this turn have not taken yet, if there are any."""

    def answer(
        self, address: PeerAddress, message: WireMessage, batches: Sequence[Frame] = ()
    ) -> None:
        """Send a message to a peer that has connected to this broker."""
        self.out.sends.append(Send(address, encode(message, batches)))

    def refuse(self, address: PeerAddress, number: int, error: LogboomError) -> None:
        """Answer request `number` with an error. Number 0 wants no answer."""
        if number:
            self.out.sends.append(Send(address, error_frames(number, error)))


Handler: TypeAlias = Callable[[PeerSession, Any, BrokerTurn], None]
"""Serves one request of a peer."""
Figures: TypeAlias = Mapping[str, int | str]
"""Figures of STATS by their names."""


class Service(Protocol):
    """A part of the broker that takes part in its turns.

    The broker calls the services in one fixed order. Every method has a default that does nothing.
    """

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of the requests that this part serves, by type."""
        return {}

    def step(self, turn: BrokerTurn) -> None:
        """Do what is due.

        This is called after the events of a turn, at `deadline`, and in each turn with an answer to
        this broker or with a call. Turns with nothing but requests and syncs need not call it, so
        what these make due must show in `deadline`.
        """
        return

    def deadline(self) -> float:
        """Return the monotonic time at which a turn is wanted; infinity if none is."""
        return float("inf")

    def fenced(self, turn: BrokerTurn) -> None:
        """Drop everything that was in progress under the instance epoch, which has ended."""
        return

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Follow the metadata: these topics and groups changed or were removed."""
        return

    def synced(self, token: int, turn: BrokerTurn) -> None:
        """Continue what waits for the disk, which has all turns up to `token`."""
        return

    def figures(self, now: float) -> Figures:
        """Return the figures of this part for STATS, at a monotonic time."""
        return {}
