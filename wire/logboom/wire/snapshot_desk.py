"""The desk at which threads of a node's metrics port ask its loop for a snapshot of the figures.

The loop works on it between its turns and never much longer than half a millisecond at a time. The
formats are written by the thread that asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from logboom.wire.exposition import Snapshot
from logboom.wire.stats import FigureTable

STEPS_S: Final = 0.00025
"""Seconds that the loop works on a snapshot between two turns; a step that has begun is ended."""
_log = logging.getLogger("logboom.wire.metrics")


class HoldClock:
    """The time since it was made, and the processor time of its thread."""

    __slots__ = ("_began", "_worked")

    def __init__(self) -> None:
        self._began, self._worked = time.monotonic(), time.thread_time()

    def read(self) -> tuple[float, float]:
        """Return the seconds that have passed, and those of processor time."""
        return time.monotonic() - self._began, time.thread_time() - self._worked


class SnapshotDesk:
    """What is asked of one node's loop, and the snapshot that is being made."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Create a desk; `wake` ends the loop's wait, from any thread."""
        self._wake = wake
        self._lock = threading.Lock()
        self._asked: list[_Question] = []
        self._served: list[_Question] = []
        """Those that the snapshot under way is for."""
        self._steps: Iterator[Mapping[str, int | float | str]] | None = None
        self._figures: FigureTable = {}
        self.turned_at = time.monotonic()
        """When the loop has turned last, in monotonic seconds."""
        self.longest_s = 0.0
        """The longest time for which a scrape kept the loop from its work, in seconds. On a busy
        machine much of it belongs to other processes."""
        self.longest_work_s = 0.0
        """The same in processor time."""

    def ask(self, timeout_s: float) -> Snapshot | None:
        """Return a snapshot that was begun after this call; None if the loop makes none in time."""
        question = _Question()
        with self._lock:
            self._asked.append(question)
        self._wake()
        question.answered.wait(timeout_s)
        return question.snapshot

    @property
    def under_way(self) -> bool:
        """True while there is something to do for the loop."""
        return bool(self._asked) or self._steps is not None

    def work(
        self,
        begin: Callable[[], Iterator[Mapping[str, int | float | str]]],
        finish: Callable[[FigureTable], Snapshot],
    ) -> None:
        """Note that the loop has turned, and go on with what is asked; called by the loop only.

        Args:
            begin: returns the steps of a new snapshot, each a part of its figures.
            finish: completes the snapshot.
        """
        began = self.turned_at = time.monotonic()
        if not self.under_way:
            return
        hold = HoldClock()
        try:
            if self._steps is None:
                with self._lock:
                    self._served, self._asked = self._asked, []
                self._steps, self._figures = begin(), {}
            for part in self._steps:
                self._figures.update(part)
                if time.monotonic() - began >= STEPS_S:
                    break
            else:
                self._end(finish(self._figures))
        # A figure that cannot be told must not end a node that serves.
        except Exception:  # noqa: BLE001 - it is logged, and told as a failed scrape
            _log.exception("a figure of the metrics cannot be told")
            self._end(None)
        self.note(hold)

    def note(self, hold: HoldClock) -> None:
        """Note that the loop could not work since a clock was made by this thread."""
        passed_s, worked_s = hold.read()
        self.longest_s = max(self.longest_s, passed_s)
        self.longest_work_s = max(self.longest_work_s, worked_s)

    def _end(self, snapshot: Snapshot | None) -> None:
        for question in self._served:
            question.snapshot = snapshot
            question.answered.set()
        self._served, self._steps = [], None


class _Question:
    """One question of a thread."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.snapshot: Snapshot | None = None
