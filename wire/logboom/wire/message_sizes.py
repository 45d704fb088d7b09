"""The size of a batch's largest message, found without a look at each message.

Whoever stores a batch must not spend on it what its reader does: 250 bytes may open to a million
messages. The offsets of a column say how many bytes any run of messages has, so runs that are small
enough are passed over whole. Of a compressed body no more is opened than these offsets need.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, sub
from typing import Final

from logboom.wire.compression import decompress_start
from logboom.wire.head import HEAD_LENGTH, Attribute, BatchHead
from logboom.wire.unpacking import damaged

MOST_STEPS: Final[int] = 4_096
"""Runs that are looked at before all messages are, at once."""


def find_oversized(
    batch: bytes | memoryview, head: BatchHead, limit: int, opens: Callable[[int], None]
) -> int | None:
    """Return the size of a message whose value and key have more than `limit` bytes, or None.

    Args:
        head: Of a batch that `validate_batch` has passed.
        opens: Called with a number of bytes before so many are decompressed; may raise.

    Raises:
        DamagedBatch: The body is not one of its codec, or too short for its offsets.
    """
    stored = memoryview(batch)[HEAD_LENGTH : HEAD_LENGTH + head.stored_length]
    values_at = _validity(head, Attribute.NULL_VALUES)
    start = _start(head, stored, values_at + 4 * (head.count + 1), opens)
    values = _offsets(start, values_at, head.count)
    keys_from = _padded(values_at + 4 * (head.count + 1))
    keys_from = _padded(keys_from + max(0, values[head.count]))
    if not head.has(Attribute.KEYS):
        return _search(values, values, limit, weight=0)
    # All keys together have no more bytes than follow the values.
    if _search(values, values, limit - (head.plain_length - keys_from), weight=0) is None:
        return None
    keys_at = keys_from + _validity(head, Attribute.NULL_KEYS)
    needed = keys_at + 4 * (head.count + 1)
    if len(start) < needed:
        start = _start(head, stored, needed, opens)
    return _search(values, _offsets(start, keys_at, head.count), limit, weight=1)


def _start(
    head: BatchHead, stored: memoryview, length: int, opens: Callable[[int], None]
) -> memoryview:
    """Return at least the first `length` plain bytes."""
    if length > head.plain_length:
        raise damaged(f"a column needs {length} bytes of a body of {head.plain_length}")
    return decompress_start(head.codec, stored, head.plain_length, length, opens)


def _validity(head: BatchHead, nulls: int) -> int:
    return _padded(-(-head.count // 8)) if head.has(nulls) else 0


def _padded(length: int) -> int:
    return length + -length % 8


def _offsets(start: memoryview, at: int, count: int) -> memoryview:
    return start[at : at + 4 * (count + 1)].cast("i")


def _search(values: memoryview, keys: memoryview, limit: int, *, weight: int) -> int | None:
    """Return the size of a message with more than `limit` bytes, or None, by halving longer runs.

    Offsets that do not grow are left to readers, who refuse the batch.
    """
    runs = [(0, len(values) - 1)]
    for _ in range(MOST_STEPS):
        first, stop = runs.pop()
        size = values[stop] - values[first] + weight * (keys[stop] - keys[first])
        if size > limit:
            if stop - first == 1:
                return int(size)
            middle = (first + stop) // 2
            runs += ((first, middle), (middle, stop))
        if not runs:
            return None
    # The limit is a few messages' size, or the offsets are made up.
    sizes = map(sub, values[1:], values)
    largest = max(map(add, sizes, map(sub, keys[1:], keys)) if weight else sizes)
    return int(largest) if largest > limit else None
