"""Processor time of processes with all their children, read from the kernel."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def parents() -> dict[int, int]:
    """Return the parent of each process on this machine."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may hold spaces and parentheses itself.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        found[int(path.parent.name)] = int(fields[1])
    return found


def descendants(roots: Iterable[int], parent_of: dict[int, int]) -> set[int]:
    """Return the roots and all processes below them."""
    found = set(roots)
    while more := {pid for pid, parent in parent_of.items() if parent in found} - found:
        found |= more
    return found


def is_running(pid: int) -> bool:
    """Return True if there is such a process, and it is more than what is left of an ended one."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def process_cpu_s(pid: int) -> float:
    """Return the processor seconds of a process so far, with its ended threads; 0 if it ended.

    It is the process's own clock, in ns; /proc/PID/stat has the same time in ticks of 10 ms, which
    is a tenth of what a short burst takes.
    """
    try:
        # The number of the clock of another process (linux/posix-timers.h, CPUCLOCK_SCHED).
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def tree_cpu_s(roots: Iterable[int]) -> float:
    """Return the processor seconds of processes and of all that run below them."""
    return sum(map(process_cpu_s, descendants(roots, parents())))
