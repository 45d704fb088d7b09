"""True time of a simulated world, and what is to happen when: one heap, ties in order of asking."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from logboom.wire.actor import Instant

EPOCH_MS = 1_700_000_000_000
"""Wall clock, ms since 1970, at true time 0."""


class Timer:
    """One thing to happen; `cancel` makes it not happen."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do nothing when the time comes."""
        self.action = None


class Scheduler:
    """Runs actions in order of true time, seconds from 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._asked = 0

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        """Do `action` at a true time (at once, after what is due already, if it has passed)."""
        self._asked += 1
        timer = Timer(action)
        heapq.heappush(self._heap, (max(self.now, when), self._asked, timer))
        return timer

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Do `action` in so many true seconds."""
        return self.at(self.now + seconds, action)

    def run(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Run to a true time, or until `done` says so (asked after each step): its last answer."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            self.now, _, timer = pop(heap)
            action = timer.action
            if action is None:
                continue
            timer.action = None
            self.steps += 1
            action()
            if done is not None and done():
                return True
        self.now = max(self.now, until)
        return done is not None and done()


class Clock:
    """The clocks of one machine: own zero, own speed, own idea of the date."""

    def __init__(self, scheduler: Scheduler, zero: float, speed: float, wall_ahead_ms: int) -> None:
        self._scheduler = scheduler
        self._zero = zero
        self._speed = speed
        self.wall_ahead_ms = wall_ahead_ms
        """May be changed at any time: the wall clock jumps."""

    def drift(self, speed: float) -> None:
        """From now on run at this speed (1: true); the time that it shows does not jump.

        Whoever waits for a time of this clock must be woken to reckon anew.
        """
        self._zero += self._scheduler.now * (self._speed - speed)
        self._speed = speed

    def mono(self) -> float:
        """Monotonic seconds of this machine."""
        return self._zero + self._scheduler.now * self._speed

    def instant(self) -> Instant:
        """Both clocks."""
        wall = EPOCH_MS + int(self._scheduler.now * 1000) + self.wall_ahead_ms
        return Instant(self.mono(), wall)

    def true_time(self, mono: float) -> float:
        """The true time at which `mono` will read so."""
        return (mono - self._zero) / self._speed
