"""Compacted topics: what compaction keeps is read, also where retention has taken the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from logboom.client import Client
from logboom.pipeline.data_loss import DataLossPolicy
from logboom.pipeline.jobs import archive
from logboom.pipeline.offset_ranges import OffsetRange
from logboom.wire.errors import OffsetOutOfRange
from tests.spark.conftest import Sink
from tests.spark.test_readers import batch, rows
from tests.spark.test_readers import stream as stream_reader_of

NOW = 1_700_000_000_000
KEYS, ROUNDS = 40, 5
COUNT = KEYS * ROUNDS
KEY_OF = [b"%d" % (n % KEYS if n // KEYS <= n % ROUNDS else KEYS) for n in range(COUNT)]
"""By offset. Some keys are written in the first round alone, some in the first two, …"""


class Table(NamedTuple):
    """A compacted topic of one queue, of whose log retention has taken a part; values are offsets."""

    topic: str
    first: int
    """Where the log begins."""
    kept: list[int]
    """Before it, the latest message of each key, as a reader of compacted messages sees them."""
    end: int


def fill(boom: Client, topic: str, **retention: int) -> None:
    """Write each key some times, and let retention take what it wants once all is compacted."""
    boom.admin.create_topic(topic, queues=1, compaction=True)
    with boom.producer(max_batch_bytes=4_000) as producer:
        values = [b"%0500d" % n for n in range(COUNT)]
        times = [NOW + 1_000 * n for n in range(COUNT)]
        producer.send_many(topic, values, KEY_OF, timestamps_ms=times).result()

    while boom.admin.horizons(topic)[0] != COUNT:
        # Compaction goes by its own clock; nobody tells when it has been.
        time.sleep(0.05)
    boom.admin.alter_topic(topic, **retention)


def trimmed(boom: Client, topic: str, most: int) -> Table:
    """The topic once retention has been, which leaves at most so many messages."""
    while (first := boom.admin.offsets(topic)[0][0]) < COUNT - most:
        # Retention goes by its own clock; nobody tells when it has been.
        time.sleep(0.05)
    found = boom.pull(topic, 0, 0, 10_000, read_compacted=True)
    latest = {key: n for n, key in enumerate(KEY_OF)}
    kept = [n for n in sorted(latest.values()) if n < first]
    assert [message.offset for message in found.messages if message.offset < first] == kept
    return Table(topic, first, kept, COUNT)


@pytest.fixture(scope="module", name="topics")
def both_topics(boom: Client) -> tuple[str, str]:
    fill(boom, "table", retention_ms=1)
    fill(boom, "half-a-table", retention_bytes=40_000)
    return "table", "half-a-table"


@pytest.fixture(scope="module", name="table")
def topic_without_a_log(boom: Client, topics: tuple[str, str]) -> Table:
    table = trimmed(boom, topics[0], 0)
    assert table.first == table.end
    assert len(table.kept) == KEYS + 1
    return table


@pytest.fixture(scope="module", name="half")
def topic_with_half_a_log(boom: Client, topics: tuple[str, str]) -> Table:
    table = trimmed(boom, topics[1], 160)
    assert KEYS < table.first < table.end - KEYS
    assert len(table.kept) > 10
    return table


def told(parts: list[tuple[int, int, int]]) -> list[int]:
    """The offsets of rows, which are also their values."""
    assert all(offset == value for _, offset, value in parts)
    return [offset for _, offset, _ in parts]


def there(table: Table, start: int = 0, stop: int = COUNT) -> list[int]:
    """What is to be read from one offset to another."""
    return [n for n in (*table.kept, *range(table.first, table.end)) if start <= n < stop]


@pytest.mark.parametrize("options", [{}, {"minPartitions": "7"}])
@pytest.mark.parametrize("name", ["table", "half"])
def test_a_batch_reads_what_is_kept(
    servers: str, request: pytest.FixtureRequest, name: str, options: dict[str, str]
) -> None:
    table: Table = request.getfixturevalue(name)
    reader = batch(servers, table.topic, **options)
    assert told(rows(reader, reader.partitions())) == there(table)


def test_a_batch_begins_and_ends_between_what_is_kept(servers: str, half: Table) -> None:
    for start, stop in ((1, half.first), (half.first - 1, half.end), (7, 8), (0, half.kept[0])):
        options = {
            "startingOffsets": json.dumps({half.topic: {"0": start}}),
            "endingOffsets": json.dumps({half.topic: {"0": stop}}),
        }
        reader = batch(servers, half.topic, **options)
        assert told(rows(reader, reader.partitions())) == there(half, start, stop)


def test_times_find_what_is_kept(servers: str, half: Table) -> None:
    for at in (half.kept[1], half.first + 3):
        begin = batch(servers, half.topic, startingTimestamp=str(NOW + 1_000 * at))
        assert told(rows(begin, begin.partitions())) == there(half, at)
        end = batch(servers, half.topic, endingTimestamp=str(NOW + 1_000 * at))
        assert told(rows(end, end.partitions())) == there(half, 0, at)


def test_a_stream_goes_on_where_retention_has_been(servers: str, half: Table) -> None:
    reader = stream_reader_of(
        servers, half.topic, startingOffsets="earliest", maxOffsetsPerTrigger="30"
    )
    starts = [{half.topic: {"0": 11}}]
    assert reader.initialOffset() == {half.topic: {"0": 0}}
    found: list[int] = []
    while True:
        end = reader.latestOffset(starts[-1], reader.getDefaultReadLimit())
        if end == starts[-1]:
            break
        found += told(rows(reader, reader.partitions(starts[-1], end)))
        starts.append(end)
    assert found == there(half, 11)
    by_bytes = stream_reader_of(servers, half.topic, maxBytesPerTrigger="2000")
    end = by_bytes.latestOffset(starts[0], by_bytes.getDefaultReadLimit())
    assert end[half.topic]["0"] < half.end


def test_a_message_that_lacks_in_the_log_is_a_loss_as_ever(
    servers: str, boom: Client, half: Table
) -> None:
    found = boom.read_range(half.topic, 0, half.first, half.end)
    lacking = [part for part in found if part.base_offset != half.first]
    wanted = OffsetRange(half.topic, 0, half.first, half.end)
    with pytest.raises(OffsetOutOfRange, match=f"lacks offsets {half.first} to"):
        list(DataLossPolicy(fail=True).contiguous(lacking, wanted, lambda: half.first))


@pytest.mark.thorough
def test_queries_read_what_is_kept(
    spark: SparkSession,
    servers: str,
    table: Table,
    stream: Callable[..., DataFrame],
    sink: Sink,
    tmp_path: Path,
) -> None:
    options = {"servers": servers, "subscribe": table.topic}
    frame = spark.read.format("logboom").options(**options).load()
    assert sorted(int(row.value) for row in frame.collect()) == table.kept
    sink.run(stream(subscribe=table.topic, startingOffsets="earliest"))
    assert sink.values() == table.kept
    run = archive.archive(spark, options, tmp_path / "archive")
    (row,) = archive.audit(spark, tmp_path / "archive", run, {table.topic})
    assert (row["messages"], row["missing"], row["doubled"]) == (KEYS + 1, None, 0)
