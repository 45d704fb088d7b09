"""A rolling restart that a signal ends between two nodes: its exit code tells which signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logboom.cli.restart_commands import roll
from logboom.deploy import detached
from logboom.deploy.rolling import Interrupted


class Rolling:
    """A rolling restart during which a signal arrives."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._ends = False

    def order(self, only: str | None) -> list[str]:
        """Return two nodes."""
        return ["broker-1", "broker-2"]

    def check(self, order: list[str]) -> None:
        """Find nothing wrong."""

    def interrupt(self) -> None:
        """Take note."""
        self._ends = True

    def run(self, only: str | None) -> Iterator[str]:
        """Restart one node."""
        yield "broker-1"
        os.kill(os.getpid(), self._number)
        assert self._ends
        raise Interrupted("ended after broker-1; 1 nodes were not restarted, all run")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_exit_code_tells_the_signal(
    number: signal.Signals,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def rolling(*_: object, **__: object) -> Iterator[Rolling]:
        yield Rolling(number)

    monkeypatch.setattr(detached, "rolling", rolling)
    before = signal.getsignal(number)
    assert roll(yes=True, data=tmp_path) == code
    assert signal.getsignal(number) is before
    assert "ended after broker-1" in capsys.readouterr().err
