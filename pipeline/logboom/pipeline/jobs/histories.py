"""audit: the histories of producers and readers, compared with the content of a topic.

Histories are files of JSON arrays, one per line, as the chaos runs write them. Each describes
consecutive messages:

    ["s", producer, queue, count]                                     sent in all
    ["a", producer, queue, first, offset, count, sent at, at]         acknowledged, and where
    ["f", producer, queue, first, count, at, error]                   given up: stored or not
    ["r", reader, queue, offset, producer, sent to, first, count, at] read
    ["w", who, property, detail, at]                                  seen to be wrong

Lines of other kinds are for other checks. A value begins with `producer/queue/number/`; what one
producer sends to one queue is numbered from 0. The audit consists of joins and counts, so it works
at any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOST: Final = "nothing acknowledged is lost"
DOUBLED: Final = "nothing is doubled"
REORDERED: Final = "producers' order holds"
PHANTOM: Final = "what is stored was sent"
UNSTABLE: Final = "reads are final"
GAPS: Final = "offsets are gap-free"
UNREAD: Final = "everything is read at last"
ONCE: Final = "readers see every offset once, in order"
OUTCOMES: Final = "one outcome per send"
PROPERTIES: Final = (
    LOST, DOUBLED, REORDERED, PHANTOM, UNSTABLE, GAPS, UNREAD, ONCE, OUTCOMES
)  # fmt: skip
"""The properties as the chaos runs' own checker names them."""
SCHEMA: Final = "topic string, partition int, offset bigint, value binary"
"""The columns that are read from the topic."""
BOUNDS: Final = "queue bigint, low bigint, high bigint"
MESSAGE: Final = ("producer", "sent_to", "number")
"""The columns that identify a message."""
_VALUE: Final = r"^([^/]+)/(\d+)/(\d+)/"
_SHAPES: Final = {
    "s": ("producer", "queue", "count"),
    "a": ("producer", "queue", "first", "offset", "count"),
    "f": ("producer", "queue", "first", "count"),
    "r": ("who", "queue", "offset", "producer", "sent_to", "first", "count"),
    "w": ("who", "property", "detail"),
}
_NUMBERS: Final = {"queue", "first", "offset", "count", "sent_to"}


class Histories(NamedTuple):
    """The records of clients, by kind."""

    sent: DataFrame
    acked: DataFrame
    failed: DataFrame
    read: DataFrame
    wrong: DataFrame


def told(lines: DataFrame) -> Histories:
    """Return the histories in lines of text (column `value`). A torn last line is left out."""
    parts = lines.select(sf.from_json("value", "array<string>").alias("it"))
    parts = parts.where(sf.col("it").isNotNull())

    def kind(tag: str) -> DataFrame:
        names = _SHAPES[tag]
        whole = parts.where((sf.get("it", sf.lit(0)) == tag) & (sf.size("it") > len(names)))
        return whole.select(*(_part(place + 1, name) for place, name in enumerate(names)))

    return Histories(kind("s"), kind("a"), kind("f"), kind("r"), kind("w"))


def _part(place: int, name: str) -> Column:
    found = sf.get("it", sf.lit(place))
    return (found.try_cast("bigint") if name in _NUMBERS else found).alias(name)


def stored(messages: DataFrame) -> DataFrame:
    """Return a topic's messages by what their values say.

    The columns are queue, offset, producer, sent_to and number, and null where a value says
    nothing.
    """
    text = sf.col("value").cast("string")

    def part(number: int) -> Column:
        return sf.nullif(sf.regexp_extract(text, _VALUE, number), sf.lit(""))

    return messages.select(
        sf.col("partition").cast("bigint").alias("queue"),
        "offset",
        part(1).alias("producer"),
        part(2).try_cast("bigint").alias("sent_to"),
        part(3).try_cast("bigint").alias("number"),
    )


def singles(runs: DataFrame) -> DataFrame:
    """Return single messages from runs of messages.

    `n` is added to the first number and offset of each run.
    """
    return runs.where("count > 0").withColumn(
        "n", sf.explode(sf.sequence(sf.lit(0).cast("bigint"), sf.col("count") - 1))
    )


