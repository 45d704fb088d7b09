"""Server processes of a rival: started in the foreground, watched, and killed with all their children."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from bench.rivals.process_tree import descendants, is_running, parents, tree_cpu_s
from bench.rivals.rival import LOOPBACK, Rival, RivalFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.rivals.installs import Cache

START_S: Final = 90.0
"""Seconds that a server may take until it listens; a JVM on a busy machine takes 10."""
END_S: Final = 10.0


def free_port() -> int:
    """Return a port of the loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports(count: int) -> list[int]:
    """Return as many ports."""
    return [free_port() for _ in range(count)]


class ServerProcesses:
    """The server processes of one rival."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, Path] = {}

    def start(
        self, log: Path, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        """Start a server that stays in the foreground; what it prints goes to `log`.

        The kernel kills it when this process ends, however that ends.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=None if env is None else os.environ | dict(env),
                cwd=log.parent,
                # A process group of its own: Ctrl-C reaches only the harness, which ends it whole.
                start_new_session=True,
            )
        self._running.append(process)
        self._logs[process.pid] = log

    def wait_listening(self, *ports: int) -> None:
        """Wait until something accepts connections at each port.

        Raises:
            RivalFailed: a server ended, or does not listen in time; the text names its log.
        """
        deadline = time.monotonic() + START_S
        for port in ports:
            while True:
                self.check()
                try:
                    socket.create_connection((LOOPBACK, port), 1.0).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        logs = ", ".join(map(str, self._logs.values()))
                        raise RivalFailed(f"nothing listens at port {port}: see {logs}") from None
                    time.sleep(0.05)  # no event tells that another program listens

    def check(self) -> None:
        """Raise an error if a server has ended.

        Raises:
            RivalFailed: one has ended; the text names its log.
        """
        for process in self._running:
            if process.poll() is not None:
                raise RivalFailed(f"it ended ({process.returncode}): see {self._logs[process.pid]}")

    def cpu_s(self) -> float:
        """Return the processor seconds of all servers and their children so far."""
        return tree_cpu_s(process.pid for process in self._running)

    def close(self) -> None:
        """Kill all servers and their children. Their data is not kept, so nothing is lost."""
        found = descendants([process.pid for process in self._running], parents())
        for pid in found:
            # It may have ended already.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._running:
            process.wait(END_S)
        self._running.clear()
        self._logs.clear()
        deadline = time.monotonic() + END_S
        while any(map(is_running, found)) and time.monotonic() < deadline:
            time.sleep(0.005)  # children of others cannot be waited for


class ProcessRival(Rival):
    """A rival whose servers are started here, and whose client is in the cache."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache)
        self.servers = ServerProcesses()
        self.ports: list[int] = []
        """The ports at which the servers take clients."""

    @abstractmethod
    def install_servers(self) -> str:
        """Find the servers or fetch them into the cache, and return their version.

        Raises:
            RivalUnavailable: something is needed that the harness does not install.
        """

    def install(self) -> str:
        """Install servers and client, and return the version of the servers."""
        version = self.install_servers()
        self.cache.python()
        return version

    @property
    def python(self) -> Path:
        """The interpreter that has the clients."""
        return self.cache.python()

    @property
    def address(self) -> str:
        """The first server's address; a client learns the others from it."""
        return f"{LOOPBACK}:{self.ports[0]}"

    def cpu_s(self) -> float:
        """The processor seconds of all servers."""
        return self.servers.cpu_s()

    def close(self) -> None:
        """Kill the servers."""
        self.servers.close()
