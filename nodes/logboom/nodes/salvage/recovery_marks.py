"""Marks of queues that were restored into a stopped broker's store.

The queue's log is there, but for the name servers it was lost with the old store. The broker asks
them to let it lead what it holds, and keeps the mark until it leads. While a queue is being
restored the mark says so too, and the queue's content does not count.
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.log.keys import queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica.replica import QueueKey

RECOVERED: Final = b"r"
"""Suffix of the state key."""
UNDER_WAY: Final = b"\0"
_WHOLE: Final = b"\1"


def is_recovered(storage: Storage, key: QueueKey) -> bool:
    """Return True if a queue was restored, and has no leader yet."""
    return storage.get("state", queue_key(*key, RECOVERED)) == _WHOLE


def put_recovered(writes: WriteSet, key: QueueKey, *, whole: bool) -> None:
    """Stage a queue's mark."""
    writes.put("state", queue_key(*key, RECOVERED), _WHOLE if whole else UNDER_WAY)


def drop_recovered(writes: WriteSet, key: QueueKey) -> None:
    """Stage the removal of a queue's mark."""
    writes.delete("state", queue_key(*key, RECOVERED))