def bounds_of(held: DataFrame) -> DataFrame:
    """Return the first and last offset of each queue of `stored`: queue, low, high."""
    return held.groupBy("queue").agg(sf.min("offset").alias("low"), sf.max("offset").alias("high"))


def broken(history: Histories, held: DataFrame, bounds: DataFrame) -> DataFrame:
    """Return a row for each message or finding that breaks a promise: `property`, `detail`.

    Messages below the first offset of their queue are not missed, because retention removed them.

    Args:
        held: the result of `stored`.
        bounds: the result of `bounds_of`.
    """
    found = [
        _not_there(history, held, bounds),
        *_misplaced(history, held),
        *_read(history, bounds),
        _answered(history),
        history.wrong.select("property", sf.concat_ws(": ", "who", "detail").alias("detail")),
    ]
    return reduce(DataFrame.unionByName, found)


def _not_there(history: Histories, held: DataFrame, bounds: DataFrame) -> DataFrame:
    """Return messages that were acknowledged or read but are not stored at that offset."""
    acked = history.acked.select(
        sf.lit(LOST).alias("property"),
        sf.lit("acknowledged").alias("who"),
        "*",
        sf.col("queue").alias("sent_to"),
    )
    read = history.read.select(sf.lit(UNSTABLE).alias("property"), "*")
    told = singles(acked.unionByName(read)).select(
        "property",
        "who",
        "queue",
        (sf.col("offset") + sf.col("n")).alias("offset"),
        "producer",
        "sent_to",
        (sf.col("first") + sf.col("n")).alias("number"),
    )
    kept = told.join(sf.broadcast(bounds), "queue", "left")
    kept = kept.where("low IS NULL OR offset >= low").drop("low", "high")
    gone = kept.join(held, ["queue", "offset", *MESSAGE], "left_anti")
    return _found(gone, sf.col("property"), "who", "queue", "offset", *MESSAGE)


def _found(rows: DataFrame, name: str | Column, *columns: str) -> DataFrame:
    """Return findings, with a description of each."""
    told = [
        sf.concat(sf.lit(f"{column} "), sf.coalesce(sf.col(column).cast("string"), sf.lit("-")))
        for column in columns
    ]
    name = sf.lit(name) if isinstance(name, str) else name
    return rows.select(name.alias("property"), sf.concat_ws(", ", *told).alias("detail"))


def _misplaced(history: Histories, held: DataFrame) -> list[DataFrame]:
    """Return messages that are duplicates, out of order or unknown, and gaps."""
    copies = held.where("number IS NOT NULL").groupBy(*MESSAGE)
    doubled = copies.agg(sf.count("*").alias("copies")).where("copies > 1")
    by_offset = Window.partitionBy("queue", "producer", "sent_to").orderBy("offset")
    before = sf.max("number").over(by_offset.rowsBetween(Window.unboundedPreceding, -1))
    # A message that was also stored before is reported as a duplicate.
    firsts = held.groupBy("queue", *MESSAGE).agg(sf.min("offset").alias("offset"))
    late = firsts.withColumn("before", before).where("number < before")
    sent = history.sent.select("producer", sf.col("queue").alias("sent_to"), "count")
    known = held.join(sf.broadcast(sent), ["producer", "sent_to"], "left")
    right = (sf.col("sent_to") == sf.col("queue")) & (sf.col("number") < sf.col("count"))
    phantom = known.where(~sf.coalesce(right, sf.lit(False)))
    in_queue = Window.partitionBy("queue").orderBy("offset")
    follows = held.withColumn("before", sf.lag("offset").over(in_queue))
    gaps = follows.where("offset != before + 1")
    return [
        _found(doubled, DOUBLED, *MESSAGE, "copies"),
        _found(late, REORDERED, "queue", "offset", "producer", "number", "before"),
        _found(phantom, PHANTOM, "queue", "offset", *MESSAGE),
        _found(gaps, GAPS, "queue", "offset", "before"),
    ]


