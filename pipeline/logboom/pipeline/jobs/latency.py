"""lag: latencies from producers to a reader, and totals of groups' lags.

The lags themselves come from `logboom.pipeline.lags`.

The latency is that of a stream without any other work: from the message time to the moment when
Spark has read the message. The clocks are the producer's and this machine's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from logboom.pipeline.jobs.job_runs import interrupts
from logboom.pipeline.plot import Line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARES: Final = (0.5, 0.95, 0.99)
"""The percentiles that are reported."""
SCHEMA: Final = "timestamp timestamp"


@dataclass(frozen=True, slots=True)
class LatencySample:
    """The latencies of one micro-batch, in ms."""

    at_s: float
    """Seconds since the job began."""
    messages: int
    p50: int
    p95: int
    p99: int
    max: int


def lag_totals(lags: DataFrame) -> DataFrame:
    """Return the lag of each group and topic, and of its worst queue, from rows of `group_lags`."""
    return (
        lags.groupBy("group", "topic")
        .agg(
            sf.sum("lag").alias("lag"),
            sf.max("lag").alias("worst_queue_lag"),
            sf.max("age_ms").alias("age_ms"),
        )
        .orderBy("group", "topic")
    )


def latencies(messages: DataFrame, now_ms: int) -> DataFrame:
    """Return one row: the number of messages, and percentiles of their age at `now_ms`, in ms."""
    age = sf.lit(now_ms) - sf.unix_millis("timestamp")
    told = sf.percentile_approx(age, list(SHARES), 10_000)
    return messages.agg(
        sf.count("*").alias("messages"), told.alias("percentiles"), sf.max(age).alias("max")
    )


def watch_latency(
    spark: SparkSession,
    source: dict[str, str],
    checkpoint: str,
    seconds: int,
    on_latency: Callable[[LatencySample], object] | None = None,
    batches: int = 0,
) -> list[LatencySample]:
    """Read new messages for some seconds or micro-batches, and return the latencies of each batch.

    Raises:
        StreamingQueryException: the query failed.
    """
    found: list[LatencySample] = []

    busy, ended = threading.Lock(), threading.Event()

    def look(frame: DataFrame, batch_id: int) -> None:
        with busy:
            if not ended.is_set():
                measure(frame)

    def measure(frame: DataFrame) -> None:
        # The clock is read after the messages, because the time of receipt counts.
        frame.persist()
        count = frame.count()
        if count:
            row = latencies(frame, time.time_ns() // 1_000_000).collect()[0]
            at_s = round(time.monotonic() - began, 3)
            p50, p95, p99 = row.percentiles
            found.append(LatencySample(at_s, count, p50, p95, p99, row.max))
            if on_latency is not None:
                on_latency(found[-1])
        frame.unpersist()

    reader = spark.readStream.format("logboom").schema(SCHEMA).options(**source)
    writer = reader.load().writeStream.foreachBatch(look)
    began = time.monotonic()
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        with interrupts() as stop:
            while not stop.is_set() and time.monotonic() - began < seconds:
                query.awaitTermination(1)
                if batches and len(found) >= batches:
                    break
    finally:
        # A query that is stopped while it measures fails with a stack overflow, because Spark
        # searches our traceback for its own with a regular expression.
        with busy:
            ended.set()
        query.stop()
    return found


def latency_lines(found: list[LatencySample]) -> list[Line]:
    """Return the lines of a latency plot."""
    return [
        Line(name, [(each.at_s, float(getattr(each, name))) for each in found])
        for name in ("p50", "p95", "p99")
    ]
