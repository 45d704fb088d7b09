"""A polling loop for the state of other processes, which change without notifying this one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def ask_until(
    ask: Callable[[], T], good: Callable[[T], bool], timeout_s: float, pause_s: float = 0.02
) -> T:
    """Poll until an answer is good, and return it, or the last answer when the time is over.

    Args:
        ask: Polls once; an error that it raises ends the wait.
        good: Returns True for an answer that ends the wait.
        timeout_s: How long to wait; it is polled at least once, and for the last time after this.
        pause_s: The time between an answer and the next poll.
    """
    deadline = time.monotonic() + timeout_s
    while not good(answer := ask()) and time.monotonic() <= deadline:
        # Other processes change without notifying us, so polling is the only way.
        time.sleep(pause_s)
    return answer
