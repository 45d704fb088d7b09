"""dedup: a topic without its duplicates, to another topic.

A duplicate is a message with the same key, tag, value or JSON fields as an earlier one, whose
message time is at most a certain time later. A message that is behind the newest by more than that
is *late*: Spark has forgotten what was there then, so the message is left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from logboom.pipeline.jobs import checkpoints
from logboom.pipeline.jobs import message_frames as rows
from logboom.pipeline.jobs.job_runs import JobReport, OnRows, run_stream
from logboom.pipeline.jobs.publishing import Target, batch_writer
from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_MESSAGE: Final = ("key", "value", "tag")
"""Names for parts of a message. Any other name is a field of its JSON value."""
PLACE: Final = ("topic", "partition", "offset")


def deduplicated(
    messages: DataFrame, by: Sequence[str] = ("key",), within: str = "10 minutes"
) -> DataFrame:
    """Return the first of all messages that are alike in `by`, within a watermark.

    Messages that have none of it are all kept.

    Args:
        messages: with the columns of `messages.SCHEMA`.
        by: key, value, tag, or fields of the JSON values such as `order.id`.
        within: how much later a duplicate may be, as a Spark interval.

    Raises:
        InvalidRequest: `by` is empty.
    """
    if not by:
        raise InvalidRequest(
            "say by what doubles are known: key, value, tag, or fields of the JSON"
        )
    parts = [_part(name) for name in by]
    known = sf.concat_ws("/", *(sf.coalesce(part, sf.lit("-")) for part in parts))
    alone = sf.concat_ws("/", *PLACE)
    # Two columns, so that a key is never mistaken for a position.
    identity = sf.when(sf.coalesce(*parts).isNull(), alone)
    named = messages.withColumns({"_id": known, "_alone": sf.coalesce(identity, sf.lit(""))})
    kept = named.withWatermark("timestamp", within).dropDuplicatesWithinWatermark(["_id", "_alone"])
    return kept.drop("_id", "_alone")


def _part(name: str) -> Column:
    """Return one part of a message's identity, as unambiguous text, or null if it is missing."""
    if name in OF_MESSAGE:
        return sf.hex(sf.col(name).cast("binary"))
    found = sf.get_json_object(sf.col("value").cast("string"), f"$.{name}")
    return sf.hex(found.cast("binary"))


def in_order(messages: DataFrame) -> DataFrame:
    """Return messages of a micro-batch in the order in which they were read."""
    return rows.in_order(messages).select(*rows.COLUMNS)


def dedup(
    spark: SparkSession,
    source: dict[str, str],
    target: Target,
    checkpoint: Path,
    *,
    by: Sequence[str] = ("key",),
    within: str = "10 minutes",
    every: str = "",
    on_rows: OnRows | None = None,
) -> JobReport:
    """Write the messages that are there now, or with `every` those that come, without doubles.

    Args:
        source: options of the source; where to begin applies only to a new checkpoint.
        checkpoint: where Spark keeps its progress and the messages that it has seen.
        by: what duplicates have in common: key, value, tag, or fields of the JSON values such as
            order.id (messages that have none of these are all kept).
        within: how much later a duplicate may be.

    Raises:
        InvalidRequest: `by` is empty, or the checkpoint belongs to other topics.
    """
    checkpoints.check_topics(checkpoint, source)
    reader = spark.readStream.format("logboom").schema(rows.SCHEMA)
    frame = reader.options(**{"startingOffsets": "earliest", **source}).load()
    kept = deduplicated(frame, by, within)
    writer = batch_writer("dedup", kept, target, checkpoint, in_order)
    return run_stream("dedup", writer, every=every, on_rows=on_rows)
