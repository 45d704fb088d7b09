"""Held requests: pulls that wait at the broker until their queue's HW moves or they expire.

A hold costs nothing while it waits: it is in its queue's table and in one heap of exact deadlines.
When a queue's HW moves, only the holds of that queue are woken.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from logboom.wire.actor import PeerAddress
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.frames import encode

MAX_HOLDS: Final = 100_000
"""Requests of one kind that may wait; further ones are refused and have to be repeated."""
MAX_HELD_BYTES: Final = 64 * 1024 * 1024
"""The same limit in bytes, as received."""

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=WireMessage)


class Hold(NamedTuple, Generic[M]):
    """One request that waits."""

    address: PeerAddress
    message: M
    deadline: float
    moved: bool = False
    """True if it has skipped batches while it waited."""
    size: int = 0
    """Bytes of the request, set by `Holds`."""
    since: float = 0.0
    """When it began to wait."""


class Holds(Generic[K, M]):
    """Waiting requests by what they wait for; a repeated request replaces its earlier copy."""

    def __init__(self) -> None:
        self._by_key: dict[K, dict[tuple[PeerAddress, int], Hold[M]]] = {}
        self._deadlines: list[tuple[float, int, K, tuple[PeerAddress, int]]] = []
        self._count = 0
        self._pushed = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def held_bytes(self) -> int:
        """Bytes of the waiting requests."""
        return self._bytes

    def check_room(self) -> None:
        """Check that one more request may wait.

        Raises:
            Unavailable: BUSY, because too many wait.
        """
        if self._count >= MAX_HOLDS or self._bytes >= MAX_HELD_BYTES:
            raise Unavailable("too many requests wait at this node: ask again in a moment", "BUSY")

    def add(self, key: K, number: int, hold: Hold[M]) -> None:
        """Let request `number` wait for `key` until its deadline."""
        if not hold.size:
            hold = hold._replace(size=len(encode(hold.message)[0]))
        waiting = self._by_key.setdefault(key, {})
        name = (hold.address, number)
        replaced = waiting.get(name)
        if replaced is None:
            self._count += 1
        else:
            self._bytes -= replaced.size
        self._bytes += hold.size
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
        self._count -= len(waiting)
        found = list(waiting.values())
        self._bytes -= sum(hold.size for hold in found)
        return found

    def take_if(self, key: K, wanted: Callable[[M], bool]) -> list[Hold[M]]:
        """Remove and return the holds for `key` whose message is accepted."""
        waiting = self._by_key.get(key, {})
        names = [name for name, hold in waiting.items() if wanted(hold.message)]
        found = [waiting.pop(name) for name in names]
        self._count -= len(found)
        self._bytes -= sum(hold.size for hold in found)
        if found and not waiting:
            del self._by_key[key]
        return found

    def take_refused(
        self, refusal: Callable[[PeerAddress, M], LogboomError | None]
    ) -> list[tuple[Hold[M], LogboomError]]:
        """Remove and return the holds that are not allowed any more, with the reasons."""
        found: list[tuple[Hold[M], LogboomError]] = []
        for key, waiting in list(self._by_key.items()):
            for name, hold in list(waiting.items()):
                error = refusal(hold.address, hold.message)
                if error is not None:
                    del waiting[name]
                    self._count -= 1
                    self._bytes -= hold.size
                    found.append((hold, error))
            if not waiting:
                del self._by_key[key]
        return found

    def expired(self, now: float) -> list[tuple[K, Hold[M]]]:
        """Remove and return the holds that have expired."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, key, name = heapq.heappop(self._deadlines)
            waiting = self._by_key.get(key)
            hold = waiting.get(name) if waiting is not None else None
            # Woken meanwhile, or waiting again with a later deadline.
            if waiting is None or hold is None or hold.deadline > deadline:
                continue
            del waiting[name]
            self._count -= 1
            self._bytes -= hold.size
            if not waiting:
                del self._by_key[key]
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

    def keys(self) -> list[K]:
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
