"""Real queries that write to topics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from logboom.client import Client
from logboom.wire.hashing import queue_for

Read = Callable[..., DataFrame]

pytestmark = pytest.mark.timeout(400)


def numbers(spark: SparkSession, count: int, parts: int = 2) -> DataFrame:
    """A frame of keys and values."""
    return spark.range(0, count, 1, parts).selectExpr(
        "cast(id % 10 as string) as key", "cast(id as string) as value"
    )


def values(batch: Read, topic: str) -> list[int]:
    """The numbers of a topic, in order."""
    return sorted(int(row.value) for row in batch("value binary", subscribe=topic).collect())


def test_a_batch_is_written(spark: SparkSession, servers: str, batch: Read, topic: str) -> None:
    options = {"servers": servers, "topic": topic}
    numbers(spark, 1_000).write.format("logboom").options(**options).mode("append").save()
    rows = batch(subscribe=topic).collect()
    assert sorted(int(row.value) for row in rows) == list(range(1_000))
    assert all(row.partition == queue_for(bytes(row.key), 3) for row in rows)


def test_a_stream_from_topic_to_topic(
    servers: str, boom: Client, stream: Read, batch: Read, topic: str, fill: Any, tmp_path: Path
) -> None:
    copy = f"{topic}.copy"
    boom.admin.create_topic(copy, queues=2)
    fill(topic, 0, range(100), keys=[b"%d" % (n % 7) for n in range(100)])
    writer = (
        stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
        .drop("partition")
        .writeStream.format("logboom")
        .options(servers=servers, topic=copy, checkpointLocation=str(tmp_path / "checkpoint"))
        .queryName("copying")
        .trigger(availableNow=True)
    )
    query = writer.start()
    assert query.awaitTermination(60)
    assert values(batch, copy) == list(range(100))
    fill(topic, 0, range(100, 150))
    query = writer.start()
    assert query.awaitTermination(60)
    assert values(batch, copy) == list(range(150))
