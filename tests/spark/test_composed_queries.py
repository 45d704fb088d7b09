"""Queries put together at random: a loaded frame, used as often as one likes, is the table it seems."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from logboom.client import Client
from tests.thorough import few_of

NOW = 1_700_000_000_000
QUEUES, EACH = 3, 20
CONDITIONS = (
    "partition = 1",
    "partition IN (0, 2)",
    "NOT (partition = 1)",
    "partition NOT IN (0, 1)",
    "offset < 10",
    "offset >= 15",
    "offset = 7",
    "offset != 5 AND offset <= 11",
    "topic = 'composed'",
    "topic = 'nothing'",
    "timestamp > timestamp_millis(1700000008000)",
    "timestamp <= timestamp_millis(1700000012000)",
    "string(value) = '105'",
    "key IS NULL",
    "string(key) LIKE 'k%' OR offset = 3",
)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


class Composer:
    """Makes the same query of two frames: the one that is read, and the rows that it should have."""

    def __init__(self, spark: SparkSession, read: DataFrame, model: DataFrame, seed: int) -> None:
        self.rng = random.Random(seed + 1)
        self.spark = spark
        self.frames = (read, model)
        self.views = tuple(f"composed_{kind}_{seed}" for kind in ("read", "model"))
        for frame, view in zip(self.frames, self.views, strict=True):
            frame.createOrReplaceTempView(view)

    def query(self, depth: int) -> tuple[DataFrame, DataFrame]:
        """Two queries that are to give the same rows; at most `depth` steps in each branch."""
        steps = (self._frames, self._views, self._filtered, self._union, self._joined, self._some)
        read, model = self.rng.choice(steps[:2] if not depth else steps[2:])(depth - 1)
        return read, model

    def _frames(self, depth: int) -> tuple[DataFrame, DataFrame]:
        read, model = self.frames
        return read, model

    def _views(self, depth: int) -> tuple[DataFrame, DataFrame]:
        read, model = (self.spark.table(view) for view in self.views)
        return read, model

    def _filtered(self, depth: int) -> tuple[DataFrame, DataFrame]:
        condition = self.rng.choice(CONDITIONS)
        read, model = (each.where(condition) for each in self.query(depth))
        return read, model

    def _union(self, depth: int) -> tuple[DataFrame, DataFrame]:
        (read, model), (more, of_model) = self.query(depth), self.query(depth)
        return read.union(more), model.union(of_model)

    def _joined(self, depth: int) -> tuple[DataFrame, DataFrame]:
        how, on = self.rng.choice(("left_semi", "left_anti")), ["partition", "offset"]
        (read, model), (more, of_model) = self.query(depth), self.query(depth)
        kept = [each.select(*on).distinct() for each in (more, of_model)]
        # Each side by a name of its own: both come of the same frame.
        joined = [
            each.alias("l").join(
                other.alias("r"), [sf.col(f"l.{name}") == sf.col(f"r.{name}") for name in on], how
            )
            for each, other in zip((read, model), kept, strict=True)
        ]
        return joined[0], joined[1]

    def _some(self, depth: int) -> tuple[DataFrame, DataFrame]:
        read, model = (each.distinct() for each in self.query(depth))
        return read, model


@pytest.fixture(scope="module", name="composed")
def topic_of_composed_queries(boom: Client) -> str:
    boom.admin.create_topic("composed", queues=QUEUES)
    with boom.producer() as producer:
        for queue in range(QUEUES):
            values = [b"%d" % (100 * queue + n) for n in range(EACH)]
            keys = [b"k%d" % (n % 4) if n % 3 else None for n in range(EACH)]
            times = [NOW + 1_000 * n for n in range(EACH)]
            producer.send_many("composed", values, keys, queue=queue, timestamps_ms=times).result()
    return "composed"


@pytest.fixture(name="pushing")
def session_that_would_push_filters(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.python.filterPushdown.enabled"
    before = str(spark.conf.get(name))
    spark.conf.set(name, "true")
    yield
    spark.conf.set(name, before)


OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {"minPartitions": "7"},
    {"startingOffsets": json.dumps({"composed": {"0": 3, "1": -2, "2": 11}})},
)


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize("seed", few_of(range(len(OPTIONS)), (2,)))
def test_a_frame_that_is_used_many_times_has_all_rows_each_time(
    spark: SparkSession, batch: Callable[..., DataFrame], composed: str, seed: int
) -> None:
    read = batch(subscribe=composed, **OPTIONS[seed]).select(*COLUMNS)
    model = spark.createDataFrame(read.collect(), read.schema)
    composer = Composer(spark, read, model, seed)
    for _ in range(3):
        found, expected = composer.query(2)
        rows = found.groupBy("partition", "offset").count().collect()
        assert sorted(rows) == sorted(expected.groupBy("partition", "offset").count().collect())


@pytest.mark.thorough
def test_a_filter_holds_only_where_it_stands(
    batch: Callable[..., DataFrame], composed: str
) -> None:
    frame = batch(subscribe=composed)
    filtered = frame.where("offset < 10")
    assert filtered.union(frame).count() == QUEUES * (10 + EACH)
    assert (filtered.count(), frame.count()) == (QUEUES * 10, QUEUES * EACH)
