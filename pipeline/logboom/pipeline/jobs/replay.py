"""replay: messages of an archive back to a topic, in the order of their queues, each once.

The archive is published in pieces, each a transaction with its own number, so that a replay
can have any size, can be slowed down, and continues where it was after a crash.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct, structs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from logboom.pipeline.jobs import checkpoints
from logboom.pipeline.jobs import message_frames as rows
from logboom.pipeline.jobs.archive import utc_day
from logboom.pipeline.jobs.job_runs import JobReport, OnRows, finished, interrupts
from logboom.pipeline.jobs.publishing import Target, write_counted
from logboom.wire.errors import InvalidRequest
from logboom.wire.private_files import make_folder, open_private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE_ROWS: Final = 200_000
"""The approximate limit of messages in a transaction, because readers of the queue wait for all."""
PIECE_BYTES: Final = 64 * 1024 * 1024
"""The approximate limit of bytes in a transaction."""
PIECES: Final = "pieces.parquet"
"""The file with the offsets of all pieces, in the checkpoint's folder."""
SCHEMA: Final = f"{rows.SCHEMA}, date date"


@dataclass(frozen=True, slots=True)
class ReplayFilter:
    """A choice of an archive's messages. By default it chooses all."""

    topic: str = ""
    """Only this topic of the archive."""
    queues: tuple[int, ...] = ()
    since_ms: int | None = None
    """Message time, in ms since 1970 UTC."""
    until_ms: int | None = None
    """The first time that is left out."""
    first: int | None = None
    """The first offset, in each queue."""
    end: int | None = None
    """The first offset that is left out."""
    keys: tuple[str, ...] = ()
    """Only these keys."""
    key_first: str = ""
    """The first key, in byte order."""
    key_end: str = ""
    """The first key that is left out; "": none."""


class ReplayRange(Struct, frozen=True, array_like=True):
    """The offsets that a piece takes from a queue of the archive: from `first` to before `end`."""

    topic: str
    queue: int
    first: int
    end: int


class ReplayState(Struct, frozen=True):
    """The state of a replay."""

    app_id: str
    asked: str
    """The archive, the filter and the topic, because a checkpoint is for one replay."""
    pieces: int
    """Their number. Their offsets are in a separate file."""
    done: int = 0
    """The number of published pieces."""


def selected(archive: DataFrame, wanted: ReplayFilter) -> DataFrame:
    """Return the messages of an archive that the filter chooses."""
    found = archive
    for condition in _conditions(wanted):
        found = found.where(condition)
    return found


def _conditions(wanted: ReplayFilter) -> list[Column]:
    offset, key = sf.col("offset"), sf.col("key")
    found = []
    if wanted.topic:
        found.append(sf.col("topic") == wanted.topic)
    if wanted.queues:
        found.append(sf.col("partition").isin(list(wanted.queues)))
    if wanted.since_ms is not None:
        since = sf.timestamp_millis(sf.lit(wanted.since_ms))
        # The day is a folder, so earlier days are not even opened.
        found += [sf.col("date") >= utc_day(since), sf.col("timestamp") >= since]
    if wanted.until_ms is not None:
        until = sf.timestamp_millis(sf.lit(wanted.until_ms))
        found += [sf.col("date") <= utc_day(until), sf.col("timestamp") < until]
    if wanted.first is not None:
        found.append(offset >= wanted.first)
    if wanted.end is not None:
        found.append(offset < wanted.end)
    if wanted.keys:
        found.append(key.isin([each.encode() for each in wanted.keys]))
    if wanted.key_first:
        found.append(key >= sf.lit(wanted.key_first.encode()))
    if wanted.key_end:
        found.append(key < sf.lit(wanted.key_end.encode()))
    return found


def outgoing(chosen: DataFrame, *, keep_queues: bool = False) -> DataFrame:
    """Return messages of an archive in sending order: those of a queue in offset order.

    Args:
        keep_queues: send them to the queues that they had, also those without a key.
    """
    kept = [*rows.COLUMNS, "partition"] if keep_queues else [*rows.COLUMNS]
    return rows.in_order(chosen).select(*kept)


def piece_of(chosen: DataFrame, spans: Iterable[ReplayRange]) -> DataFrame:
    """Return one piece: its range of offsets of each queue."""
    wanted = []
    for span in spans:
        offset = sf.col("offset")
        place = (sf.col("topic") == span.topic) & (sf.col("partition") == span.queue)
        wanted.append(place & (offset >= span.first) & (offset < span.end))
    return chosen.where(reduce(lambda one, other: one | other, wanted, sf.lit(False)))


