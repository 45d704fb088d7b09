"""Writers without a JVM: what Spark would call is called here."""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from logboom.client import Client, Message, ParkedHandle
from logboom.pipeline.data_source import COLUMNS, LogboomDataSource
from logboom.pipeline.joined_batches import LARGE, Parked, runs
from logboom.pipeline.record_batches import TYPES as ROW_TYPES
from logboom.pipeline.sink import BatchWriter
from logboom.pipeline.sink_delivery import TaskCommit, TransactionUnit
from logboom.wire.errors import InvalidRequest, LogboomError, TransactionError, UnknownResource
from logboom.wire.hashing import queue_for
from logboom.wire.transactions import MADE_UP, MAX_HANDLES

OTHER_TYPES = {"int": IntegerType(), "bigint": LongType(), "string": StringType()}


def schema_of(text: str) -> StructType:
    """Columns by name, with their own type unless another is said: "key value:string"."""
    fields = []
    for each in text.split():
        name, _, kind = each.partition(":")
        fields.append(StructField(name, OTHER_TYPES[kind] if kind else COLUMNS[name]))
    return StructType(fields)


def writer(servers: str, topic: str, schema: str = "value", **options: str) -> BatchWriter:
    """What Spark makes of options, as it travels to a task."""
    given = {"servers": servers, "topic": topic, **options}
    made = LogboomDataSource(given).writer(schema_of(schema), False)
    assert isinstance(made, BatchWriter)
    travelled: BatchWriter = pickle.loads(pickle.dumps(made))
    return travelled


def rows(values: range, **columns: Any) -> Any:
    """A record batch of numbers."""
    return pa.RecordBatch.from_pydict({"value": [b"%d" % value for value in values], **columns})


def stored(boom: Client, topic: str) -> list[Message]:
    """All messages of a topic, by queue."""
    found = []
    for queue, (start, end) in sorted(boom.admin.offsets(topic).items()):
        if end > start:
            found += [
                message
                for columns in boom.read_range(topic, queue, start, end)
                for message in boom.pull(topic, queue, columns.base_offset, len(columns)).messages
            ]
    return found


def values(boom: Client, topic: str) -> list[int]:
    """The numbers of a topic, in order."""
    return sorted(int(message.value or b"-1") for message in stored(boom, topic))


def test_nothing_is_seen_before_the_commit_and_then_all_of_it(
    servers: str, boom: Client, topic: str
) -> None:
    made = writer(servers, topic, "key value")
    keys = [b"k%d" % (n % 7) for n in range(100)]
    messages = [
        made.write(iter([rows(range(100), key=keys)])),
        made.write(iter([rows(range(100, 200), key=keys), rows(range(200, 300), key=keys)])),
    ]
    assert stored(boom, topic) == []
    assert len(pickle.dumps(messages)) < 3_000
    made.commit(pickle.loads(pickle.dumps(messages)))
    found = stored(boom, topic)
    assert sorted(int(message.value or b"") for message in found) == list(range(300))
    for message in found:
        assert message.queue == queue_for(message.key or b"", 3)
    for key in set(keys):
        of_key = [int(message.value or b"") for message in found if message.key == key]
        assert of_key == sorted(of_key)


def test_more_batches_than_a_decision_names_are_refused_with_ways_out(
    servers: str, boom: Client, topic: str
) -> None:
    made = writer(servers, topic)
    message = made.write(iter([rows(range(3))]))
    (handle,) = message.handles
    many = tuple(replace(handle, offset=handle.offset + n) for n in range(MAX_HANDLES + 1))
    large = (LARGE,) * len(many)
    with pytest.raises(InvalidRequest, match=r"nothing is published. Bound a stream") as caught:
        made.commit([dataclasses.replace(message, handles=many, sizes=large)])
    assert caught.value.code == "TOO_LARGE"
    assert f"parked {MAX_HANDLES + 1} batches" in caught.value.text
    made.commit([message])
    assert values(boom, topic) == [0, 1, 2]


