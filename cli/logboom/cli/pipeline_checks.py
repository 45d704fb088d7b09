"""`logboom pipeline lag` and `audit`: lag and latency of a topic, and audits of its content."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from logboom.cli.connection import open_client
from logboom.cli.job_commands import Master, Report
from logboom.cli.options import names, whole_path
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import ClusterAddress, Servers
from logboom.cli.pipeline_runs import BROKEN, source_of, spark_for
from logboom.cli.progress_bar import progress
from logboom.wire.errors import InvalidRequest


def lag(
    topics: str = "",
    *,
    group: str = "",
    seconds: int = 10,
    plot: Path | None = None,
    master: Master = "",
    servers: Servers = None,
    output: Report = "table",
) -> None:
    """Show how far groups are behind, and how long messages of topics take to a reader.

    Without topics it shows only the groups, and does not need Spark.

    For example:

        logboom pipeline lag --group billing
        logboom pipeline lag flights --seconds 30 --plot latency.svg

    Parameters
    ----------
    topics
        The topics whose latency is measured, comma-separated.
    group
        The groups, comma-separated; all by default.
    seconds
        How long to measure.
    plot
        The file for a plot of the latencies over time, as SVG.
    """
    from logboom.pipeline.lags import group_lags

    if plot is not None and not topics:
        raise InvalidRequest("--plot draws the latencies of topics: name some")
    with open_client(servers) as boom:
        for topic in names(topics):
            # Fails before Spark is started for a topic that does not exist.
            boom.admin.offsets(topic)
        lags = group_lags(boom, names(group))
    found = watch(topics, seconds, master, servers) if topics else []
    if plot is not None:
        draw(plot, topics, found)
    if output == "json":
        show_json({"job": "lag", "groups": lags, "latencies": [asdict(each) for each in found]})
        return
    show(lags, ["group", "topic", "queue", "committed", "end", "lag", "age_ms"], output)
    show([asdict(each) for each in found], ["at_s", "messages", "p50", "p95", "p99", "max"], output)


def watch(topics: str, seconds: int, master: str, servers: ClusterAddress | None) -> Sequence[Any]:
    """Return the latencies of messages that arrive now."""
    with spark_for("lag", master) as spark, tempfile.TemporaryDirectory() as folder:
        from logboom.pipeline.jobs.latency import watch_latency

        with progress("lag", None) as bar:
            return watch_latency(
                spark,
                source_of(topics, servers),
                folder,
                seconds,
                lambda found: bar.say(f"lag: p50 {found.p50} ms, p99 {found.p99} ms"),
            )


def draw(plot: Path, topics: str, found: Sequence[Any]) -> None:
    """Write the plot."""
    from logboom.pipeline.jobs.latency import latency_lines
    from logboom.pipeline.plot import svg

    title = f"From producer to reader: {topics}"
    plot.write_text(svg(title, latency_lines(list(found)), "seconds", "ms"), encoding="utf-8")
    note(f"drawn to {plot}")


def audit(
    histories: list[Path],
    *,
    topic: str,
    archive: Path | None = None,
    master: Master = "",
    servers: Servers = None,
    output: Report = "table",
) -> int:
    """Hold what producers and readers told of a run against what a topic holds.

    Histories are the `*.jsonl` files that the chaos runs write. The audit finds messages that are
    lost, duplicated, out of order, read with other content than stored, or not read at all. Exit
    code 1: something is broken.

    For example:

        logboom pipeline audit records/ --topic chaos
        logboom pipeline audit records/ --topic chaos --archive archive/ -o json

    Parameters
    ----------
    histories
        Files, or folders of them.
    topic
        The topic.
    archive
        Its archive, to be read instead of the topic.
    """
    with spark_for("audit", master) as spark:
        from logboom.pipeline.jobs import histories as job

        if archive is not None:
            from logboom.pipeline.jobs.replay import ReplayFilter, read_archive, selected

            held = selected(read_archive(spark, whole_path(archive)), ReplayFilter(topic))
        else:
            source = source_of(topic, servers)
            held = spark.read.format("logboom").schema(job.SCHEMA).options(**source).load()
        with progress("audit", None):
            counts, found = job.audit(spark, [str(whole_path(path)) for path in histories], held)
    broken = sum(row["broken"] for row in found)
    if output == "json":
        show_json(
            {"job": "audit", "topic": topic, "counts": counts, "broken": broken, "found": found}
        )
    else:
        show([counts], list(counts), output)
        show(found, ["property", "broken", "details"], output)
    return BROKEN if broken else 0
