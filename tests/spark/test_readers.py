"""Readers and planning without a JVM: what Spark would call is called here."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from logboom.client import Client
from logboom.pipeline.batch_reader import BatchReader
from logboom.pipeline.clients import client
from logboom.pipeline.data_source import COLUMNS, LogboomDataSource, fields_of
from logboom.pipeline.record_batches import arrow_schema
from logboom.pipeline.stream_reader import StreamReader
from logboom.wire.errors import InvalidRequest, OffsetOutOfRange, TimedOut, UnknownResource

Fill = Callable[..., None]


def source(servers: str, topic: str, **options: str) -> LogboomDataSource:
    """What Spark makes of options."""
    subscribed = {"subscribe": topic} if topic else {}
    return LogboomDataSource({"servers": servers, **subscribed, **options})


def batch(servers: str, topic: str, **options: str) -> BatchReader:
    made = source(servers, topic, **options)
    reader = made.reader(made.schema())
    assert isinstance(reader, BatchReader)
    return reader


def stream(servers: str, topic: str, **options: str) -> StreamReader:
    made = source(servers, topic, **options)
    reader = made.streamReader(made.schema())
    assert isinstance(reader, StreamReader)
    return reader


def rows(reader: BatchReader | StreamReader, parts: list[Any]) -> list[tuple[int, int, int]]:
    """(queue, offset, value) of all rows; readers and parts travel pickled, as to a task."""
    found = []
    for part in pickle.loads(pickle.dumps(parts)):
        for each in pickle.loads(pickle.dumps(reader)).read(part):
            columns = each.to_pydict()
            values = map(int, columns["value"])
            found += list(zip(columns["partition"], columns["offset"], values, strict=True))
    return found


@pytest.mark.parametrize("options", [{}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "13"}])
def test_the_parts_of_a_batch_hold_everything_once(
    servers: str, topic: str, fill: Fill, options: dict[str, str]
) -> None:
    fill(topic, 0, range(50))
    fill(topic, 2, range(50, 60))
    reader = batch(servers, topic, **options)
    expected = [(0, n, n) for n in range(50)] + [(2, n, 50 + n) for n in range(10)]
    assert rows(reader, reader.partitions()) == expected


def test_without_rows_there_are_no_parts(servers: str, topic: str) -> None:
    reader = batch(servers, topic)
    assert reader.partitions() == []
    # Of an empty list Spark makes this.
    assert rows(reader, [InputPartition(None)]) == []


def test_a_micro_batch_has_so_many_bytes_whatever_comes_first(
    servers: str, boom: Client, topic: str, fill: Fill
) -> None:
    sizes = [4] * 100 + [500_000] * 30
    with boom.producer() as producer:
        for size in sizes:
            # Each in a batch of its own, as they come from a topic that is not busy.
            producer.send(topic, bytes(size), queue=1).result()
    fill(topic, 0, range(100))
    most = 1_000_000
    reader = stream(servers, topic, startingOffsets="earliest", maxBytesPerTrigger=str(most))
    limit = reader.getDefaultReadLimit()
    offsets = [reader.initialOffset()]
    while offsets[-1][topic]["1"] < len(sizes):
        offsets.append(reader.latestOffset(offsets[-1], limit))
    steps = [(a[topic]["1"], b[topic]["1"]) for a, b in pairwise(offsets)]
    assert max(sum(sizes[slice(*step)]) for step in steps) <= most
    # No smaller ones than need be, either.
    assert len(steps) <= 40


def test_micro_batches_follow_each_other(servers: str, topic: str, fill: Fill) -> None:
    fill(topic, 0, range(50))
    fill(topic, 1, range(50, 60))
    reader = stream(servers, topic, startingOffsets="earliest", maxOffsetsPerTrigger="25")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(25)
    offsets = [reader.initialOffset()]
    assert offsets == [{topic: {"0": 0, "1": 0, "2": 0}}]
    while len(offsets) < 2 or offsets[-1] != offsets[-2]:
        offsets.append(reader.latestOffset(offsets[-1], limit))
    assert offsets[-1] == {topic: {"0": 50, "1": 10, "2": 0}}
    found = [
        row
        for start, end in pairwise(offsets)
        for row in rows(reader, reader.partitions(start, end))
    ]
    assert sorted(value for _, _, value in found) == list(range(60))
    assert len(offsets) > 3
    assert reader.partitions(offsets[-1], offsets[-1]) == []


def test_a_trigger_that_wants_everything_knows_no_limit(
    servers: str, topic: str, fill: Fill
) -> None:
    fill(topic, 0, range(50))
    reader = stream(servers, topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable())[topic]["0"] == 50
    assert reader.reportLatestOffset() == {topic: {"0": 50, "1": 0, "2": 0}}


def test_limits_have_sparks_words(servers: str, topic: str) -> None:
    assert stream(servers, topic).getDefaultReadLimit() == ReadAllAvailable()
    by_bytes = stream(servers, topic, maxBytesPerTrigger="9").getDefaultReadLimit()
    assert by_bytes == ReadMaxBytes(9)


def test_available_now_ends_where_it_was_when_it_began(
    servers: str, boom: Client, topic: str, fill: Fill
) -> None:
    fill(topic, 0, range(5))
    reader = stream(servers, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(topic, 0, range(5, 9))
    boom.admin.alter_topic(topic, queues=4)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {topic: {"0": 5, "1": 0, "2": 0}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_available_now_does_not_go_back_behind_a_checkpoint(
    servers: str, topic: str, fill: Fill
) -> None:
    reader = stream(servers, topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    fill(topic, 0, range(5))
    start = {topic: {"0": 3, "1": 0, "2": 0}}
    assert reader.latestOffset(start, ReadAllAvailable()) == start


def test_the_latest_offset_is_the_same_however_often_it_is_asked_for(
    servers: str, topic: str, fill: Fill
) -> None:
    reader = stream(servers, topic)
    first = reader.initialOffset()
    fill(topic, 0, range(5))
    assert reader.initialOffset() == first == {topic: {"0": 0, "1": 0, "2": 0}}


def test_queues_that_come_are_read_from_their_first_message(
    servers: str, boom: Client, topic: str, fill: Fill
) -> None:
    reader = stream(servers, topic)
    start = reader.initialOffset()
    boom.admin.alter_topic(topic, queues=4)
    fill(topic, 3, range(5))
    while (end := reader.latestOffset(start, ReadAllAvailable())) == start:
        continue  # it waits by itself, until it is told of the new queue
    assert end == {topic: {"0": 0, "1": 0, "2": 0, "3": 5}}
    assert rows(reader, reader.partitions(start, end)) == [(3, n, n) for n in range(5)]


@pytest.mark.parametrize("fail", [True, False])
def test_what_retention_took_is_told_or_passed_over(
    servers: str, boom: Client, topic: str, fill: Fill, fail: bool
) -> None:
    name = f"{topic}.short"
    boom.admin.create_topic(name, queues=1)
    fill(name, 0, range(10))
    reader = stream(servers, name, startingOffsets="earliest", failOnDataLoss=str(fail))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    boom.admin.delete_topic(name)
    boom.admin.create_topic(name, queues=1)
    fill(name, 0, range(100, 104))
    if fail:
        with pytest.raises(OffsetOutOfRange, match="ends at offset 4, not at 10: it was made anew"):
            reader.partitions(start, end)
        with pytest.raises(OffsetOutOfRange, match="ends at offset 4, not at 10: it was made anew"):
            reader.latestOffset(end, ReadAllAvailable())
    else:
        assert [row[2] for row in rows(reader, reader.partitions(start, end))] == [*range(100, 104)]


def test_a_topic_that_is_deleted_ends_a_stream(servers: str, boom: Client, topic: str) -> None:
    reader = stream(servers, topic)
    start = reader.initialOffset()
    boom.admin.delete_topic(topic)

    def follow() -> None:
        while True:
            # It is told in the broker's own time; a starved name server says nothing for long.
            with suppress(TimedOut):
                reader.latestOffset(start, ReadAllAvailable())

    with pytest.raises(UnknownResource, match="does not exist"):
        follow()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"subscribe": "no-such"}, UnknownResource, "'no-such' does not exist: create it with"),
        ({"servers": "127.0.0.1:9", "timeoutMs": "300"}, TimedOut, r"answered at 127\.0\.0\.1:9"),
        ({"servers": "nonsense"}, InvalidRequest, "nonsense"),
        ({"startingOffsets": '{"TOPIC": {"0": 0}}'}, InvalidRequest, "says nothing of queue 1"),
        (
            {"startingOffsets": '{"TOPIC": {"0": 0, "1": 0, "2": 0, "3": 0}}'},
            InvalidRequest,
            "names queue 3 of topic .*, which is not read here",
        ),
        (
            {"startingOffsets": '{"TOPIC": {"0": 9, "1": 0, "2": 0}}'},
            OffsetOutOfRange,
            "ends at offset 0, not at 9",
        ),
        (
            {"endingOffsets": '{"TOPIC": {"0": 9, "1": 0, "2": 0}}'},
            OffsetOutOfRange,
            r"not at 9: startingOffsets or endingOffsets ask for more than there is \(-1 is the late",
        ),
        ({"startingOffsets": "group:none-such"}, UnknownResource, "none-such"),
    ],
)
def test_what_cannot_be_read_is_told_when_it_is_planned(
    servers: str, topic: str, options: dict[str, str], error: type[Exception], said: str
) -> None:
    asked = {"servers": servers, "subscribe": topic, **options}
    made = LogboomDataSource({name: text.replace("TOPIC", topic) for name, text in asked.items()})
    reader = made.reader(made.schema())
    with pytest.raises(error, match=said):
        reader.partitions()


def test_columns_that_cannot_be_are_refused() -> None:
    wrong = StructType([StructField("value", StringType())])
    with pytest.raises(InvalidRequest, match="column 'value' is binary, not string: cast it after"):
        fields_of(wrong)
    with pytest.raises(InvalidRequest, match="a topic has no column 'body'"):
        fields_of(StructType([StructField("body", StringType())]))
    assert fields_of(StructType([StructField("offset", LongType(), nullable=False)])) == [
        ("offset", False)
    ]


def test_our_arrow_types_are_those_that_spark_expects() -> None:
    schema = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])
    assert arrow_schema(fields_of(schema)).equals(to_arrow_schema(schema, timezone="UTC"))


def test_a_process_keeps_one_client_for_a_cluster(servers: str) -> None:
    first = client(servers, 10.0)
    assert client(servers, 10.0) is first
    assert client(servers, 11.0) is not first
    first.close()
    assert client(servers, 10.0) is not first  # a closed one is replaced
    assert client(servers, 10.0).admin.raft_leader() is not None
    for timeout_s in (10.0, 11.0):
        client(servers, timeout_s).close()
