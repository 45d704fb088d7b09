"""What a request will come to: set once by the core, looked at by anybody.

An outcome is data, not a future: it cannot wait. The skins build their waiting on `add_callback`
(`logboom.client.futures`, `logboom.client.aio`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """A value or an error, or nothing yet.

    Only the thread that runs the core resolves; any thread may read and add callbacks.
    """

    __slots__ = ("_callbacks", "done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        """True once `value` or `error` stands; set last, so that a reader sees both."""
        self.value: T | None = None
        self.error: Exception | None = None
        self._callbacks: list[Callable[[], object]] = []

    def resolve(self, value: T) -> None:
        """Set the value, unless it was resolved before."""
        if not self.done:
            self.value = value
            self.done = True
            self._run_callbacks()

    def fail(self, error: Exception) -> None:
        """Set the error, unless it was resolved before."""
        if not self.done:
            self.error = error
            self.done = True
            self._run_callbacks()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` once, when done: now, or in the thread that runs the core."""
        self._callbacks.append(callback)
        # The core may have run the callbacks between our last look and the append. Whoever pops
        # a callback runs it, and list.pop is atomic, so it runs exactly once.
        if self.done:
            self._run_callbacks()

    def get(self) -> T:
        """The value of a done outcome; raises its error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # done without an error: it is a T

    def _run_callbacks(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:
                return
            callback()


class Countdown:
    """Resolves an outcome when others are done."""

    def __init__(self, outcome: Promise[None]) -> None:
        self._outcome = outcome
        self._left = 1

    def expect(self, other: Promise[Any]) -> None:
        """One more to wait for, whatever it comes to."""
        self._left += 1
        other.add_callback(self._one_less)

    def start(self) -> None:
        """All are named."""
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._outcome.resolve(None)