def _read(history: Histories, bounds: DataFrame) -> list[DataFrame]:
    """Check that each reader had each message once, in order and completely."""
    of_reader = Window.partitionBy("who", "queue").orderBy("offset", "count")
    end = sf.col("offset") + sf.col("count")
    parts = history.read.withColumn("end", end)
    follows = parts.withColumn("before", sf.lag("end").over(of_reader))
    again = follows.where("offset != before")
    ends = parts.groupBy("who", "queue").agg(sf.max("end").alias("read_to"))
    reached = ends.join(sf.broadcast(bounds), "queue", "left")
    short = reached.where("read_to != coalesce(high, -1) + 1")
    return [
        _found(again, ONCE, "who", "queue", "offset", "before"),
        _found(short, UNREAD, "who", "queue", "read_to", "high"),
    ]


def _answered(history: Histories) -> DataFrame:
    """Check that each message sent was either acknowledged once or given up once."""
    spans = history.acked.select("producer", "queue", "first", "count").unionByName(history.failed)
    by_first = Window.partitionBy("producer", "queue").orderBy("first", "count")
    told = spans.withColumn("before", sf.lag(sf.col("first") + sf.col("count")).over(by_first))
    torn = told.where("first != coalesce(before, 0)")
    ends = spans.groupBy("producer", "queue").agg(
        sf.max(sf.expr("first + count")).alias("answered")
    )
    whole = history.sent.join(ends, ["producer", "queue"], "full")
    differing = whole.where("coalesce(answered, 0) != coalesce(count, 0)")
    return _found(torn, OUTCOMES, "producer", "queue", "first", "before").unionByName(
        _found(differing, OUTCOMES, "producer", "queue", "count", "answered")
    )


def figures(history: Histories, held: DataFrame) -> dict[str, int]:
    """Return how many messages were sent, acknowledged, given up, read by all, and stored."""
    counts = {"sent": history.sent, "acked": history.acked, "failed": history.failed}
    parts = [
        rows.select(sf.lit(name).alias("name"), "count")
        for name, rows in {**counts, "read": history.read}.items()
    ]
    parts.append(held.select(sf.lit("stored").alias("name"), sf.lit(1).alias("count")))
    whole = reduce(DataFrame.unionByName, parts).groupBy("name").agg(sf.sum("count").alias("count"))
    found = {row.name: int(row["count"]) for row in whole.collect()}
    return {name: found.get(name, 0) for name in (*counts, "read", "stored")}


def summed(findings: DataFrame, samples: int = 3) -> list[dict[str, Any]]:
    """Return a row for each promise: how often it was broken, and some details."""
    counted = findings.groupBy("property").agg(
        sf.count("*").alias("broken"),
        sf.slice(sf.sort_array(sf.collect_set("detail")), 1, samples).alias("details"),
    )
    known = {row["property"]: row.asDict() for row in counted.collect()}
    order = dict.fromkeys([*PROPERTIES, *sorted(known)])
    return [known.get(name, {"property": name, "broken": 0, "details": []}) for name in order]


def audit(
    spark: SparkSession, files: Sequence[str], messages: DataFrame
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Compare what clients recorded with what is stored: `figures`, and the result of `summed`.

    Args:
        files: histories; a folder stands for all its `*.jsonl` files.
        messages: the topic as Spark reads it, or its archive.

    Raises:
        InvalidRequest: there are no histories.
    """
    paths = [path for name in files for path in _paths(Path(name))]
    if not paths:
        text = f"there are no histories in {', '.join(files)}: give files, or a folder of *.jsonl"
        raise InvalidRequest(text)
    history = Histories(*(each.persist() for each in told(spark.read.text(paths))))
    held = stored(messages).persist()
    try:
        counted = figures(history, held)
        # One row per queue, as a separate frame, so that it is not computed again wherever it is
        # used.
        bounds = spark.createDataFrame(bounds_of(held).collect(), BOUNDS)
        return counted, summed(broken(history, held, bounds))
    finally:
        for each in (*history, held):
            each.unpersist()


def _paths(place: Path) -> list[str]:
    if place.is_dir():
        return sorted(map(str, place.glob("*.jsonl")))
    return [str(place)] if place.exists() else []
