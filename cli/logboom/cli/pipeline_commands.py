"""`logboom pipeline`: jobs over topics, on Spark. They need the extra `[spark]` and a Java 17.

Where Spark comes from is `--master`: this machine by default, or a cluster. How far a job is stands
in its checkpoint folder; run again, it goes on from there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import App, Parameter

from logboom.cli.connecting import open_client
from logboom.cli.options import Output, Servers, servers_or_default
from logboom.cli.output import note, show, show_json
from logboom.cli.progress import Progress, progress
from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = App(name="pipeline", help="Jobs over topics, on Spark.")

Master: TypeAlias = Annotated[str, Parameter(name=["--master", "-m"], env_var="SPARK_MASTER")]
"""Where Spark runs."""
Checkpoint: TypeAlias = Annotated[Path | None, Parameter(name="--checkpoint")]
"""Where a job remembers how far it is."""
Continuous: TypeAlias = Annotated[bool, Parameter(name="--continuous", negative="")]
Every: TypeAlias = Annotated[str, Parameter(name="--every")]
To: TypeAlias = Annotated[Path, Parameter(name=["--to", "-t"])]
LOST = 1
"""Exit code where messages are missing or doubled."""


@contextmanager
def spark_for(job: str, master: str) -> Iterator[SparkSession]:
    """A session while the block runs; what Spark says of a failure becomes one line.

    Raises:
        StartError: the extra or Java is missing.
        LogboomError: the job failed.
    """
    # Here and below: they import PySpark, which no other command needs.
    from logboom.pipeline import session
    from logboom.pipeline.failures import job_failed

    spark = session(f"logboom {job}", master, {"spark.log.level": "ERROR"})
    from pyspark.errors import PySparkException

    try:
        yield spark
    except PySparkException as error:
        raise job_failed(job, error) from None
    finally:
        spark.stop()


@contextmanager
def rows_bar(job: str) -> Iterator[Progress]:
    """A bar that counts rows: how many there will be is known to nobody before."""
    with progress(job, None) as bar:

        class Rows:
            """Says how many there are."""

            def to(self, done: int) -> None:
                """So many rows are done."""
                bar.to(done)
                bar.say(f"{job}: {done:,} rows")

            def say(self, text: str) -> None:
                """As the bar says it."""
                bar.say(text)

        yield Rows()


def trigger(every: str, *, continuous: bool) -> str:
    """How often a job looks for more; "": it ends with what is there now."""
    if every and not continuous:
        raise InvalidRequest("--every is how often a --continuous job looks for more: say both")
    return (every or "1 second") if continuous else ""


def source_of(topics: str, servers: str | None, start: str = "") -> dict[str, str]:
    """Options of the source."""
    found = {"servers": servers_or_default(servers), "subscribe": topics}
    return {**found, "startingOffsets": start} if start else found


def tell(report: dict[str, Any], output: str) -> None:
    """Print what came of a job: everything as JSON, or its figures."""
    if output == "json":
        show_json(report)
        return
    shown = ["job", "rows", "batches", "seconds", "rows_per_s"]
    show([report], [name for name in shown if name in report], output)


@app.command
def archive(
    topics: str,
    *,
    to: To,
    start: str = "",
    checkpoint: Checkpoint = None,
    continuous: Continuous = False,
    every: Every = "",
    audit: bool = True,
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> int:
    """Write topics to Parquet, by topic and day, each message once; then look whether all are there.

    Run again, it adds what came since. Exit code 1: messages are missing or doubled.

    For example:

        logboom pipeline archive flights --to archive/
        logboom pipeline archive flights,delays --to /data/archive --continuous --every "1 minute"

    Parameters
    ----------
    topics
        Which topics, comma-separated.
    to
        The folder of the archive.
    start
        Where a new archive begins: earliest, latest, group:NAME or JSON by topic and queue.
    checkpoint
        Where it remembers how far it is; by default in the archive.
    continuous
        Go on until Ctrl-C.
    every
        With --continuous: how often it looks for more, such as "10 seconds".
    audit
        Look afterwards whether the offsets of each queue are there without gaps and doubles.
    master
        Where Spark runs: local[*] by default, or spark://host:7077.
    servers
        Any nodes, host:port, comma-separated.
    output
        table or json: the report, with where it is and the audit.
    """
    often = trigger(every, continuous=continuous)
    with spark_for("archive", master) as spark:
        from logboom.pipeline.jobs import archive as job

        with rows_bar("archive") as bar:
            run = job.archive(
                spark,
                source_of(topics, servers, start),
                to,
                checkpoint,
                every=often,
                on_rows=bar.to,
            )
        # Who said Ctrl-C wants no more to be begun.
        found = job.audit(spark, to) if audit and not run.stopped else []
    wrong = [row for row in found if row["missing"] or row["doubled"]]
    tell({**asdict(run), "audit": found}, output)
    if output == "table" and found:
        show(
            found, ["topic", "partition", "first", "last", "messages", "missing", "doubled"], output
        )
    for row in wrong:
        place = f"queue {row['partition']} of topic {row['topic']!r}"
        note(f"{place}: {row['missing']} messages are missing, {row['doubled']} are doubled")
    return LOST if wrong else 0


@app.command
def window(
    topic: str,
    *,
    to: To,
    schema: str,
    width: str = "1 minute",
    slide: str = "",
    by: str = "",
    measure: str = "",
    time: str = "",
    watermark: str = "1 minute",
    start: str = "",
    checkpoint: Checkpoint = None,
    continuous: Continuous = False,
    every: Every = "",
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Count JSON messages by time windows, with sums and averages, into Parquet.

    A window is written once, when the watermark has passed its end.

    For example:

        logboom pipeline window flights --to delays/ --schema "carrier string, dep_delay double" \\
            --width "1 hour" --by carrier --measure dep_delay

    Parameters
    ----------
    topic
        The topic.
    to
        The folder of the windows.
    schema
        Fields of the JSON values, as in SQL.
    width
        How long a window is.
    slide
        Between the beginnings of windows, if they are to overlap.
    by
        Fields that windows are parted by, comma-separated.
    measure
        Fields of which sum, average, least and greatest are wanted, comma-separated.
    time
        Field with the time of the event; by default the message time.
    watermark
        How late a message may come to be counted.
    start
        Where a new job begins: earliest, latest, group:NAME or JSON by topic and queue.
    checkpoint
        Where it remembers how far it is; by default in the folder.
    continuous
        Go on until Ctrl-C.
    every
        With --continuous: how often it looks for more, such as "10 seconds".
    master
        Where Spark runs: local[*] by default, or spark://host:7077.
    servers
        Any nodes, host:port, comma-separated.
    output
        table or json.
    """
    often = trigger(every, continuous=continuous)
    with spark_for("window", master) as spark:
        from logboom.pipeline.jobs import window as job

        wanted = job.Windows(schema, width, slide, names(by), names(measure), time, watermark)
        with rows_bar("window") as bar:
            run = job.window(
                spark,
                source_of(topic, servers, start),
                wanted,
                to,
                checkpoint,
                every=often,
                on_rows=bar.to,
            )
    tell(asdict(run), output)


