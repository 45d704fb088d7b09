"""A running aggregate as a topic: the last message of each key is the aggregate's current value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from logboom.pipeline.spark_errors import reason
from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

UNSUPPORTED: Final = "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"
"""Spark's name of the error that an aggregate does not support an output mode."""


def publish_updates(
    rows: DataFrame,
    by: Sequence[str],
    checkpoint: str | Path,
    options: Mapping[str, str],
    **trigger: Any,
) -> StreamingQuery:
    """Start a query that publishes the rows of an aggregate as they change, each change once.

    Spark does not allow outputMode("update") for Python sinks, so each micro-batch is a separate
    batch write, numbered, in one transaction. A message has the columns of `by` as key (separated
    by /, and empty for a null), and a JSON object of all columns as value.

    Args:
        rows: a streaming aggregate, such as `sales.groupBy("shop").count()`.
        checkpoint: Spark's folder, after which the transactions are named too; with `txnAppId`
            among the options, any folder that Spark can write.
        options: those of the sink.
        trigger: arguments of `DataStreamWriter.trigger`; none: as fast as possible.

    Raises:
        InvalidRequest: `rows` is not a stream, or lacks a column of `by`, or Spark cannot tell how it
            changes, as with session windows.
    """
    # Imported here, because they import PySpark.
    from pyspark.errors import AnalysisException

    from logboom.pipeline.jobs.checkpoints import stream_app_id

    missing = [name for name in by if name not in rows.columns]
    if not rows.isStreaming or missing or not by:
        what = (
            f"there is no column {missing[0]!r}" if missing else "by names the columns of the key"
        )
        raise InvalidRequest(what if rows.isStreaming else "this is no stream: say readStream")
    named = {name.lower(): value for name, value in options.items()}
    if "txnappid" not in named:
        named["txnappid"] = stream_app_id(Path(checkpoint), "updates")

    def publish(frame: DataFrame, number: int) -> None:
        writer = as_updates(frame, by).write.format("logboom").options(**named)
        writer.option("txnVersion", str(number)).mode("append").save()

    writer = rows.writeStream.foreachBatch(publish).outputMode("update")
    writer = writer.option("checkpointLocation", str(checkpoint))
    if trigger:
        writer = writer.trigger(**trigger)
    try:
        return writer.start()
    except AnalysisException as error:
        raise InvalidRequest(_refusal(error)) from error


def _refusal(error: AnalysisException) -> str:
    """Return in one line why Spark does not start a query with outputMode "update"."""
    if error.getCondition() == UNSUPPORTED and "session window" in str(error):
        return (
            "Spark tells no updates of session windows, because they merge: write the rows with "
            'outputMode "append", which has each session once it is over'
        )
    return reason(error)


def as_updates(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return rows as messages."""
    from pyspark.sql import functions as sf

    from logboom.pipeline.jobs.message_frames import joined_key, json_of

    value = json_of([sf.col(f"`{name}`") for name in rows.columns])
    return rows.select(joined_key(by).alias("key"), value.alias("value"))
