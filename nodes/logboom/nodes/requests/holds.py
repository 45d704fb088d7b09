"""Held requests: pulls that wait at the broker until their queue's HW moves or they expire.

A hold costs nothing while it waits: it is in its queue's table and in one heap of exact deadlines.
When a queue's HW moves, only the holds of that queue are woken.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from logboom.nodes.requests.held_shares import HeldShares, Share
from logboom.nodes.turn import HeldRequest
from logboom.wire.actor import PeerAddress
from logboom.wire.base import WireMessage
from logboom.wire.frames import memory_of

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=WireMessage)


class Hold(NamedTuple, Generic[M]):
    """One request that waits."""

    address: PeerAddress
    message: M
    deadline: float
    moved: bool = False
    """True if it has skipped batches while it waited."""
    share: Share | None = None
    """What it counts for, set when it first waits."""
    since: float = 0.0
    """When it began to wait."""


class Holds(Generic[K, M]):
    """Waiting requests by what they wait for; a repeated request replaces its earlier copy."""

    def __init__(self, shares: HeldShares | None = None) -> None:
        """Make an empty table; `shares` may count what waits elsewhere, too."""
        self._shares = HeldShares() if shares is None else shares
        self._by_key: dict[K, dict[tuple[PeerAddress, int], Hold[M]]] = {}
        self._deadlines: list[tuple[float, int, K, tuple[PeerAddress, int]]] = []
        self._count = 0
        self._pushed = 0

    def __len__(self) -> int:
        return self._count

    @property
    def held_bytes(self) -> int:
        """Bytes of the waiting requests, and of all that share their bounds."""
        return self._shares.size

    def checked(self, hold: Hold[M]) -> Hold[M]:
        """Return a hold with its share, if one more request of its peer may wait.

        Raises:
            Unavailable: BUSY, because too many wait.
        """
        found = self._shared(hold)
        if found.share is not None:
            self._shares.check(found.share)
        return found

    def _shared(self, hold: Hold[M]) -> Hold[M]:
        if hold.share is not None:
            return hold
        share = self._shares.share_of(hold.address, memory_of(hold.message))
        return hold._replace(share=share)

    def _left(self, found: Iterable[Hold[M]]) -> None:
        """Count holds that wait no longer."""
        for hold in found:
            self._count -= 1
            if hold.share is not None:
                self._shares.remove(hold.share)

    def add(self, key: K, number: int, hold: Hold[M]) -> None:
        """Let request `number` wait for `key` until its deadline."""
        hold = self._shared(hold)
        waiting = self._by_key.setdefault(key, {})
        name = (hold.address, number)
        replaced = waiting.get(name)
        if replaced is not None:
            self._left((replaced,))
        self._count += 1
        if hold.share is not None:
            self._shares.add(hold.share)
        waiting[name] = hold
        self._pushed += 1
        heapq.heappush(self._deadlines, (hold.deadline, self._pushed, key, name))
        if len(self._deadlines) > 64 + 4 * self._count:
            self._rebuild()

    def take(self, key: K) -> list[Hold[M]]:
        """Remove and return all holds for `key`, in the order of their arrival."""
        waiting = self._by_key.pop(key, None)
        if waiting is None:
            return []
        found = list(waiting.values())
        self._left(found)
        return found

    def peek(self, key: K) -> list[Hold[M]]:
        """Return all holds for `key`, in the order of their arrival."""
        return list(self._by_key.get(key, {}).values())

    def take_first(self, key: K, most: int) -> list[Hold[M]]:
        """Remove and return up to `most` holds for `key`, in the order of their arrival."""
        waiting = self._by_key.get(key, {})
        if len(waiting) <= most:
            return self.take(key)
        found = [waiting.pop(name) for name in list(islice(waiting, most))]
        self._left(found)
        return found

    def count_of(self, key: K) -> int:
        """Return how many holds wait for `key`."""
        return len(self._by_key.get(key, ()))

    def take_if(self, key: K, wanted: Callable[[M], bool]) -> list[Hold[M]]:
        """Remove and return the holds for `key` whose message is accepted."""
        waiting = self._by_key.get(key, {})
        names = [name for name, hold in waiting.items() if wanted(hold.message)]
        found = [waiting.pop(name) for name in names]
        self._left(found)
        if found and not waiting:
            del self._by_key[key]
        return found

    def held(self) -> Iterator[HeldRequest]:
        """Yield all requests that wait (`Service.held`)."""
        for key in list(self._by_key):
            for name in list(self._by_key.get(key, ())):
                hold = self._by_key.get(key, {}).get(name)
                if hold is not None:
                    yield HeldRequest(hold.address, hold.message, partial(self._remove, key, name))

    def _remove(self, key: K, name: tuple[PeerAddress, int]) -> None:
        """Remove the hold of a request."""
        waiting = self._by_key[key]
        self._left((waiting.pop(name),))
        if not waiting:
            del self._by_key[key]

    def expired(self, now: float, most: int | None = None) -> list[tuple[K, Hold[M]]]:
        """Remove and return the holds that have expired, up to `most` of them."""
        found: list[tuple[K, Hold[M]]] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            if most is not None and len(found) >= most:
                break
            deadline, _, key, name = heapq.heappop(self._deadlines)
            waiting = self._by_key.get(key)
            hold = waiting.get(name) if waiting is not None else None
            # Woken meanwhile, or waiting again with a later deadline.
            if waiting is None or hold is None or hold.deadline > deadline:
                continue
            self._remove(key, name)
            found.append((key, hold))
        return found

    def deadline(self) -> float:
        """Return the first deadline; infinity if nothing waits."""
        while self._deadlines:
            deadline, _, key, name = self._deadlines[0]
            hold = self._by_key.get(key, {}).get(name)
            if hold is not None and hold.deadline == deadline:
                return deadline
            heapq.heappop(self._deadlines)
        return float("inf")

    def awaited(self) -> list[K]:
        """Return the keys that are waited for."""
        return list(self._by_key)

    def _rebuild(self) -> None:
        """Remove woken holds from the heap, which are most of it under load."""
        self._deadlines = [
            (hold.deadline, at, key, name)
            for at, (key, name, hold) in enumerate(
                (key, name, hold)
                for key, waiting in self._by_key.items()
                for name, hold in waiting.items()
            )
        ]
        heapq.heapify(self._deadlines)
        self._pushed = len(self._deadlines)
