"""Execution of a job of `logboom pipeline`: session, progress bar, report."""

from __future__ import annotations

import atexit
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from logboom.cli.cluster_address import destination_of
from logboom.cli.options import whole_path
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import ClusterAddress
from logboom.cli.progress_bar import ProgressBar, progress
from logboom.deploy.detached import DATA
from logboom.wire.errors import InvalidRequest, LogboomError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logboom.pipeline.jobs.publishing import Target

BROKEN: Final = 1
"""Exit code if messages are missing, duplicated or wrong."""
JVM_END_S: Final = 30.0
"""Seconds that a command waits for Spark's process to remove its files and end."""
FIGURES: Final = ("job", "rows", "batches", "seconds", "rows_per_s")


_PLAIN: Final = str.maketrans("%|", "+=")
STREAMS: Final = ("archive", "enrich", "dedup", "window")
_SKIP: Final = "say --skip-lost to read on without them"
_LOST: Final = {
    **dict.fromkeys(STREAMS, _SKIP),
    "compact": "begin anew with another --to: keys may have changed in the lost messages",
}
_FEWER: Final = re.compile(
    r"Bound a stream by maxOffsetsPerTrigger[^;.(]*(\([^)]*\)[^;.(]*)?"
    r"|Run it again with fewer rows at once"
)
_NEW: Final = (
    "Say --at-once N with a new --checkpoint (and --start, if an earlier run has written): the old "
    "one has planned this micro-batch as it is"
)
_AT_ONCE: Final = {
    "enrich": "Run it once with --delivery at-least-once, since the checkpoint has planned this "
    "micro-batch as it is, and say --at-once N from then on",
    "dedup": _NEW,
    "window": _NEW,
    "compact": "Run it without --to-topic: there the snapshot is one transaction",
    "redrive": "Choose fewer, with another --checkpoint",
}


@contextmanager
def spark_for(job: str, master: str) -> Iterator[SparkSession]:
    """Open a session for the block, and convert Spark's errors to one line.

    A session that this process already has is used, and not stopped.

    Raises:
        StartError: the extra or Java is missing.
        LogboomError: the job failed.
    """
    # Imported here and below because they import PySpark, which no other command needs.
    from logboom.pipeline.spark_errors import job_failed
    from logboom.pipeline.spark_session import check_spark, session

    check_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    spark = session(f"logboom {job}", master, {} if before else {"spark.log.level": "ERROR"})
    try:
        yield spark
    except PySparkException as error:
        failed = job_failed(job, error)
        raise type(failed)(in_flags(job, failed.text)) from None
    except LogboomError as error:
        error.text = in_flags(job, error.text)
        error.args = (error.text,)
        raise
    finally:
        if before is None:
            spark.stop()
            _end_with_jvm(spark)


def _end_with_jvm(spark: SparkSession) -> None:
    """Have this process end after Spark's own, which it started: that one ends with its input, and
    would be a process, and folders, that a command leaves behind for a while."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  # PySpark has no public name for it.
    started: subprocess.Popen[bytes] | None = gateway.proc

    def end() -> None:
        if started is None or started.stdin is None:
            return
        started.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            started.wait(JVM_END_S)

    atexit.register(end)


@contextmanager
def rows_bar(job: str) -> Iterator[ProgressBar]:
    """Show a progress bar that counts rows. Their total is not known in advance."""
    with progress(job, None) as bar:

        class RowCounter:
            """A bar that shows how many rows are done."""

            def to(self, done: int) -> None:
                """Show that this many rows are done."""
                bar.to(done)
                bar.say(f"{job}: {done:,} rows")

            def expect(self, total: int) -> None:
                """Change how many rows there are."""
                bar.expect(total)

            def say(self, text: str) -> None:
                """Change the text of the bar."""
                bar.say(text)

        yield RowCounter()


def trigger(every: str, *, continuous: bool) -> str:
    """Return how often a job looks for new messages, or "" if it ends with those that exist now."""
    if every and not continuous:
        raise InvalidRequest("--every is how often a --continuous job looks for more: say both")
    return (every or "1 second") if continuous else ""


def source_of(
    topics: str,
    servers: ClusterAddress | None,
    start: str = "",
    at_once: int = 0,
    *,
    skip_lost: bool = False,
) -> dict[str, str]:
    """Return the options of the source.

    Raises:
        InvalidRequest: the number of messages is negative.
    """
    if at_once < 0:
        raise InvalidRequest(f"--at-once is a number of messages, not {at_once}")
    found = {"servers": destination_of(servers).text, "subscribe": topics}
    if start:
        found["startingOffsets"] = start
    if at_once:
        found["maxOffsetsPerTrigger"] = str(at_once)
    if skip_lost:
        found["failOnDataLoss"] = "false"
    return found


def in_flags(job: str, text: str) -> str:
    """Return an error text that names the command's flags instead of Spark options.

    Where the command has no such flag, the text says what else to do.
    """
    lost, at_once = _LOST.get(job, "run it again"), _AT_ONCE.get(job, "")
    text = re.sub(r"say failOnDataLoss[ =]false[^;.]*", lost, text)
    return _FEWER.sub(at_once, text) if at_once else text


def target_of(
    topic: str,
    servers: ClusterAddress | None,
    queues: int = 0,
    delivery: str = "exactly-once",
) -> Target:
    """Return the target that a job writes to."""
    from logboom.pipeline.jobs.publishing import Target

    options = {"queues": str(queues)} if queues else {}
    if delivery != "exactly-once":
        options["delivery"] = delivery
    return Target(destination_of(servers).text, topic, options)


def checkpoint_of(given: Path | None, job: str, *about: str) -> Path:
    """Return the checkpoint folder of a job: the given one, or one derived from its topics."""
    if given is not None:
        return whole_path(given)
    # Nested folders, because two jobs could have the same joined name. Characters that are valid in
    # topic names and unsuitable in folder names are replaced by characters that topic names cannot
    # have.
    parts = (re.sub(r"[^\w.,+=-]", "_", part.translate(_PLAIN)) for part in about)
    return DATA.joinpath("pipeline", job, *parts).resolve()


def tell(report: dict[str, Any], output: str) -> None:
    """Print the report of a job: as JSON in full, or its figures."""
    if output == "json":
        show_json(report)
        return
    show([report], [name for name in FIGURES if name in report], output)
    if late := report.get("late"):
        note(f"{late} messages were left out, since they came later than the watermark")
    if unread := report.get("unread"):
        note(f"{unread} values do not fit --schema: they are no JSON, or a field has another type")
