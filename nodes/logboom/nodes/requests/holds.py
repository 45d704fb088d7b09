"""Holds: pulls that wait at the broker for the HW of their queue to move, or for their time.

A hold costs nothing while it waits: it lies in its queue's table and in one heap of exact
deadlines. A queue's HW move wakes that queue's holds and no others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from logboom.wire.actor import Inbound

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")


class Hold(NamedTuple, Generic[M]):
    """One request that waits."""

    address: Inbound
    message: M
    deadline: float
    moved: bool = False
    """Meanwhile something was passed over for it."""


class Holds(Generic[K, M]):
    """Waiting requests by what they wait for; a request sent again replaces its older self."""

    def __init__(self) -> None:
        self._by_key: dict[K, dict[tuple[Inbound, int], Hold[M]]] = {}
        self._deadlines: list[tuple[float, int, K, tuple[Inbound, int]]] = []
        self._count = 0
        self._pushed = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: K, number: int, hold: Hold[M]) -> None:
        """Let request `number` wait for `key` until its deadline."""
        waiting = self._by_key.setdefault(key, {})
        name = (hold.address, number)
        if name not in waiting:
            self._count += 1
        waiting[name] = hold
        self._pushed += 1
        heapq.heappush(self._deadlines, (hold.deadline, self._pushed, key, name))
        if len(self._deadlines) > 64 + 4 * self._count:
            self._rebuild()

    def take(self, key: K) -> list[Hold[M]]:
        """All that wait for `key`, in the order in which they came; they wait no longer."""
        waiting = self._by_key.pop(key, None)
        if waiting is None:
            return []
        self._count -= len(waiting)
        return list(waiting.values())

    def take_if(self, key: K, wanted: Callable[[M], bool]) -> list[Hold[M]]:
        """Those for `key` whose message is wanted; they wait no longer."""
        waiting = self._by_key.get(key, {})
        names = [name for name, hold in waiting.items() if wanted(hold.message)]
        found = [waiting.pop(name) for name in names]
        self._count -= len(found)
        if found and not waiting:
            del self._by_key[key]
        return found

    def expired(self, now: float) -> list[tuple[K, Hold[M]]]:
        """Those whose deadline has come; they wait no longer."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, key, name = heapq.heappop(self._deadlines)
            waiting = self._by_key.get(key)
            hold = waiting.get(name) if waiting is not None else None
            # Woken meanwhile, or waiting anew with a later deadline.
            if waiting is None or hold is None or hold.deadline > deadline:
                continue
            del waiting[name]
            self._count -= 1
            if not waiting:
                del self._by_key[key]
            found.append((key, hold))
        return found

    def deadline(self) -> float:
        """The first deadline; infinity if nothing waits."""
        while self._deadlines:
            deadline, _, key, name = self._deadlines[0]
            hold = self._by_key.get(key, {}).get(name)
            if hold is not None and hold.deadline == deadline:
                return deadline
            heapq.heappop(self._deadlines)
        return float("inf")

    def keys(self) -> list[K]:
        """What is waited for."""
        return list(self._by_key)

    def _rebuild(self) -> None:
        """Drop the heap's entries of holds that were woken: most of them under load."""
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
