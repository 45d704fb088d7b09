"""A node as a separate process: start it, wait until it listens, kill, pause, resume, stop it.

A node started with `attached` ends with the process that started it, even if that one is killed
(see `logboom.deploy.node`). A detached node runs until it is stopped.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal, TypeAlias

from logboom.deploy.identity import is_paused, start_ticks
from logboom.wire.errors import StartError
from logboom.wire.private_files import make_folder, open_private

Role: TypeAlias = Literal["name-server", "broker"]
START_S: Final = 60.0
"""Seconds after which a node that does not listen has failed to start."""
STOP_S: Final = 10.0
"""Seconds that a graceful stop may take before the node is killed."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The name, folder and endpoint of one node of a cluster."""

    id: str
    role: Role
    folder: Path
    """The folder of the node's config file, log file and data."""
    endpoint: str
    """The endpoint for clients and other nodes, host:port."""
    metrics_endpoint: str = ""
    """host:port of its metrics and health; "" if it tells none, or it is not known here."""

    @property
    def config_path(self) -> Path:
        """The config file that the node is started with."""
        return self.folder / "node.toml"

    @property
    def log_path(self) -> Path:
        """The file that receives the node's standard error."""
        return self.folder / "node.log"

    @property
    def data_path(self) -> Path:
        """The node's store."""
        return self.folder / "data"


class NodeProcess:
    """A running node, identified by its pid and its start time."""

    def __init__(
        self, spec: NodeSpec, pid: int, started: int, child: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.spec = spec
        self.pid = pid
        self.started = started
        """Clock ticks since boot at the process's start; with the pid it is unique until reboot."""
        self._child = child
        self._ready: IO[bytes] | None = None

    @classmethod
    def start(
        cls, spec: NodeSpec, *, attached: bool, create: bool = False, launcher: Sequence[str] = ()
    ) -> NodeProcess:
        """Start the node of `spec`, whose config file exists, without waiting for it.

        Args:
            spec: the node.
            attached: it ends with this process.
            create: a name server with an empty folder may found the cluster, which happens only
                once in the life of a cluster (see docs/SAFETY.md, R9).
            launcher: the words of a program that execs the command, such as `env` or `taskset`.
        """
        read_end, write_end = os.pipe()
        command = [*launcher, sys.executable, "-m", "logboom.deploy.node", spec.role]
        command += ["--config", str(spec.config_path), "--ready-fd", str(write_end)]
        if attached:
            command += ["--parent", str(os.getpid())]
        if create and spec.role == "name-server":
            command += ["--create"]
        make_folder(spec.folder)
        with open_private(spec.log_path, append=True) as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[write_end],
                # Not in our process group: Ctrl-C reaches only this process, which stops the nodes.
                start_new_session=True,
            )
        os.close(write_end)
        node = cls(spec, child.pid, start_ticks(child.pid) or 0, child)
        node._ready = os.fdopen(read_end, "rb", buffering=0)
        return node

    def wait_listening(self, timeout_s: float = START_S) -> None:
        """Wait until the node accepts requests.

        Raises:
            StartError: the node ended, with its last line, or does not listen in time.
        """
        if self._ready is None:
            return
        ready, _, _ = select.select([self._ready], [], [], timeout_s)
        line = self._ready.readline() if ready else b""
        self._ready.close()
        self._ready = None
        if line:
            return
        if ready:
            self._wait_end(2.0)
            raise StartError(f"{self.spec.id} did not start: {self._last_words()}")
        text = f"{self.spec.id} does not listen after {timeout_s:.0f} s: see {self.spec.log_path}"
        raise StartError(text)

    def check(self) -> None:
        """Raise an error if the node has ended.

        Raises:
            StartError: the node has ended; the text is its last line.
        """
        if not self.alive:
            raise StartError(f"{self.spec.id} ended: {self._last_words()}")

    def _last_words(self) -> str:
        try:
            lines = self.spec.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        said = [line for line in lines if line.strip()]
        return _words_of(said[-1]) if said else f"see {self.spec.log_path}"

    @property
    def alive(self) -> bool:
        """True if the process runs. A paused process counts as running."""
        if self._child is not None and self._child.poll() is not None:
            return False
        return start_ticks(self.pid) == self.started

    @property
    def paused(self) -> bool:
        """True if the process is paused."""
        return self.alive and is_paused(self.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the node with SIGKILL, as a crash would, and wait until it has ended."""
        self.signal(signal.SIGKILL)
        self._wait_end(STOP_S)
        self._close()

    def pause(self) -> None:
        """Pause the node with SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the node after `pause`."""
        self.signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """Ask for a graceful stop (SIGTERM) without waiting."""
        self.signal(signal.SIGTERM)
        # A paused process would receive it only when it is resumed.
        self.signal(signal.SIGCONT)

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """Stop the node gracefully. Kill it and return False if it takes too long."""
        self.ask_to_stop()
        if self._wait_end(timeout_s):
            self._close()
            return True
        self.kill()
        return False

    def _wait_end(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        pause = 0.002
        while self.alive:
            if time.monotonic() > deadline:
                return False
            # It may not be our child (`cluster down`), so `wait` is not available. Most processes
            # end within milliseconds and others take seconds, hence the growing pause.
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        return True

    def _close(self) -> None:
        if self._ready is not None:
            self._ready.close()
            self._ready = None
        if self._child is not None:
            self._child.wait()


def _words_of(line: str) -> str:
    """Return what the last line of a log says; a log of JSON ends with an event."""
    try:
        said = json.loads(line)
    except ValueError:
        return line.removeprefix("logboom: ")
    return str(said.get("text", line)) if isinstance(said, dict) else line
