"""Spark reads from a live broker, compared with a source that creates the same rows in memory.

The source in memory only returns prepared record batches. Its time is Spark's own work, and the
ratio shows what ours adds. Both run in turn in one session, after a first round that warms it up.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.figures import Figure, compared
from bench.load import WIDTH, values
from bench.references import Reference
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.pipeline import session
from logboom.pipeline.record_batches import record_batches
from logboom.wire.batch import encode_batch, open_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONG_JOB: Final = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
"""Settings without the light compilation that `session` chooses for short jobs: a row of a long job
costs Java half as much."""
QUEUES: Final = 2
BATCH: Final = 10_000
NAMES: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
FROM_MEMORY: Final = "Spark's own work, the same rows out of memory, rows/s"
BATCH_READ: Final = 0.57
STREAM_READ: Final = 0.34


def register_toy(spark: SparkSession, count: int) -> None:
    """Register the format "toy" in a session: the same columns and number of rows, from memory."""
    # Imported here, because the other benchmarks do not need PySpark.
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    from logboom.pipeline.data_source import COLUMNS

    each = count // QUEUES // BATCH

    # Local classes are pickled by value, because Spark's workers cannot import this module.
    class RepeatingReader(DataSourceReader):
        """A reader that returns the same record batch again and again."""

        def __init__(self, names: list[str]) -> None:
            self.fields = [(name, True) for name in names]

        def partitions(self) -> list[Any]:
            """Return as many partitions as the topic has queues."""
            return [InputPartition(each)] * QUEUES

        def read(self, partition: Any) -> Iterator[Any]:
            """Return prepared record batches."""
            part = open_batch(
                encode_batch([bytes([n % 251]) * 100 for n in range(BATCH)], now_ms=1)
            )
            (ready,) = record_batches([part], "toy", 0, self.fields)
            for _ in range(partition.value):
                yield pa.RecordBatch.from_arrays(ready.columns, schema=ready.schema)

    class Toy(DataSource):
        """The format "toy"."""

        @classmethod
        def name(cls) -> str:
            """Return the name of the format."""
            return "toy"

        def schema(self) -> StructType:
            """Return Kafka's columns."""
            schema = StructType()
            for name in NAMES:
                schema.add(name, COLUMNS[name])
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            """Return a reader of the requested columns."""
            return RepeatingReader(schema.names)

    spark.dataSource.register(Toy)


def rows(count: int, rounds: int) -> list[Figure]:
    """Measure batch reads beside those of the toy format, and a stream over all messages."""
    with Cluster(name_servers=1, brokers=1) as cluster:
        fill(cluster.endpoints, count)
        spark = session("bench", "local[2]", LONG_JOB)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            options = {"servers": ",".join(cluster.endpoints), "subscribe": "read"}
            register_toy(spark, count)
            return [
                *batch_rows(spark, options, count, rounds),
                stream_row(spark, options, count, rounds),
            ]
        finally:
            spark.stop()


def fill(endpoints: list[str], count: int) -> None:
    """Produce distinct random values into the queues."""
    with connect(endpoints) as boom:
        boom.admin.create_topic("read", queues=QUEUES, replicas=1)
        with boom.producer() as producer:
            for queue in range(QUEUES):
                producer.send_many(
                    "read", values(count // QUEUES, seed=queue), queue=queue
                ).result()


def from_memory(spark: SparkSession, count: int, schema: str = "") -> Reference:
    """Return the reference that reads as many rows out of memory; see `register_toy`."""

    def read() -> list[float]:
        reader = spark.read.format("toy")
        return [count / seconds((reader.schema(schema) if schema else reader).load())]

    read()  # the first one warms up Spark
    return Reference(FROM_MEMORY, read)


def batch_rows(
    spark: SparkSession, options: dict[str, str], count: int, rounds: int
) -> list[Figure]:
    """Return a row per selection of columns."""
    found = []
    for name, schema in (("7 columns", ""), ("value only", "value binary")):

        def read(_: int, schema: str = schema) -> list[float]:
            reader = spark.read.format("logboom").options(**options)
            return [count / seconds((reader.schema(schema) if schema else reader).load())]

        read(0)  # the first one warms up Spark
        (rate,) = from_memory(spark, count, schema).beside(rounds, read)
        name = f"Spark batch read, {name}"
        found.append(compared(name, rate, "rows/s", BATCH_READ, note="1 broker"))
    return found


def seconds(frame: DataFrame) -> float:
    """Return the time to read a frame and discard its rows."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def stream_row(spark: SparkSession, options: dict[str, str], count: int, rounds: int) -> Figure:
    """Measure a stream over all messages, from its start to its end."""

    def stream(_: int) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            reader = spark.readStream.format("logboom").options(**options)
            frame = reader.option("startingOffsets", "earliest").load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
            began = time.perf_counter()
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            spent = time.perf_counter() - began
            return [sum(each.numInputRows for each in query.recentProgress) / spent]

    stream(0)  # the first one warms up Spark
    (rate,) = from_memory(spark, count).beside(rounds, stream)
    name = "Spark stream, AvailableNow"
    return compared(name, rate, "rows/s", STREAM_READ, note=f"{WIDTH} B")
