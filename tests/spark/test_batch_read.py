"""`spark.read.format("logboom")`: each option in a real query."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from logboom.client import Client
from logboom.pipeline.spark_errors import reason
from tests.spark.conftest import Trimmed

Batch = Callable[..., DataFrame]
Fill = Callable[..., None]
NOW = 1_700_000_000_000


def numbers(frame: DataFrame) -> list[int]:
    """The values read, as numbers in order."""
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_rows_have_kafkas_columns(batch: Batch, topic: str, fill: Fill) -> None:
    fill(topic, 1, range(2), keys=[b"a", None], timestamps_ms=[NOW + 7, NOW])
    frame = batch(subscribe=topic)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    first, second = frame.withColumn("ms", sf.unix_millis("timestamp")).orderBy("offset").collect()
    assert first.asDict() | {"timestamp": None} == {
        "key": b"a",
        "value": b"0",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": None,
        "timestampType": 0,
        "ms": NOW + 7,
    }
    assert (second.key, second.ms) == (None, NOW)
    assert isinstance(first.timestamp, datetime)


def test_an_empty_topic_has_no_rows(batch: Batch, topic: str) -> None:
    assert batch(subscribe=topic).collect() == []


def test_many_topics_a_pattern_and_some_queues(
    batch: Batch, boom: Client, topic: str, fill: Fill
) -> None:
    other = f"{topic}.other"
    boom.admin.create_topic(other, queues=1)
    fill(topic, 0, range(3))
    fill(topic, 2, range(3, 6))
    fill(other, 0, range(6, 9))
    assert numbers(batch(subscribe=f"{topic}, {other}")) == list(range(9))
    assert numbers(batch(subscribePattern=rf"{topic}\..*")) == [6, 7, 8]
    assert numbers(batch(assign=json.dumps({topic: [0], other: [0]}))) == [0, 1, 2, 6, 7, 8]


def test_headers_and_tags_come_when_they_are_asked_for(
    batch: Batch, topic: str, fill: Fill
) -> None:
    fill(topic, 0, range(2), tags=["late", None], headers=[{"x": b"1"}, None])
    rows = batch(subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    assert [row.headers for row in rows] == [[("x", b"1")], None]
    tagged = batch("tag string, value binary", subscribe=topic).collect()
    assert [(row.tag, row.value) for row in tagged] == [("late", b"0"), (None, b"1")]


def test_only_the_columns_of_a_schema_are_read(batch: Batch, topic: str, fill: Fill) -> None:
    fill(topic, 0, range(3))
    frame = batch("value binary, offset bigint", subscribe=topic)
    assert frame.columns == ["value", "offset"]
    assert numbers(frame) == [0, 1, 2]
    with_topic = batch("topic string not null, partition int", subscribe=topic).distinct()
    assert with_topic.collect() == [(topic, 0)]


def test_offsets_bound_a_read(batch: Batch, topic: str, fill: Fill) -> None:
    fill(topic, 0, range(10))
    fill(topic, 1, range(10, 20))
    start = json.dumps({topic: {"0": 4, "1": -2, "2": 0}})
    end = json.dumps({topic: {"0": 6, "1": -1, "2": 0}})
    found = batch(subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert numbers(found) == [4, 5, *range(10, 20)]


def test_times_bound_a_read(batch: Batch, topic: str, fill: Fill) -> None:
    for queue in range(3):
        times = [NOW + 1_000 * n for n in range(10)]
        fill(topic, queue, range(10 * queue, 10 * queue + 10), timestamps_ms=times)
    found = batch(subscribe=topic, startingTimestamp=str(NOW + 7_500))
    assert numbers(found) == [8, 9, 18, 19, 28, 29]
    ended = batch(subscribe=topic, endingTimestamp=str(NOW + 1_500))
    assert numbers(ended) == [0, 1, 10, 11, 20, 21]
    times_by_queue = json.dumps({topic: {"0": NOW + 9_000, "1": NOW + 8_000, "2": NOW + 99_000}})
    late = batch(
        subscribe=topic,
        startingOffsetsByTimestamp=times_by_queue,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert numbers(late) == [9, 18, 19]
    with pytest.raises(PySparkException, match=r"queue 2 of topic .* has no message at or after"):
        batch(subscribe=topic, startingOffsetsByTimestamp=times_by_queue).collect()


def test_a_read_begins_where_a_group_is(batch: Batch, boom: Client, topic: str, fill: Fill) -> None:
    fill(topic, 0, range(5))
    fill(topic, 1, range(5, 10))
    boom.admin.alter_group("readers", subscription={topic: ""}, create=True)
    boom.admin.reset_offsets("readers", {(topic, 0): 3}, dry_run=False)
    assert numbers(batch(subscribe=topic, startingOffsets="group:readers")) == [3, 4, *range(5, 10)]
    with pytest.raises(PySparkException, match=r"logboom\.wire\.errors.*'nobody'"):
        batch(subscribe=topic, startingOffsets="group:nobody").collect()


def test_partitions_are_as_many_as_asked_for(batch: Batch, topic: str, fill: Fill) -> None:
    fill(topic, 0, range(90))
    fill(topic, 1, range(90, 100))
    counted = {
        name: batch(subscribe=topic, **options).rdd.getNumPartitions()
        for name, options in {
            "queues": {},
            "least": {"minPartitions": "10"},
            "most": {"maxRecordsPerPartition": "30"},
        }.items()
    }
    assert counted == {"queues": 2, "least": 10, "most": 4}
    assert numbers(batch(subscribe=topic, minPartitions="7")) == list(range(100))


def test_latest_is_that_of_the_plan(batch: Batch, topic: str, fill: Fill) -> None:
    fill(topic, 0, range(5))
    frame = batch(subscribe=topic)
    assert frame.count() == 5
    fill(topic, 0, range(5, 8))
    assert frame.count() == 5
    assert batch(subscribe=topic).count() == 8


def test_compressed_batches_and_tombstones(batch: Batch, boom: Client, topic: str) -> None:
    with boom.producer(compression="zstd") as producer:
        producer.send_many(topic, [b"7" * 1_000] * 500, queue=0).result()
        producer.send(topic, None, key=b"gone", queue=1).result()
    frame = batch(subscribe=topic)
    assert frame.where("value is null").select("key").collect() == [(bytearray(b"gone"),)]
    assert frame.where(sf.length("value") == 1_000).count() == 500


def test_a_view_and_the_options_of_sql(
    spark: SparkSession, servers: str, topic: str, fill: Fill
) -> None:
    fill(topic, 0, range(4))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW seen USING logboom "
        f"OPTIONS (servers '{servers}', subscribe '{topic}')"
    )
    (row,) = spark.sql("SELECT count(*) AS n, max(offset) AS last FROM seen").collect()
    assert (row.n, row.last) == (4, 3)


def test_a_table_is_queried_with_options_of_the_query(
    spark: SparkSession, servers: str, topic: str, fill: Fill
) -> None:
    fill(topic, 0, range(4))
    options = f"servers '{servers}', subscribe '{topic}'"
    spark.sql(f"CREATE TABLE kept_no_options USING logboom OPTIONS ({options})")
    with pytest.raises(PySparkException) as caught:
        spark.sql("SELECT value FROM kept_no_options").collect()
    assert "Of CREATE TABLE Spark keeps none: use CREATE TEMPORARY VIEW" in reason(caught.value)
    said = options.replace(" '", " = '")
    assert spark.sql(f"SELECT value FROM kept_no_options WITH ({said})").count() == 4
    spark.sql("DROP TABLE kept_no_options")


def test_a_time_of_each_queue_ends_a_read(batch: Batch, topic: str, fill: Fill) -> None:
    for queue in range(3):
        times = [NOW + 1_000 * n for n in range(10)]
        fill(topic, queue, range(10 * queue, 10 * queue + 10), timestamps_ms=times)
    ends = {"0": NOW + 1_001, "1": NOW, "2": NOW + 99_000}
    options = {"endingOffsetsByTimestamp": json.dumps({topic: ends}), "endingOffsets": "latest"}
    assert numbers(batch(subscribe=topic, **options)) == [0, 1, *range(20, 30)]


def test_messages_that_retention_took_end_a_read_or_are_passed_over(
    batch: Batch, trimmed: Trimmed
) -> None:
    options = {"subscribe": trimmed.topic, "startingOffsets": f'{{"{trimmed.topic}": {{"0": 3}}}}'}
    with pytest.raises(PySparkException) as caught:
        batch(**options).collect()
    gone = f"begins at offset {trimmed.first} now, messages from 3 are gone: say failOnDataLoss"
    assert gone in reason(caught.value)
    left = list(range(trimmed.first, trimmed.end))
    assert numbers(batch(failOnDataLoss="false", **options)) == left
    assert numbers(batch(subscribe=trimmed.topic)) == left


@pytest.mark.thorough
def test_a_message_of_a_wild_time_is_read_and_archived(
    spark: SparkSession, batch: Batch, topic: str, fill: Fill, tmp_path: Path
) -> None:
    nanoseconds = NOW * 1_000_000
    fill(topic, 0, range(3), timestamps_ms=[NOW, nanoseconds, -nanoseconds])
    frame = batch(subscribe=topic)
    assert numbers(frame) == [0, 1, 2]
    frame.write.parquet(str(tmp_path / "files"))
    for each in (frame, spark.read.parquet(str(tmp_path / "files"))):
        found = each.select(sf.year("timestamp").alias("year")).orderBy("offset").collect()
        assert [row.year for row in found] == [2023, 294247, -290308]
