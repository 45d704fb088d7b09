"""Writes to a topic: a stream, or one numbered batch, with each message once.

A micro-batch is one transaction, named by the query and its number. A batch is named by an id that
its job records in its checkpoint, and a number. So a batch that is repeated after a crash is
recognized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from logboom.pipeline.jobs.checkpoints import stream_app_id

FORMAT: Final = "logboom"


@dataclass(frozen=True, slots=True)
class Target:
    """The topic that messages are written to."""

    servers: str
    topic: str = ""
    """The topic; "": the column `topic` of each message names it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the sink, such as compression."""

    def sink_options(self) -> dict[str, str]:
        """Return the target as options of the sink."""
        topic = {"topic": self.topic} if self.topic else {}
        return {"servers": self.servers, **topic, **self.options}


def stream_writer(messages: DataFrame, target: Target, checkpoint: Path) -> Any:
    """Return a writer of a stream whose tasks have all of a queue, in order."""
    writer = messages.writeStream.format(FORMAT).options(**target.sink_options())
    return writer.outputMode("append").option("checkpointLocation", str(checkpoint))


def batch_writer(
    job: str,
    rows: DataFrame,
    target: Target,
    checkpoint: Path,
    made: Callable[[DataFrame], DataFrame],
) -> Any:
    """Return a writer of a stream that lost its order in a shuffle.

    Args:
        made: returns the messages of a micro-batch's rows in order, because a stream cannot be
            sorted.
    """
    app_id = stream_app_id(checkpoint, job)

    def publish(frame: DataFrame, batch_id: int) -> None:
        write(made(frame), target, app_id, batch_id)

    writer = rows.writeStream.foreachBatch(publish).outputMode("append")
    return writer.option("checkpointLocation", str(checkpoint))


def write(messages: DataFrame, target: Target, app_id: str, number: int) -> None:
    """Publish a batch in one transaction. A batch with a number that was published is skipped."""
    named = {"txnAppId": app_id, "txnVersion": str(number)}
    writer = messages.write.format(FORMAT).options(**target.sink_options(), **named)
    writer.mode("append").save()


def write_counted(messages: DataFrame, target: Target, app_id: str, number: int) -> int:
    """Publish a batch, and return how many messages it has."""
    seen = Observation()
    write(messages.observe(seen, sf.count(sf.lit(1)).alias("rows")), target, app_id, number)
    return int(seen.get["rows"])
