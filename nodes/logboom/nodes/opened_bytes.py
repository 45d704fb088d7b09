"""What one turn opens and looks up at clients' requests: its bytes are bounded, and its time.

A few hundred bytes may open to megabytes, and a search for a time or a key may read as much, so the
bytes of a request do not bound this work. What goes beyond the bound is refused, and has to be sent
again. A body that is not open after a few steps goes on being opened, and is there for the request when
it comes again.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from typing import Final, NamedTuple

from logboom.wire.columns import BodyOpener
from logboom.wire.compression import STEP_BYTES, Codec, decompress_steps
from logboom.wire.errors import Unavailable
from logboom.wire.frames import Frame
from logboom.wire.head import HEAD_LENGTH, BatchHead

TURN_BYTES: Final = 16 * 1024 * 1024
"""Opened bytes after which a turn opens no further body."""
PEER_BYTES: Final = 8 * 1024 * 1024
"""The same of one user, or of one connection on a listener without keys."""
TURN_STEPS: Final = 2
"""Steps of opening large bodies after which a turn opens no further one, of two milliseconds at most."""
MAX_BEGUN: Final = 4
"""Large bodies that are kept for requests that will come again, one of each user or connection."""
BEGUN_S: Final = 1.0
"""Seconds for which such a body gives way to no other one."""

_Steps = Generator[None, None, memoryview]


class _Begun(NamedTuple):
    batch: bytes
    steps: _Steps
    at: float


class BegunBodies:
    """Large bodies that were not open in time, for requests that will come again."""

    def __init__(self) -> None:
        self._of: dict[Hashable, _Begun] = {}

    def begin(self, peer: Hashable, head: BatchHead, batch: bytes, now: float) -> _Steps:
        """Return the steps that are left of opening a body for a peer.

        Raises:
            Unavailable: BUSY, because another body of this peer, or enough of others, were begun.
        """
        found = self._of.get(peer)
        if found is not None and found.batch == batch:
            return self._of.pop(peer).steps
        self._of = {key: each for key, each in self._of.items() if now - each.at < BEGUN_S}
        if peer in self._of or len(self._of) >= MAX_BEGUN:
            raise _busy()
        stored = memoryview(batch)[HEAD_LENGTH : HEAD_LENGTH + head.stored_length]
        return decompress_steps(head.codec, stored, head.plain_length)

    def keep(self, peer: Hashable, batch: bytes, steps: _Steps, now: float) -> None:
        """Keep the steps that are left."""
        self._of[peer] = _Begun(batch, steps, now)


class OpenedBytes:
    """The opened bytes of one turn, by user or connection."""

    __slots__ = ("_of_peers", "_total", "begun", "mono", "steps")

    def __init__(self, begun: BegunBodies | None = None, mono: float = 0.0) -> None:
        self._of_peers: dict[Hashable, int] = {}
        self._total = 0
        self.begun: Final = BegunBodies() if begun is None else begun
        self.mono: Final = mono
        """The monotonic time of the turn."""
        self.steps = TURN_STEPS
        """Steps of large bodies that are left to this turn."""

    def begin(self, peer: Hashable) -> PeerOpener:
        """Begin with bodies for a peer; return what they are opened and counted with.

        Raises:
            Unavailable: BUSY, because this turn has opened enough.
        """
        if self._total >= TURN_BYTES or self._of_peers.get(peer, 0) >= PEER_BYTES:
            raise _busy()
        return PeerOpener(self, peer)

    def count(self, peer: Hashable, size: int) -> None:
        """Count bytes that are opened or looked up for a peer."""
        self._of_peers[peer] = self._of_peers.get(peer, 0) + size
        self._total += size


class PeerOpener(BodyOpener):
    """What one request opens."""

    __slots__ = ("_opened", "_peer")

    def __init__(self, opened: OpenedBytes, peer: Hashable) -> None:
        self._opened = opened
        self._peer = peer

    def count(self, size: int) -> None:
        """See `BodyOpener.count`."""
        self._opened.count(self._peer, size)

    def open(self, head: BatchHead, batch: Frame) -> memoryview:
        """Return the plain body of a batch, as `BodyOpener.open`.

        Raises:
            DamagedBatch: It is not one of its codec.
            Unavailable: BUSY, because it is not open yet.
        """
        opened, peer = self._opened, self._peer
        self.count(head.plain_length)
        if head.codec is Codec.NONE or head.plain_length <= STEP_BYTES:
            return super().open(head, batch)
        if opened.steps <= 0:
            raise _busy()
        whole = bytes(batch)
        steps = opened.begun.begin(peer, head, whole, opened.mono)
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                body: memoryview = ended.value
                return body
            opened.steps -= 1
            if opened.steps <= 0:
                opened.begun.keep(peer, whole, steps, opened.mono)
                raise _busy()


def _busy() -> Unavailable:
    text = "too many large batches have to be opened at once: ask again in a moment"
    return Unavailable(text, "BUSY")
