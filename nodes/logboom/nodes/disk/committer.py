"""The committer: a thread that syncs writes to disk while the event loop continues.

After a write the loop begins a sync under its token. While one `sync` runs, later tokens gather,
and the next `sync` covers all of them (group commit). A failed sync is not repeated, and the
process must end, because a retried fsync may report success for pages that were lost (Q14).

If little was written and nothing else is being synced, the loop syncs by itself, which saves two
hand-overs between threads. It does so only as long as short syncs are fast, since the node serves
nobody meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from logboom.nodes.log.storage import Storage
from logboom.wire.actor import Synced, SyncFailed

SHORT_BYTES: Final = 64 * 1024
"""Maximum bytes of a short sync. Larger ones are worth a hand-over to the thread."""
FAST_S: Final = 0.001
"""Mean duration of short syncs, in seconds, from which on the loop leaves them to the thread."""
WEIGHT: Final = 1 / 8
"""Weight of the newest short sync in their mean duration."""


class Committer:
    """A thread that syncs a storage."""

    def __init__(
        self,
        storage: Storage,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start the thread; it calls `wake` whenever `take` has something.

        Args:
            clock: seconds, for the durations of syncs.
        """
        self._storage = storage
        self._wake = wake
        self._clock = clock
        self._asked: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._done: deque[Synced | SyncFailed] = deque()
        self._sizes: deque[tuple[int, int]] = deque()
        self.unsynced = 0
        """Bytes that were written and are not known to be on disk."""
        self.syncs = 0
        """Number of syncs so far."""
        self._short_s: float | None = None
        """Mean duration of short syncs, in seconds; None: there was none yet."""
        self._thread = threading.Thread(target=self._run, name="logboom-committer", daemon=True)
        self._thread.start()

    def begin(self, token: int, size: int) -> None:
        """Begin to sync everything written so far as `token`; `size` bytes are new."""
        self._note(token, size)
        self._asked.put((token, size))

    def may_sync_here(self, size: int) -> bool:
        """Return True if the caller should `sync_here` instead of `begin` a sync of `size` bytes."""
        fast = self._short_s is not None and self._short_s < FAST_S
        return fast and size <= SHORT_BYTES and not self._sizes

    def sync_here(self, token: int, size: int) -> None:
        """Sync in the calling thread, as `begin` does; `take` has the result when this returns."""
        self._note(token, size)
        self._sync(token, size)

    def _note(self, token: int, size: int) -> None:
        self.unsynced += size
        self._sizes.append((token, size))

    @property
    def ended(self) -> bool:
        """True if `take` has something."""
        return bool(self._done)

    def take(self) -> list[Synced | SyncFailed]:
        """Return the syncs that have ended since the last call."""
        found: list[Synced | SyncFailed] = []
        while self._done:
            event = self._done.popleft()
            found.append(event)
            if isinstance(event, Synced):
                self._forget(event.token)
        return found

    def _forget(self, token: int) -> None:
        while self._sizes and self._sizes[0][0] <= token:
            self.unsynced -= self._sizes.popleft()[1]

    def close(self) -> None:
        """End the thread once all pending syncs are done. Idempotent."""
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        closing = False
        while not closing:
            asked = [self._asked.get()]
            while not self._asked.empty():
                asked.append(self._asked.get())
            closing = None in asked
            begun = [each for each in asked if each is not None]
            if begun:
                synced = self._sync(begun[-1][0], sum(size for _, size in begun))
                self._wake()
                if not synced:
                    return

    def _sync(self, token: int, size: int) -> bool:
        began = self._clock()
        try:
            self._storage.sync()
        except Exception as error:  # noqa: BLE001 - whatever it is, the node must end
            self._done.append(SyncFailed(token, str(error)))
            return False
        if size <= SHORT_BYTES:
            took = self._clock() - began
            mean = took if self._short_s is None else self._short_s
            self._short_s = mean + (took - mean) * WEIGHT
        self.syncs += 1
        self._done.append(Synced(token))
        return True
