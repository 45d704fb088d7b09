"""Conversions of frames: rows to messages, as the sink takes them, and JSON values to columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

COLUMNS: Final = ("key", "value", "tag", "headers", "timestamp")
"""The columns of a message, without those that say where it was read."""
SCHEMA: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "tag string, headers array<struct<key:string,value:binary>>"
)
"""Everything that a job reads from a topic to write it to another."""
HEADERS: Final = "array<struct<key:string,value:binary>>"
UNREAD: Final = "logboom.unread"
"""The name under which a stream counts values that do not fit its schema."""
_TOKEN: Final = re.compile(r"`[^`]*`|'[^']*'|.", re.DOTALL)
_NAME: Final = re.compile(r"\s*(?:`([^`]*)`|([^\s:`]+))")
BROKEN: Final = "_broken"
"""The column with the text of a value that does not fit the schema."""


def as_messages(rows: DataFrame) -> DataFrame:
    """Return rows as messages.

    The columns `key`, `value`, `tag`, `headers` and `timestamp` have their usual meaning. Without a
    `value`, all other columns become one JSON object.
    """
    given = [name for name in COLUMNS if name in rows.columns]
    if "timestamp" in given and dict(rows.dtypes)["timestamp"] != "timestamp":
        given.remove("timestamp")
    others = [name for name in rows.columns if name not in given]
    found = [_told(rows, name) for name in given]
    if "value" not in given:
        found.append(json_of([sf.col(f"`{name}`") for name in others]).alias("value"))
    return rows.select(*found)


def _told(rows: DataFrame, name: str) -> Column:
    if name not in ("key", "value") or dict(rows.dtypes)[name] == "binary":
        return sf.col(name)
    return sf.col(name).cast("string").cast("binary").alias(name)


def json_of(fields: Sequence[Column]) -> Column:
    """Return a JSON object of these columns as a value. Unknown values are null."""
    return sf.to_json(sf.struct(*fields), {"ignoreNullFields": "false"}).cast("binary")


def joined_key(names: Sequence[str]) -> Column:
    """Return a key of some columns, separated by /. A null becomes an empty text."""
    # `concat_ws` skips nulls, so that (x, null) and (null, x) would have the same key.
    parts = (sf.coalesce(sf.col(f"`{name}`").cast("string"), sf.lit("")) for name in names)
    return sf.concat_ws("/", *parts).cast("binary")


def with_fields(messages: DataFrame, schema: str) -> DataFrame:
    """Return messages with a column `it` that has the fields of their JSON values.

    The schema is such as "carrier string, delay double". `it._broken` is the text of a value that
    is not a JSON object or has a field of another type.
    """
    text = sf.col("value").cast("string")
    told = {"columnNameOfCorruptRecord": BROKEN}
    return messages.withColumn("it", sf.from_json(text, f"{schema}, {BROKEN} string", told))


def is_unread() -> Column:
    """Return whether a message with fields has a value that does not fit the schema.

    Spark returns nothing for an empty or blank value.
    """
    return sf.col("value").isNotNull() & (
        sf.col("it").isNull() | sf.col(f"it.{BROKEN}").isNotNull()
    )


def observed(messages: DataFrame) -> DataFrame:
    """Return messages with fields, so that a stream counts those that it could not read."""
    return messages.observe(UNREAD, sf.count_if(is_unread()).alias("messages"))


def field_names(schema: str) -> list[str]:
    """Return the names of a schema's fields without Spark, as declarative pipelines require."""
    parts: list[str] = []
    depth = 0
    for token in _TOKEN.findall(schema):
        depth += (token in ("<", "(")) - (token in (">", ")"))
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts = parts or [""]
            parts[-1] += token
    names = [_NAME.match(part) for part in parts]
    return [found[1] if found[1] is not None else found[2] for found in names if found is not None]


def in_order(messages: DataFrame) -> DataFrame:
    """Return a bounded frame in which a task has all of a queue, in offset order.

    This keeps the order of each key in what is written.
    """
    parted = messages.repartition("topic", "partition")
    return parted.sortWithinPartitions("topic", "partition", "offset")


def header(name: str) -> Column:
    """Return a header's value, or null where it is missing."""
    return sf.get(sf.filter("headers", lambda each: each["key"] == name), sf.lit(0))["value"]


def with_header(name: str, value: str) -> Column:
    """Return the headers and another one."""
    more = sf.array(
        sf.struct(sf.lit(name).alias("key"), sf.lit(value).cast("binary").alias("value"))
    )
    return sf.concat(sf.coalesce("headers", sf.array().cast(HEADERS)), more.cast(HEADERS))
