"""The rate of a backup: a bucket of bytes that fills by the clock; pure."""

from __future__ import annotations


class BackupPace:
    """A limit of bytes per second for all queues together."""

    def __init__(self, bytes_per_s: int) -> None:
        """Create a limit; 0: none."""
        self._rate = bytes_per_s
        self._free_at = 0.0
        """Monotonic time from which on the next bytes may be read."""

    def take(self, size: int, now: float) -> float:
        """Count bytes that were read; return the seconds to wait before the next ones."""
        if self._rate <= 0:
            return 0.0
        self._free_at = max(self._free_at, now) + size / self._rate
        return self._free_at - now
