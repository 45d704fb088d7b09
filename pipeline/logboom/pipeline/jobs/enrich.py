"""enrich: messages of a topic with more fields, to another topic, by SQL or by a lookup table.

Each micro-batch is one transaction, so each message is enriched and written once. The order of a
queue is kept if the SQL does not shuffle. Joins with small tables do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from logboom.pipeline.jobs import checkpoints
from logboom.pipeline.jobs import message_frames as rows
from logboom.pipeline.jobs.job_runs import JobReport, OnRows, run_stream
from logboom.pipeline.jobs.publishing import Target, stream_writer
from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW: Final = "messages"
"""The name of the topic in SQL."""
AT_ONCE_BYTES: Final = 256 * 1024 * 1024
"""The default bytes of a micro-batch, as they are stored: a decision can name only a
limited number of batches."""
READERS: Final[Mapping[str, Mapping[str, str]]] = {
    # All as text: Spark would read 01234 as a number, which matches no message.
    "csv": {"header": "true"},
    "json": {},
    "parquet": {},
    "orc": {},
}
"""Readers of tables by the extension of the file."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A field that is looked up in a table."""

    table: DataFrame
    field: str
    """The field of the JSON value."""
    column: str = ""
    """The column of the table; "": the same name."""
    only_found: bool = False
    """Leave out messages that the table does not know and those that cannot be read. Tombstones
    are kept, so that a deleted key is deleted everywhere."""


def by_sql(
    messages: DataFrame, query: str, schema: str = "", tables: Mapping[str, DataFrame] | None = None
) -> DataFrame:
    """Return what a query makes of messages, as messages (`messages.as_messages`).

    Args:
        messages: with the columns of `messages.SCHEMA`; in the query they are called `messages`.
        schema: the fields of the JSON values, such as "carrier string, delay double". They are
            columns of `messages` too, and null where a value does not fit. A stream counts the
            values that do not fit. "": there is no JSON.
        tables: further tables of the query, by name.

    Raises:
        InvalidRequest: a field has the name of a column of messages, or a table that of the topic.
    """
    frame = _with_columns(messages, schema) if schema else messages
    if VIEW in (tables or {}):
        raise InvalidRequest(f"{VIEW!r} is the topic: give the table another name")
    spark = messages.sparkSession
    views = {VIEW: frame, **(tables or {})}
    names = {name.lower() for name in views}
    mine = {each.name for each in spark.catalog.listTables() if each.isTemporary}
    before = {name: spark.table(name) for name in mine if name.lower() in names}
    for name, view in views.items():
        view.createOrReplaceTempView(name)
    try:
        # The plan is made here, and does not depend on the names afterwards.
        return rows.as_messages(spark.sql(query))
    finally:
        for name in views:
            spark.catalog.dropTempView(name)
        for name, view in before.items():
            view.createOrReplaceTempView(name)


def _with_columns(messages: DataFrame, schema: str) -> DataFrame:
    """Return messages with the fields of their JSON values as columns."""
    told = rows.observed(rows.with_fields(messages, schema))
    fields = rows.field_names(schema)
    if twice := [name for name in fields if name in messages.columns]:
        text = (
            f"{_list(twice)} is a column of every message: leave it out of the schema, and read it"
        )
        field = f"get_json_object(cast(value AS string), '$.{twice[0]}')"
        raise InvalidRequest(f"{text} with {field}")
    return told.select(*messages.columns, *(sf.col(f"it.`{name}`") for name in fields))


