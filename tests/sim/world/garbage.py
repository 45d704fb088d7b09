"""Garbage in cycles is left alone while a run lasts, and collected between two runs.

Python looks for it after so many new objects. In a run nearly all of these are still in use: the looks
find next to nothing, and what each run leaves makes the next ones slower.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def collected_between_runs() -> Iterator[None]:
    """Collect what earlier runs left, and then nothing until this one ends."""
    _spare_modules()
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@cache
def _spare_modules() -> None:
    """What the first run finds, modules above all, stays: no later look goes through it."""
    gc.collect()
    gc.freeze()
