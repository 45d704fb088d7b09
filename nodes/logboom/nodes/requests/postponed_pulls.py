"""Pulls that a turn had no time for: they wait for the next one, least served peer first.

A turn reads a bounded number of bytes. Otherwise hundreds of large pulls that arrive together would
delay everybody while gigabytes are read. Without the order, a small pull would wait behind all of
them.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final, NamedTuple

from logboom.wire.actor import PeerAddress
from logboom.wire.messages import Pull

MOST_FOR_PEER: Final = 64
"""Pulls of one peer that may wait; further ones are refused and have to be repeated."""
MAX_POSTPONED: Final = 20_000
"""Pulls that may wait in all."""


class PostponedPull(NamedTuple):
    """One pull that waits for the next turn."""

    address: PeerAddress
    message: Pull
    deadline: float
    """Monotonic seconds, after which nobody waits for the answer."""


class PostponedPulls:
    """The waiting pulls, by peer."""

    def __init__(self) -> None:
        self._waiting: dict[PeerAddress, deque[PostponedPull]] = {}
        self._order: list[tuple[int, int, PeerAddress]] = []
        """(bytes served, time of arrival, peer) of each peer that waits."""
        self._served: dict[PeerAddress, int] = {}
        """Bytes read for each peer since its pulls began to wait."""
        self._came = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pull: PostponedPull) -> bool:
        """Let a pull wait behind those of the same peer; False if too many wait."""
        queue = self._waiting.get(pull.address)
        if self._count >= MAX_POSTPONED or (queue is not None and len(queue) >= MOST_FOR_PEER):
            return False
        if queue is None:
            queue = self._waiting[pull.address] = deque()
            self._line_up(pull.address)
        queue.append(pull)
        self._count += 1
        return True

    def _line_up(self, peer: PeerAddress) -> None:
        self._came += 1
        heapq.heappush(self._order, (self._served.get(peer, 0), self._came, peer))

    def take(self) -> PostponedPull:
        """Take the oldest pull of the least served peer; report its bytes to `done`."""
        _, _, peer = heapq.heappop(self._order)
        self._count -= 1
        return self._waiting[peer].popleft()

    def done(self, peer: PeerAddress, size: int) -> None:
        """Count the bytes that were read for the pull just taken."""
        self._served[peer] = self._served.get(peer, 0) + size
        if self._waiting[peer]:
            self._line_up(peer)
        else:
            del self._waiting[peer]
        if not self._count:
            self._served.clear()
