"""The jobs as functions of frames, without a topic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from logboom.pipeline.jobs import compact, dead_letters, enrich, replay
from logboom.pipeline.jobs.message_frames import SCHEMA, as_messages, field_names, with_header
from logboom.pipeline.jobs.window import WindowAggregation, outgoing, windowed
from logboom.wire.copy_receipts import ATTEMPT_HEADER, CAUSE, ORIGIN
from logboom.wire.errors import InvalidRequest

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
NAMES = ("topic", "partition", "offset", "timestamp", "key", "value", "tag", "headers")


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def message(queue: int, offset: int, **given: Any) -> tuple[Any, ...]:
    """A row of `messages.SCHEMA`."""
    known = {"topic": "t", "partition": queue, "offset": offset, "timestamp": at(NOW_MS), **given}
    return tuple(known.get(name) for name in NAMES)


def frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def offsets(found: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in found.collect())


def test_rows_become_messages(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'UA' AS key, 'late' AS tag, 7 AS delay, NULL AS gate, 1 AS timestamp")
    (found,) = as_messages(rows).collect()
    assert (found.key, found.tag) == (b"UA", "late")
    # A timestamp that is none is a field like any other.
    assert json.loads(found.value) == {"delay": 7, "gate": None, "timestamp": 1}
    (plain,) = as_messages(spark.sql("SELECT 'text' AS value, 1 AS other")).collect()
    assert plain.asDict() == {"value": b"text"}


def test_the_names_of_a_schema_are_read_without_spark() -> None:
    schema = "a: int, `b c` struct<x:int,y:array<int>>, d decimal(10,2) COMMENT 'x, y', e string"
    assert field_names(schema) == ["a", "b c", "d", "e"]
    assert field_names("") == []


def test_a_header_is_added_to_those_that_are_there(spark: SparkSession) -> None:
    rows = [message(0, 0), message(0, 1, headers=[("a", b"1")])]
    found = frame(spark, rows).select(with_header("n", "7").alias("headers")).collect()
    assert [row.headers for row in found] == [[("n", b"7")], [("a", b"1"), ("n", b"7")]]


def test_an_archive_is_selected_by_topic_time_offset_and_key(spark: SparkSession) -> None:
    rows = [
        message(n % 2, n, timestamp=at(NOW_MS + n * DAY_MS), key=b"k%d" % n) for n in range(6)
    ] + [message(0, 0, topic="other", key=b"k0")]
    archive = frame(spark, rows).withColumn("date", sf.to_date("timestamp"))

    def found(**wanted: Any) -> list[int]:
        chosen = replay.selected(archive, replay.ReplayFilter(**wanted))
        return [offset for _, offset in offsets(chosen)]

    assert found() == [0, 0, 2, 4, 1, 3, 5]
    assert found(topic="t", queues=(1,)) == [1, 3, 5]
    assert found(since_ms=NOW_MS + DAY_MS, until_ms=NOW_MS + 3 * DAY_MS) == [2, 1]
    assert found(first=2, end=5) == [2, 4, 3]
    assert found(topic="t", keys=("k0", "k5")) == [0, 5]
    assert found(topic="t", key_first="k1", key_end="k4") == [2, 1, 3]


def test_pieces_take_turns_and_leave_nothing_out(spark: SparkSession) -> None:
    rows = [message(0, n) for n in range(10)] + [message(1, n) for n in (5, 6)]
    archive = frame(spark, rows)
    pieces = cut(archive, 4)
    assert sorted(place for piece in pieces for place in piece) == offsets(archive)
    assert pieces[0] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 5)]
    assert pieces[2] == [(0, 7), (0, 8), (0, 9)]
    assert cut(archive.where("false"), 4) == []
    assert offsets(replay.piece_of(archive, [])) == []


def cut(chosen: DataFrame, most: int) -> list[list[tuple[int, int]]]:
    """The places of each piece."""
    found = replay.cut(chosen, most)
    spans = [replay.spans_of(found, piece) for piece in sorted(set(found["piece"].to_pylist()))]
    return [offsets(replay.piece_of(chosen, each)) for each in spans]


@pytest.mark.thorough
def test_pieces_are_as_large_as_they_may_be_wherever_the_messages_lie(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = frame(spark, [message(0, n * n * n) for n in range(40)])
    assert [len(piece) for piece in cut(archive, 10)] == [10] * 4
    # What is large closes a piece: value, key and headers.
    monkeypatch.setattr(replay, "PIECE_BYTES", 1_000)
    rows = [message(0, n, value=b"v" * 200, key=b"k" * 200) for n in range(4)]
    rows += [message(0, n, headers=[("h" * 50, b"v" * 50)]) for n in range(4, 24)]
    rows += [message(0, 24, value=b"v" * 5_000), message(0, 25)]
    sizes = [len(piece) for piece in cut(frame(spark, rows), 100)]
    assert sum(sizes) == 26
    assert max(sizes) <= 11
    # One that is archived twice is not sent four times.
    double = frame(spark, [message(0, n // 2) for n in range(8)])
    assert sum(len(piece) for piece in cut(double, 1)) == 8


def test_what_is_replayed_follows_the_offsets(spark: SparkSession) -> None:
    rows = [message(n % 3, n, value=b"%d" % n) for n in range(60)]
    archive = frame(spark, rows).orderBy(sf.desc("offset"))
    kept = replay.outgoing(archive, keep_queues=True)
    parts = kept.rdd.glom().map(lambda part: [(r.partition, int(r.value)) for r in part]).collect()
    for queue in range(3):
        (part,) = [p for p in parts if any(q == queue for q, _ in p)]
        assert [n for q, n in part if q == queue] == list(range(queue, 60, 3))
    assert replay.outgoing(archive).columns == ["key", "value", "tag", "headers", "timestamp"]


def airlines(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT * FROM VALUES ('UA', 'United'), ('AA', 'American') AS t(code, name)")


def flights(spark: SparkSession) -> DataFrame:
    values = [b'{"carrier": "UA", "delay": 3}', b'{"carrier": "XX"}', b"no json", None]
    rows = [message(0, n, key=b"k%d" % n, tag="t", value=value) for n, value in enumerate(values)]
    return frame(spark, rows)


def test_a_field_is_looked_up(spark: SparkSession) -> None:
    wanted = enrich.Lookup(airlines(spark), "carrier", "code")
    found = enrich.by_lookup(flights(spark), "carrier string, delay int", wanted).collect()
    assert [row.key for row in found] == [b"k0", b"k1", b"k2", b"k3"]
    assert json.loads(found[0].value) == {"carrier": "UA", "delay": 3, "name": "United"}
    assert json.loads(found[1].value) == {"carrier": "XX", "delay": None, "name": None}
    assert [row.value for row in found[2:]] == [b"no json", None]


@pytest.mark.parametrize(
    ("schema", "field", "column", "said"),
    [
        ("carrier string", "career", "code", "the schema has no field 'career': there are carrier"),
        (
            "carrier string",
            "carrier",
            "",
            "the table has no column 'carrier': there are code, name",
        ),
        (
            "carrier string, name string",
            "carrier",
            "code",
            "name is in the messages and in the tab",
        ),
    ],
)
def test_a_lookup_that_cannot_be_is_told(
    spark: SparkSession, schema: str, field: str, column: str, said: str
) -> None:
    wanted = enrich.Lookup(airlines(spark), field, column)
    with pytest.raises(InvalidRequest, match=said):
        enrich.by_lookup(flights(spark), schema, wanted)


def test_a_lookup_needs_one_row_for_each_value(spark: SparkSession) -> None:
    enrich.check_unique(airlines(spark), "code")
    with pytest.raises(InvalidRequest, match="the table has 2 rows with code 'AA'"):
        enrich.check_unique(airlines(spark).union(airlines(spark)), "code")


def test_messages_are_enriched_by_sql(spark: SparkSession) -> None:
    query = (
        "SELECT m.key, m.timestamp, carrier, name, delay * 60 AS delay_s "
        "FROM messages m JOIN airlines a ON m.carrier = a.code"
    )
    tables = {"airlines": airlines(spark)}
    made = enrich.by_sql(flights(spark), query, "carrier string, delay int", tables)
    (row,) = made.collect()
    assert (row.key, row.timestamp) == (b"k0", at(NOW_MS).replace(tzinfo=None))
    assert json.loads(row.value) == {"carrier": "UA", "name": "United", "delay_s": 180}
    assert not spark.catalog.tableExists("messages")
    with pytest.raises(InvalidRequest, match="value is a column of every message"):
        enrich.by_sql(flights(spark), "SELECT 1", "value string")
    with pytest.raises(InvalidRequest, match="'messages' is the topic"):
        enrich.by_sql(flights(spark), "SELECT 1", "", {"messages": airlines(spark)})


def test_the_latest_of_each_key_is_kept(spark: SparkSession) -> None:
    rows = [
        message(0, 0, key=b"a", value=b"old"),
        # Later in the log, earlier by its own time: the log decides.
        message(0, 5, key=b"a", value=b"new", timestamp=at(NOW_MS - 1)),
        message(0, 1, key=b"b", value=b"1"),
        message(0, 2, key=b"b", value=None),
        message(0, 3, key=None, value=b"of nobody"),
        # Queues were added: the key has moved to another, whose offsets begin anew.
        message(0, 9, key=b"c", value=b"before"),
        message(4, 0, key=b"c", value=b"after", timestamp=at(NOW_MS + 1)),
    ]
    found = compact.without_tombstones(compact.latest(frame(spark, rows)))
    assert {row.key: row.value for row in found.collect()} == {b"a": b"new", b"c": b"after"}
    (one, _) = compact.as_snapshot(found, 12).collect()
    assert one.headers == [("boom-snapshot", b"12")]


def letter(offset: int, cause: str, origin: str, time_ms: int = NOW_MS) -> tuple[Any, ...]:
    """A dead letter."""
    headers = [
        ("own", b"x"),
        (ATTEMPT_HEADER, b"16"),
        (ORIGIN, origin.encode()),
        (CAUSE, cause.encode()),
    ]
    return message(0, offset, headers=headers, value=b"%d" % offset, timestamp=at(time_ms))


def letters(spark: SparkSession) -> DataFrame:
    rows = [
        letter(0, "order 17 is not known", "orders/0/3"),
        letter(1, "order 99 is not known", "orders/2/8", NOW_MS + 3_600_000),
        letter(2, "time-out", "a/b/c/1/5"),
        message(0, 3, value=b"by hand"),
    ]
    return dead_letters.opened(frame(spark, rows))


def test_dead_letters_are_opened(spark: SparkSession) -> None:
    found = letters(spark).orderBy("offset").collect()
    told = [(r.cause, r.attempts, r.origin_topic, r.origin_queue, r.origin_offset) for r in found]
    assert told == [
        ("order 17 is not known", 16, "orders", 0, 3),
        ("order 99 is not known", 16, "orders", 2, 8),
        ("time-out", 16, "a/b/c", 1, 5),
        (None, None, None, None, None),
    ]


def test_dead_letters_are_counted_by_what_they_have_in_common(spark: SparkSession) -> None:
    found = dead_letters.triaged(letters(spark), ("cause", "topic")).collect()
    assert [(row.cause, row.topic, row.letters, row["sample"]) for row in found] == [
        ("order # is not known", "orders", 2, "0/0"),
        (None, None, 1, "0/3"),
        ("time-out", "a/b/c", 1, "0/2"),
    ]
    by_time = dead_letters.triaged(letters(spark), ("time",)).collect()
    assert [row.letters for row in by_time] == [3, 1]
    with pytest.raises(InvalidRequest, match="counted by cause, topic, time, not by"):
        dead_letters.triaged(letters(spark), ("reason",))


def test_dead_letters_are_chosen_and_sent_back_as_they_were(spark: SparkSession) -> None:
    def found(**wanted: Any) -> list[int]:
        chosen = dead_letters.chosen(letters(spark), dead_letters.DeadLetterFilter(**wanted))
        return [offset for _, offset in offsets(chosen)]

    assert found(cause="order .* known") == [0, 1]
    assert found(topic="a/b/c") == [2]
    assert found(since_ms=NOW_MS + 1) == [1]
    assert found(until_ms=NOW_MS + 1) == [0, 2, 3]
    sent = dead_letters.redriven(letters(spark)).collect()
    assert sorted((row.topic, row.value, row.headers) for row in sent) == [
        ("a/b/c", b"2", [("own", b"x")]),
        ("orders", b"0", [("own", b"x")]),
        ("orders", b"1", [("own", b"x")]),
    ]
    elsewhere = dead_letters.redriven(letters(spark), "again").collect()
    assert {(row.topic, row.headers is None) for row in elsewhere} == {
        ("again", False),
        ("again", True),
    }


def test_windows_become_messages_in_their_order(spark: SparkSession) -> None:
    values = [(b'{"carrier": "UA", "delay": %d}' % n, at(NOW_MS + n * 60_000)) for n in range(5)]
    messages = spark.createDataFrame(values, "value binary, timestamp timestamp")
    wanted = WindowAggregation("carrier string, delay int", "2 minutes", "", ["carrier"], ["delay"])
    found = outgoing(windowed(messages, wanted), wanted).collect()
    assert {row.key for row in found} == {b"UA"}
    assert [row.timestamp for row in found] == sorted(row.timestamp for row in found)
    assert [json.loads(row.value)["count"] for row in found] == [1, 2, 2]
    both = WindowAggregation("carrier string, gate string", "2 minutes", "", ["carrier", "gate"])
    some = spark.createDataFrame(
        [(value, at(NOW_MS)) for value in (b'{"carrier": "x"}', b'{"gate": "x"}')], messages.schema
    )
    assert {row.key for row in outgoing(windowed(some, both), both).collect()} == {b"x/", b"/x"}
    last = json.loads(found[2].value)
    assert (last["carrier"], last["delay_max"], last["end"][11:19]) == ("UA", 4, "22:18:00")
    assert found[2].timestamp.isoformat()[11:23] == "22:17:59.999"
