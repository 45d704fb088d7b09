"""The desk at which a loop is asked for a snapshot: in steps, for all who asked, never stuck."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import pytest

from logboom.wire import snapshot_desk
from logboom.wire.exposition import Snapshot
from logboom.wire.snapshot_desk import SnapshotDesk
from logboom.wire.stats import FigureTable


def finish(figures: FigureTable) -> Snapshot:
    """Make the snapshot of a node."""
    return Snapshot("broker", {}, figures, {})


def steps() -> Iterator[FigureTable]:
    """Yield ten figures."""
    for number in range(10):
        yield {str(number): number}


class Loop:
    """A loop that turns until it is told to end."""

    def __init__(self) -> None:
        self.desk = SnapshotDesk(self.wake)
        self.turns = 0
        self._woken = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run)

    def wake(self) -> None:
        """End its wait."""
        self._woken.set()

    def _run(self) -> None:
        while not self._ended:
            if not self.desk.under_way:
                self._woken.wait(60)
            self._woken.clear()
            self.turns += 1
            self.desk.work(self.begin, finish)

    begin = staticmethod(steps)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self.wake()
        self._thread.join()


def test_a_snapshot_has_the_figures_of_all_steps() -> None:
    with Loop() as loop:
        found = loop.desk.ask(60)
    assert found is not None
    assert found.figures == {str(number): number for number in range(10)}


def test_the_loop_turns_between_steps_that_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_desk, "STEPS_S", 0.0)
    with Loop() as loop:
        assert loop.desk.ask(60) is not None
        # One step each turn, and one to find that there are no more.
        assert loop.turns >= 10


def test_all_who_ask_are_answered() -> None:
    with Loop() as loop, ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda _: loop.desk.ask(60), range(100))]
    assert all(each is not None and len(each.figures) == 10 for each in found)


def test_a_loop_that_stands_still_is_not_waited_for() -> None:
    desk = SnapshotDesk(lambda: None)
    assert desk.ask(0.01) is None
    assert time.monotonic() - desk.turned_at < 60
    # Once it turns, the old question harms nobody.
    desk.work(steps, finish)
    assert not desk.under_way


def test_a_figure_that_cannot_be_told_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[FigureTable]:
        yield {"a": 1}
        raise RuntimeError("no such figure")

    with Loop() as loop:
        loop.begin = broken
        assert loop.desk.ask(60) is None
        assert "no such figure" in caplog.text
        loop.begin = steps
        assert loop.desk.ask(60) is not None
