"""`python -m bench [NAME …]`: measure, print a table, write .logboom/bench.json.

Everything except the allocation of queues and the filters uses the public API with
processes that `logboom.deploy` starts. A bar is one of the ratio to a reference that is measured
beside the figure (`bench.references`), so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench import (
    access_rules,
    allocation,
    backup,
    commits,
    console_pages,
    consumer_groups,
    delay,
    encryption,
    failover,
    filters,
    holds,
    idle,
    latency,
    metadata_scale,
    operations,
    planning,
    push,
    queues,
    rolling,
    scrape,
    steady,
    strangers,
    subscriptions,
    throughput,
    tracing,
    transactions,
)
from bench.figures import Figure, table

if TYPE_CHECKING:
    from collections.abc import Callable


def groups(quick: bool, data_mib: int | None = None) -> dict[str, Callable[[], list[Figure]]]:
    """Return the groups of figures by name, in the order they run.

    `data_mib`: what the group operations stores before it begins.
    """
    count, rounds = (200_000, 1) if quick else (1_000_000, 5)

    def spark() -> list[Figure]:
        # Imported late: PySpark has to be installed only for this group.
        from bench import spark_read

        return spark_read.rows(100_000 if quick else 1_000_000, 1 if quick else 5)

    def spark_write() -> list[Figure]:
        # As above.
        from bench import spark_write

        return spark_write.rows(*((100_000, 1) if quick else (1_000_000, 4)))

    def spark_latency() -> list[Figure]:
        # As above.
        from bench import spark_latency

        return spark_latency.rows(5 if quick else 40)

    return {
        "throughput": lambda: throughput.one_broker(count, rounds),
        "replicas": lambda: throughput.three_replicas(count // 2, rounds),
        "latency": lambda: latency.rows(1.0 if quick else 2.0, rounds),
        "holds": lambda: holds.rows(100 if quick else 1_000),
        "failover": failover.rows,
        "outage": lambda: failover.outage_rows(5.0 if quick else 30.0),
        "metadata": lambda: metadata_scale.rows(500 if quick else 10_000),
        "queues": lambda: [
            row
            for nodes in (1, 3)
            for row in queues.rows(*((2, 1.0) if quick else (18, 10.0)), nodes)
        ],
        "planning": lambda: planning.rows(1_000 if quick else 10_000),
        "allocation": lambda: allocation.rows(*((100, 1_000) if quick else (1_000, 10_000))),
        "filters": lambda: filters.rows(20 if quick else 200),
        "groups": lambda: consumer_groups.rows(*((100, 1_000) if quick else (1_000, 10_000))),
        "encryption": lambda: encryption.rows(count // 2, rounds),
        "access": lambda: access_rules.rows(*((100, 1_000) if quick else (1_000, 10_000))),
        "tracing": lambda: tracing.rows(count // 2, rounds),
        "scrape": lambda: scrape.rows(*((1.0, 1, 200) if quick else (5.0, 10, 2_000))),
        "console": lambda: console_pages.rows(
            1_000 if quick else 10_000,
            200 if quick else 2_000,
            1 if quick else 5,
            3.0 if quick else 10.0,
        ),
        "delay": lambda: delay.rows(20_000 if quick else 1_000_000),
        "push": lambda: push.rows(count, rounds),
        "commits": lambda: commits.rows(*((1.0, 1) if quick else (3.0, 5))),
        "steady": lambda: steady.rows(*((100, 10, 5.0) if quick else (1_000, 100, 20.0))),
        "transactions": lambda: transactions.rows(*((20, 20, 1) if quick else (40, 40, 5))),
        "subscriptions": lambda: subscriptions.rows(
            *((50_000, 1, 10_000) if quick else (500_000, 3, 100_000))
        ),
        "backup": lambda: backup.rows(*((64, 1) if quick else (1_024, 5))),
        "rolling": rolling.rows,
        "operations": lambda: operations.rows(
            data_mib or (256 if quick else 4_096), *((5.0, 1) if quick else (20.0, 3))
        ),
        "strangers": lambda: strangers.rows(*((200, 1.0, 1) if quick else (2_000, 5.0, 5))),
        "idle": lambda: idle.rows(3.0 if quick else 10.0),
        "spark": spark,
        "spark_write": spark_write,
        "spark_latency": spark_latency,
    }


def main() -> int:
    """Run the requested groups, all by default, and return 1 if a figure misses its bar."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"groups: {', '.join(groups(quick=True))}")
    parser.add_argument("--quick", action="store_true", help="small counts, to see that it runs")
    parser.add_argument(
        "--data-mib", type=int, help="data that operations stores first, on all brokers (4096)"
    )
    parser.add_argument("--json", type=Path, default=Path(".logboom/bench.json"))
    arguments = parser.parse_args()
    known = groups(arguments.quick, arguments.data_mib)
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"no group {unknown[0]!r}: choose from {', '.join(known)}")
    rows: list[Figure] = []
    if not arguments.names and importlib.util.find_spec("pyspark") is None:
        for left_out in ("spark", "spark_write", "spark_latency"):
            del known[left_out]
        print("spark is left out: it needs pip install 'logboom[spark]'", file=sys.stderr)
    for name in arguments.names or known:
        began = time.monotonic()
        print(f"{name} …", end=" ", flush=True, file=sys.stderr)
        rows += known[name]()
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    print(table(rows))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": platform.platform(), "python": platform.python_version(), "rows": rows}
    arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    print(f"written to {arguments.json}", file=sys.stderr)
    return int(any(row.verdict == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
