"""The topic of a Spark Declarative Pipelines project, as its transformations read and write it.

The project's `spark-pipeline.yml` names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SERVERS: Final = "logboom.servers"
TOPIC: Final = "logboom.topic"
SCHEMA: Final = "logboom.schema"
"""Settings of a project: the nodes, the topic, and the fields of its JSON values."""


def stream(spark: SparkSession, schema: str) -> DataFrame:
    """Return the topic as a stream from its first message."""
    options = {**_options(spark), "startingOffsets": "earliest"}
    return spark.readStream.format("logboom").schema(schema).options(**options).load()


def table(spark: SparkSession, schema: str, topic: str = "") -> DataFrame:
    """Return everything that the topic, or another one, holds now."""
    options = _options(spark)
    if topic:
        options["subscribe"] = topic
    return spark.read.format("logboom").schema(schema).options(**options).load()


def sink(spark: SparkSession, topic: str, queues: int) -> dict[str, str]:
    """Return the options of a sink that writes to a topic and creates it if it does not exist."""
    return {"servers": _said(spark, SERVERS), "topic": topic, "queues": str(queues)}


def fields(spark: SparkSession) -> str:
    """Return the fields of the JSON values."""
    return _said(spark, SCHEMA)


def _options(spark: SparkSession) -> dict[str, str]:
    return {"servers": _said(spark, SERVERS), "subscribe": _said(spark, TOPIC)}


def _said(spark: SparkSession, name: str) -> str:
    return str(spark.conf.get(name))