def test_many_tasks_with_little_for_many_queues_are_one_write(
    servers: str, boom: Client, topic: str
) -> None:
    name, queues, tasks, of_each = f"{topic}.wide", 16, 190, 3
    assert queues * tasks > MAX_HANDLES
    boom.admin.create_topic(name, queues=queues)
    made = writer(servers, name, "partition value key tag headers timestamp")
    count = queues * of_each

    def task(number: int, numbers: range) -> TaskCommit:
        columns = {
            "partition": pa.array([n % queues for n in range(count)], pa.int32()),
            "key": pa.array([b"%d" % n if n % 3 else None for n in range(count)], pa.binary()),
            "tag": pa.array([f"task {number}" if n % 2 else None for n in range(count)]),
            "headers": pa.array(
                [[{"key": "h", "value": b"%d" % n}] if n % 5 else None for n in range(count)],
                ROW_TYPES["headers"],
            ),
            "timestamp": pa.array([n * 1_000 for n in numbers], ROW_TYPES["timestamp"]),
        }
        return made.write(iter([rows(numbers, **columns)]))

    messages = [task(n, range(n * count, (n + 1) * count)) for n in range(tasks)]
    # What failed has parked too, and no decision names it.
    task(0, range(count))
    made.commit(messages)
    found = stored(boom, name)
    assert len(found) == tasks * count
    for queue in range(queues):
        of_queue = [message for message in found if message.queue == queue]
        expected = [n for n in range(tasks * count) if n % queues == queue]
        assert [int(message.value or b"") for message in of_queue] == expected
        for n, message in zip(expected, of_queue, strict=True):
            at = n % count
            assert message.key == (b"%d" % at if at % 3 else None)
            assert message.tag == (f"task {n // count}" if at % 2 else None)
            assert message.headers == ({"h": b"%d" % at} if at % 5 else None)
            assert message.timestamp_ms == n
    assert made.unit is not None
    assert boom.admin.transactions(made.unit.app_id).transactions == []


def test_small_batches_are_joined_up_to_a_bound() -> None:
    handle = ParkedHandle("app", 0, 1, "t", 1, 0, 0, 0, count=10)
    small = Parked(handle, LARGE // 3)
    large = Parked(handle, LARGE)
    assert [len(run) for run in runs([small] * 15)] == [6, 6, 3]
    assert [len(run) for run in runs([small, large, large, small, small])] == [1, 1, 1, 2]
    many = Parked(replace(handle, count=30_000), 1)
    assert [len(run) for run in runs([many] * 5)] == [2, 2, 1]
    assert list(runs([])) == []


def test_what_a_write_without_a_name_leaves_behind_ends(
    servers: str, boom: Client, topic: str
) -> None:
    # Application ids that begin so are forgotten a week after their last use; others never are.
    first, second = writer(servers, topic), writer(servers, topic)
    for made in (first, second):
        assert made.unit is not None
        assert made.unit.app_id.startswith(MADE_UP)
        made.commit([made.write(iter([rows(range(3))]))])
        made.commit([made.write(iter([rows(range(3))]))])
    assert first.unit != second.unit
    assert values(boom, topic) == [0, 0, 1, 1, 2, 2]
    named = writer(servers, topic, txnAppId="nightly", txnVersion="7")
    assert named.unit == TransactionUnit("nightly", 7)
    with pytest.raises(InvalidRequest, match="choose another"):
        writer(servers, topic, txnAppId=f"{MADE_UP}mine", txnVersion="7")


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_columns_come_through(servers: str, boom: Client, topic: str, codec: str) -> None:
    made = writer(
        servers,
        topic,
        "key value partition tag timestamp headers",
        compression=codec,
    )
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"a", None, b"", b"b"], pa.binary()),
            "value": pa.array([b"1", b"", None, b"4"], pa.binary()),
            "partition": pa.array([2, 0, 1, None], pa.int32()),
            "tag": pa.array(["x", None, "y", "x"]),
            "timestamp": pa.array([moment, None, moment, moment], pa.timestamp("us", tz="UTC")),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}], None, [], [{"key": "h", "value": b""}]],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    made.commit([made.write(iter([batch.slice(0, 2), batch.slice(2)]))])
    found = {
        m.value: (m.key, m.queue, m.tag, m.headers, m.timestamp_ms) for m in stored(boom, topic)
    }
    millis = int(moment.timestamp() * 1000)
    assert found[b"1"] == (b"a", 2, "x", {"h": b"1"}, millis)
    assert found[b""][:4] == (None, 0, None, None)
    assert found[b""][4] > millis
    assert found[None] == (b"", 1, "y", {}, millis)
    assert found[b"4"] == (b"b", queue_for(b"b", 3), "x", {"h": b""}, millis)


