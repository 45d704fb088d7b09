"""The throttle of moves: how many bytes of replicas that are being added may pass.

Only moves are throttled. A replica in sync, or one that returns, is never held up: the budget is
asked for queues alone that the broker is getting, and their bytes have room of their own in an
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.wire.settings import LiveSettings
from logboom.wire.stats import Statistics
from logboom.wire.view import QueueView

LEAST_BYTES_PER_S: Final = 4 * 1024 * 1024
"""The automatic rate is not below this."""
DISK_SHARE: Final = 4
"""The automatic rate is the disk's speed, divided by this."""
BURST_S: Final = 1.0
"""Seconds of the rate that an unused budget holds."""
PIECE_S: Final = 0.05
"""Seconds of the rate that make a piece: what flows in is not given out in crumbs."""
PIECE_BYTES: Final = 256 * 1024
"""Bytes of moves in one answer, beside what it has for others. All that an answer brings is synced
together, so small pieces keep the sync of the others short."""


def is_moving(view: QueueView, broker: str) -> bool:
    """True if a broker is getting a replica of a queue, and counts for nothing yet."""
    return broker in view.adding and broker not in view.isr


def move_rate(settings: LiveSettings, disk_bytes_per_s: int) -> int:
    """Return the bytes per second that moves may have, by the settings or by the disk's speed."""
    automatic = max(LEAST_BYTES_PER_S, disk_bytes_per_s // DISK_SHARE)
    return settings.move_bytes_per_s or automatic


class ThrottledTime:
    """The time for which a move waits for a budget, counted as `move_throttled_ms`."""

    __slots__ = ("_since", "_stats")

    def __init__(self, stats: Statistics) -> None:
        self._stats = stats
        self._since: float | None = None

    def note(self, *, waits: bool, now: float) -> None:
        """Note whether the move waits from now on."""
        if self._since is not None:
            # In whole milliseconds: what is left of one counts the next time.
            passed_ms = int((now - self._since) * 1000)
            self._stats.count("move_throttled_ms", passed_ms)
            self._since += passed_ms / 1000
        if not waits:
            self._since = None
        elif self._since is None:
            self._since = now


class MoveBudget:
    """A token bucket that begins empty, gives whole pieces, and follows its rate at once.

    In any period, at most the rate times the period plus `BURST_S` is taken, plus the last entry.
    """

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: Callable[[], int], now: float) -> None:
        """Create an empty bucket; `rate` returns the bytes per second that flow in."""
        self._rate = rate
        self._tokens = 0.0
        self._at = now

    def room(self, now: float) -> int:
        """Return the bytes that may pass now; 0: none before `due`."""
        self._fill(now)
        # Half a byte, so that rounding never wants a turn at `due` in which nothing may pass.
        return (
            0 if self._tokens + 0.5 < self._piece() else min(int(self._tokens + 0.5), PIECE_BYTES)
        )

    def take(self, size: int, now: float) -> None:
        """Take bytes, also if that overdraws the budget."""
        self._fill(now)
        self._tokens -= size

    def give_back(self, size: int) -> None:
        """Give back bytes that were taken and did not pass."""
        self._tokens += size

    def due(self) -> float:
        """Return the monotonic time from which on a piece may pass."""
        return self._at + max(0.0, self._piece() - self._tokens) / self._rate()

    def _piece(self) -> int:
        return max(1, min(PIECE_BYTES, int(self._rate() * PIECE_S)))

    def _fill(self, now: float) -> None:
        rate = self._rate()
        self._tokens = min(self._tokens + (now - self._at) * rate, rate * BURST_S)
        self._at = now
