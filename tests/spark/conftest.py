"""One Spark session and one node for all tests of the pipeline: both take seconds to start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from logboom.client import Client
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded
from logboom.pipeline import session
from logboom.wire.errors import UnknownResource
from tests.spark.spark_cluster import SparkCluster

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    # Two tests at once would run into each other's derby.
    "spark.sql.catalogImplementation": "in-memory",
}


@pytest.fixture(scope="session", name="spark")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine."""
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    spark = session("tests", "local[2]", {**SETTINGS, **warehouse})
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture(scope="session", name="node")
def embedded_node() -> Iterator[Embedded]:
    """A name server and a broker."""
    with embedded() as node:
        yield node


@pytest.fixture(scope="session", name="boom")
def client(node: Embedded) -> Iterator[Client]:
    """A client of the node."""
    with node.connect(create_topics=False) as boom:
        yield boom


@pytest.fixture(scope="session", name="servers")
def servers_option(node: Embedded) -> str:
    """The option `servers` for the node."""
    return ",".join(node.endpoints)


@pytest.fixture(scope="session", name="cluster")
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A Spark master and two workers."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session", name="numbers")
def topic_numbers() -> Iterator[int]:
    return count()


@pytest.fixture(name="topic")
def new_topic(boom: Client, numbers: Iterator[int]) -> str:
    """A topic of this test alone, with three queues."""
    name = f"topic-{next(numbers)}"
    boom.admin.create_topic(name, queues=3)
    return name


class Trimmed(NamedTuple):
    """A topic of one queue whose first messages retention has taken; values are offsets."""

    topic: str
    first: int
    end: int


@pytest.fixture(scope="session", name="trimmed")
def topic_that_retention_has_trimmed(boom: Client) -> Trimmed:
    """Its messages take 500 bytes and a little more. Retention keeps at least what it is told to."""
    keep, size, count = 40_000, 500, 400
    boom.admin.create_topic("trimmed", queues=1)
    with boom.producer(max_batch_bytes=5_000) as producer:
        producer.send_many("trimmed", [b"%0*d" % (size, n) for n in range(count)]).result()
    # Only now: what retention takes while messages come is not all that it takes.
    boom.admin.alter_topic("trimmed", retention_bytes=keep)
    while True:
        first, end = boom.admin.offsets("trimmed")[0]
        if (end - first) * size <= 2 * keep:
            return Trimmed("trimmed", first, end)
        # Retention goes by its own clock; nobody tells when it has been.
        time.sleep(0.05)


@pytest.fixture(name="fill")
def filler(boom: Client) -> Iterator[Callable[..., None]]:
    """Send values to a queue of a topic, and wait until they are stored."""
    with boom.producer() as producer:

        def fill(topic: str, queue: int, values: range, **columns: Any) -> None:
            sent = [b"%d" % value for value in values]
            end = time.monotonic() + 200.0
            while True:
                try:
                    producer.send_many(topic, sent, queue=queue, **columns).result()
                except UnknownResource:
                    # A queue that was added just now: the producer is told of it by itself.
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.01)  # nobody tells us when
                else:
                    return

        yield fill


@pytest.fixture(name="batch")
def batch_reader(spark: SparkSession, servers: str) -> Callable[..., DataFrame]:
    """Read a batch with these options."""

    def read(schema: str = "", **options: str) -> DataFrame:
        reader = spark.read.format("logboom").options(servers=servers, **options)
        return (reader.schema(schema) if schema else reader).load()

    return read


@pytest.fixture(name="stream")
def stream_reader(spark: SparkSession, servers: str) -> Callable[..., DataFrame]:
    """Read a stream with these options."""

    def read(schema: str = "", **options: str) -> DataFrame:
        reader = spark.readStream.format("logboom").options(servers=servers, **options)
        return (reader.schema(schema) if schema else reader).load()

    return read


class Sink:
    """Where a query writes to: a folder of Parquet, and its checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def start(self, stream: DataFrame, **trigger: Any) -> Any:
        """Run a query; with no trigger, as fast as it can."""
        writer = stream.writeStream.format("parquet").options(
            path=str(self._folder / "out"), checkpointLocation=str(self._folder / "checkpoint")
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, stream: DataFrame) -> Any:
        """Run a query over all there is now; gives it back ended."""
        query = self.start(stream, availableNow=True)
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()
        return query

    def values(self) -> list[int]:
        """The numbers written, in order."""
        if not (self._folder / "out").exists():
            return []
        # With the schema said, Spark reads also what a query has only begun to write.
        rows = self._spark.read.schema("value binary").parquet(str(self._folder / "out")).collect()
        return sorted(int(row.value) for row in rows)


@pytest.fixture(name="sink")
def parquet_sink(spark: SparkSession, tmp_path: Path) -> Sink:
    """Where a query of this test writes to."""
    return Sink(spark, tmp_path)
