"""How a job of `logboom pipeline` is run and told of: session, bar, report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from logboom.cli.options import DATA, servers_or_default
from logboom.cli.output import note, show, show_json
from logboom.cli.progress import Progress, progress
from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logboom.pipeline.jobs.publishing import Target

BROKEN: Final = 1
"""Exit code where messages are missing, doubled or wrong."""
FIGURES: Final = ("job", "rows", "batches", "seconds", "rows_per_s")


@contextmanager
def spark_for(job: str, master: str) -> Iterator[SparkSession]:
    """A session while the block runs; what Spark says of a failure becomes one line. One that this
    process has already is used, and left to who made it.

    Raises:
        StartError: the extra or Java is missing.
        LogboomError: the job failed.
    """
    # Here and below: they import PySpark, which no other command needs.
    from logboom.pipeline.failures import job_failed
    from logboom.pipeline.session import check_spark, session

    check_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    spark = session(f"logboom {job}", master, {} if before else {"spark.log.level": "ERROR"})
    try:
        yield spark
    except PySparkException as error:
        raise job_failed(job, error) from None
    finally:
        if before is None:
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


def target_of(
    topic: str, servers: str | None, queues: int = 0, delivery: str = "exactly-once"
) -> Target:
    """Where a job writes to."""
    from logboom.pipeline.jobs.publishing import Target

    options = {"queues": str(queues)} if queues else {}
    if delivery != "exactly-once":
        options["delivery"] = delivery
    return Target(servers_or_default(servers), topic, options)


def checkpoint_of(given: Path | None, job: str, *about: str) -> Path:
    """The folder of a job's checkpoint: as asked, or one of its own for what it is about."""
    if given is not None:
        return given.resolve()
    # Topics may have names that folders cannot; those that differ only so are rare.
    named = "-".join(re.sub(r"[^\w.-]", "_", part) for part in (job, *about) if part)
    return (DATA / "pipeline" / named).resolve()


def tell(report: dict[str, Any], output: str) -> None:
    """Print what came of a job: everything as JSON, or its figures."""
    if output == "json":
        show_json(report)
        return
    show([report], [name for name in FIGURES if name in report], output)
    if late := report.get("late"):
        note(f"{late} messages were left out, since they came later than the watermark")