@app.command
def lag(
    topics: str = "",
    *,
    group: str = "",
    seconds: int = 10,
    plot: Path | None = None,
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Show how far groups are behind, and how long messages of topics take to a reader.

    Without topics only the groups, and no Spark.

    For example:

        logboom pipeline lag --group billing
        logboom pipeline lag flights --seconds 30 --plot latency.svg

    Parameters
    ----------
    topics
        Of which topics to measure the latency, comma-separated.
    group
        Which groups, comma-separated; all by default.
    seconds
        How long to read.
    plot
        Where to draw the latencies over time, as SVG.
    master
        Where Spark runs: local[*] by default, or spark://host:7077.
    servers
        Any nodes, host:port, comma-separated.
    output
        table or json.
    """
    from logboom.pipeline.lags import group_lags

    with open_client(servers) as boom:
        lags = group_lags(boom, names(group))
    found = watch(topics, seconds, master, servers) if topics else []
    if plot is not None:
        draw(plot, topics, found)
    if output == "json":
        show_json({"job": "lag", "groups": lags, "latencies": [asdict(each) for each in found]})
        return
    show(lags, ["group", "topic", "queue", "committed", "end", "lag", "age_ms"], output)
    show([asdict(each) for each in found], ["at_s", "messages", "p50", "p95", "p99", "max"], output)


def watch(topics: str, seconds: int, master: str, servers: str | None) -> Sequence[Any]:
    """Latencies of what comes now."""
    with spark_for("lag", master) as spark, tempfile.TemporaryDirectory() as folder:
        from logboom.pipeline.jobs.lag import watch_latency

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
    from logboom.pipeline.jobs.lag import latency_lines
    from logboom.pipeline.plot import svg

    title = f"From producer to reader: {topics}"
    plot.write_text(svg(title, latency_lines(list(found)), "seconds", "ms"), encoding="utf-8")
    note(f"drawn to {plot}")


def names(text: str) -> list[str]:
    """Names of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]
