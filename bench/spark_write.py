"""Spark streams from topic to topic, exactly once: how many rows a second, and how soon one arrives.

Three name servers would cost the decision another way there and back; here is one, and one broker,
beside Spark on the same machine.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Final

from bench.latency import percentile
from bench.load import WIDTH, values
from bench.rows import Row
from bench.spark_read import LONG_JOB
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.pipeline import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from logboom.client import Client

QUEUES: Final = 2
OUT_QUEUES: Final = 4
RATE_BAR: Final = 300_000
LATENCY_BAR_MS: Final = 200.0
WARM_UP: Final = 5
"""Messages that are not counted: Spark's first micro-batches take seconds."""
PAUSE_S: Final = 0.4
"""Between two messages, so that none waits for the micro-batch of the one before."""


def rows(count: int, rounds: int, messages: int) -> list[Row]:
    """The rate over `count` rows, best of `rounds`, and the latency of so many messages."""
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        fill(boom, count)
        spark = session("bench", "local[2]", LONG_JOB)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            servers = ",".join(cluster.endpoints)
            return [
                rate_row(spark, boom, servers, count, rounds),
                latency_row(spark, boom, servers, messages),
            ]
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
    """A stream writer into a topic."""
    writer = frame.select("key", "value").writeStream.format("logboom")
    return writer.options(servers=servers, topic=topic, checkpointLocation=folder)


def rate_row(spark: SparkSession, boom: Client, servers: str, count: int, rounds: int) -> Row:
    """A stream over all there is, from its start to its end."""
    best = float("inf")
    for turn in range(rounds + 1):  # the first, which warms Spark up, is never the fastest
        topic = f"copy-{turn}"
        boom.admin.create_topic(topic, queues=OUT_QUEUES, replicas=1)
        options = {"servers": servers, "subscribe": "read", "startingOffsets": "earliest"}
        frame = spark.readStream.format("logboom").options(**options).load()
        with tempfile.TemporaryDirectory() as folder:
            writer = copying(frame, servers, topic, folder)
            began = time.perf_counter()
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            best = min(best, time.perf_counter() - began)
        written = sum(end - start for start, end in boom.admin.offsets(topic).values())
        if written != count:
            raise AssertionError(f"{written} rows arrived, not {count}")
    note = f"1 broker, {WIDTH} B and keys, {QUEUES} to {OUT_QUEUES} queues"
    return Row("Spark stream to topic, exactly once", count / best, "rows/s", RATE_BAR, note=note)


def latency_row(spark: SparkSession, boom: Client, servers: str, messages: int) -> Row:
    """From send to when a reader has the message that a query with the default trigger passed on."""
    for topic in ("in", "out"):
        boom.admin.create_topic(topic, queues=1, replicas=1)
    options = {"servers": servers, "subscribe": "in", "startingOffsets": "earliest"}
    frame = spark.readStream.format("logboom").options(**options).load()
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        query = copying(frame, servers, "out", folder).start()
        try:
            with boom.producer() as producer, boom.consumer("out") as consumer:
                for number in range(WARM_UP + messages):
                    began = time.perf_counter()
                    producer.send("in", b"%d" % number)
                    while not consumer.poll(timeout_s=60.0):
                        continue
                    taken.append((time.perf_counter() - began) * 1000)
                    # Between two messages the query has to come to rest; nobody tells when.
                    time.sleep(PAUSE_S)
        finally:
            query.stop()
    counted = taken[WARM_UP:]
    note = f"p90 {percentile(counted, 0.9):.0f} ms, n={messages}, default trigger, 1 broker"
    value = percentile(counted, 0.5)
    return Row("Spark, produce to sink commit, p50", value, "ms", LATENCY_BAR_MS, "less", note=note)
