"""The opening of large LZ4 bodies in a thread of its own, while the loop waits a millisecond at a time.

An LZ4 block can be opened as a whole only. Its library leaves the interpreter to others meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Final

from logboom.wire.compression import open_with

STEP_S: Final = 0.001
"""Seconds that one step waits at most: half of what it counts as."""


@contextmanager
def opening_beside() -> Iterator[None]:
    """Open the large bodies of the calling thread in another one, which ends with the context."""
    with ThreadPoolExecutor(1, "logboom-bodies") as pool:
        open_with(partial(_steps, pool))
        try:
            yield
        finally:
            open_with(None)


def _steps(pool: Executor, call: Callable[[], bytes]) -> Generator[None, None, bytes]:
    """Run a call in the pool; a caller that does not go on to its end leaves nothing that waits."""
    future = pool.submit(call)
    try:
        while not wait((future,), STEP_S).done:
            yield
        return future.result()
    finally:
        future.cancel()
