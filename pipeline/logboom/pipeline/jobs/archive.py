"""archive: topics to Parquet, partitioned by topic and date, each message once, and an audit.

Spark's file sink writes exactly once: the files of a micro-batch count once they are listed in the
folder's `_spark_metadata`. Read the archive with Spark, or leave out files that are not listed
there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from logboom.pipeline.clients import client
from logboom.pipeline.jobs import checkpoints
from logboom.pipeline.jobs.job_runs import JobReport, OnRows, run_stream
from logboom.pipeline.spark_options import TIMEOUT_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "value",
    "tag",
    "headers",
)
SCHEMA: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "tag string, headers array<struct<key:string,value:binary>>"
)
"""The columns that are read from a topic: everything that a message has."""
DAY_MS: Final = 86_400_000


def archived(messages: DataFrame) -> DataFrame:
    """Return messages in the form of an archive, with the UTC day of their message time."""
    return messages.select(*COLUMNS, utc_day(sf.col("timestamp")).alias("date"))


def utc_day(time: Column) -> Column:
    """Return the UTC day of a time, whatever the time zone of the session."""
    return sf.date_from_unix_date(sf.floor(sf.unix_millis(time) / sf.lit(DAY_MS)).cast("int"))


def audited(archive: DataFrame) -> DataFrame:
    """Return a row per queue with its offsets and errors.

    It has the first and last offset, the messages, how many offsets in between are missing, and how
    many messages are duplicates. In a complete archive the last two are 0.
    """
    per_offset = archive.groupBy("topic", "partition", "offset").agg(sf.count("*").alias("copies"))
    found = per_offset.groupBy("topic", "partition").agg(
        sf.min("offset").alias("first"),
        sf.max("offset").alias("last"),
        sf.sum("copies").alias("messages"),
        sf.count("*").alias("offsets"),
    )
    return found.select(
        "topic",
        "partition",
        "first",
        "last",
        "messages",
        (sf.col("last") - sf.col("first") + 1 - sf.col("offsets")).alias("missing"),
        (sf.col("messages") - sf.col("offsets")).alias("doubled"),
    ).orderBy("topic", "partition")


def gaps(archive: DataFrame) -> DataFrame:
    """Return the ranges of offsets missing between others: topic, partition, first, last."""
    queue = Window.partitionBy("topic", "partition").orderBy("offset")
    before = archive.select(
        "topic", "partition", "offset", sf.lag("offset").over(queue).alias("before")
    )
    missing = before.where(sf.col("offset") > sf.col("before") + 1)
    return missing.select(
        "topic",
        "partition",
        (sf.col("before") + 1).alias("first"),
        (sf.col("offset") - 1).alias("last"),
    ).orderBy("topic", "partition", "first")


def archive(
    spark: SparkSession,
    source: dict[str, str],
    folder: Path,
    checkpoint: Path | None = None,
    *,
    gather: bool = False,
    every: str = "",
    on_rows: OnRows | None = None,
) -> JobReport:
    """Archive what is there now, or with `every` ("1 minute") go on until it is stopped.

    Args:
        source: options of the source; where to begin applies only to a new checkpoint.
        folder: the folder of the archive.
        checkpoint: the folder that records the progress; by default one in the archive.
        gather: write one file per day and micro-batch instead of one per queue, for messages of
            many days.

    Raises:
        InvalidRequest: the checkpoint belongs to other topics or to another folder.
    """
    place = checkpoint or folder / "_checkpoint"
    checkpoints.check_topics(place, source)
    checkpoints.check_sink(folder, place)
    messages = spark.readStream.format("logboom").schema(SCHEMA)
    frame = messages.options(**{"startingOffsets": "earliest", **source}).load()
    rows = archived(frame)
    writer = (
        (rows.repartition("topic", "date") if gather else rows)
        .writeStream.format("parquet")
        .partitionBy("topic", "date")
        .option("path", str(folder))
        .option("checkpointLocation", str(place))
    )
    return run_stream("archive", writer, every=every, on_rows=on_rows)


def compacted_among(servers: str, topics: Iterable[str]) -> set[str]:
    """Return those of some topics that are compacted now."""
    admin = client(servers, TIMEOUT_MS / 1000).admin
    return {topic for topic in topics if admin.describe_topic(topic).config.compaction}


def audit(
    spark: SparkSession, folder: Path, run: JobReport | None = None, compacted: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return what `audited` finds in an archive, which is nothing in an empty one.

    Args:
        run: a run that has just ended. Whatever it read must be in the archive, or counts as
            missing.
        compacted: compacted topics, which have gaps: their number of missing messages is None.
    """
    rows = []
    if any(folder.glob("topic=*")):
        # With a schema, because Spark would read a topic named 007 as a number.
        found = audited(spark.read.schema(f"{SCHEMA}, date date").parquet(str(folder)))
        rows = [row.asDict() for row in found.collect()]
    rows = rows if run is None else _with_ends(rows, run)
    for row in rows:
        if row["topic"] in compacted:
            row["missing"] = None
    return rows


def _with_ends(rows: list[dict[str, Any]], run: JobReport) -> list[dict[str, Any]]:
    """Compare the result of an audit with the offsets where a run began and ended."""
    known = {(row["topic"], row["partition"]): row for row in rows}
    for topic, ends in run.offsets.items():
        for queue, end in ends.items():
            row = known.get((topic, int(queue)))
            # Spark does not report where a first run began, and a run from latest has nothing yet.
            begin = run.starts.get(topic, {}).get(queue, end)
            if row is not None:
                row["missing"] += max(0, end - 1 - row["last"])
            elif begin < end:
                place = {"topic": topic, "partition": int(queue), "first": begin, "last": end - 1}
                known[topic, int(queue)] = {
                    **place,
                    "messages": 0,
                    "missing": end - begin,
                    "doubled": 0,
                }
    return [known[place] for place in sorted(known)]
