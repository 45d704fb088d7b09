"""The key hash (`logboom.wire.hashing`) of whole columns: word by word, of all keys at once."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from logboom.wire.hashing import SLOTS, murmur3

LONG_WORDS: Final = 256
"""Words (of 4 bytes) from which a key is hashed separately: a word costs a pass over the column."""
_SEED: Final = np.uint32(0)
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_BUCKET_SLOTS: Final = SLOTS // 64
"""Key-shared slots of one bit of a batch's key summary."""

Words: TypeAlias = Any
"""An array of one 32-bit word per key (NumPy's types are not available in every check)."""


def murmur3_of(offsets: Any, data: Any) -> Words:
    """Return `wire.hashing.murmur3` of many keys.

    Args:
        offsets: the start of each key in `data`, and the end of the last one.
        data: the bytes of all keys.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    # There is always a whole word to read after the last key.
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 4)
    hashes = np.full(len(starts), _SEED, np.uint32)
    blocks = lengths >> 2
    most = min(int(blocks.max(initial=0)), LONG_WORDS)
    least = int(blocks.min(initial=most))
    for block in range(most):
        rows = slice(None) if block < least else np.flatnonzero(blocks > block)
        mixed = hashes[rows] ^ _scrambled(_words(windows, starts[rows] + 4 * block))
        hashes[rows] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    tails = (lengths & 3).astype(np.uint32)
    last = _words(windows, starts + 4 * blocks) & (
        (np.uint32(1) << tails * np.uint32(8)) - np.uint32(1)
    )
    hashes ^= _scrambled(last)
    hashes = _finished(hashes ^ lengths.astype(np.uint32)) & np.uint32(0x7FFFFFFF)
    for row in np.flatnonzero(blocks > LONG_WORDS):
        hashes[row] = murmur3(data[offsets[row] : offsets[row + 1]].tobytes())
    return hashes


def buckets_of(hashes: Words) -> Any:
    """Return which of the 64 bits of a batch's key summary each key sets."""
    return (hashes % np.uint32(SLOTS) // np.uint32(_BUCKET_SLOTS)).astype(np.uint8)


def _words(windows: Any, at: Any) -> Words:
    return windows[at].view("<u4").reshape(-1)


def _scrambled(words: Words) -> Words:
    return _rotated(words * _C1, 15) * _C2


def _rotated(words: Words, by: int) -> Words:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


def _finished(hashes: Words) -> Words:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
