"""What a process takes of memory while something is done to it: its peak, not only what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FORGET_PEAK: Final = "5"
"""Written to /proc/PID/clear_refs: VmHWM begins anew at what is resident now (proc(5))."""


def memory_mb(status: str) -> tuple[float, float]:
    """MiB that a process has resident, now and at most, as its /proc/PID/status says."""
    found = {}
    for line in status.splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(rest.split()[0]) / 1024
    return found["VmRSS"], found["VmHWM"]


def grown_mb(before: str, after: str) -> float:
    """MiB by which a process grew at most, between two readings of its /proc/PID/status.

    The peak was forgotten right before the first, so it is of the time between them. What is freed
    again by the end counts: it would have ended a node on a machine that has no more.
    """
    return max(memory_mb(after)) - memory_mb(before)[0]


class Memory:
    """Watches a process from now on."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text(FORGET_PEAK)
        self._before = self._status()

    def _status(self) -> str:
        return (self._folder / "status").read_text()

    @property
    def most(self) -> float:
        """MiB that it had resident at most since."""
        return memory_mb(self._status())[1]

    @property
    def grown(self) -> float:
        """MiB that it had at most since, beyond what it had at the begin."""
        return grown_mb(self._before, self._status())
