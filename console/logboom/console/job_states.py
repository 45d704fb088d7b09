"""What pages show of work that goes on after the request that began it; pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

JobWork: TypeAlias = Callable[[Callable[[int], object]], Awaitable[int]]
"""Does some work, calls the function with how many are done so far, and returns how many it did."""


@dataclass(frozen=True, slots=True)
class JobState:
    """Some work, and how far it is."""

    number: int
    title: str
    owner: str
    """What it belongs to, such as the group whose dead letters are sent."""
    total: int
    begun_ms: int
    done: int = 0
    ended_ms: int | None = None
    error: str = ""
    stopped: bool = False

    @property
    def is_running(self) -> bool:
        """True while it goes on."""
        return self.ended_ms is None

    @property
    def share(self) -> float:
        """How much of it is done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else 1.0

    def rate_per_s(self, now_ms: int) -> float | None:
        """Return how many are done in a second; None at its begin."""
        taken_ms = (self.ended_ms or now_ms) - self.begun_ms
        return self.done * 1000 / taken_ms if taken_ms > 0 and self.done else None

    def left_ms(self, now_ms: int) -> float | None:
        """Return how long the rest will take at this rate; None: it is not known."""
        rate = self.rate_per_s(now_ms)
        return max(0, self.total - self.done) * 1000 / rate if rate and self.is_running else None
