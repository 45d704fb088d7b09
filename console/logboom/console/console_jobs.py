"""The skin that runs work of actions on after their requests have ended."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Final

from logboom.console.job_states import JobState, JobWork
from logboom.wire.errors import LogboomError, Refused

MAX_RUNNING: Final = 8
MAX_KEPT: Final = 50
"""Jobs that are kept after their end."""


class ConsoleJobs:
    """The jobs of one cluster, in the loop of the console."""

    def __init__(self, on_end: Callable[[], object]) -> None:
        """Make an empty table; `on_end` is called after each job."""
        self._states: dict[int, JobState] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._number = 0
        self._on_end = on_end

    def start(self, title: str, owner: str, total: int, work: JobWork) -> JobState:
        """Begin some work.

        Raises:
            Refused: too much goes on already.
        """
        if len(self._tasks) >= MAX_RUNNING:
            raise Refused(f"{MAX_RUNNING} jobs are running: wait until one ends", "BUSY")
        self._number += 1
        number = self._number
        self._states[number] = JobState(number, title, owner, total, _now_ms())
        self._tasks[number] = asyncio.create_task(self._run(number, work))
        ended = [each for each, state in self._states.items() if not state.is_running]
        for each in ended[: max(0, len(ended) - MAX_KEPT)]:
            del self._states[each]
        return self._states[number]

    async def _run(self, number: int, work: JobWork) -> None:
        error, stopped = "", False
        try:
            self._change(number, done=await work(lambda done: self._change(number, done=done)))
        except LogboomError as failure:
            error = failure.text or str(failure)
        except asyncio.CancelledError:
            stopped = True
        finally:
            del self._tasks[number]
            self._change(number, ended_ms=_now_ms(), error=error, stopped=stopped)
            self._on_end()

    def _change(self, number: int, **changes: object) -> None:
        self._states[number] = dataclasses.replace(self._states[number], **changes)  # type: ignore[arg-type]  # fields of JobState

    def of(self, owner: str) -> list[JobState]:
        """Return the work for an owner, the newest first; what has ended is kept for a while."""
        return [each for each in reversed(self._states.values()) if each.owner == owner]

    @property
    def running(self) -> int:
        """How many go on."""
        return len(self._tasks)

    def stop(self, number: int) -> bool:
        """End some work; return False if it has ended before."""
        task = self._tasks.get(number)
        return task is not None and task.cancel()

    async def close(self) -> None:
        """End all work."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _now_ms() -> int:
    return int(time.time() * 1000)
