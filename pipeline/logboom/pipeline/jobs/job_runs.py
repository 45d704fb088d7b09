"""Execution of a stream to its end, or until it is stopped, and its report."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from logboom.pipeline.jobs.message_frames import UNREAD

LOOK_S: Final = 0.2
"""Seconds between looks at the progress of a running query."""
FINISH_S: Final = 10.0
"""Seconds that the current micro-batch may take after Ctrl-C, before Spark cancels it."""


OnRows: TypeAlias = Callable[[int], object]
"""Called with the number of rows done so far."""


@dataclass(slots=True)
class JobReport:
    """The report of a job's run."""

    job: str
    rows: int = 0
    """Rows read."""
    batches: int = 0
    """Micro-batches that had rows."""
    seconds: float = 0.0
    rows_per_s: float = 0.0
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    """The end offsets by topic and queue; empty if there was nothing to do."""
    starts: dict[str, dict[str, int]] = field(default_factory=dict)
    """The start offsets; empty for a first run, where Spark does not report them."""
    late: int = 0
    """Rows that were left out because they came later than the watermark."""
    unread: int = 0
    """Values that do not fit the schema: no JSON, or a field of another type."""
    stopped: bool = False
    """True if Ctrl-C ended the run."""


def finished(run: JobReport, began: float) -> JobReport:
    """Return the report with its duration since `began`, in monotonic seconds."""
    run.seconds = round(time.monotonic() - began, 3)
    run.rows_per_s = round(run.rows / run.seconds, 1) if run.seconds else 0.0
    return run


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets during the block, if this is the main thread.

    As an exception it would interrupt a call to the JVM, and PySpark, which raises it in this way,
    would cancel the current micro-batch.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


class QueryProgress:
    """The summed progress of a query, because Spark keeps only the last hundred batches."""

    def __init__(self, job: str) -> None:
        self.run = JobReport(job)
        self._last_batch = -1

    def look(self, query: Any) -> int:
        """Add new progress, and return how many rows are done in total."""
        for each in query.recentProgress:
            # Idle looks have the number of the next batch.
            if each.numInputRows and each.batchId > self._last_batch:
                if not self.run.batches:
                    self.run.starts = _offsets(each.sources[0].startOffset)
                self._last_batch = each.batchId
                self.run.rows += each.numInputRows
                self.run.batches += 1
                self.run.offsets = _offsets(each.sources[0].endOffset)
                self.run.late += sum(part.numRowsDroppedByWatermark for part in each.stateOperators)
                if UNREAD in each.observedMetrics:
                    self.run.unread += each.observedMetrics[UNREAD][0]
        return self.run.rows


def _offsets(text: str | None) -> dict[str, dict[str, int]]:
    """Return the offsets in a query's progress, or {} if it has none."""
    return (json.loads(text) if text else None) or {}


def run_stream(
    job: str, writer: Any, *, every: str = "", on_rows: OnRows | None = None
) -> JobReport:
    """Run a query over everything there is now, or in micro-batches `every` so often until Ctrl-C.

    Raises:
        StreamingQueryException: the query failed.
    """
    trigger = {"processingTime": every} if every else {"availableNow": True}
    began = time.monotonic()
    progress = QueryProgress(job)
    query = writer.trigger(**trigger).start()
    try:
        with interrupts() as stop:
            while not stop.is_set() and not query.awaitTermination(LOOK_S):
                done = progress.look(query)
                if on_rows is not None:
                    on_rows(done)
            if stop.is_set():
                _finish(query)
    finally:
        query.stop()
        progress.look(query)
    run = progress.run
    run.stopped = stop.is_set()
    return finished(run, began)


def _finish(query: Any) -> None:
    """Wait until the current micro-batch has ended, for at most FINISH_S.

    If Spark cancels it, its rows may already be in the sink without belonging to this run:
    this run does not report them, and the next one repeats the micro-batch.

    Raises:
        StreamingQueryException: the query failed.
    """
    end = time.monotonic() + FINISH_S
    before = _last_looked(query)
    while query.status["isTriggerActive"] and _last_looked(query) == before:
        if time.monotonic() > end or query.awaitTermination(LOOK_S):
            return


def _last_looked(query: Any) -> str:
    """Return when the query began its last completed look for rows."""
    last = query.lastProgress
    return str(last.timestamp) if last else ""
