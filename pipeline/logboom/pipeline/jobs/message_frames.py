"""Rows as messages: what the sink takes, made of whatever a job has; and JSON values as columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

COLUMNS: Final = ("key", "value", "tag", "headers", "timestamp")
"""What a message is made of; where it was read is no part of it."""
SCHEMA: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "tag string, headers array<struct<key:string,value:binary>>"
)
"""All that a job reads of a topic that it writes to another."""
HEADERS: Final = "array<struct<key:string,value:binary>>"
UNREAD: Final = "logboom.unread"
"""Under this name a stream observes how many values its schema does not fit."""
_TOKEN: Final = re.compile(r"`[^`]*`|'[^']*'|.", re.DOTALL)
_NAME: Final = re.compile(r"\s*(?:`([^`]*)`|([^\s:`]+))")
BROKEN: Final = "_broken"
"""Holds the text of a value that the schema does not fit."""


def as_messages(rows: DataFrame) -> DataFrame:
    """Rows as the sink takes them. Columns `key`, `value`, `tag`, `headers` and `timestamp` are what
    they say; without `value`, all others become one JSON object."""
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
    """A value: a JSON object of these columns; what is not known is null in it."""
    return sf.to_json(sf.struct(*fields), {"ignoreNullFields": "false"}).cast("binary")


def joined_key(names: Sequence[str]) -> Column:
    """A key of some columns, with / between them, and nothing for a null."""
    # `concat_ws` passes over nulls: those of (x, null) and (null, x) would have one key.
    parts = (sf.coalesce(sf.col(f"`{name}`").cast("string"), sf.lit("")) for name in names)
    return sf.concat_ws("/", *parts).cast("binary")


def with_fields(messages: DataFrame, schema: str) -> DataFrame:
    """Messages with a column `it`, the fields of their JSON values, such as "carrier string, delay
    double". `it._broken` is the text of what is no JSON object, or has a field of another type."""
    text = sf.col("value").cast("string")
    told = {"columnNameOfCorruptRecord": BROKEN}
    return messages.withColumn("it", sf.from_json(text, f"{schema}, {BROKEN} string", told))


def is_unread() -> Column:
    """Of messages with fields: whether there is a value, and the schema does not fit it. Of what is
    empty or blank Spark makes nothing at all."""
    return sf.col("value").isNotNull() & (
        sf.col("it").isNull() | sf.col(f"it.{BROKEN}").isNotNull()
    )


def observed(messages: DataFrame) -> DataFrame:
    """Messages with fields, of which a stream counts those that it could not read."""
    return messages.observe(UNREAD, sf.count_if(is_unread()).alias("messages"))


def field_names(schema: str) -> list[str]:
    """The names of a schema's fields, without asking Spark: declarative pipelines forbid that."""
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
    """A frame that is no stream, so that a task has all of a queue it was read from, in the order of
    its offsets. So what is written keeps the order of each key."""
    parted = messages.repartition("topic", "partition")
    return parted.sortWithinPartitions("topic", "partition", "offset")


def header(name: str) -> Column:
    """A header's value; null where there is none."""
    return sf.get(sf.filter("headers", lambda each: each["key"] == name), sf.lit(0))["value"]


def with_header(name: str, value: str) -> Column:
    """The headers and one more."""
    more = sf.array(
        sf.struct(sf.lit(name).alias("key"), sf.lit(value).cast("binary").alias("value"))
    )
    return sf.concat(sf.coalesce("headers", sf.array().cast(HEADERS)), more.cast(HEADERS))
