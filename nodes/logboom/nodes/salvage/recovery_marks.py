"""What a broker must know at its start of queues that were brought back into its stopped store.

Their log is there, but the name servers hold the queue for lost with the old store: the broker asks
them to let it lead what it holds. The mark says so until it does; while a queue is being brought
back it says that too, and what is there then counts for nothing.
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
    """Whether a queue was brought back, and nobody leads it yet."""
    return storage.get("state", queue_key(*key, RECOVERED)) == _WHOLE


def put_recovered(writes: WriteSet, key: QueueKey, *, whole: bool) -> None:
    """Stage a queue's mark."""
    writes.put("state", queue_key(*key, RECOVERED), _WHOLE if whole else UNDER_WAY)


def drop_recovered(writes: WriteSet, key: QueueKey) -> None:
    """Stage the end of a queue's mark."""
    writes.delete("state", queue_key(*key, RECOVERED))
