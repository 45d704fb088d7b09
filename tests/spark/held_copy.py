"""Copies a topic, first as a stream and then as a batch, and lets tasks wait in their midst to be killed.

    spark-submit --master spark://… held_copy.py SERVERS FROM STREAMED BATCHED FOLDER

The first attempt of each task leaves a file in the folder, named by micro-batch and partition, holds
there until there is a file `go-on`, and then goes on: if it still lives.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext

from logboom.pipeline import session

HOLD_AFTER: Final = 4
"""Arrow batches that a task hands on before it holds."""
ROWS: Final = 4_000
"""Of a micro-batch."""
SCHEMA: Final = "key binary, value binary"


def holding(folder: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What to do with the rows of a task: hand them on, and hold in between."""

    def hold(batches: Iterable[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            yield batch
            if number == HOLD_AFTER:
                wait(Path(folder))

    def wait(place: Path) -> None:
        task = TaskContext.get()
        assert task is not None  # it runs in one
        unit = task.getLocalProperty("streaming.sql.batchId") or "batch"
        try:
            # By a rename, so that whoever sees it can read it.
            mine = place / f"{os.getpid()}.new"
            mine.write_text(str(os.getpid()))
            os.link(mine, place / f"{unit}-{task.partitionId()}")
        except FileExistsError:
            return  # a later attempt
        while not (place / f"go-on-{unit}").exists():
            time.sleep(0.02)  # whoever kills tells nobody

    return hold


def main(servers: str, source: str, streamed: str, batched: str, folder: str) -> None:
    """Copy twice."""
    spark = session("held copy", settings={"spark.log.level": "ERROR"})
    told = {"servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("logboom").schema(SCHEMA).options(**told)
    stream = rows.option("maxOffsetsPerTrigger", str(ROWS)).load()
    held = stream.mapInArrow(holding(folder), SCHEMA).writeStream.format("logboom")
    query = (
        held.options(servers=servers, topic=streamed, checkpointLocation=f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batch = spark.read.format("logboom").schema(SCHEMA).options(**told).load()
    written = batch.mapInArrow(holding(folder), SCHEMA).write.format("logboom")
    written.options(servers=servers, topic=batched).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
