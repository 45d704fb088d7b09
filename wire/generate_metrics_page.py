"""Generate docs/METRICS.md from the table of metrics.

.venv/bin/python wire/generate_metrics_page.py           write the page
.venv/bin/python wire/generate_metrics_page.py --check   fail if it is not up to date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from logboom.wire.exposition import SHOWN_BOUNDS
from logboom.wire.metric_table import (
    MAX_NODE_SERIES,
    PREFIX,
    Metric,
    MetricSource,
    metrics_of,
)

PAGE: Final = Path(__file__).parent.parent / "docs" / "METRICS.md"
HEAD: Final = f"""\
# Metrics

All metrics, by who tells them. How to scrape them and what to watch is in [OPERATING.md](OPERATING.md#metrics-and-health).
This page is generated from `wire/logboom/wire/metric_table.py` (`make generate`).

Each node tells of itself, at most {MAX_NODE_SERIES} series, none of which has a topic, group or user as label. What belongs
to topics, groups and subscriptions is told once for the whole cluster, by the exporter. Counters begin with 0 at
the start of a node. Units are seconds and bytes. A histogram has {len(SHOWN_BOUNDS)} bounds, from 0.08 ms to 84 s, each four times
the one before. A gauge that a node does not know is left out. Names stay as they are from one release to the next.
"""
PARTS: Final[tuple[tuple[str, MetricSource, str], ...]] = (
    ("Every node", "broker", "Told by brokers and name servers alike."),
    ("Brokers", "broker", ""),
    (
        "Name servers",
        "name-server",
        "What a name server tells of the whole cluster is the same at each: take the maximum.",
    ),
    ("The exporter of a cluster", "cluster", ""),
)


def page() -> str:
    """Return the whole page."""
    everywhere = [each for each in metrics_of("broker") if each in metrics_of("name-server")]
    parts = [HEAD]
    for title, source, text in PARTS:
        shown = [each for each in metrics_of(source) if each not in everywhere]
        if title == "Every node":
            shown = everywhere
        parts.append(f"\n## {title}\n" + (f"\n{text}\n" if text else ""))
        parts.append("\n| metric | kind | labels | means |\n|---|---|---|---|\n")
        parts += [_row(each) for each in shown]
    return "".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or ""
    return f"| `{PREFIX}{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n"


def main() -> int:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it is stale")
    arguments = parser.parse_args()
    text = page()
    if not arguments.check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write("docs/METRICS.md is not up to date: make generate\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
