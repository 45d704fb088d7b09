"""The cost of an idle node: resident memory and share of a core, read from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from bench.figures import Figure, compared
from bench.references import PYTHON_CPU
from logboom.deploy import Cluster

KINDS: Final = {"broker": "broker-", "name server": "name-"}
MEMORY_MB: Final = {"broker": 100, "name server": 80}
IDLE: Final = {"broker": 2.1, "name server": 6.2}


def resident_mb(pid: int) -> float:
    """Return the resident memory in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """Return the user and system time used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rows(seconds: float) -> list[Figure]:
    """Return the worst of three brokers and of three name servers."""
    with Cluster(name_servers=3, brokers=3) as cluster:
        # Elections and first heartbeats are over by then. No event announces idleness.
        time.sleep(3.0)
        pids = {name: cluster.pid(name) for name in cluster.nodes}

        def busiest(_: int) -> list[float]:
            before = {name: cpu_seconds(pid) for name, pid in pids.items()}
            # The measured span.
            time.sleep(seconds)
            used = {n: 1_000 * (cpu_seconds(p) - before[n]) / seconds for n, p in pids.items()}
            return [max(used[n] for n in pids if n.startswith(kind)) for kind in KINDS.values()]

        shares = PYTHON_CPU.beside(1, busiest)
        memory = {name: resident_mb(pid) for name, pid in pids.items()}
    found = []
    for (kind, prefix), share in zip(KINDS.items(), shares, strict=True):
        worst = max(memory[name] for name in pids if name.startswith(prefix))
        found.append(Figure(f"idle {kind}, memory", worst, "MiB", MEMORY_MB[kind], "less"))
        found.append(compared(f"idle {kind}, processor time", share, "ms/s", IDLE[kind], "less"))
    return found
