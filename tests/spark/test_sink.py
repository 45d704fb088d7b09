"""Real queries that write to topics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from logboom.client import Client
from logboom.pipeline import publish_updates
from logboom.pipeline.spark_errors import reason
from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import queue_for
from tests.spark.topic_contents import contents

Read = Callable[..., DataFrame]


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
    assert query.awaitTermination(300)
    assert values(batch, copy) == list(range(100))
    fill(topic, 0, range(100, 150))
    query = writer.start()
    assert query.awaitTermination(300)
    assert values(batch, copy) == list(range(150))


def test_at_least_once(
    servers: str, stream: Read, batch: Read, topic: str, fill: Any, tmp_path: Path
) -> None:
    copy = f"{topic}.copy"
    fill(topic, 0, range(50))
    query = (
        stream("value binary", subscribe=topic, startingOffsets="earliest")
        .writeStream.format("logboom")
        .options(servers=servers, topic=copy, queues="1", delivery="at-least-once")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert values(batch, copy) == list(range(50))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "none-such"}, "topic 'none-such' does not exist: create it with"),
        ({"topic": "t", "topics": "t"}, "the sink has no option 'topics': did you mean topic?"),
        ({"servers": "127.0.0.1:9", "topic": "t", "timeoutMs": "300"}, "answered at 127.0.0.1:9"),
    ],
)
def test_what_cannot_be_is_told_on_the_driver(
    spark: SparkSession, servers: str, options: dict[str, str], said: str
) -> None:
    writer = numbers(spark, 10, 1).write.format("logboom").mode("append")
    with pytest.raises(PySparkException) as caught:
        writer.options(**{"servers": servers, **options}).save()
    assert said in reason(caught.value)


def test_complete_mode_is_refused(
    servers: str, stream: Read, topic: str, fill: Any, tmp_path: Path
) -> None:
    fill(topic, 0, range(5))
    frame = stream("value binary", subscribe=topic, startingOffsets="earliest")
    writer = frame.groupBy("value").count().select("value").writeStream.format("logboom")
    options = {"servers": servers, "topic": topic, "checkpointLocation": str(tmp_path / "cp")}
    query = writer.options(**options).outputMode("complete").trigger(availableNow=True).start()
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination(300)
    said = 'write with outputMode "append"; a running aggregate by logboom.pipeline.publish_updates'
    assert said in reason(caught.value)


def test_a_running_aggregate_is_published_as_it_changes(
    servers: str, boom: Client, stream: Read, batch: Read, topic: str, fill: Any, tmp_path: Path
) -> None:
    sums = f"{topic}.sums"
    boom.admin.create_topic(sums, queues=2)
    frame = stream("value binary", subscribe=topic, startingOffsets="earliest")
    numbers = frame.selectExpr("int(string(value)) AS n").selectExpr("n % 3 AS rest", "n")
    totals = numbers.groupBy("rest").agg(sf.count("*").alias("count"), sf.sum("n").alias("sum"))
    options = {"servers": servers, "topic": sums}

    def run() -> None:
        query = publish_updates(totals, ["rest"], tmp_path / "cp", options, availableNow=True)
        assert query.awaitTermination(300)

    def told() -> list[tuple[bytes, dict[str, int]]]:
        rows = batch(subscribe=sums).orderBy("partition", "offset").collect()
        return [(bytes(row.key), json.loads(row.value)) for row in rows]

    def total(rest: int, stop: int) -> tuple[bytes, dict[str, int]]:
        those = range(rest, stop, 3)
        return b"%d" % rest, {"rest": rest, "count": len(those), "sum": sum(those)}

    fill(topic, 0, range(9))
    run()
    assert sorted(told(), key=str) == [total(rest, 9) for rest in range(3)]
    fill(topic, 1, range(9, 11))
    run()
    # As if the driver had died before its own note: what was published is known.
    for name in ("1", ".1.crc"):
        (tmp_path / "cp" / "commits" / name).unlink()
    run()
    assert len(told()) == 5
    assert dict(told()) == dict([total(0, 11), total(1, 11), total(2, 9)])
    with pytest.raises(InvalidRequest, match="there is no column 'shop'"):
        publish_updates(totals, ["shop"], tmp_path / "cp", options)
    with pytest.raises(InvalidRequest, match="no stream"):
        publish_updates(batch(subscribe=topic), ["topic"], tmp_path / "cp", options)
    timed = stream(subscribe=topic).withWatermark("timestamp", "1 minute")
    visits = timed.groupBy("key", sf.session_window("timestamp", "1 minute")).count()
    with pytest.raises(
        InvalidRequest, match=r"^Spark tells no updates of session windows, [^\n]+$"
    ):
        publish_updates(visits, ["key"], tmp_path / "visits", options)


def test_the_line_that_a_table_without_options_recommends_works(
    spark: SparkSession, servers: str, boom: Client, topic: str
) -> None:
    spark.sql("CREATE TABLE bare USING logboom")
    try:
        with pytest.raises(PySparkException) as caught:
            spark.sql("INSERT INTO bare (value) SELECT binary('x')")
        line = re.search(r"INSERT INTO t WITH .*", reason(caught.value))
        assert line is not None, reason(caught.value)
        said = line[0].replace("INTO t", "INTO bare")
        for words in (servers, topic, "x"):
            said = said.replace("…", words, 1)
        spark.sql(said)
    finally:
        spark.sql("DROP TABLE bare")
    assert [message.value for message in contents(boom, topic)] == [b"x"]
