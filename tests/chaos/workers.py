"""The processes of the clients of a run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
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
GO_ON: Final = "clients go on"


class Worker:
    """One process of clients, which works until its standard input ends."""

    def __init__(self, plan: Plan, rig: Rig, module: str, words: Sequence[str], name: str) -> None:
        """`words` and `name`: what the command line of `module` begins with, and its last word."""
        self.name = name
        self._ready = False
        self._log: Path = plan.folder / f"{name}.log"
        command = rig.links.launcher(CLIENT)
        command += [sys.executable, "-m", f"tests.chaos.{module}", *words, name]
        command += ["--endpoints", ",".join(rig.endpoints), "--topic", TOPIC]
        command += ["--queues", str(plan.queues), "--folder", str(plan.records)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def wait_ready(self) -> None:
        """Wait until it is connected, unless it was before."""
        assert self.process.stdout is not None
        if not self._ready and self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{self.name} did not start: {self._said}")
        self._ready = True

    @property
    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def tell_to_end(self, last_words: str = "") -> None:
        """Its standard input ends."""
        assert self.process.stdin is not None
        # One that has died is told of by `wait`.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(last_words)
            self.process.stdin.close()

    def wait(self, verdict: Verdict) -> None:
        """Wait until it has ended, as it has to."""
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if code or self._said:
            verdict.found(GO_ON, f"{self.name} ended with {code}: {self._said[-400:]}")
        self.kill()

    def kill(self) -> None:
        """End it, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            # What it was not told yet does not matter any more.
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()


class Workers:
    """The processes of producers and readers."""

    def __init__(self, plan: Plan, rig: Rig) -> None:
        self._plan = plan
        self._rig = rig
        self._workers: dict[str, Worker] = {}

    def start(self, role: str, name: str, threads: int) -> None:
        """Start a worker."""
        words = ["--threads", str(threads)]
        words += ["--rate", str(self._plan.rate / (PRODUCERS * THREADS)), role]
        self._workers[name] = Worker(self._plan, self._rig, "worker", words, name)

    def wait_ready(self) -> None:
        """Wait until all are connected."""
        for worker in self._workers.values():
            worker.wait_ready()

    def end(self, names: Sequence[str], last_words: str, verdict: Verdict) -> None:
        """Tell workers to end, and wait until they have."""
        for name in names:
            self._workers[name].tell_to_end(last_words)
        for name in names:
            self._workers[name].wait(verdict)

    def kill(self) -> None:
        """End whoever still runs."""
        for worker in self._workers.values():
            worker.kill()