def cut(chosen: DataFrame, most: int) -> Any:
    """Return pieces of at most about `most` messages and `PIECE_BYTES`.

    The result is an Arrow table of the spans of each piece, in order. Each piece takes its share of
    every queue by the number of messages and not by offsets, because the chosen messages of an
    archive may lie close together.
    """
    # A message costs its bytes, but at least its share of a full piece.
    size = sf.greatest(sf.lit(PIECE_BYTES // most), _bytes())
    sized = chosen.select("topic", "partition", "offset", size.alias("size"))
    queue = Window.partitionBy("topic", "partition")
    before = queue.orderBy("offset").rangeBetween(Window.unboundedPreceding, -1)
    placed = sized.select(
        "*",
        sf.coalesce(sf.sum("size").over(before), sf.lit(0)).cast("decimal(20,0)").alias("before"),
        sf.sum("size").over(queue).cast("decimal(20,0)").alias("whole"),
    )
    total = sized.agg(sf.sum("size")).collect()[0][0] or 0
    pieces = sf.lit(-(-int(total) // PIECE_BYTES)).cast("decimal(18,0)")
    share = sf.floor(sf.col("before") * pieces / sf.col("whole"))
    numbered = placed.withColumn("piece", share.cast("bigint"))
    spans = numbered.groupBy("piece", "topic", "partition").agg(
        sf.min("offset").alias("first"), (sf.max("offset") + 1).alias("end")
    )
    found = spans.orderBy("piece", "topic", "partition").toArrow()
    # A message larger than a piece skips numbers.
    order = pc.subtract(pc.rank(found["piece"], tiebreaker="dense"), 1)
    return found.set_column(0, "piece", order)


def spans_of(pieces: Any, piece: int) -> list[ReplayRange]:
    """Return the spans of one piece."""
    rows = pieces.filter(pc.equal(pieces["piece"], piece)).to_pylist()
    return [ReplayRange(row["topic"], row["partition"], row["first"], row["end"]) for row in rows]


def _bytes() -> Column:
    """Return the size of a message: key, value and headers."""
    header = sf.transform(
        "headers",
        lambda each: sf.length(each["key"]) + sf.coalesce(sf.length(each["value"]), sf.lit(0)),
    )
    headers = sf.aggregate(header, sf.lit(0), lambda one, other: one + other)
    parts = (sf.length("value"), sf.length("key"), headers)
    return reduce(lambda one, other: one + other, (sf.coalesce(p, sf.lit(0)) for p in parts))


def read_archive(spark: SparkSession, folder: Path) -> DataFrame:
    """Return an archive that the job `archive` wrote.

    Raises:
        InvalidRequest: there is no archive.
    """
    if not any(folder.glob("topic=*")):
        raise InvalidRequest(
            f"there is no archive in {folder}: `logboom pipeline archive` makes one"
        )
    return spark.read.schema(SCHEMA).parquet(str(folder))


def replay(
    spark: SparkSession,
    folder: Path,
    wanted: ReplayFilter,
    target: Target,
    checkpoint: Path | None = None,
    *,
    rate: int = 0,
    keep_queues: bool = False,
    on_rows: OnRows | None = None,
) -> JobReport:
    """Publish the chosen messages of an archive.

    Args:
        checkpoint: the folder that records the progress, to continue after a crash; by default it
            is not recorded.
        rate: at most this many messages per second, in pieces of about a second; 0: no limit.
        keep_queues: send to the queues that the messages had, instead of those of their keys.

    Raises:
        InvalidRequest: the checkpoint belongs to another replay, or there is no archive.
    """
    run, begun = JobReport("replay"), time.monotonic()
    chosen = selected(read_archive(spark, folder), wanted)
    asked = f"{folder.resolve()} {_described(wanted)} to {target.topic}"
    if keep_queues:
        asked += ", each to its queue"
    plan, pieces = _planned(chosen, asked, checkpoint, rate)
    began = time.monotonic()
    with interrupts() as stop:
        for piece in range(plan.done, plan.pieces):
            due = began + run.rows / rate if rate else 0.0
            if stop.wait(max(0.0, due - time.monotonic())):
                break
            part = outgoing(piece_of(chosen, spans_of(pieces, piece)), keep_queues=keep_queues)
            run.rows += write_counted(part, target, plan.app_id, piece)
            run.batches += 1
            if checkpoint is not None:
                checkpoints.write(checkpoint, structs.replace(plan, done=piece + 1))
            if on_rows is not None:
                on_rows(run.rows)
        run.stopped = stop.is_set()
    return finished(run, begun)


def _described(wanted: ReplayFilter) -> str:
    """Describe a selection as checkpoints store it, whatever its class is called."""
    values = (f"{field.name}={getattr(wanted, field.name)!r}" for field in fields(wanted))
    return f"Selection({', '.join(values)})"


def _planned(
    chosen: DataFrame, asked: str, checkpoint: Path | None, rate: int
) -> tuple[ReplayState, Any]:
    """Return the stored state of a replay, or a new one, and its pieces."""
    known = checkpoints.read(checkpoint, ReplayState) if checkpoint is not None else None
    if known is not None and checkpoint is not None:
        if known.asked != asked:
            text = (
                f"{checkpoint} remembers another replay ({known.asked}): say another --checkpoint"
            )
            raise InvalidRequest(text)
        try:
            return known, pq.read_table(checkpoint / PIECES)
        except FileNotFoundError:
            text = f"{checkpoint} lacks {PIECES}: say another --checkpoint"
            raise InvalidRequest(text) from None
    pieces = cut(chosen, min(PIECE_ROWS, rate or PIECE_ROWS))
    count = pc.max(pieces["piece"]).as_py()
    plan = ReplayState(checkpoints.new_app_id("replay"), asked, 0 if count is None else count + 1)
    if checkpoint is not None:
        make_folder(checkpoint)
        with open_private(checkpoint / PIECES) as file:
            pq.write_table(pieces, file)
            file.flush()
            os.fsync(file.fileno())  # before the plan, which counts once it exists
        checkpoints.write(checkpoint, plan)
    return plan, pieces
