"""The cost of an idle node: resident memory and share of a core, read from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.figures import Figure
from logboom.deploy import Cluster


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
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        # The measured span.
        time.sleep(seconds)
        shares = {n: 100 * (cpu_seconds(p) - before[n]) / seconds for n, p in pids.items()}
        memory = {name: resident_mb(pid) for name, pid in pids.items()}
    found = []
    for kind, prefix, bar in (("broker", "broker-", 100), ("name server", "name-", 80)):
        names = [name for name in pids if name.startswith(prefix)]
        worst = max(memory[n] for n in names)
        found.append(Figure(f"idle {kind}, memory", worst, "MiB", bar, "less"))
        worst = max(shares[n] for n in names)
        found.append(Figure(f"idle {kind}, of a core", worst, "%", 2.0, "less"))
    return found
