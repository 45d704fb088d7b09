"""`logboom pipeline enrich`, `dedup` and `window`: jobs from topic to topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from logboom.cli.pipeline_options import (
    AtOnce,
    Checkpoint,
    Continuous,
    Delivery,
    Every,
    Master,
    Output,
    Queues,
    Remembered,
    Servers,
    SkipLost,
    Start,
    Topic,
    names,
    resolved,
    whole,
)
from logboom.cli.pipeline_runs import (
    checkpoint_of,
    rows_bar,
    source_of,
    spark_for,
    target_of,
    tell,
    trigger,
)
from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def enrich(
    topic: str,
    *,
    to: Topic,
    schema: str = "",
    lookup: Path | None = None,
    on: str = "",
    only_found: Annotated[bool, Parameter(name="--only-found", negative="")] = False,
    sql: str = "",
    table: Annotated[list[str] | None, Parameter(name="--table", negative="")] = None,
    queues: Queues = 0,
    delivery: Delivery = "exactly-once",
    start: Start = "",
    at_once: AtOnce = 0,
    skip_lost: SkipLost = False,
    checkpoint: Checkpoint = None,
    continuous: Continuous = False,
    every: Every = "",
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Write the messages of a topic to another with more in them: a field looked up, or by SQL.

    With --lookup the JSON values get the columns of the table's row. With --sql they are what the
    query makes of `messages` (key, value, tag, headers, timestamp, topic, partition, offset, and the
    fields of --schema): columns of these names are what they say, all others become one JSON object.

    For example:

        logboom pipeline enrich flights --to named --schema "carrier string, dep_delay double" \\
            --lookup airlines.csv --on carrier
        logboom pipeline enrich flights --to late --schema "carrier string, dep_delay double" \\
            --table airlines=airlines.csv --sql "SELECT m.key, m.timestamp, a.name, m.dep_delay \\
            FROM messages m JOIN airlines a ON m.carrier = a.carrier WHERE m.dep_delay > 60"

    Parameters
    ----------
    topic
        The topic.
    schema
        Fields of the JSON values, as in SQL. Values that do not fit go on as they are, and are counted.
    lookup
        A table: CSV with a header, JSON lines, Parquet or ORC, by the ending of its name.
    on
        The field that is looked up, or FIELD=COLUMN where the table names it otherwise.
    only_found
        Leave out messages that the table does not know, and values that do not fit --schema.
        Tombstones stay.
    sql
        A query instead of --lookup.
    table
        NAME=FILE: a table of the query; as often as needed.
    """
    if (lookup is None) == (not sql):
        raise InvalidRequest("say either --lookup FILE --on FIELD, or --sql QUERY")
    if lookup is not None and not (on and schema):
        raise InvalidRequest("--lookup needs --on FIELD, and --schema with the fields to keep")
    often = trigger(every, continuous=continuous)
    place = checkpoint_of(checkpoint, "enrich", topic, to)
    with spark_for("enrich", master) as spark:
        from logboom.pipeline.jobs import enrich as job

        source = source_of(topic, servers, start, at_once, skip_lost=skip_lost)
        messages = job.messages_of(spark, source)
        if lookup is not None:
            field, _, column = on.partition("=")
            known = job.read_table(spark, whole(lookup))
            wanted = job.Lookup(known, field, column, only_found)
            made = job.by_lookup(messages, schema, wanted)
            job.check_unique(known, column or field)
        else:
            made = job.by_sql(messages, sql, schema, tables_of(spark, table or []))
        target = target_of(to, servers, queues, delivery)
        with rows_bar("enrich") as bar:
            run = job.enrich(made, target, place, source=source, every=often, on_rows=bar.to)
    tell({**asdict(run), "checkpoint": place}, output)


def tables_of(spark: SparkSession, given: Sequence[str]) -> dict[str, DataFrame]:
    """Tables by name, out of NAME=FILE.

    Raises:
        InvalidRequest: one has another form, or cannot be read.
    """
    from logboom.pipeline.jobs.enrich import read_table

    found = {}
    for each in given:
        name, _, path = each.partition("=")
        if not (name.isidentifier() and path):
            raise InvalidRequest(
                f"--table is NAME=FILE, such as airlines=airlines.csv, not {each!r}"
            )
        found[name] = read_table(spark, whole(Path(path)))
    return found


