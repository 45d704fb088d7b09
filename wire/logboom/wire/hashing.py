"""One hash for everything: murmur3 (x86, 32 bits), seed 0, & 0x7fffffff.

key → queue is hash mod queues; key → slot is hash mod 65,536 (key-shared dispatch, key index).
The two 64-bit summaries of a batch head are made of it too. A summary never misses what is in
the batch; it may promise what is not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import mmh3

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SLOTS: Final[int] = 65_536
"""Key-shared slots."""

EVERY_BIT: Final[int] = (1 << 64) - 1
"""The summary that promises everything."""

_SUMMARY_SHIFT: Final[int] = 10  # 65,536 slots over 64 bits: 1,024 slots a bit
_CROWDED: Final[int] = 256  # so many random keys leave one bit of 64 clear: not worth hashing


def murmur3(data: bytes) -> int:
    """The non-negative 31-bit murmur3 of `data`; `murmur3(b"key1") == 462881061`."""
    return mmh3.mmh3_32_uintdigest(data, 0) & 0x7FFFFFFF


def slot_of(key: bytes) -> int:
    """The key-shared slot of a key, 0..65535."""
    return murmur3(key) % SLOTS


def slots_for(keys: Iterable[bytes | None], keyless: int) -> list[int]:
    """`slot_of` of many keys at once; `keyless` for a message without one."""
    digest = mmh3.mmh3_32_uintdigest
    # A slot is the lowest 16 bits.
    return [keyless if key is None else digest(key, 0) & (SLOTS - 1) for key in keys]


def queue_for(key: bytes, queues: int) -> int:
    """The queue of a key in a topic of `queues` queues."""
    return murmur3(key) % queues


def queues_for(keys: Iterable[bytes], queues: int) -> list[int]:
    """`queue_for` of many keys at once."""
    digest = mmh3.mmh3_32_uintdigest
    return [(digest(key, 0) & 0x7FFFFFFF) % queues for key in keys]


def key_mask(key: bytes) -> int:
    """The one summary bit of a key: bit slot // 1024."""
    return 1 << (slot_of(key) >> _SUMMARY_SHIFT)


def key_summary(keys: Iterable[bytes | None]) -> int:
    """The summary of a batch's keys; messages without a key add nothing."""
    distinct = set(keys)
    distinct.discard(None)
    if len(distinct) > _CROWDED:
        return EVERY_BIT
    summary = 0
    for key in distinct:
        if key is not None:
            summary |= key_mask(key)
    return summary


@lru_cache(maxsize=4096)
def tag_mask(tag: str) -> int:
    """The two bloom bits of a tag: its hash's lowest six bits and the six above them."""
    digest = murmur3(tag.encode())
    return (1 << (digest & 63)) | (1 << (digest >> 6 & 63))


def tag_summary(tags: Sequence[str]) -> int:
    """The summary of a batch's distinct tags."""
    summary = 0
    for tag in tags:
        summary |= tag_mask(tag)
    return summary