def test_rows_name_their_topics(servers: str, boom: Client, topic: str) -> None:
    other = f"{topic}.other"
    made = writer(servers, "", "value topic", queues="2")
    names = [topic if n % 3 else other for n in range(90)]
    made.commit([made.write(iter([rows(range(90), topic=names)]))])
    assert values(boom, topic) == [n for n in range(90) if n % 3]
    assert values(boom, other) == [n for n in range(90) if not n % 3]
    assert len(boom.admin.describe_topic(other).queues) == 2


def test_rows_without_a_key_go_to_one_queue_after_another(
    servers: str, boom: Client, topic: str
) -> None:
    made = writer(servers, topic)
    made.commit([made.write(iter([rows(range(n, n + 10)) for n in range(0, 60, 10)]))])
    assert Counter(message.queue for message in stored(boom, topic)) == {0: 20, 1: 20, 2: 20}


def test_large_rows_become_several_batches(servers: str, boom: Client, topic: str) -> None:
    blobs = [random.Random(n).randbytes(300_000) for n in range(20)]
    made = writer(servers, topic)
    batch = pa.RecordBatch.from_pydict({"value": blobs})
    written = made.write(iter([batch]))
    assert len(written.handles) > 3
    made.commit([written])
    assert [message.value for message in stored(boom, topic)] == blobs


def test_what_is_not_listed_is_dropped(servers: str, boom: Client, topic: str) -> None:
    made = writer(servers, topic)
    zombie = made.write(iter([rows(range(10))]))
    won = made.write(iter([rows(range(10))]))
    made.commit([won])
    assert values(boom, topic) == list(range(10))
    assert zombie.handles
    made.commit([zombie])  # another driver's: the sequence is closed
    made.abort([zombie])
    assert values(boom, topic) == list(range(10))


def test_an_abort_drops_all_and_another_try_publishes(
    servers: str, boom: Client, topic: str
) -> None:
    options = {"txnAppId": f"app {topic}", "txnVersion": "4"}
    failed = writer(servers, topic, **options)
    message = failed.write(iter([rows(range(10))]))
    failed.abort([message, None])
    with pytest.raises(TransactionError, match="Run it again with fewer rows"):
        failed.commit([message])
    again = writer(servers, topic, **options)
    again.commit([again.write(iter([rows(range(10))]))])
    assert values(boom, topic) == list(range(10))


def test_a_version_is_published_once(servers: str, boom: Client, topic: str) -> None:
    options = {"txnAppId": f"app {topic}", "txnVersion": "4"}
    for _ in range(2):
        made = writer(servers, topic, **options)
        made.commit([made.write(iter([rows(range(10)), rows(range(10, 20))]))])
        made.abort([])
    assert values(boom, topic) == list(range(20))
    older = writer(servers, topic, **{**options, "txnVersion": "3"})
    written = older.write(iter([rows(range(100))]))
    older.commit([written])
    assert values(boom, topic) == list(range(20))


