"""What a call costs, in units that are the same on a slow and on a busy machine."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

TEN_MS_OF_TUPLES: Final = 60_000
"""Pairs in a queue that a core of 2020 makes in about 10 ms, by a loop in Python."""


def _ten_ms() -> float:
    """Processor time of the work that takes 10 ms elsewhere."""
    begin = time.thread_time()
    found: deque[tuple[int, int]] = deque()
    for each in range(TEN_MS_OF_TUPLES):
        found.append((each, each + 1))
    return time.thread_time() - begin


def cost_ms(call: Callable[[], object], enough_ms: float = 0.0, tries: int = 20) -> float:
    """The least processor time of a call, in ms of the machine that is meant.

    It is tried again, since others use the machine, too, until it is not above `enough_ms`.
    """
    least = float("inf")
    for _ in range(tries):
        begin = time.thread_time()
        call()
        spent = time.thread_time() - begin
        if spent < enough_ms / 10_000:
            # No machine is so fast that this had to be compared.
            return 1000 * spent
        least = min(least, 10 * spent / _ten_ms())
        if least <= enough_ms:
            break
    return least


def longest_ms(begin: Callable[[], Callable[[], bool]], enough_ms: float, tries: int = 20) -> float:
    """The same of the longest of several steps.

    `begin` prepares them, and returns what is called for each step until it returns False.
    """
    least = float("inf")
    for _ in range(tries):
        step = begin()
        longest, more = 0.0, True
        while more:
            before = time.thread_time()
            more = step()
            longest = max(longest, time.thread_time() - before)
        least = min(least, 10 * longest / _ten_ms())
        if least <= enough_ms:
            break
    return least


@contextmanager
def without_garbage_of_others() -> Iterator[None]:
    """Leave what was made before out of collections of garbage, as a node does with what it imports."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def peak_bytes(call: Callable[[], object]) -> int:
    """The most memory that a call takes beyond what was taken before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
