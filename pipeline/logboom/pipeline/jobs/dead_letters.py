"""dlq and redrive: causes of a group's dead letters, and sending them back to their topics.

The headers of a dead letter contain its origin, the number of attempts, and the cause of failure.
A checkpoint records what was redriven. Each run is a transaction with a number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from logboom.pipeline.clients import client
from logboom.pipeline.jobs import checkpoints
from logboom.pipeline.jobs import message_frames as rows
from logboom.pipeline.jobs.job_runs import JobReport, OnRows, finished
from logboom.pipeline.jobs.publishing import Target, write
from logboom.pipeline.spark_options import TIMEOUT_MS
from logboom.wire.copy_receipts import ATTEMPT_HEADER, CAUSE, ORIGIN, OWN_HEADERS
from logboom.wire.errors import InvalidRequest
from logboom.wire.names import DLQ_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS: Final = ("cause", "topic", "time")
"""The kinds by which dead letters can be counted."""
NUMBERS: Final = r"\b(0x)?[0-9a-fA-F]*\d[0-9a-fA-F]*\b"
"""Parts that may differ between equal causes: numbers, and hexadecimal ids."""
_ORIGIN: Final = r"^(.*)/(\d+)/(\d+)$"


class RedriveState(Struct, frozen=True):
    """The state of redriving."""

    app_id: str
    group: str
    done: int = 0
    """Runs that are published."""
    planned: bool = False
    """True if the next run is planned: its letters are in its folder."""
    to: str = ""
    """The topic of the next run; "": the topics that its letters came from."""


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """A choice of dead letters. By default it chooses all."""

    cause: str = ""
    """Only causes in which this regular expression is found."""
    topic: str = ""
    """Only those that come from this topic."""
    since_ms: int | None = None
    """Message time, in ms since 1970 UTC."""
    until_ms: int | None = None
    """The first time that is left out."""


def read_letters(spark: SparkSession, servers: str, group: str) -> DataFrame:
    """Return the dead letters of a group, as messages."""
    source = {"servers": servers, "subscribe": DLQ_PREFIX + group}
    return spark.read.format("logboom").schema(rows.SCHEMA).options(**source).load()


def opened(letters: DataFrame) -> DataFrame:
    """Return dead letters with their `cause`, `attempts` and origin.

    The origin is `origin_topic`, `origin_queue` and `origin_offset`. A column is null where its
    header is missing.
    """
    origin = rows.header(ORIGIN).cast("string")

    def part(number: int) -> Column:
        return sf.nullif(sf.regexp_extract(origin, _ORIGIN, number), sf.lit(""))

    return letters.select(
        "*",
        rows.header(CAUSE).cast("string").alias("cause"),
        rows.header(ATTEMPT_HEADER).cast("string").try_cast("int").alias("attempts"),
        part(1).alias("origin_topic"),
        part(2).try_cast("int").alias("origin_queue"),
        part(3).try_cast("bigint").alias("origin_offset"),
    )


def chosen(letters: DataFrame, wanted: DeadLetterFilter) -> DataFrame:
    """Return those opened dead letters that the filter chooses."""
    found = letters
    if wanted.cause:
        found = found.where(sf.col("cause").rlike(wanted.cause))
    if wanted.topic:
        found = found.where(sf.col("origin_topic") == wanted.topic)
    if wanted.since_ms is not None:
        found = found.where(sf.col("timestamp") >= sf.timestamp_millis(sf.lit(wanted.since_ms)))
    if wanted.until_ms is not None:
        found = found.where(sf.col("timestamp") < sf.timestamp_millis(sf.lit(wanted.until_ms)))
    return found


def triaged(
    letters: DataFrame, by: Sequence[str] = ("cause", "topic"), width: str = "1 hour"
) -> DataFrame:
    """Count opened dead letters by kind, most frequent first.

    A row has the kind, `letters`, the `first` and `last` message time, the most `attempts`, and a
    sample as `queue/offset` in the dead-letter topic.

    Args:
        by: some of `KINDS`. Numbers and ids in causes become #, so that causes that differ only by
            these are counted as one.
        width: the length of time intervals, as a Spark interval.

    Raises:
        InvalidRequest: there is no such kind.
    """
    if not by or not set(by) <= set(KINDS):
        raise InvalidRequest(f"dead letters are counted by {', '.join(KINDS)}, not by {list(by)}")
    kinds = {
        "cause": sf.regexp_replace("cause", NUMBERS, "#"),
        "topic": sf.col("origin_topic"),
        "time": sf.window("timestamp", width)["start"],
    }
    return (
        letters.groupBy(*(kinds[name].alias(name) for name in by))
        .agg(
            sf.count(sf.lit(1)).alias("letters"),
            sf.min("timestamp").alias("first"),
            sf.max("timestamp").alias("last"),
            sf.max("attempts").alias("attempts"),
            sf.min(sf.concat_ws("/", "partition", "offset")).alias("sample"),
        )
        .orderBy(sf.desc("letters"), *by)
    )


def redriven(letters: DataFrame, topic: str = "") -> DataFrame:
    """Return opened dead letters as messages for their topics of origin, or for one topic.

    The headers of their failures are removed. Letters without an origin need the one topic.
    """
    ours = list(OWN_HEADERS)
    headers = sf.filter("headers", lambda each: ~each["key"].isin(ours))
    kept = sf.when(sf.size(headers) > 0, headers).alias("headers")
    where = sf.lit(topic) if topic else sf.col("origin_topic")
    known = rows.in_order(letters.where(where.isNotNull()))
    return known.select(where.alias("topic"), "key", "value", "tag", kept, "timestamp")


def triage(
    spark: SparkSession,
    servers: str,
    group: str,
    wanted: DeadLetterFilter,
    by: Sequence[str] = ("cause", "topic"),
    width: str = "1 hour",
) -> list[dict[str, object]]:
    """Return what `triaged` finds in the dead letters of a group.

    Args:
        by: what to count by: cause, topic (where they come from), time.
        width: the length of an interval of time.
    """
    letters = chosen(opened(read_letters(spark, servers, group)), wanted)
    return [row.asDict() for row in triaged(letters, by, width).collect()]


def open_letters(
    spark: SparkSession, servers: str, group: str, wanted: DeadLetterFilter, checkpoint: Path
) -> DataFrame:
    """Return the chosen dead letters that were not redriven yet according to the checkpoint."""
    letters = chosen(opened(read_letters(spark, servers, group)), wanted)
    state = _state(checkpoint, group)
    if not state.done:
        return letters
    # A run that is only planned may be partly written.
    done = spark.read.parquet(*(str(_run(checkpoint, n)) for n in range(1, state.done + 1)))
    return letters.join(sf.broadcast(done), ["partition", "offset"], "left_anti")


def redrive(
    spark: SparkSession,
    target: Target,
    group: str,
    wanted: DeadLetterFilter,
    checkpoint: Path,
    *,
    on_rows: OnRows | None = None,
) -> JobReport:
    """Send the chosen dead letters that were not redriven yet back, in one transaction.

    Args:
        target: if it has a topic, they are sent there instead of to the topics that they came from.
        checkpoint: the folder that records which these were. A run that crashed is finished first,
            with the letters that it had chosen.

    Raises:
        InvalidRequest: the checkpoint belongs to another group; or letters come from topics that no
            longer exist, and then nothing is planned.
    """
    began, run = time.monotonic(), JobReport("redrive")
    state = _state(checkpoint, group)
    if state.planned:
        _leave_out_gone(spark, target, state, checkpoint)
        run.rows += _publish(spark, target, group, checkpoint)
        run.batches += 1
    state = _state(checkpoint, group)
    place = _run(checkpoint, state.done + 1)
    found = sendable(open_letters(spark, target.servers, group, wanted, checkpoint), target)
    found.select("partition", "offset").write.mode("overwrite").parquet(str(place))
    checkpoints.write(checkpoint, structs.replace(state, planned=True, to=target.topic))
    run.rows += _publish(spark, target, group, checkpoint)
    run.batches += 1
    if on_rows is not None:
        on_rows(run.rows)
    return finished(run, began)


def sendable(letters: DataFrame, target: Target) -> DataFrame:
    """Return those opened dead letters that can be sent.

    Without a topic for all of them, these are the letters that have an origin.

    Raises:
        InvalidRequest: they come from topics that no longer exist.
    """
    if target.topic:
        return letters
    found = letters.where(sf.col("origin_topic").isNotNull())
    if not target.options.get("queues"):
        origins = {row[0] for row in found.select("origin_topic").distinct().collect()}
        if gone := sorted(origins - _topics(target)):
            text = f"there are dead letters of {', '.join(gone)}, which does not exist"
            raise InvalidRequest(f"{text}: choose others by --topic, or say --to or --queues")
    return found


def _topics(target: Target) -> set[str]:
    return {topic.name for topic in client(target.servers, TIMEOUT_MS / 1000).admin.topics()}


def _leave_out_gone(
    spark: SparkSession, target: Target, state: RedriveState, checkpoint: Path
) -> None:
    """Take out of a planned run what cannot be published, since its topic was deleted meanwhile. If
    the run was published before that, its number says so, and nothing comes twice."""
    if target.options.get("queues"):
        return
    there = _topics(target)
    number = state.done + 1
    planned = spark.read.parquet(str(_run(checkpoint, number)))
    letters = opened(read_letters(spark, target.servers, state.group))
    where = sf.lit(state.to) if state.to else sf.col("origin_topic")
    named = letters.join(sf.broadcast(planned), ["partition", "offset"], "left_semi")
    kept = named.where(where.isin(sorted(there))).select("partition", "offset").collect()
    if len(kept) < planned.count():
        rest = spark.createDataFrame(kept, planned.schema)
        rest.write.mode("overwrite").parquet(str(_rest(checkpoint, number)))


def _publish(spark: SparkSession, target: Target, group: str, checkpoint: Path) -> int:
    """Publish what is planned; how many that are."""
    state = _state(checkpoint, group)
    number = state.done + 1
    planned = spark.read.parquet(str(_run(checkpoint, number)))
    count = int(planned.count())
    if count:
        letters = read_letters(spark, target.servers, group)
        taken = letters.join(sf.broadcast(planned), ["partition", "offset"], "left_semi")
        # It is sent to its planned topic, whatever is requested now.
        to = Target(target.servers, state.to, target.options)
        write(redriven(opened(taken), state.to), to, state.app_id, number)
    checkpoints.write(checkpoint, structs.replace(state, done=number, planned=False, to=""))
    return count


def _run(checkpoint: Path, number: int) -> Path:
    """Return the folder with the letters of a run."""
    rest = _rest(checkpoint, number)
    # Spark writes this file last.
    return rest if (rest / "_SUCCESS").exists() else checkpoint / f"redriven-{number:06}"


def _rest(checkpoint: Path, number: int) -> Path:
    return checkpoint / f"redriven-{number:06}-rest"


def _state(checkpoint: Path, group: str) -> RedriveState:
    known = checkpoints.read(checkpoint, RedriveState)
    if known is None:
        return RedriveState(checkpoints.new_app_id("redrive"), group)
    if known.group != group:
        text = f"{checkpoint} remembers group {known.group!r}: say another --checkpoint"
        raise InvalidRequest(text)
    return known
