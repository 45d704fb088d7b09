"""The current turn of the core: its time, its effects, and the timers that start later turns."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count

from logboom.wire.actor import Effects, Instant


class Timer:
    """An action at a given time, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Drop the action."""
        self.action = None


class CoreTurn:
    """The state that all parts of one core share while it handles events."""

    def __init__(self, now: Instant, rng: random.Random) -> None:
        self.rng = rng
        self.now = now.mono
        """Monotonic seconds."""
        self.wall_ms = now.wall_ms
        self.out = Effects()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()

    @property
    def mono(self) -> float:
        """Monotonic seconds, under the name that brokers use."""
        return self.now

    def begin(self, now: Instant) -> None:
        """Start a new turn with empty effects."""
        self.now = now.mono
        self.wall_ms = now.wall_ms
        self.out = Effects()

    def after(self, delay: float, action: Callable[[], None]) -> Timer:
        """Do `action` in the first turn that is at least `delay` seconds later."""
        timer = Timer(action)
        heapq.heappush(self._timers, (self.now + delay, next(self._order), timer))
        return timer

    def run_timers(self) -> None:
        """Do the actions that are due."""
        while self._timers and self._timers[0][0] <= self.now:
            timer = heapq.heappop(self._timers)[2]
            if timer.action is not None:
                timer.action()

    def deadline(self) -> float | None:
        """Return the time at which the next timer is due."""
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None
