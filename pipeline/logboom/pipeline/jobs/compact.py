"""compact: the latest message of each key, without tombstones, as Parquet and as a topic.

A run reads what has arrived since the last one, so that keys outlive the retention of their topic.
To a topic it publishes the whole snapshot in one transaction. The header `boom-snapshot` of each
message has the number of its snapshot.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from logboom.pipeline.clients import client
from logboom.pipeline.jobs import checkpoints
from logboom.pipeline.jobs import message_frames as rows
from logboom.pipeline.jobs.job_runs import JobReport, OnRows, finished
from logboom.pipeline.jobs.publishing import Target, write
from logboom.pipeline.queue_offsets import EARLIEST, to_json
from logboom.pipeline.spark_options import TIMEOUT_MS
from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOT: Final = "boom-snapshot"
"""The header with the number of the snapshot, as text."""
KEPT: Final = 2
"""Snapshots to keep, because a reader may still use the previous one."""
SNAPSHOT_FOLDER: Final = re.compile(r"snapshot-\d{6,}")


class CompactJobState(Struct, frozen=True):
    """The state that is kept between runs."""

    app_id: str
    topic: str
    number: int = 0
    """The number of the last complete snapshot."""
    ends: dict[int, int] = {}
    """Its end offsets by queue."""
    planned: dict[int, int] = {}
    """The planned end offsets of the next one: a run after a crash makes the same snapshot."""


def latest(messages: DataFrame) -> DataFrame:
    """Return the last message of each key, without tombstones and messages without a key.

    Within a queue the last message is the one with the highest offset. If a key is in several
    queues, because queues were added, the latest message time decides.
    """
    columns = [*rows.COLUMNS, "partition", "offset"]
    whole = sf.struct(*columns).alias("whole")
    kept = messages.where(sf.col("key").isNotNull()).select("key", "partition", "offset", whole)
    per_queue = kept.groupBy("key", "partition").agg(sf.max_by("whole", "offset").alias("whole"))
    order = sf.struct("whole.timestamp", "whole.partition")
    found = per_queue.groupBy("key").agg(sf.max_by("whole", order).alias("whole"))
    return found.select("whole.*")


def without_tombstones(messages: DataFrame) -> DataFrame:
    """Return the messages that have a value."""
    return messages.where(sf.col("value").isNotNull())


def as_snapshot(found: DataFrame, number: int) -> DataFrame:
    """Return a snapshot as messages, with its number in a header."""
    headers = rows.with_header(SNAPSHOT, str(number)).alias("headers")
    return found.select("key", "value", "tag", headers, "timestamp")


def read_snapshot(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the last complete snapshot in a folder.

    Raises:
        InvalidRequest: there is no snapshot yet.
    """
    known = checkpoints.read(folder, CompactJobState)
    if known is None or not known.number:
        raise InvalidRequest(
            f"there is no snapshot in {folder}: `logboom pipeline compact` makes one"
        )
    return spark.read.parquet(str(_folder(folder, known.number)))


def compact(
    spark: SparkSession,
    servers: str,
    topic: str,
    folder: Path,
    target: Target | None = None,
    *,
    on_rows: OnRows | None = None,
) -> JobReport:
    """Make a new snapshot of a topic, and publish it.

    Args:
        folder: the folder of the snapshots, `snapshot-000001` and so on, of which the last two are
            kept.
        target: where to publish it.

    Raises:
        InvalidRequest: the folder belongs to another topic.
    """
    began = time.monotonic()
    state = _planned(servers, topic, folder)
    number = state.number + 1
    source = {"servers": servers, "subscribe": topic}
    source["endingOffsets"] = _option(topic, state.planned)
    if state.number:
        # Added queues begin at their first message.
        begins = {queue: state.ends.get(queue, EARLIEST) for queue in state.planned}
        source["startingOffsets"] = _option(topic, begins)
    news = spark.read.format("logboom").schema(rows.SCHEMA).options(**source).load()
    whole = news.select(*rows.COLUMNS, "partition", "offset")
    if state.number:
        whole = whole.unionByName(read_snapshot(spark, folder))
    place = _folder(folder, number)
    without_tombstones(latest(whole)).write.mode("overwrite").parquet(str(place))
    made = spark.read.parquet(str(place))
    offsets = to_json({(topic, queue): end for queue, end in state.planned.items()})
    run = JobReport("compact", rows=made.count(), batches=1, offsets=offsets)
    if target is not None:
        write(as_snapshot(made, number), target, state.app_id, number)
    done = structs.replace(state, number=number, ends=state.planned, planned={})
    checkpoints.write(folder, done)
    # A run that crashed here may have left another one.
    kept = {_folder(folder, number - back) for back in range(KEPT)}
    for old in set(folder.glob("snapshot-*")) - kept:
        # The folder may contain other files.
        if SNAPSHOT_FOLDER.fullmatch(old.name) and old.is_dir():
            shutil.rmtree(old)
    if on_rows is not None:
        on_rows(run.rows)
    return finished(run, began)


def _folder(folder: Path, number: int) -> Path:
    return folder / f"snapshot-{number:06}"


def _planned(servers: str, topic: str, folder: Path) -> CompactJobState:
    """Return the state, with the planned end of the next snapshot."""
    known = checkpoints.read(folder, CompactJobState)
    if known is None:
        known = CompactJobState(checkpoints.new_app_id("compact"), topic)
    if known.topic != topic:
        text = f"{folder} has snapshots of topic {known.topic!r}: say another --to for {topic!r}"
        raise InvalidRequest(text)
    if not known.planned:
        bounds = client(servers, TIMEOUT_MS / 1000).admin.offsets(topic)
        known = structs.replace(known, planned={queue: end for queue, (_, end) in bounds.items()})
        checkpoints.write(folder, known)
    return known


def _option(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps(to_json({(topic, queue): offset for queue, offset in offsets.items()}))