def dedup(
    topic: str,
    *,
    to: Topic,
    by: str = "key",
    within: str = "10 minutes",
    queues: Queues = 0,
    start: Start = "",
    at_once: AtOnce = 0,
    skip_lost: SkipLost = False,
    checkpoint: Checkpoint = None,
    continuous: Continuous = False,
    every: Every = "",
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Write the messages of a topic to another without those that came before, each once.

    A double is alike in what --by says, and its message time is at most --within later. What is later
    than that behind the newest message is left out, and counted. The order of keys is kept.

    For example:

        logboom pipeline dedup orders --to orders-once
        logboom pipeline dedup orders --to orders-once --by order.id --within "1 hour" --continuous

    Parameters
    ----------
    topic
        The topic.
    by
        key, value, tag, or fields of JSON values such as order.id, comma-separated. Messages that
        have none of it are all kept.
    within
        How much later a double may come.
    """
    often = trigger(every, continuous=continuous)
    place = checkpoint_of(checkpoint, "dedup", topic, to)
    with spark_for("dedup", master) as spark:
        from logboom.pipeline.jobs import dedup as job

        target = target_of(to, servers, queues)
        with rows_bar("dedup") as bar:
            run = job.dedup(
                spark,
                source_of(topic, servers, start, at_once, skip_lost=skip_lost),
                target,
                place,
                by=names(by),
                within=within,
                every=often,
                on_rows=bar.to,
            )
    tell({**asdict(run), "checkpoint": place}, output)


def window(
    topic: str,
    *,
    to: Annotated[Path | None, Parameter(name=["--to", "-t"])] = None,
    to_topic: str = "",
    schema: str,
    width: str = "1 minute",
    slide: str = "",
    by: str = "",
    measure: str = "",
    time: str = "",
    watermark: str = "1 minute",
    queues: Queues = 0,
    start: Start = "",
    at_once: AtOnce = 0,
    skip_lost: SkipLost = False,
    checkpoint: Remembered = None,
    continuous: Continuous = False,
    every: Every = "",
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Count JSON messages by time windows, with sums and averages, into Parquet or another topic.

    A window is written once, when the watermark has passed its end.

    For example:

        logboom pipeline window flights --to delays/ --schema "carrier string, dep_delay double" \\
            --width "1 hour" --by carrier --measure dep_delay
        logboom pipeline window flights --to-topic delays --queues 8 \\
            --schema "carrier string, dep_delay double" --by carrier --measure dep_delay

    Parameters
    ----------
    topic
        The topic.
    to
        The folder of the windows.
    to_topic
        Instead: the topic of the windows. A JSON object each, with the fields of --by as key, and the
        last millisecond of the window as message time.
    schema
        Fields of the JSON values, as in SQL.
    width
        How long a window is.
    slide
        Between the beginnings of windows, if they are to overlap.
    by
        Fields that windows are parted by, comma-separated.
    measure
        Fields of which sum, average, least and greatest are wanted, comma-separated.
    time
        Field with the time of the event; by default the message time.
    watermark
        How late a message may come to be counted.
    checkpoint
        Where it remembers how far it is; by default in the folder, or below .logboom/pipeline.
    """
    if (to is None) == (not to_topic):
        raise InvalidRequest("say either --to FOLDER or --to-topic TOPIC")
    often = trigger(every, continuous=continuous)
    with spark_for("window", master) as spark:
        from logboom.pipeline.jobs import window as job

        wanted = job.WindowAggregation(
            schema, width, slide, names(by), names(measure), time, watermark
        )
        source = source_of(topic, servers, start, at_once, skip_lost=skip_lost)
        with rows_bar("window") as bar:
            if to is not None:
                place = resolved(checkpoint)
                run = job.window(
                    spark, source, wanted, whole(to), place, every=often, on_rows=bar.to
                )
            else:
                target = target_of(to_topic, servers, queues)
                own = checkpoint_of(checkpoint, "window", topic, to_topic)
                run = job.window_to_topic(
                    spark, source, wanted, target, own, every=often, on_rows=bar.to
                )
    tell(asdict(run), output)
