"""The hash of keys and tags: murmur3 (x86, 32 bits), seed 0, & 0x7fffffff.

A key's queue is its hash modulo the queues. Its slot, for key-shared dispatch and the key index, is
the hash modulo 65,536. The two 64-bit summaries of a batch head use the hash, too. A summary never
misses a key or tag of the batch, but may claim others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import mmh3

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SLOTS: Final[int] = 65_536
"""Number of key-shared slots."""

EVERY_BIT: Final[int] = (1 << 64) - 1
"""The summary that claims every key or tag."""

_SUMMARY_SHIFT: Final[int] = 10  # 65,536 slots over 64 bits: 1,024 slots a bit
_CROWDED: Final[int] = 256  # so many random keys leave one bit of 64 clear: not worth hashing


def murmur3(data: bytes) -> int:
    """Return the non-negative 31-bit murmur3 of `data`; `murmur3(b"key1") == 462881061`."""
    return mmh3.mmh3_32_uintdigest(data, 0) & 0x7FFFFFFF


def slot_of(key: bytes) -> int:
    """Return the key-shared slot of a key, 0..65535."""
    return murmur3(key) % SLOTS


def slots_for(keys: Iterable[bytes | None], keyless: int) -> list[int]:
    """Return `slot_of` for many keys at once; `keyless` stands in for messages without a key."""
    digest = mmh3.mmh3_32_uintdigest
    # A slot is the lowest 16 bits.
    return [keyless if key is None else digest(key, 0) & (SLOTS - 1) for key in keys]


def queue_for(key: bytes, queues: int) -> int:
    """Return the queue of a key in a topic of `queues` queues."""
    return murmur3(key) % queues


def queues_for(keys: Iterable[bytes], queues: int) -> list[int]:
    """Return `queue_for` for many keys at once."""
    digest = mmh3.mmh3_32_uintdigest
    return [(digest(key, 0) & 0x7FFFFFFF) % queues for key in keys]


def key_mask(key: bytes) -> int:
    """Return the one summary bit of a key: bit slot // 1024."""
    return 1 << (slot_of(key) >> _SUMMARY_SHIFT)


def key_summary(keys: Iterable[bytes | None]) -> int:
    """Return the summary of a batch's keys; messages without a key add nothing."""
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
    """Return the two bloom bits of a tag: its hash's lowest six bits and the six above them."""
    digest = murmur3(tag.encode())
    return (1 << (digest & 63)) | (1 << (digest >> 6 & 63))


def tag_summary(tags: Sequence[str]) -> int:
    """Return the summary of a batch's distinct tags."""
    summary = 0
    for tag in tags:
        summary |= tag_mask(tag)
    return summary
