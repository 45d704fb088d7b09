"""Layouts of the store's keys, in big endian, so that byte order is the order of a queue's log.

| family | key                                        | value                                      |
|--------|--------------------------------------------|--------------------------------------------|
| log    | topic id u32, queue u32, offset u64, side u32 | the stamped entry (`wire.batch`), or     |
|        |                                            | what `body_references.py` leaves of it     |
| state  | topic id u32, queue u32, `q`               | `log_state.LogState`                       |
| state  | topic id u32, queue u32, `e`               | `log_state.encode_epochs`                  |
| state  | topic id u32, queue u32, `b`, …            | see `body_references.py`                   |
| state  | topic id u32, queue u32, any other letter  | the broker's own                           |
| index  | topic id u32, queue u32, letter, …         | see `index_rows.py`                        |
| parked | topic id u32, queue u32, letter, …         | see `parked_rows.py`, `decision_rows.py`   |
| cursor | topic id u32, queue u32, letter, …         | see `cursor_rows.py`                       |
| compact | topic id u32, queue u32, letter, …        | see `compaction_rows.py`                   |

A position in a log is (offset, side): a batch of n at (o, s) moves the end to (o + n, 0), a control
entry at (o, s) to (o, s + 1). Topic ids are never reused.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_LOG: Final = struct.Struct(">IIQI")
_QUEUE: Final = struct.Struct(">II")

LAST_SIDE: Final = (1 << 32) - 1
RECORD: Final = b"q"
EPOCHS: Final = b"e"


class Position(NamedTuple):
    """A position in a queue's log, between two entries."""

    offset: int
    side: int = 0


def log_key(topic_id: int, queue: int, offset: int, side: int = 0) -> bytes:
    """Build the key of the entry that begins at (offset, side)."""
    return _LOG.pack(topic_id, queue, offset, side)


def position_of(key: bytes) -> Position:
    """Return the position at which the entry of a log key begins."""
    _, _, offset, side = _LOG.unpack(key)
    return Position(offset, side)


def queue_key(topic_id: int, queue: int, suffix: bytes = b"") -> bytes:
    """Build the prefix of a queue's keys in a family, followed by a suffix."""
    return _QUEUE.pack(topic_id, queue) + suffix


def queue_of(key: bytes) -> tuple[int, int]:
    """Return (topic id, queue) of any key."""
    topic_id, queue = _QUEUE.unpack_from(key)
    return topic_id, queue


def queue_end(topic_id: int, queue: int) -> bytes:
    """Return the first key after a queue's keys in a family."""
    if queue < LAST_SIDE:
        return _QUEUE.pack(topic_id, queue + 1)
    return _QUEUE.pack(topic_id + 1, 0)
