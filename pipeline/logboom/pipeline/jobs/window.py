"""window: counts and measures of JSON messages by time windows and fields.

Windows refer to a time in the message, or to the message time. A window is written once, when
the watermark has passed its end. Later messages are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from logboom.pipeline.jobs import checkpoints
from logboom.pipeline.jobs.job_runs import JobReport, OnRows, run_stream
from logboom.pipeline.jobs.message_frames import (
    field_names,
    joined_key,
    json_of,
    observed,
    with_fields,
)
from logboom.pipeline.jobs.publishing import Target, batch_writer
from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS: Final[Mapping[str, Callable[[str], Column]]] = {
    "sum": sf.sum,
    "avg": sf.avg,
    "min": sf.min,
    "max": sf.max,
}
"""The aggregates of a measure, by the suffix of their columns."""
SCHEMA: Final = "value binary, timestamp timestamp"
"""The columns that are read from a topic."""


@dataclass(frozen=True, slots=True)
class WindowAggregation:
    """The windows to compute, and their measures."""

    schema: str
    """Fields of the JSON values, as in SQL: "carrier string, delay double"."""
    width: str = "1 minute"
    """The length of a window."""
    slide: str = ""
    """From the start of a window to the start of the next; by default its width (no overlap)."""
    by: Sequence[str] = ()
    """Fields to group by."""
    measures: Sequence[str] = ()
    """Fields whose sum, average, minimum and maximum are computed."""
    time: str = ""
    """The field with the time of an event; by default the message time."""
    watermark: str = "1 minute"
    """How late a message may be and still be counted."""


def parsed(messages: DataFrame, wanted: WindowAggregation) -> DataFrame:
    """Return the fields of the values, and `event_time`.

    The fields of a value that does not fit are null. It is still counted if the message time is the
    event time. A stream counts such values.
    """
    told = observed(with_fields(messages, wanted.schema))
    time = sf.col(f"it.{wanted.time}").cast("timestamp") if wanted.time else sf.col("timestamp")
    fields = (sf.col(f"it.`{name}`") for name in field_names(wanted.schema))
    return told.select(*fields, time.alias("event_time"))


def windowed(messages: DataFrame, wanted: WindowAggregation) -> DataFrame:
    """Return a row per window and group: begin, end, the fields of `by`, count, and the measures.

    Raises:
        InvalidRequest: the schema lacks a field.
    """
    fields = [*field_names(wanted.schema), "event_time"]
    for name in (*wanted.by, *wanted.measures):
        if name not in fields:
            raise InvalidRequest(f"the schema has no field {name!r}: there are {', '.join(fields)}")
    events = parsed(messages, wanted)
    slide = wanted.slide or wanted.width
    windows = events.withWatermark("event_time", wanted.watermark).groupBy(
        sf.window("event_time", wanted.width, slide).alias("window"), *wanted.by
    )
    counted = windows.agg(sf.count("*").alias("count"), *_measures(wanted.measures))
    return counted.select(
        sf.col("window.start").alias("begin"), sf.col("window.end").alias("end"), "*"
    ).drop("window")


def _measures(names: Sequence[str]) -> list[Column]:
    return [kind(name).alias(f"{name}_{word}") for name in names for word, kind in KINDS.items()]


def columns(wanted: WindowAggregation) -> list[str]:
    """Return the columns of windows, in order."""
    measures = [f"{name}_{word}" for name in wanted.measures for word in KINDS]
    return ["begin", "end", *wanted.by, "count", *measures]


def window(
    spark: SparkSession,
    source: dict[str, str],
    wanted: WindowAggregation,
    folder: Path,
    checkpoint: Path | None = None,
    *,
    every: str = "",
    on_rows: OnRows | None = None,
) -> JobReport:
    """Write windows to Parquet: those that have ended now, or with `every` as they end.

    Args:
        source: options of the source; where to begin applies only to a new checkpoint.
        checkpoint: where Spark keeps its progress and the open windows; None: in the folder.

    Raises:
        InvalidRequest: the schema lacks a field, or the checkpoint belongs to other topics or to
            another folder.
    """
    place = checkpoint or folder / "_checkpoint"
    checkpoints.check_topics(place, source)
    checkpoints.check_sink(folder, place)
    writer = (
        windowed(_messages(spark, source), wanted)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder))
        .option("checkpointLocation", str(place))
    )
    return run_stream("window", writer, every=every, on_rows=on_rows)


def as_values(windows: DataFrame, wanted: WindowAggregation) -> DataFrame:
    """Return windows as messages: JSON objects, with the fields of `by` as key.

    The message time is the last millisecond of the window, so that windows of windows are correct.
    """
    return windows.select(
        (joined_key(wanted.by) if wanted.by else sf.lit(None).cast("binary")).alias("key"),
        json_of([sf.col(f"`{name}`") for name in columns(wanted)]).alias("value"),
        (sf.col("end") - sf.expr("INTERVAL '0.001' SECOND")).alias("timestamp"),
    )


def outgoing(windows: DataFrame, wanted: WindowAggregation) -> DataFrame:
    """Return the windows of a micro-batch as messages, those of a key ordered by time."""
    found = as_values(windows, wanted)
    return found.repartition("key").sortWithinPartitions("timestamp")


def window_to_topic(
    spark: SparkSession,
    source: dict[str, str],
    wanted: WindowAggregation,
    target: Target,
    checkpoint: Path,
    *,
    every: str = "",
    on_rows: OnRows | None = None,
) -> JobReport:
    """Write windows to a topic, each once: those that have ended now, or with `every` as they end.

    Args:
        source: options of the source; where to begin applies only to a new checkpoint.
        checkpoint: where Spark keeps its progress and the open windows.

    Raises:
        InvalidRequest: the schema lacks a field, or the checkpoint belongs to other topics.
    """
    checkpoints.check_topics(checkpoint, source)
    windows = windowed(_messages(spark, source), wanted)

    def made(frame: DataFrame) -> DataFrame:
        return outgoing(frame, wanted)

    writer = batch_writer("window", windows, target, checkpoint, made)
    return run_stream("window", writer, every=every, on_rows=on_rows)


def _messages(spark: SparkSession, source: dict[str, str]) -> DataFrame:
    reader = spark.readStream.format("logboom").schema(SCHEMA)
    return reader.options(**{"startingOffsets": "earliest", **source}).load()
