"""The committer: one thread that brings writes to disk while the loop goes on.

The loop begins a sync by its token after it has written; while one `sync` runs, later tokens
gather, and the next `sync` covers them all (group commit). A sync that fails is not repeated: the
process must end, for a retried fsync may "succeed" over lost pages (Q14).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from logboom.nodes.log.storage import Storage
from logboom.wire.actor import Synced, SyncFailed


class Committer:
    """Syncs a storage in a thread of its own."""

    def __init__(self, storage: Storage, wake: Callable[[], None]) -> None:
        """`wake` is called from the thread whenever `take` has something."""
        self._storage = storage
        self._wake = wake
        self._asked: SimpleQueue[int | None] = SimpleQueue()
        self._done: deque[Synced | SyncFailed] = deque()
        self._sizes: deque[tuple[int, int]] = deque()
        self.unsynced = 0
        """Bytes that were written and are not known to be on disk."""
        self.syncs = 0
        """Syncs so far."""
        self._thread = threading.Thread(target=self._run, name="logboom-committer", daemon=True)
        self._thread.start()

    def begin(self, token: int, size: int) -> None:
        """Everything written so far is to be synced as `token`; `size` bytes are new."""
        self.unsynced += size
        self._sizes.append((token, size))
        self._asked.put(token)

    def take(self) -> list[Synced | SyncFailed]:
        """What has ended since the last call."""
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
        """End the thread once all that was begun is synced. Idempotent."""
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
