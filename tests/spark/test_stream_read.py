"""`spark.readStream.format("logboom")`: each option in a real query."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from logboom.client import Client
from tests.spark.conftest import Sink, Trimmed
from tests.spark.test_reader_losses import wait_until_gone

Stream = Callable[..., DataFrame]
Fill = Callable[..., None]
WAIT_S = 200.0


def wait_until(holds: Callable[[], bool], query: Any = None) -> None:
    """Wait for what a query or its listener does."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        if query is not None and query.exception() is not None:
            raise query.exception()
        # Spark tells nobody here when it is done.
        time.sleep(0.05)


def sizes(query: Any) -> list[int]:
    """Rows of each micro-batch that had some."""
    return [each.numInputRows for each in query.recentProgress if each.numInputRows]


def test_what_is_there_is_read_once_and_what_comes_by_the_next_run(
    stream: Stream, topic: str, fill: Fill, sink: Sink
) -> None:
    fill(topic, 0, range(10))
    frame = stream(subscribe=topic, startingOffsets="earliest")
    sink.run(frame)
    assert sink.values() == list(range(10))
    fill(topic, 1, range(10, 15))
    fill(topic, 0, range(15, 17))
    sink.run(frame)
    assert sink.values() == list(range(17))
    assert sizes(sink.run(frame)) == []


def test_a_running_query_reads_what_comes_and_begins_at_the_end(
    stream: Stream, topic: str, fill: Fill, sink: Sink
) -> None:
    fill(topic, 0, range(5))
    query = sink.start(stream(subscribe=topic))
    try:
        wait_until(lambda: bool(query.recentProgress), query)
        fill(topic, 2, range(5, 8))
        wait_until(lambda: len(sink.values()) == 3, query)
        fill(topic, 1, range(8, 9))
        wait_until(lambda: len(sink.values()) == 4, query)
    finally:
        query.stop()
    assert sink.values() == [5, 6, 7, 8]


def test_a_query_from_the_end_that_fails_at_once_loses_nothing(
    stream: Stream, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(topic, 0, range(5))
    values: list[int] = []
    failed: list[int] = []

    def take(frame: DataFrame, number: int) -> None:
        values.extend(int(row.value) for row in frame.select("value").collect())
        if not failed:
            failed.append(number)
            raise RuntimeError("failed on purpose")

    def run() -> None:
        writer = stream(subscribe=topic).writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writer.start().awaitTermination(300)

    with pytest.raises(StreamingQueryException, match="failed on purpose"):
        run()
    fill(topic, 0, range(5, 8))
    run()
    assert sorted(values) == [5, 6, 7]
    assert failed == [0]


def test_micro_batches_are_bounded(stream: Stream, topic: str, fill: Fill, sink: Sink) -> None:
    fill(topic, 0, range(90))
    fill(topic, 1, range(90, 100))
    frame = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="50")
    query = sink.run(frame)
    assert sizes(query) == [50, 50]
    first = json.loads(query.recentProgress[0].sources[0].endOffset)
    assert first == {topic: {"0": 45, "1": 5, "2": 0}}
    assert sink.values() == list(range(100))


@pytest.mark.thorough
def test_micro_batches_are_bounded_by_bytes(
    stream: Stream, boom: Client, topic: str, sink: Sink
) -> None:
    with boom.producer() as producer:
        values = [b"%d" % (10**100 + n) for n in range(200)]
        producer.send_many(topic, values, queue=0).result()
    frame = stream(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="6000")
    found = sizes(sink.run(frame))
    assert sum(found) == 200
    assert len(found) >= 4
    assert max(found) <= 60


def test_a_micro_batch_waits_for_enough(stream: Stream, topic: str, fill: Fill, sink: Sink) -> None:
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    query = sink.start(stream(subscribe=topic, startingOffsets="earliest", **options))
    try:
        fill(topic, 0, range(9))
        wait_until(lambda: query.status["message"] != "Initializing sources", query)
        fill(topic, 0, range(9, 12))
        wait_until(lambda: len(sink.values()) == 12, query)
        # Spark tells of a micro-batch after it has gone through.
        wait_until(lambda: bool(sizes(query)), query)
        assert min(sizes(query)) >= 10
    finally:
        query.stop()


def test_tasks_are_as_many_as_asked_for(
    stream: Stream, topic: str, fill: Fill, sink: Sink, tmp_path: Any
) -> None:
    fill(topic, 0, range(40))
    frame = stream(subscribe=topic, startingOffsets="earliest", maxRecordsPerPartition="10")
    sink.run(frame)
    assert sink.values() == list(range(40))
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == 4


def test_new_queues_and_topics_are_read_from_their_first_message(
    stream: Stream, boom: Client, topic: str, fill: Fill, sink: Sink
) -> None:
    fill(topic, 0, range(3))
    query = sink.start(stream(subscribePattern=rf"{topic}(\.new)?", startingOffsets="earliest"))
    try:
        wait_until(lambda: len(sink.values()) == 3, query)
        boom.admin.alter_topic(topic, queues=5)
        fill(topic, 4, range(3, 6))
        boom.admin.create_topic(f"{topic}.new", queues=1)
        fill(f"{topic}.new", 0, range(6, 9))
        wait_until(lambda: len(sink.values()) == 9, query)
    finally:
        query.stop()


