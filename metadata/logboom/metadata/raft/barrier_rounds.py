"""Barriers through the log that serve everybody who waits, instead of one for each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.raft.submissions import OnResult

SubmitBarrier: TypeAlias = Callable[[OnResult], None]
"""Submits a barrier to the log."""


class BarrierRounds:
    """The requests that wait for a barrier: at most one is under way, and one comes after it.

    Who comes while a barrier is under way waits for the next one. It must not share the first: that
    may have been committed before a later leader's writes, of which this node has not heard yet.
    """

    def __init__(self, submit: SubmitBarrier) -> None:
        self._submit = submit
        self._under_way = False
        self._waiting: list[OnResult] = []

    def wait(self, on_result: OnResult) -> None:
        """Call back once a barrier that is submitted from now on has ended, with its outcome."""
        self._waiting.append(on_result)
        if not self._under_way:
            self._begin()

    def _begin(self) -> None:
        served, self._waiting = self._waiting, []
        self._under_way = True

        def end(outcome: SubmitOutcome) -> None:
            self._under_way = False
            if self._waiting:
                self._begin()
            for on_result in served:
                on_result(outcome)

        self._submit(end)