def test_at_least_once_is_there_when_the_task_ends(servers: str, boom: Client, topic: str) -> None:
    made = writer(servers, topic, delivery="at-least-once")
    written = made.write(iter([rows(range(10))]))
    assert values(boom, topic) == list(range(10))
    assert written == TaskCommit(None, made.attempt, rows=10)
    made.commit([written])
    made.abort([written])
    assert values(boom, topic) == list(range(10))


def test_a_write_of_nothing(servers: str, boom: Client, topic: str) -> None:
    made = writer(servers, topic)
    made.commit([made.write(iter([])), made.write(iter([rows(range(0))]))])
    assert stored(boom, topic) == []


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("value", {"retries": "3"}, "the sink has no option 'retries'"),
        ("value", {"topics": "t"}, "did you mean topic"),
        ("value", {"topic": ""}, "say with option topic where to write"),
        ("value", {"servers": ""}, "say with servers which nodes"),
        ("value", {"delivery": "twice"}, "delivery is exactly-once or at-least-once"),
        ("value", {"compression": "gzip"}, "compression is none or lz4 or zstd"),
        ("value", {"txnVersion": "1"}, "txnAppId and txnVersion go together"),
        ("value", {"txnAppId": "a", "txnVersion": "x"}, "txnVersion is a whole number"),
        ("value", {"path": "/data"}, "a topic has no path"),
        ("value", {"checkpointLocation": "c"}, "no meaning for a batch write"),
        (
            "value",
            {"delivery": "at-least-once", "txnAppId": "a", "txnVersion": "1"},
            "no meaning with delivery=at-least-once",
        ),
        ("key", {}, "there is no column 'value'"),
        ("value:int", {}, "column 'value' is int, not binary or string: cast it"),
        ("value partition:bigint", {}, "column 'partition' is bigint, not int"),
        ("value body:string", {}, "a topic has no column 'body'"),
    ],
)
def test_what_cannot_be_is_said_when_a_write_is_planned(
    schema: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        writer(**{"servers": "127.0.0.1:9", "topic": "t", **options}, schema=schema)


def test_overwrite_is_refused(servers: str) -> None:
    source = LogboomDataSource({"servers": servers, "topic": "t"})
    with pytest.raises(InvalidRequest, match="what is in a topic stays there: write with mode"):
        source.writer(schema_of("value"), True)
    with pytest.raises(InvalidRequest, match='write with outputMode "append"; a running'):
        source.streamWriter(schema_of("value"), True)


@pytest.mark.parametrize(
    ("schema", "columns", "error", "said"),
    [
        ("value partition", {"partition": [3] * 5}, UnknownResource, "queues 0 to 2, not 3"),
        ("value partition", {"partition": [-1] * 5}, UnknownResource, "not -1"),
        ("value topic", {"topic": ["t", None] * 2 + ["t"]}, InvalidRequest, "no topic"),
        (
            "value headers",
            {"headers": [[{"key": "h", "value": None}]] * 5},
            InvalidRequest,
            "header 'h' has no value",
        ),
    ],
)
def test_rows_that_cannot_be_written(
    servers: str,
    topic: str,
    schema: str,
    columns: dict[str, Any],
    error: type[LogboomError],
    said: str,
) -> None:
    made = writer(servers, "" if "topic" in columns else topic, schema)
    with pytest.raises(error, match=said):
        made.write(iter([rows(range(5), **columns)]))


def test_an_unknown_topic_and_a_broker_that_is_away(servers: str) -> None:
    with pytest.raises(UnknownResource, match="'none-such' does not exist"):
        writer(servers, "none-such").write(iter([rows(range(5))]))
    with pytest.raises(LogboomError, match=r"answered at 127\.0\.0\.1:9"):
        writer("127.0.0.1:9", "t", timeoutMs="300").write(iter([rows(range(5))]))
