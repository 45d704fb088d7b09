"""The gauge of disk space, which refuses writes before the disk is full.

Writes are accepted again automatically once there is room. The reserve is kept for work that must
go on when producers may not: reads, retention, and the state of queues. Bytes that RocksDB has yet
to flush do not count as free (`Storage.space`). The file system is asked at most every 200 ms. In
between, written bytes are counted twice, because they go to the journal and later to a blob
file.
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.log.storage import Storage
from logboom.wire.errors import Unavailable
from logboom.wire.settings import LiveSettings

INTERVAL: Final = 0.2
"""Seconds between two questions to the file system."""
WRITTEN_TWICE: Final = 2
RECOVERED: Final = 1.1
"""Multiple of the reserve that must be free before writes are accepted again, against flapping."""


class SpaceGauge:
    """The state of the disk, from which a broker decides whether it accepts writes."""

    def __init__(self, storage: Storage, settings: LiveSettings) -> None:
        """Keep free the smaller of `disk_reserve_bytes` and `disk_reserve_percent` of the settings.

        0 sets no reserve of its kind.
        """
        self._storage = storage
        self._settings = settings
        self._asked: float | None = None
        self.free = 0
        """Bytes free, as last read and less what was written since."""
        self.total = 0
        """Bytes of the file system."""
        self.reserve = settings.disk_reserve_bytes
        """Bytes that stay free."""
        self.full = False
        """The result of the last `check`."""

    def check(self, now: float) -> bool:
        """Return True if the disk is full for writers; `now` is in monotonic seconds."""
        if self._asked is None or now - self._asked >= INTERVAL:
            self._asked = now
            self.free, self.total = self._storage.space()
            share = int(self.total * self._settings.disk_reserve_percent / 100)
            least = self._settings.disk_reserve_bytes
            # The smaller one: a small disk keeps room beside its share, a large one gives little
            # away.
            self.reserve = min(least or share, share or least)
        bar = self.reserve * RECOVERED if self.full else self.reserve
        self.full = self.free < bar
        return self.full

    def wrote(self, size: int) -> None:
        """Count `size` bytes that were staged since the last reading."""
        self.free -= WRITTEN_TWICE * size

    def refusal(self) -> Unavailable:
        """Build the DISK_FULL answer to a writer."""
        free, reserve = max(0, self.free) >> 20, self.reserve >> 20
        return Unavailable(
            f"disk is full: {free} MiB are free and {reserve} MiB are reserved; free some space or "
            "shorten the topics' retention, writes then go on by themselves",
            "DISK_FULL",
            free_bytes=max(0, self.free),
            reserve_bytes=self.reserve,
        )
