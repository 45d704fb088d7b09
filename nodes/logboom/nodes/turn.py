"""One turn of the broker: its time, effects and writes, and the services that take part in it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from logboom.nodes.log.storage import WriteSet
from logboom.nodes.opened_bytes import OpenedBytes
from logboom.nodes.request_times import RequestTimes
from logboom.wire.acceptor import PeerSession, error_frames
from logboom.wire.actor import Effects, Instant, PeerAddress, Send
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame, encode
from logboom.wire.stats import Statistics


class AnswerMeter(Protocol):
    """Sees all answers of a turn before they are sent."""

    def answered(
        self, address: PeerAddress, message: WireMessage, batches: Sequence[Frame], now: float
    ) -> None:
        """Note an answer. It may still be changed."""
        ...

    def refused(self, address: PeerAddress, number: int) -> None:
        """Note that request `number` was refused."""
        ...


class BrokerTurn:
    """One call of `Broker.handle`."""

    __slots__ = (
        "batches",
        "derived",
        "meter",
        "mono",
        "now",
        "opened",
        "out",
        "parted",
        "parted_in_all",
        "read",
        "refusal",
        "returned",
        "scanned",
        "stats",
        "times",
        "unsent_bytes",
        "woken",
        "writes",
    )

    def __init__(
        self,
        now: Instant,
        meter: AnswerMeter | None = None,
        times: RequestTimes | None = None,
        stats: Statistics | None = None,
    ) -> None:
        self.now = now
        self.times = times
        self.stats = stats
        self.meter = meter
        """None while no peer has a quota."""
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
        self.opened = OpenedBytes()
        """Bytes of batches that were opened at requests."""
        self.refusal = ""
        """Code of the latest refusal."""
        self.unsent_bytes: dict[PeerAddress, int] = {}
        """Bytes that peers heard in this turn have not taken yet, if there are any."""
        self.scanned = 0
        """Units of work that subscriptions have spent on what they did not deliver."""
        self.returned = 0
        """Units of work that they have spent on consumers that go, and on messages that come again."""
        self.parted: dict[Hashable, int] = {}
        """Units of work that requests in parts have cost, by user or connection."""
        self.parted_in_all = 0
        """The sum of these."""
        self.woken = 0
        """Held requests that were looked at."""

    def answer(
        self, address: PeerAddress, message: WireMessage, batches: Sequence[Frame] = ()
    ) -> None:
        """Send a message to a peer that has connected to this broker."""
        if self.times is not None:
            self.times.answered(address, message.id)
        if self.meter is not None:
            self.meter.answered(address, message, batches, self.mono)
        self.out.sends.append(Send(address, encode(message, batches)))

    def refuse(self, address: PeerAddress, number: int, error: LogboomError) -> None:
        """Answer request `number` with an error. Number 0 wants no answer."""
        self.refusal = error.code
        if self.stats is not None:
            self.stats.count_failure(error.code)
        if number:
            if self.times is not None:
                self.times.answered(address, number)
            if self.meter is not None:
                self.meter.refused(address, number)
            self.out.sends.append(Send(address, error_frames(number, error)))


Handler: TypeAlias = Callable[[PeerSession, Any, BrokerTurn], None]
"""Serves one request of a peer."""
LOOKED_PER_STEP: Final = 64
"""Replicas that one step of `Service.figure_steps` looks at."""
Figures: TypeAlias = Mapping[str, int | float | str]
"""Figures of STATS by their names."""


class HeldRequest(NamedTuple):
    """A request that waits, as its right to wait is checked."""

    address: PeerAddress
    message: WireMessage
    drop: Callable[[], object]
    """Ends its waiting, without an answer."""
    check: Callable[[PeerAddress, Any], LogboomError | None] | None = None
    """Returns why it is not allowed any more, or None. By default, the acceptor decides."""
    units: int = 0
    """Units of work that this costs, beyond those of one right."""


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

    def held(self) -> Iterator[HeldRequest | None]:
        """Yield the requests that wait here; None stands for something that was passed over.

        Turns may come between two. What begins to wait meanwhile need not be yielded, if it was
        allowed then.
        """
        return iter(())

    def synced(self, token: int, turn: BrokerTurn) -> None:
        """Continue what waits for the disk, which has all turns up to `token`."""
        return

    def figures(self, now: float) -> Figures:
        """Return the figures of this part for STATS, at a monotonic time."""
        return {}

    def figure_steps(self, now: float) -> Iterator[Figures]:
        """Yield the same figures in steps, each of less than a millisecond; some may be empty.

        Turns may come between two steps.
        """
        yield self.figures(now)
