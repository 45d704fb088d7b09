"""Rows per second of a Spark stream from topic to topic, exactly once.

One name server and one broker run on the same machine as Spark.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Final

from bench.figures import Figure, compared
from bench.load import WIDTH, values
from bench.spark_read import LONG_JOB, from_memory, register_toy
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.pipeline import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from logboom.client import Client

QUEUES: Final = 2
OUT_QUEUES: Final = 4
WRITTEN: Final = 0.16


def rows(count: int, rounds: int) -> list[Figure]:
    """Return the median rate over `count` rows."""
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        fill(boom, count)
        spark = session("bench", "local[2]", LONG_JOB)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            servers = ",".join(cluster.endpoints)
            return [rate_row(spark, boom, servers, count, rounds)]
        finally:
            spark.stop()


def fill(boom: Client, count: int) -> None:
    """Produce distinct random values with keys into the queues."""
    boom.admin.create_topic("read", queues=QUEUES, replicas=1)
    each = count // QUEUES
    with boom.producer() as producer:
        for queue in range(QUEUES):
            keys = [b"%08d" % n for n in range(each)]
            producer.send_many("read", values(each, seed=queue), keys, queue=queue).result()


def copying(frame: DataFrame, servers: str, topic: str, folder: str) -> DataStreamWriter:
    """Return a stream writer into a topic."""
    writer = frame.select("key", "value").writeStream.format("logboom")
    return writer.options(servers=servers, topic=topic, checkpointLocation=folder)


def rate_row(spark: SparkSession, boom: Client, servers: str, count: int, rounds: int) -> Figure:
    """Measure a stream over all messages, from its start to its end."""

    def stream(turn: int) -> list[float]:
        topic = f"copy-{turn}"
        boom.admin.create_topic(topic, queues=OUT_QUEUES, replicas=1)
        options = {"servers": servers, "subscribe": "read", "startingOffsets": "earliest"}
        frame = spark.readStream.format("logboom").options(**options).load()
        with tempfile.TemporaryDirectory() as folder:
            writer = copying(frame, servers, topic, folder)
            began = time.perf_counter()
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            spent = time.perf_counter() - began
        written = sum(end - start for start, end in boom.admin.offsets(topic).values())
        if written != count:
            raise AssertionError(f"{written} rows arrived, not {count}")
        return [count / spent]

    register_toy(spark, count)
    stream(rounds)  # the first one warms up Spark
    (rate,) = from_memory(spark, count).beside(rounds, stream)
    note = f"1 broker, {WIDTH} B and keys, {QUEUES} to {OUT_QUEUES} queues"
    name = "Spark stream to topic, exactly once"
    return compared(name, rate, "rows/s", WRITTEN, note=note)
