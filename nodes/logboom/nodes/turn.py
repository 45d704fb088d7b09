"""What one turn of the broker gathers: its time, its effects, its writes."""

from __future__ import annotations

from collections.abc import Sequence

from logboom.nodes.log.storage import WriteSet
from logboom.wire.acceptor import error_frames
from logboom.wire.actor import Effects, Instant, PeerAddress, Send
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame, encode
from logboom.wire.messages import WireMessage


class BrokerTurn:
    """One call of `Broker.handle`."""

    __slots__ = ("mono", "now", "out", "read", "untaken", "writes")

    def __init__(self, now: Instant) -> None:
        self.now = now
        self.mono = now.mono
        self.out = Effects()
        self.writes = WriteSet()
        self.read = 0
        """Bytes of batches read for pulls."""
        self.untaken: dict[PeerAddress, int] = {}
        """Bytes that peers heard in this turn have not taken yet, where there are any."""

    def answer(
        self, address: PeerAddress, message: WireMessage, batches: Sequence[Frame] = ()
    ) -> None:
        """Send a message to a peer that dialled us."""
        self.out.sends.append(Send(address, encode(message, batches)))

    def refuse(self, address: PeerAddress, number: int, error: LogboomError) -> None:
        """Answer request `number` with an error; 0 wants no answer."""
        if number:
            self.out.sends.append(Send(address, error_frames(number, error)))