def test_a_group_is_where_a_query_is(
    stream: Stream, boom: Client, topic: str, fill: Fill, sink: Sink
) -> None:
    fill(topic, 0, range(30))
    group = f"{topic}.group"

    def lags() -> dict[int, int | None]:
        described = boom.admin.describe_group(group)
        return {each.queue: each.lag for each in described.queues if each.topic == topic}

    frame = stream(
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="10",
        commitGroup=group,
    )
    sink.run(frame)
    known = [each.name for each in boom.admin.groups()]
    wait_until(lambda: group in known or group in [g.name for g in boom.admin.groups()])
    wait_until(lambda: lags() == {0: 0, 1: 0, 2: 0})
    fill(topic, 1, range(30, 35))
    assert lags() == {0: 0, 1: 5, 2: 0}
    sink.run(frame)
    wait_until(lambda: lags() == {0: 0, 1: 0, 2: 0})
    assert sink.values() == list(range(35))


def test_a_query_begins_where_a_group_is(
    stream: Stream, boom: Client, topic: str, fill: Fill, sink: Sink
) -> None:
    fill(topic, 0, range(10))
    group = f"{topic}.group"
    boom.admin.alter_group(group, subscription={topic: ""}, create=True)
    boom.admin.reset_offsets(group, {(topic, 0): 6}, dry_run=False)
    sink.run(stream(subscribe=topic, startingOffsets=f"group:{group}"))
    assert sink.values() == [6, 7, 8, 9]


def test_the_last_batch_is_read_again_the_same_after_a_failure(
    spark: SparkSession, stream: Stream, topic: str, fill: Fill, tmp_path: Any
) -> None:
    fill(topic, 0, range(20))
    seen: list[list[int]] = []

    def fail_first(frame: DataFrame, batch_id: int) -> None:
        seen.append(sorted(int(row.value) for row in frame.select("value").collect()))
        if len(seen) == 1:
            raise RuntimeError("the sink is away")

    frame = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="15")
    writer = frame.writeStream.foreachBatch(fail_first).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="the sink is away"):
        writer.start().awaitTermination()
    fill(topic, 0, range(20, 25))
    assert writer.start().awaitTermination(300)
    assert seen == [list(range(15)), list(range(15)), list(range(15, 25))]


@pytest.mark.thorough
@pytest.mark.parametrize("fail", ["true", "false"])
def test_messages_that_are_gone_end_a_query_or_are_passed_over(
    servers: str,
    stream: Stream,
    boom: Client,
    topic: str,
    fill: Fill,
    sink: Sink,
    fail: str,
) -> None:
    fill(topic, 0, range(10))
    frame = stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=fail)
    sink.run(frame)
    boom.admin.delete_topic(topic)
    # Else what follows may go to the one that was deleted.
    wait_until_gone(servers, topic)
    boom.admin.create_topic(topic, queues=3)
    fill(topic, 0, range(10, 14))
    if fail == "true":
        with pytest.raises(StreamingQueryException, match="ends at offset 4, not at 10"):
            sink.run(frame)
        assert sink.values() == list(range(10))
    else:
        sink.run(frame)
        assert sink.values() == list(range(14))


@pytest.mark.thorough
@pytest.mark.parametrize("fail", ["true", "false"])
def test_what_retention_took_ends_a_query_or_is_passed_over(
    stream: Stream, trimmed: Trimmed, sink: Sink, fail: str
) -> None:
    start = json.dumps({trimmed.topic: {"0": 3}})
    frame = stream(subscribe=trimmed.topic, startingOffsets=start, failOnDataLoss=fail)
    if fail == "true":
        said = f"begins at offset {trimmed.first} now, messages from 3 are gone: say failOnDataLoss"
        with pytest.raises(StreamingQueryException, match=said):
            sink.run(frame)
    else:
        sink.run(frame)
        assert sink.values() == list(range(trimmed.first, trimmed.end))


@pytest.mark.thorough
def test_the_loss_of_one_topic_does_not_end_a_query(
    servers: str, stream: Stream, boom: Client, topic: str, fill: Fill, sink: Sink
) -> None:
    gone = f"{topic}.gone"
    boom.admin.create_topic(gone, queues=1)
    fill(gone, 0, range(5))
    names = {"subscribe": f"{topic},{gone}", "failOnDataLoss": "false"}
    frame = stream(startingOffsets="earliest", **names)
    query = sink.start(frame)
    try:
        wait_until(lambda: len(sink.values()) == 5, query)
        boom.admin.delete_topic(gone)
        wait_until_gone(servers, gone)
        fill(topic, 1, range(5, 8))
        wait_until(lambda: len(sink.values()) == 8, query)
        boom.admin.create_topic(gone, queues=1)
        fill(gone, 0, range(8, 10))
        wait_until(lambda: len(sink.values()) == 10, query)
    finally:
        query.stop()
    assert sink.values() == list(range(10))


def test_assigned_queues_from_a_time_in_many_parts(
    stream: Stream, topic: str, fill: Fill, sink: Sink, tmp_path: Any
) -> None:
    for queue in (0, 1):
        times = [1_700_000_000_000 + 1_000 * n for n in range(40)]
        fill(topic, queue, range(100 * queue, 100 * queue + 40), timestamps_ms=times)
    frame = stream(
        assign=json.dumps({topic: [1]}), startingTimestamp="1700000009500", minPartitions="5"
    )
    sink.run(frame)
    assert sink.values() == list(range(110, 140))
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == 5


def test_rates_and_progress_are_told(stream: Stream, topic: str, fill: Fill, sink: Sink) -> None:
    fill(topic, 0, range(8))
    query = sink.run(stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4"))
    first = query.recentProgress[0].sources[0]
    assert first.numInputRows == 4
    assert json.loads(first.latestOffset) == {topic: {"0": 8, "1": 0, "2": 0}}
