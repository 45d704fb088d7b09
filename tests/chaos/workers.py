"""The processes of producers and readers of a run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from tests.chaos.ledger import Verdict
from tests.chaos.links import CLIENT
from tests.chaos.plan import Plan
from tests.chaos.rig import TOPIC, Rig

PRODUCERS: Final = 2
"""Processes; each has two producers in threads of their own."""
THREADS: Final = 2
READERS: Final = 3
"""The first reads all queues, the others share them."""
END_S: Final = 200.0
"""Workers that have not ended by then hang."""


class Workers:
    """The processes of producers and readers."""

    def __init__(self, plan: Plan, rig: Rig) -> None:
        self._plan = plan
        self._rig = rig
        self.records = plan.folder / "records"
        self.records.mkdir(parents=True)
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, role: str, name: str, threads: int) -> None:
        """Start a worker."""
        command = self._rig.links.launcher(CLIENT)
        command += [sys.executable, "-m", "tests.chaos.worker", role, name]
        command += ["--endpoints", ",".join(self._rig.endpoints), "--topic", TOPIC]
        command += ["--queues", str(self._plan.queues), "--folder", str(self.records)]
        command += ["--threads", str(threads)]
        command += ["--rate", str(self._plan.rate / (PRODUCERS * THREADS))]
        with (self._plan.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def wait_ready(self) -> None:
        """Wait until all are connected."""
        for name, process in self._processes.items():
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{name} did not start: {self._said(name)}")

    def _said(self, name: str) -> str:
        return (self._plan.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def end(self, names: Sequence[str], last_words: str, verdict: Verdict) -> None:
        """Tell workers to end, and wait until they have."""
        for name in names:
            stdin = self._processes[name].stdin
            assert stdin is not None
            # One that has died is told of below.
            with contextlib.suppress(BrokenPipeError):
                stdin.write(last_words)
                stdin.close()
        for name in names:
            process = self._processes[name]
            try:
                code = process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            assert process.stdout is not None
            process.stdout.close()
            if code or self._said(name):
                verdict.found(
                    "clients go on", f"{name} ended with {code}: {self._said(name)[-400:]}"
                )

    def kill(self) -> None:
        """End whoever still runs."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None and not pipe.closed:
                    pipe.close()
