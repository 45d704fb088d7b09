"""The committer: a thread that syncs writes to disk while the event loop continues.

After a write the loop begins a sync under its token. While one `sync` runs, later tokens gather,
and the next `sync` covers all of them (group commit). A failed sync is not repeated, and the
process must end, because a retried fsync may report success for pages that were lost (Q14).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from logboom.nodes.log.storage import Storage
from logboom.wire.actor import Synced, SyncFailed


class Committer:
    """A thread that syncs a storage."""

    def __init__(self, storage: Storage, wake: Callable[[], None]) -> None:
        """Start the thread; it calls `wake` whenever `take` has something."""
        self._storage = storage
        self._wake = wake
        self._asked: SimpleQueue[int | None] = SimpleQueue()
        self._done: deque[Synced | SyncFailed] = deque()
        self._sizes: deque[tuple[int, int]] = deque()
        self.unsynced = 0
        """Bytes that were written and are not known to be on disk."""
        self.syncs = 0
        """Number of syncs so far."""
        self._thread = threading.Thread(target=self._run, name="logboom-committer", daemon=True)
        self._thread.start()

    def begin(self, token: int, size: int) -> None:
        """Begin to sync everything written so far as `token`; `size` bytes are new."""
        self.unsynced += size
        self._sizes.append((token, size))
        self._asked.put(token)

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
            tokens = [token for token in asked if token is not None]
            if tokens and not self._sync(tokens[-1]):
                return

    def _sync(self, token: int) -> bool:
        try:
            self._storage.sync()
        except Exception as error:  # noqa: BLE001 - whatever it is, the node must end
            self._done.append(SyncFailed(token, str(error)))
            self._wake()
            return False
        self.syncs += 1
        self._done.append(Synced(token))
        self._wake()
        return True
