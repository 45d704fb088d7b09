"""Pulls that a turn had no time for: they wait for the next one, least served peer first.

A turn reads a bounded number of bytes. Otherwise hundreds of large pulls that arrive together would
delay everybody while gigabytes are read. Without the order, a small pull would wait behind all of
them.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final, NamedTuple

from logboom.nodes.requests.held_shares import HeldShares, Share
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import Unavailable
from logboom.wire.frames import memory_of
from logboom.wire.messages import Pull

MOST_FOR_PEER: Final = 64
"""Pulls of one peer that may wait; further ones are refused and have to be repeated."""
MAX_POSTPONED: Final = 20_000
"""Pulls that may wait in all; their bytes are bounded with those that are held."""


class PostponedPull(NamedTuple):
    """One pull that waits for the next turn."""

    address: PeerAddress
    message: Pull
    deadline: float
    """Monotonic seconds, after which nobody waits for the answer."""
    share: Share | None = None
    """What it counts for, set when it begins to wait."""


class PostponedPulls:
    """The waiting pulls, by peer."""

    def __init__(self, shares: HeldShares | None = None) -> None:
        """Make an empty table; `shares` may count what waits elsewhere, too."""
        self._shares = HeldShares() if shares is None else shares
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
        share = self._shares.share_of(pull.address, memory_of(pull.message))
        try:
            self._shares.check(share)
        except Unavailable:
            return False
        self._shares.add(share)
        if queue is None:
            queue = self._waiting[pull.address] = deque()
            self._line_up(pull.address)
        queue.append(pull._replace(share=share))
        self._count += 1
        return True

    def _line_up(self, peer: PeerAddress) -> None:
        self._came += 1
        heapq.heappush(self._order, (self._served.get(peer, 0), self._came, peer))

    def take(self) -> PostponedPull:
        """Take the oldest pull of the least served peer; report its bytes to `done`."""
        _, _, peer = heapq.heappop(self._order)
        self._count -= 1
        pull = self._waiting[peer].popleft()
        if pull.share is not None:
            self._shares.remove(pull.share)
        return pull

    def done(self, peer: PeerAddress, size: int) -> None:
        """Count the bytes that were read for the pull just taken."""
        self._served[peer] = self._served.get(peer, 0) + size
        if self._waiting[peer]:
            self._line_up(peer)
        else:
            del self._waiting[peer]
        if not self._count:
            self._served.clear()
