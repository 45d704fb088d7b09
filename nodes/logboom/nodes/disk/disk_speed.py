"""What the disk was seen to do: bytes per second of its syncs, while any was under way.

The best of late counts, since a sync of little says more about the disk's latency than about its
speed. What was seen long ago fades, because a disk may be shared and become slower.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SAMPLE_BYTES: Final = 1024 * 1024
"""Bytes that are synced before their speed is reckoned."""
FADING: Final = 1 / 16
"""Share of its distance to a slower sample by which the speed falls."""


class DiskSpeed:
    """The speed of the journal's disk."""

    def __init__(self) -> None:
        self.bytes_per_s = 0
        """0: not known yet."""
        self._syncing: deque[tuple[int, int]] = deque()
        """(token, bytes) of syncs under way."""
        self._since = 0.0
        """Since when the time is not counted yet."""
        self._bytes = 0
        self._busy_s = 0.0

    def begin(self, token: int, size: int, now: float) -> None:
        """Note a sync of `size` bytes that begins at a monotonic time."""
        if not self._syncing:
            self._since = now
        self._syncing.append((token, size))

    def end(self, token: int, now: float) -> None:
        """Note that everything up to `token` is on disk."""
        if not self._syncing:
            return
        while self._syncing and self._syncing[0][0] <= token:
            self._bytes += self._syncing.popleft()[1]
        self._busy_s += now - self._since
        self._since = now
        if self._bytes < SAMPLE_BYTES or self._busy_s <= 0:
            return
        sample = self._bytes / self._busy_s
        fallen = self.bytes_per_s + (sample - self.bytes_per_s) * FADING
        self.bytes_per_s = int(max(sample, fallen))
        self._bytes, self._busy_s = 0, 0.0
