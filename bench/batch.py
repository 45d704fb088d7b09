"""Speed of encoding, checking and reading batches: `python -m bench.batch`.

It uses 1,000 random values of 100 bytes per batch, as the targets do, and prints values/s.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from logboom.wire.batch import encode_batch, open_batch, stamp, validate_batch

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT: Final[int] = 1_000
WIDTH: Final[int] = 100
SECONDS: Final[float] = 0.3


def rate(step: Callable[[], object]) -> float:
    """Return values per second of `step`, which handles one batch, from the best of three runs."""
    best = 0.0
    for _ in range(3):
        rounds, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < SECONDS:
            for _ in range(20):
                step()
            rounds += 20
        best = max(best, rounds * COUNT / spent)
    return best


def main() -> None:
    """Print one line a step."""
    even = [os.urandom(WIDTH) for _ in range(COUNT)]
    uneven = [os.urandom(WIDTH // 2 + place * 7 % (WIDTH + 1)) for place in range(COUNT)]
    keys = [b"key-%d" % (place % 50) for place in range(COUNT)]
    tags = ["late" if place % 3 else "early" for place in range(COUNT)]
    stored = stamp(encode_batch(even, now_ms=0), 0, 1, 0)
    mixed = stamp(encode_batch(uneven, keys, tags, now_ms=0), 0, 1, 0)
    steps: dict[str, Callable[[], object]] = {
        "encode, equal lengths": lambda: encode_batch(even, now_ms=0),
        "encode, mixed lengths": lambda: encode_batch(uneven, now_ms=0),
        "encode, keys and tags": lambda: encode_batch(uneven, keys, tags, now_ms=0),
        "encode, lz4": lambda: encode_batch(even, now_ms=0, codec="lz4"),
        "encode, zstd": lambda: encode_batch(even, now_ms=0, codec="zstd"),
        "stamp": lambda: stamp(stored, 7, 1, 0),
        "check": lambda: validate_batch(stored),
        "check, a view": lambda: validate_batch(memoryview(stored)),
        "buffers, equal lengths": lambda: open_batch(stored).arrow_buffers(),
        "buffers, mixed lengths": lambda: open_batch(mixed).arrow_buffers(),
        "values, equal lengths": lambda: open_batch(stored).values(),
        "values, mixed lengths": lambda: open_batch(mixed).values(),
        "rows, values only": lambda: list(open_batch(stored).iter_rows()),
        "rows, keys and tags": lambda: list(open_batch(mixed).iter_rows()),
    }
    for name, step in steps.items():
        found = rate(step)
        print(f"{name:24s} {found / 1e6:8.1f} M values/s  {1e6 * COUNT / found:7.1f} us a batch")


if __name__ == "__main__":
    main()