def by_lookup(messages: DataFrame, schema: str, wanted: Lookup) -> DataFrame:
    """Return messages whose JSON values also have the columns of the table's row.

    Tombstones are passed on unchanged. So are values that do not fit the schema (no JSON, or a
    field of another type), unless only messages that the table knows are requested. A stream counts
    them.

    Args:
        messages: with the columns of `messages.SCHEMA`.
        schema: the fields of the JSON values; others are dropped.

    Raises:
        InvalidRequest: the schema has no such field, the table has no such column, or both share
            another name.
    """
    told = rows.observed(rows.with_fields(messages, schema))
    fields = rows.field_names(schema)
    column = wanted.column or wanted.field
    if wanted.field not in fields:
        raise InvalidRequest(f"the schema has no field {wanted.field!r}: there are {_list(fields)}")
    if column not in wanted.table.columns:
        there = _list(wanted.table.columns)
        raise InvalidRequest(f"the table has no column {column!r}: there are {there}")
    more = [name for name in wanted.table.columns if name != column]
    if twice := sorted(set(more) & set(fields)):
        text = f"{_list(twice)} is in the messages and in the table: rename it, or use SQL"
        raise InvalidRequest(text)
    table = wanted.table.select(
        sf.col(f"`{column}`").alias("_found"),
        sf.struct(*(sf.col(f"`{name}`") for name in more)).alias("more"),
    )
    same = sf.col(f"it.`{wanted.field}`").cast("string") == sf.col("_found").cast("string")
    joined = told.join(sf.broadcast(table), same, "left")
    tombstone = sf.col("value").isNull()
    if wanted.only_found:
        # A value that cannot be read completely may have the field, and even be known.
        joined = joined.where(tombstone | (~rows.is_unread() & sf.col("_found").isNotNull()))
    whole = rows.json_of(
        [sf.col(f"it.`{name}`") for name in fields] + [sf.col(f"more.`{name}`") for name in more]
    )
    value = sf.when(tombstone | rows.is_unread(), sf.col("value")).otherwise(whole).alias("value")
    return joined.select("key", value, "tag", "headers", "timestamp")


def read_table(spark: SparkSession, path: Path) -> DataFrame:
    """Return a table from a file or folder: CSV with a header, JSON lines, Parquet, ORC.

    Raises:
        InvalidRequest: it has another format, or does not exist.
    """
    kind = path.suffix.lower().removeprefix(".") or "parquet"
    kind = {"jsonl": "json", "ndjson": "json"}.get(kind, kind)
    if not path.exists():
        raise InvalidRequest(f"{path} does not exist: give a file of {_list(READERS)}")
    if kind not in READERS:
        raise InvalidRequest(f"{path} is no table: its name ends in one of {_list(READERS)}")
    return spark.read.format(kind).options(**READERS[kind]).load(str(path))


def check_unique(table: DataFrame, column: str) -> None:
    """Check that a lookup has at most one row for each value.

    Raises:
        InvalidRequest: there are several.
    """
    counts = table.where(sf.col(f"`{column}`").isNotNull()).groupBy(f"`{column}`").count()
    twice = counts.where("count > 1").orderBy(column).head()
    if twice is not None:
        text = f"the table has {twice['count']} rows with {column} {twice[0]!r}: a lookup needs one"
        raise InvalidRequest(text)


def _list(names: object) -> str:
    return ", ".join(map(str, names)) if isinstance(names, list | Mapping) else str(names)


def messages_of(spark: SparkSession, source: dict[str, str]) -> DataFrame:
    """Return the stream to enrich. How it is cut makes no difference to what is written."""
    reader = spark.readStream.format("logboom").schema(rows.SCHEMA)
    usual = {"startingOffsets": "earliest", "maxBytesPerTrigger": str(AT_ONCE_BYTES)}
    return reader.options(**{**usual, **source}).load()


def enrich(
    enriched: DataFrame,
    target: Target,
    checkpoint: Path,
    *,
    source: Mapping[str, str] | None = None,
    every: str = "",
    on_rows: OnRows | None = None,
) -> JobReport:
    """Write what `by_sql` or `by_lookup` made of a stream.

    This is everything there is now, or with `every` what arrives from now on.

    Args:
        source: options of the stream, to check that the checkpoint belongs to it.

    Raises:
        InvalidRequest: the checkpoint belongs to other topics.
    """
    checkpoints.check_topics(checkpoint, source or {})
    writer = stream_writer(enriched, target, checkpoint)
    return run_stream("enrich", writer, every=every, on_rows=on_rows)
