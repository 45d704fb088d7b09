"""A real Spark cluster on this machine: a master and two workers, as processes of their own.

PySpark's package has no `start-master.sh`; `spark-class` starts the same. All listen on the loopback
at ports of their own choice. They end with the thread that started them, however it ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple, Self, TypeVar

from logboom.pipeline.spark_session import use_light_home

START_S: Final = 120.0
"""A process that has not said by then that it serves has failed to start."""
STOP_S: Final = 15.0
WORKERS: Final = 2
LIGHT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: Final = (
    f"--conf spark.sql.shuffle.partitions=4 --conf 'spark.executor.extraJavaOptions={LIGHT}'"
)
"""For commands that go to a cluster: what is made for a whole one takes two cores long."""
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
"""In the command of each executor."""

T = TypeVar("T")


def eventually(look: Callable[[], T | None], what: str, timeout_s: float = START_S) -> T:
    """What `look` finds, once it finds something."""
    end = time.monotonic() + timeout_s
    while (found := look()) is None:
        assert time.monotonic() < end, f"no {what} within {timeout_s:.0f} s"
        time.sleep(0.05)  # other processes tell us nothing by themselves
    return found


class Process(NamedTuple):
    """A process as /proc has it."""

    pid: int
    parent: int
    command: str


def processes() -> Iterator[Process]:
    """All that run now."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                # The name, in brackets, may hold anything: what follows the last one is ours.
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            yield Process(int(folder.name), parent, command)


def below(*roots: int) -> list[Process]:
    """Descendants of processes: children, their children and so on."""
    running, found, wanted = list(processes()), [], set(roots)
    while children := [each for each in running if each.parent in wanted]:
        found += children
        wanted = {each.pid for each in children}
    return found


def executors(*roots: int) -> list[int]:
    """Executors' JVMs below processes."""
    return sorted(each.pid for each in below(*roots) if EXECUTOR in each.command)


def kill(*pids: int) -> None:
    """End processes with SIGKILL; one may have ended with another."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def spark_environment() -> dict[str, str]:
    """What drivers, master and workers of a test are started with."""
    use_light_home()
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": LIGHT,
        # It would listen at a customary port.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }


def pipeline(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `logboom pipeline …` and let it report as JSON."""
    return subprocess.run(
        [sys.executable, "-m", "logboom.cli", "pipeline", *words, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={"PYSPARK_SUBMIT_ARGS": f"{SETTINGS} pyspark-shell", **spark_environment()},
    )


class SparkCluster:
    """A master and its workers of one core each; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = ""
        """spark://host:port."""
        # An empty one: the logs are as Spark has them, and say who serves.
        self.environment = {**spark_environment(), "SPARK_CONF_DIR": str(folder)}
        self._running: list[subprocess.Popen[bytes]] = []
        self._workers: list[int] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        # Ctrl-C too: nothing outlives a failed start. It is raised on.
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def executors(self) -> list[int]:
        """Pids of the executors that run now."""
        return executors(*self._workers)

    def log(self, name: str) -> str:
        """What a process has said: "master", "worker-0" …"""
        return (self.folder / f"{name}.log").read_text("utf-8", errors="replace")

    def _start(self) -> None:
        # Every port is 0: whoever listens takes a free one, and says which.
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._spawn("master", "master.Master", *ports)
        self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            words = [*ports, "--cores", "1", "--memory", "600m"]
            words += ["--work-dir", str(self.folder / f"work-{number}"), self.master]
            self._workers.append(self._spawn(f"worker-{number}", "worker.Worker", *words))
        for number in range(WORKERS):
            self._said(f"worker-{number}", r"(Successfully registered with master)")

    def _spawn(self, name: str, daemon: str, *words: str) -> int:
        command = [f"{self.environment['SPARK_HOME']}/bin/spark-class"]
        command += [f"org.apache.spark.deploy.{daemon}", *words]
        log: IO[bytes]
        with (self.folder / f"{name}.log").open("wb") as log:
            child = subprocess.Popen(
                # The kernel ends it with us.
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                # Ctrl-C reaches us alone, and we stop them.
                start_new_session=True,
            )
        self._running.append(child)
        return child.pid

    def _said(self, name: str, pattern: str) -> str:
        def look() -> str | None:
            found = re.search(pattern, self.log(name))
            assert found or all(child.poll() is None for child in self._running), self.log(name)
            return found[1] if found else None

        return eventually(look, f"{name} that serves")

    def close(self) -> None:
        """End all; workers end their executors."""
        left = [each.pid for each in below(*self._workers)]
        for child in reversed(self._running):
            child.terminate()
        for child in self._running:
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        running = {each.pid: each.command for each in processes()}
        kill(*(pid for pid in left if EXECUTOR in running.get(pid, "")))
