"""enrich: what becomes of values that cannot be read, of tables, and of views that were there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from logboom.client import Client
from logboom.pipeline.jobs import enrich
from logboom.pipeline.jobs.publishing import Target
from logboom.pipeline.jobs.window import WindowAggregation, window
from tests.spark.topic_contents import contents

SCHEMA = "carrier string, delay double"
FLIGHTS: dict[bytes | None, bytes | None] = {
    b"known": b'{"carrier": "UA", "delay": 3}',
    b"unknown": b'{"carrier": "XX"}',
    b"empty": b"",
    b"blank": b" ",
    # What can be read of it is known to the table.
    b"wrong type": b'{"carrier": "UA", "delay": "NA"}',
    b"no json": b"no json",
    b"no object": b"[1]",
    b"tombstone": None,
}
UNREAD = {b"empty", b"blank", b"wrong type", b"no json", b"no object"}


@pytest.fixture(name="flights")
def topic_of_flights(boom: Client, topic: str) -> str:
    with boom.producer() as producer:
        for key, value in FLIGHTS.items():
            producer.send(topic, value, key=key).result()
    return topic


@pytest.fixture(name="airlines")
def table_of_airlines(spark: SparkSession, tmp_path: Path) -> DataFrame:
    path = tmp_path / "airlines.csv"
    path.write_text("carrier,name,number\nUA,United,007\n0123,Zero,8\n", "utf-8")
    return enrich.read_table(spark, path)


@pytest.fixture(name="copy")
def target_topic(boom: Client, servers: str, topic: str) -> Target:
    boom.admin.create_topic(f"{topic}-copy", queues=1)
    return Target(servers, f"{topic}-copy")


@pytest.mark.parametrize("only_found", [False, True])
def test_what_cannot_be_read_goes_on_as_it_is_and_is_counted(
    spark: SparkSession,
    servers: str,
    boom: Client,
    flights: str,
    airlines: DataFrame,
    copy: Target,
    tmp_path: Path,
    only_found: bool,
) -> None:
    source = {"servers": servers, "subscribe": flights}
    messages = enrich.messages_of(spark, source)
    wanted = enrich.Lookup(airlines, "carrier", only_found=only_found)
    made = enrich.by_lookup(messages, SCHEMA, wanted)
    run = enrich.enrich(made, copy, tmp_path / "checkpoint", source=source)
    assert (run.rows, run.unread) == (len(FLIGHTS), len(UNREAD))
    found = {message.key: message.value for message in contents(boom, copy.topic)}
    left_out = {b"unknown", *UNREAD} if only_found else set()
    assert found.keys() == FLIGHTS.keys() - left_out
    for key in found.keys() & {b"tombstone", *UNREAD}:
        assert found[key] == FLIGHTS[key]
    # As it stands in the table, which is text.
    told = {"carrier": "UA", "delay": 3.0, "name": "United", "number": "007"}
    assert json.loads(found[b"known"] or b"") == told


@pytest.mark.thorough
def test_windows_and_sql_tell_of_what_they_could_not_read(
    spark: SparkSession, servers: str, boom: Client, flights: str, copy: Target, tmp_path: Path
) -> None:
    source = {"servers": servers, "subscribe": flights}
    counted = window(spark, source, WindowAggregation(SCHEMA, by=["carrier"]), tmp_path / "windows")
    assert (counted.rows, counted.unread) == (len(FLIGHTS), len(UNREAD))
    made = enrich.by_sql(
        enrich.messages_of(spark, source), "SELECT key, carrier FROM messages", SCHEMA
    )
    assert enrich.enrich(made, copy, tmp_path / "sql", source=source).unread == len(UNREAD)
    assert len(contents(boom, copy.topic)) == len(FLIGHTS)


def test_what_stands_in_a_table_is_found_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "airlines.csv"
    path.write_text("carrier,name\n0123,Zero\n99,Other\n", "utf-8")
    wanted = enrich.Lookup(enrich.read_table(spark, path), "carrier")
    rows = [(b'{"carrier": "0123"}',), (b'{"carrier": "123"}',)]
    messages = spark.createDataFrame(rows, "value binary").selectExpr(
        "value", "binary(null) AS key", "'' AS tag", "array() AS headers", "now() AS timestamp"
    )
    made = enrich.by_lookup(messages, "carrier string", wanted)
    assert [json.loads(row.value)["name"] for row in made.collect()] == ["Zero", None]


def test_views_of_the_same_names_are_there_afterwards(
    spark: SparkSession, airlines: DataFrame
) -> None:
    for name in ("Messages", "airlines"):
        spark.sql("SELECT 'mine' AS whose").createOrReplaceTempView(name)
    messages = spark.sql("SELECT binary('x') AS value")
    try:
        made = enrich.by_sql(
            messages, "SELECT name FROM messages, airlines", "", {"airlines": airlines}
        )
        assert {json.loads(row.value)["name"] for row in made.collect()} == {"United", "Zero"}
        for name in ("messages", "airlines"):
            assert [row.whose for row in spark.table(name).collect()] == ["mine"]
    finally:
        for name in ("messages", "airlines"):
            spark.catalog.dropTempView(name)
