"""Promises: results that the core sets once and anybody may read.

A promise is data and cannot wait. The skins build their waiting on `add_callback`
(`logboom.client.futures`, `logboom.client.aio`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """A value or an error, once it is known.

    Only the thread that runs the core resolves it; any thread may read it and add callbacks.
    """

    __slots__ = ("_callbacks", "done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        """True once `value` or `error` is set; set last, so that readers see both."""
        self.value: T
        self.error: Exception | None = None
        self._callbacks: list[Callable[[], object]] = []

    def resolve(self, value: T) -> None:
        """Set the value, unless the promise is done."""
        if not self.done:
            self.value = value
            self.done = True
            self._run_callbacks()

    def fail(self, error: Exception) -> None:
        """Set the error, unless the promise is done."""
        if not self.done:
            self.error = error
            self.done = True
            self._run_callbacks()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` once, when done: now, or in the thread that runs the core."""
        self._callbacks.append(callback)
        # The core may have run the callbacks between our last look and the append. The thread that
        # pops a callback runs it, and list.pop is atomic, so each runs exactly once.
        if self.done:
            self._run_callbacks()

    def get(self) -> T:
        """Return the value of a promise that is done, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.value

    def _run_callbacks(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:
                return
            callback()


class Countdown:
    """A counter that resolves a promise once others are done."""

    def __init__(self, outcome: Promise[None]) -> None:
        self._outcome = outcome
        self._left = 1

    def expect(self, other: Promise[Any]) -> None:
        """Wait for one more promise, whether it succeeds or fails."""
        self._left += 1
        other.add_callback(self._one_less)

    def start(self) -> None:
        """Start to resolve: all promises have been added."""
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._outcome.resolve(None)
