"""Streams that fail at every point of a write, and begin again: each row is published once."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from logboom.client import Client
from logboom.pipeline.data_source import LogboomDataSource
from logboom.pipeline.sink import StreamWriter
from logboom.pipeline.sink_delivery import TaskCommit, TransactionUnit, stream_unit, write
from logboom.pipeline.sink_options import sink_options
from logboom.pipeline.spark_errors import reason
from logboom.wire.errors import InternalError, LogboomError, Refused, TransactionError
from tests.spark.test_sink_writers import rows, stored, values, writer
from tests.thorough import few_of

Read = Callable[..., DataFrame]

NO_WORKER = "Python worker failed to connect back"
POINTS = ("task midway", "task after parking", "before deciding", "after deciding")


def flaky_source(folder: Path, point: str) -> type[LogboomDataSource]:
    """The format "flaky": logboom's, whose first write fails at one point; each commit is noted."""

    # Classes of a function travel whole: Spark's workers cannot import this module.
    class Writer(StreamWriter):
        """Fails once."""

        def fail(self, here: str) -> None:
            failed = folder / "failed"
            if here == point and not failed.exists():
                failed.touch()
                raise RuntimeError(f"failed on purpose: {point}")

        def write(self, iterator: Iterator[Any]) -> TaskCommit:
            def some() -> Iterator[Any]:
                for batch in iterator:
                    yield batch.slice(0, batch.num_rows // 2)
                    self.fail("task midway")
                    yield batch.slice(batch.num_rows // 2)

            written = super().write(some())
            self.fail("task after parking")
            return written

        def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
            self.fail("before deciding")
            super().commit(messages, batchId)
            self.fail("after deciding")
            with (folder / "commits").open("a") as notes:
                units = {(each.unit.app_id, each.unit.sequence) for each in messages}
                print(batchId, *units, file=notes)

    class Flaky(LogboomDataSource):
        @classmethod
        def name(cls) -> str:
            return "flaky"

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
            sound = super().streamWriter(schema, overwrite)
            assert isinstance(sound, StreamWriter)
            return Writer(sound.options)

    return Flaky


class Copying:
    """A query that copies a topic."""

    def __init__(self, stream: Read, servers: str, topic: str, folder: Path) -> None:
        self._stream = stream
        self._servers = servers
        self.topic = topic
        self.copy = f"{topic}.copy"
        self.checkpoint = folder / "checkpoint"

    def start(self, kind: str = "logboom", checkpoint: Path | None = None, **options: str) -> Any:
        """Run it over all there is."""
        options |= {"servers": self._servers, "topic": self.copy}
        frame = self._stream(subscribe=self.topic, startingOffsets="earliest")
        writer = frame.select("key", "value").writeStream.format(kind).options(**options)
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def going(self, checkpoint: Path, name: str, *, by_frames: bool) -> Any:
        """Let it run on, under an application id."""
        options = {"servers": self._servers, "topic": self.copy, "txnAppId": name}

        def write_frame(frame: DataFrame, number: int) -> None:
            writer = frame.write.format("logboom").options(**options, txnVersion=str(number))
            writer.mode("append").save()

        frame = self._stream(subscribe=self.topic, startingOffsets="earliest")
        writer = frame.select("key", "value").writeStream
        sink = (
            writer.foreachBatch(write_frame)
            if by_frames
            else writer.format("logboom").options(**options)
        )
        return sink.option("checkpointLocation", str(checkpoint)).start()

    def run(self, kind: str = "logboom") -> Any:
        """The same, to its end; gives the ended query back."""
        return run_to_end(lambda: self.start(kind))

    def by_frames(self, write_frame: Callable[[DataFrame, int], None]) -> None:
        """Give all there is to a function, as frames."""
        frame = self._stream(subscribe=self.topic, startingOffsets="earliest")
        writer = frame.select("key", "value").writeStream.foreachBatch(write_frame)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        run_to_end(writer.trigger(availableNow=True).start)

    def query_id(self) -> str:
        """The id of the query, of which Spark takes note in its checkpoint."""
        found: str = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return found

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died between the sink's commit and its own note of it."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()


def run_to_end(start: Callable[[], Any], query: Any = None) -> Any:
    """Start a query, if none was started yet, and wait for its end; gives the ended query back.

    A starved machine may take longer to start a Python worker than the 10 s for which Spark waits.
    Nothing of the query has happened then, and it begins again.
    """
    while True:
        query = query or start()
        try:
            assert query.awaitTermination(300)
        except StreamingQueryException as error:
            if NO_WORKER not in str(error):
                raise
            query = None
        else:
            return query


@pytest.fixture(name="copying")
def copying_query(
    stream: Read, servers: str, boom: Client, topic: str, fill: Any, tmp_path: Path
) -> Copying:
    """A query over some rows of three queues, and an empty topic for it."""
    made = Copying(stream, servers, topic, tmp_path)
    boom.admin.create_topic(made.copy, queues=2)
    for queue in range(3):
        fill(topic, queue, range(queue, 90, 3), keys=[b"%d" % (n % 5) for n in range(30)])
    return made


@pytest.mark.parametrize("point", few_of(("before saving", "after saving"), ()))
def test_a_frame_that_fails_beside_its_write_is_published_once(
    servers: str, boom: Client, copying: Copying, point: str
) -> None:
    failed: list[str] = []

    def write_frame(frame: DataFrame, number: int) -> None:
        def fail(here: str) -> None:
            if here == point and not failed:
                failed.append(here)
                raise RuntimeError(f"failed on purpose: {point}")

        fail("before saving")
        writer = frame.write.format("logboom").options(servers=servers, topic=copying.copy)
        writer.options(txnAppId=copying.copy, txnVersion=str(number)).mode("append").save()
        fail("after saving")

    with pytest.raises(StreamingQueryException, match=f"failed on purpose: {point}"):
        copying.by_frames(write_frame)
    expected = list(range(90))
    assert values(boom, copying.copy) == (expected if point == "after saving" else [])
    copying.by_frames(write_frame)
    assert values(boom, copying.copy) == expected


@pytest.mark.parametrize("point", few_of(POINTS, ("task midway", "after deciding")))
def test_a_write_that_fails_is_published_once(
    spark: SparkSession, boom: Client, copying: Copying, tmp_path: Path, point: str
) -> None:
    spark.dataSource.register(flaky_source(tmp_path, point))
    with pytest.raises(StreamingQueryException, match=f"failed on purpose: {point}"):
        copying.run("flaky")
    expected = list(range(90))
    assert values(boom, copying.copy) == (expected if point == "after deciding" else [])
    query = copying.run("flaky")
    assert values(boom, copying.copy) == expected
    # Spark's names for query and batch are inner ones: here it shows if they are others.
    assert (tmp_path / "commits").read_text() == f"0 ('spark-{query.id}', 0)\n"


def test_a_driver_that_dies_before_its_own_note(boom: Client, copying: Copying, fill: Any) -> None:
    copying.run()
    copying.forget_commit(0)
    fill(copying.copy.removesuffix(".copy"), 0, range(90, 120))
    copying.run()
    assert values(boom, copying.copy) == list(range(120))


def test_two_drivers_with_one_checkpoint(boom: Client, copying: Copying, fill: Any) -> None:
    copying.run()
    copying.forget_commit(0)
    other = copying.checkpoint.with_name("other")
    shutil.copytree(copying.checkpoint, other)
    fill(copying.copy.removesuffix(".copy"), 1, range(90, 120))
    queries = [copying.start(), copying.start(checkpoint=other)]
    for query, checkpoint in zip(queries, (copying.checkpoint, other), strict=True):
        run_to_end(partial(copying.start, checkpoint=checkpoint), query)
    assert values(boom, copying.copy) == list(range(120))


def test_a_name_belongs_to_one_query_and_is_one_for_each_topic(
    spark: SparkSession, servers: str, boom: Client, copying: Copying, fill: Any
) -> None:
    other = f"{copying.topic}.other"
    boom.admin.create_topic(other, queues=1)

    def written(**more: str) -> Callable[[DataFrame, int], None]:
        def write_frame(frame: DataFrame, number: int) -> None:
            # As users do. Spark itself tells runs of queries by it.
            spark.sparkContext.setJobGroup("mine", "mine")
            for topic in (copying.copy, other):
                options = {"txnAppId": copying.topic, "txnVersion": str(number), **more}
                writer = frame.write.format("logboom").options(servers=servers, topic=topic)
                writer.options(**options).mode("append").save()

        return write_frame

    copying.by_frames(written())
    fill(copying.topic, 0, range(90, 95))
    copying.by_frames(written())
    assert values(boom, copying.copy) == values(boom, other) == list(range(95))
    first = copying.query_id()
    copying.checkpoint = copying.checkpoint.with_name("new")
    with pytest.raises(StreamingQueryException) as caught:
        copying.by_frames(written())
    assert f"this txnAppId belongs to query {first}, and this is" in reason(caught.value)
    # It was told so, and asks for it: what has the numbers of the other one counts as published.
    copying.by_frames(written(txnReplaces=first))
    fill(copying.topic, 0, range(95, 97))
    copying.by_frames(written(txnReplaces=first))
    fill(copying.topic, 0, range(97, 99))
    copying.by_frames(written())
    assert values(boom, copying.copy) == values(boom, other) == [*range(95), 97, 98]


@pytest.mark.thorough
@pytest.mark.parametrize("by_frames", [False, True])
def test_of_two_queries_with_one_name_the_second_is_told(
    boom: Client, copying: Copying, fill: Any, by_frames: bool
) -> None:
    first = copying.going(copying.checkpoint, copying.topic, by_frames=by_frames)
    assert passed(first, 0)
    second = copying.going(
        copying.checkpoint.with_name("second"), copying.topic, by_frames=by_frames
    )
    try:
        with pytest.raises(StreamingQueryException) as caught:
            second.awaitTermination(300)
        assert f"this txnAppId belongs to query {first.id}" in reason(caught.value)
        fill(copying.topic, 0, range(90, 95))
        assert passed(first, 1)
        assert values(boom, copying.copy) == list(range(95))
    finally:
        first.stop()
        second.stop()


def passed(query: Any, batch: int) -> bool:
    """Wait until a running query has done a micro-batch."""
    while query.isActive and not any(
        each.batchId >= batch and each.numInputRows for each in query.recentProgress
    ):
        # Only the listener of a session is told, of all its queries.
        time.sleep(0.05)
    return bool(query.isActive)


# The same without Spark, in orders that it cannot be made to go through.


def test_of_two_drivers_the_first_decision_counts(servers: str, boom: Client, topic: str) -> None:
    options = sink_options({"servers": servers, "topic": topic}, stream=True)
    drivers = [StreamWriter(options) for _ in range(2)]
    unit = TransactionUnit(f"query of {topic}", 7)
    written = [write(options, unit, driver.attempt, iter([rows(range(50))])) for driver in drivers]
    assert all(each.handles for each in written)
    drivers[1].commit([written[1]], 7)
    drivers[0].commit([written[0]], 7)
    drivers[0].abort([written[0], None], 7)
    drivers[1].abort([written[1]], 7)
    assert values(boom, topic) == list(range(50))
    late = write(options, unit, drivers[0].attempt, iter([rows(range(50))]))
    assert late == TaskCommit(unit, drivers[0].attempt, closed=True)
    drivers[0].commit([late], 7)
    assert len(stored(boom, topic)) == 50


def test_tasks_that_won_are_published_and_their_zombies_are_not(
    servers: str, boom: Client, topic: str
) -> None:
    options = sink_options({"servers": servers, "topic": topic}, stream=True)
    driver = StreamWriter(options)
    unit = TransactionUnit(f"query of {topic}", 0)

    def task(values: range) -> TaskCommit:
        return write(options, unit, driver.attempt, iter([rows(values)]))

    task(range(50))  # it is thought dead, and goes on parking
    won = [task(range(50)), task(range(50, 80))]
    task(range(50, 80))
    driver.commit(won, 0)
    task(range(50))
    assert values(boom, topic) == list(range(80))


def test_an_attempt_that_was_given_up_does_not_spoil_the_next(
    servers: str, boom: Client, topic: str
) -> None:
    options = sink_options({"servers": servers, "topic": topic}, stream=True)
    unit = TransactionUnit(f"query of {topic}", 0)
    for last in (False, True):
        driver = StreamWriter(options)
        written = [write(options, unit, driver.attempt, iter([rows(range(20))])), None]
        if last:
            driver.commit(written[:1], 0)
        else:
            driver.abort(written, 0)
    assert values(boom, topic) == list(range(20))


def test_a_write_that_was_published_before_says_that_it_writes_nothing(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = sink_options({"servers": servers, "topic": topic, "txnAppId": topic}, stream=True)
    # The second is a query with a new checkpoint, which counts from 0 again.
    for _ in range(2):
        driver = StreamWriter(options)
        driver.commit(
            [write(options, TransactionUnit(topic, 0), driver.attempt, iter([rows(range(5))]))], 0
        )
    said = f"write 0 of {topic!r} was published before: nothing is written now"
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert said in record.message
    assert record.message.endswith("a write with a new checkpoint needs another txnAppId")
    named = {"txnAppId": topic, "txnVersion": "0"}
    batch = writer(servers, topic, **named)
    batch.commit([batch.write(iter([rows(range(5))]))])
    assert said in caplog.records[1].message
    assert caplog.records[1].message.endswith("needs another txnVersion, a higher one")


def by(query: str, run: str, unit: TransactionUnit, made: TaskCommit) -> list[TaskCommit]:
    """What a task of a query says."""
    assert made.unit == unit
    return [dataclasses.replace(made, query=query, run=f"{run} {query}")]


def test_queries_with_one_name_are_told_apart(servers: str, boom: Client, topic: str) -> None:
    given = {"servers": servers, "topic": topic, "txnAppId": topic}
    options = sink_options(given, stream=True)

    def publish(number: int, query: str, run: str, values: range, **more: str) -> None:
        driver = StreamWriter(sink_options({**given, **more}, stream=True))
        unit = TransactionUnit(topic, number)
        made = write(options, unit, driver.attempt, iter([rows(values)]))
        messages = by(query, run, unit, made)
        try:
            driver.commit(messages, number)
        except LogboomError:
            driver.abort(messages, number)
            raise

    publish(0, "one", "app-1", range(5))
    publish(1, "one", "app-1", range(5, 10))
    # Another query: with a number that is free, and with one that was published.
    for number in (5, 0):
        with pytest.raises(TransactionError, match="belongs to query one, and this is query two"):
            publish(number, "two", "app-1", range(100, 105))
    # It has fenced nobody. A copy of the first one in another application has its id, and does.
    publish(2, "one", "app-1", range(10, 15))
    publish(3, "one", "app-2", range(15, 20))
    with pytest.raises(Refused, match="a newer query, or this one started anew"):
        publish(4, "one", "app-1", range(20, 25))
    publish(1, "two", "app-1", range(100, 105), txnReplaces="one")
    publish(4, "two", "app-1", range(20, 25), txnReplaces="one")
    publish(5, "two", "app-2", range(25, 30))
    for run in ("app-2", "app-3"):
        with pytest.raises(
            (Refused, TransactionError), match=r"a newer query|belongs to query two"
        ):
            publish(6, "one", run, range(30, 35))
    assert values(boom, topic) == list(range(30))


def test_one_name_and_version_is_one_write_for_each_topic(
    servers: str, boom: Client, topic: str
) -> None:
    other = f"{topic}.other"
    boom.admin.create_topic(other, queues=2)
    for _ in range(2):
        for each in (topic, other):
            made = writer(servers, each, txnAppId=topic, txnVersion="0")
            made.commit([made.write(iter([rows(range(5))]))])
    assert values(boom, topic) == values(boom, other) == list(range(5))


def test_who_does_not_know_its_micro_batch_says_so(servers: str) -> None:
    options = sink_options({"servers": servers, "topic": "t"}, stream=True)
    with pytest.raises(InternalError, match="say delivery=at-least-once, or write in foreachBatch"):
        stream_unit(options)
