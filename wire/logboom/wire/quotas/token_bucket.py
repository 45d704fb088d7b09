"""A rate limit that may be overdrawn: whoever overdraws it makes those after it wait."""

from __future__ import annotations

from typing import Final

BURST_S: Final = 1.0
"""Seconds of the rate that an unused bucket holds."""
SOON_S: Final = 0.0001
"""Shorter waits count as none, so that rounding never wants a turn in which nothing is due."""


class TokenBucket:
    """Tokens that flow in at a rate, up to `BURST_S` of it.

    What is taken is known only afterwards, so any amount may be taken while the bucket is not
    overdrawn. In any period, at most the rate times the period plus `BURST_S` is taken, plus the
    last amount.
    """

    __slots__ = ("_at", "_tokens", "rate_per_s")

    def __init__(self, rate_per_s: int, now: float) -> None:
        self.rate_per_s = rate_per_s
        self._tokens = rate_per_s * BURST_S
        self._at = now

    def take(self, amount: int, now: float) -> None:
        """Take tokens, also if that overdraws the bucket."""
        self._fill(now)
        self._tokens -= amount

    def wait_s(self, now: float) -> float:
        """Return the seconds until the bucket is not overdrawn; 0.0: it is not now."""
        if self._tokens < 0:
            self._fill(now)
            if self._tokens < 0:
                wait_s = -self._tokens / self.rate_per_s
                return wait_s if wait_s >= SOON_S else 0.0
        return 0.0

    def change_rate(self, rate_per_s: int, now: float) -> None:
        """Set another rate; what was overdrawn has still to flow in."""
        self._fill(now)
        self.rate_per_s = rate_per_s

    def _fill(self, now: float) -> None:
        tokens = self._tokens + (now - self._at) * self.rate_per_s
        self._tokens = min(tokens, self.rate_per_s * BURST_S)
        self._at = now
