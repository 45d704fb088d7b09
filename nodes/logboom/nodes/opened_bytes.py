"""What one turn opens and looks up at clients' requests: its bytes are bounded.

A few hundred bytes may open to megabytes, and a search for a time or a key may read as much, so the
bytes of a request do not bound this work. What goes beyond the bound is refused, and has to be sent
again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from logboom.wire.errors import Unavailable

TURN_BYTES: Final = 16 * 1024 * 1024
"""Opened bytes after which a turn opens no further body, at some GB/s: below ten milliseconds."""
PEER_BYTES: Final = 8 * 1024 * 1024
"""The same of one user, or of one connection on a listener without keys."""


class OpenedBytes:
    """The opened bytes of one turn, by user or connection."""

    __slots__ = ("_of_peers", "_total")

    def __init__(self) -> None:
        self._of_peers: dict[Hashable, int] = {}
        self._total = 0

    def begin(self, peer: Hashable) -> Callable[[int], None]:
        """Begin with a body for a peer; return what its bytes are counted with, as they are opened.

        Raises:
            Unavailable: BUSY, because this turn has opened enough.
        """
        if self._total >= TURN_BYTES or self._of_peers.get(peer, 0) >= PEER_BYTES:
            text = "too many large batches have to be opened at once: ask again in a moment"
            raise Unavailable(text, "BUSY")
        return partial(self._count, peer)

    def _count(self, peer: Hashable, size: int) -> None:
        self._of_peers[peer] = self._of_peers.get(peer, 0) + size
        self._total += size
