"""`logboom pipeline`: jobs over topics, on Spark. They need the extra `[spark]` and a Java 17.

`--master` says where Spark runs: on this machine by default, or on a cluster. A job records its
progress in its checkpoint folder. When it is run again, it continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from logboom.cli.job_commands import Checkpoint, Delivery, Job, Queues, job_command
from logboom.cli.options import whole_path
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Apply, GroupName, TopicName
from logboom.cli.pipeline_checks import audit, lag
from logboom.cli.pipeline_init import init
from logboom.cli.pipeline_runs import BROKEN, checkpoint_of, target_of
from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

app = App(name="pipeline", help="Jobs over topics, on Spark.")

AUDIT: Final = ("topic", "partition", "first", "last", "messages", "missing", "doubled")


@job_command("archive.archive")
def archive(job: Job, topics: str, *, audit: bool = True) -> int:
    """Write topics to Parquet, by topic and day, each message once, and audit the archive.

    Run again, it adds what has arrived since. Exit code 1: messages are missing or doubled.

    For example:

        logboom pipeline archive flights --to archive/
        logboom pipeline archive flights,delays --to /data/archive --continuous --every "1 minute"

    Parameters
    ----------
    topics
        The topics, comma-separated.
    audit
        Check afterwards that the offsets of each queue are in the archive without gaps or doubles,
        up to where this run has read.
    """
    with job.spark() as (module, spark):
        run = job.run()
        found = []
        # After Ctrl-C nothing more is started.
        if audit and not run.stopped:
            compacted = module.compacted_among(job.value("source")["servers"], run.offsets)
            found = module.audit(spark, job.value("folder"), run, compacted)
    wrong = [row for row in found if row["missing"] or row["doubled"]]
    job.report(run, audit=found)
    if job.given["output"] == "table" and found:
        show(found, AUDIT, job.given["output"])
    for row in wrong:
        place = f"queue {row['partition']} of topic {row['topic']!r}"
        note(f"{place}: {row['missing']} messages are missing, {row['doubled']} are doubled")
    return BROKEN if wrong else 0


@job_command("replay.replay", supplies=("first", "end", "key_first", "key_end"))
def replay(job: Job, folder: Path, *, offsets: str = "", keys: str = "") -> None:
    """Send messages of an archive to a topic, each once, in the order of their queues.

    It goes in pieces, each a transaction. With --checkpoint a replay that was interrupted continues
    where it stopped, and one that is finished does nothing; without, each run sends everything.

    For example:

        logboom pipeline replay archive/ --topic flights --to flights-again --queues 8
        logboom pipeline replay archive/ --to again --from 2026-11-20T00:00:00Z --rate 1000
        logboom pipeline replay archive/ --to again --key UA --offsets 100:200 --queue 0

    Parameters
    ----------
    folder
        The archive.
    offsets
        Only these, FIRST:END in each queue: from FIRST to before END; either may be left out.
    keys
        Only keys in this range, FIRST:END by their bytes: from FIRST to before END.
    """
    if (rate := job.value("rate")) < 0:
        raise InvalidRequest(f"--rate is a number of messages a second, not {rate}")
    first, end = halves(offsets, "--offsets")
    key_first, key_end = halves(keys, "--keys")
    with job.spark():
        run = job.run(
            first=number(first, "--offsets"),
            end=number(end, "--offsets"),
            key_first=key_first,
            key_end=key_end,
        )
    job.report(run)


def halves(text: str, option: str) -> tuple[str, str]:
    """Return both sides of FIRST:END.

    Raises:
        InvalidRequest: there is no colon.
    """
    if text and text.count(":") != 1:
        raise InvalidRequest(f"{option} is FIRST:END, such as 100:200, 100: or :200, not {text!r}")
    first, _, end = text.partition(":")
    return first.strip(), end.strip()


def number(text: str, option: str) -> int | None:
    """Return a number from 0, or None for an empty text.

    Raises:
        InvalidRequest: it is no such number.
    """
    if text and not text.isdecimal():
        raise InvalidRequest(f"{option} has {text!r}, which is not a number from 0")
    return int(text) if text else None


@job_command("enrich.enrich", supplies=("enriched",))
def enrich(
    job: Job,
    topic: TopicName,
    *,
    schema: str = "",
    lookup: Path | None = None,
    on: str = "",
    only_found: Annotated[bool, Parameter(negative="")] = False,
    sql: str = "",
    table: Annotated[list[str] | None, Parameter(negative="")] = None,
    delivery: Delivery = "exactly-once",
) -> None:
    """Write the messages of a topic to another with more in them: a field looked up, or by SQL.

    With --lookup the JSON values get the columns of the table's row. With --sql they are what the
    query makes of `messages` (key, value, tag, headers, timestamp, topic, partition, offset, and
    the fields of --schema): columns of these names are what they say, all others become one JSON
    object.

    For example:

        logboom pipeline enrich flights --to named --schema "carrier string, dep_delay double" \\
            --lookup airlines.csv --on carrier
        logboom pipeline enrich flights --to late --schema "carrier string, dep_delay double" \\
            --table airlines=airlines.csv --sql "SELECT m.key, m.timestamp, a.name, m.dep_delay \\
            FROM messages m JOIN airlines a ON m.carrier = a.carrier WHERE m.dep_delay > 60"

    Parameters
    ----------
    schema
        Fields of the JSON values, as in SQL. Values that do not fit are passed on as they are, and
        counted.
    lookup
        A table: CSV with a header, JSON lines, Parquet or ORC, by the ending of its name.
    on
        The field that is looked up, or FIELD=COLUMN if the table has another name for it.
    only_found
        Leave out messages that the table does not know, and values that do not fit --schema.
        Tombstones are kept.
    sql
        A query instead of --lookup.
    table
        NAME=FILE: a table of the query. Give it once per table.
    """
    if (lookup is None) == (not sql):
        raise InvalidRequest("say either --lookup FILE --on FIELD, or --sql QUERY")
    if lookup is not None and not (on and schema):
        raise InvalidRequest("--lookup needs --on FIELD, and --schema with the fields to keep")
    place = job.value("checkpoint")
    with job.spark() as (module, spark):
        messages = module.messages_of(spark, job.value("source"))
        if lookup is not None:
            field, _, column = on.partition("=")
            known = module.read_table(spark, whole_path(lookup))
            made = module.by_lookup(
                messages, schema, module.Lookup(known, field, column, only_found)
            )
            module.check_unique(known, column or field)
        else:
            made = module.by_sql(messages, sql, schema, tables_of(module, spark, table or []))
        run = job.run(enriched=made)
    job.report(run, checkpoint=place)


def tables_of(module: Any, spark: SparkSession, given: Sequence[str]) -> dict[str, DataFrame]:
    """Return tables by name, out of NAME=FILE.

    Raises:
        InvalidRequest: an argument is invalid, or a file cannot be read.
    """
    found = {}
    for each in given:
        name, _, path = each.partition("=")
        if not (name.isidentifier() and path):
            raise InvalidRequest(
                f"--table is NAME=FILE, such as airlines=airlines.csv, not {each!r}"
            )
        found[name] = module.read_table(spark, whole_path(Path(path)))
    return found


@job_command("dedup.dedup")
def dedup(job: Job, topic: TopicName) -> None:
    """Write the messages of a topic to another without those that came before, each once.

    Two messages are doubles if they are alike in what --by says, and the message time of one is at
    most --within later. Messages that are later than that behind the newest one are left out, and
    counted. The order of keys is kept.

    For example:

        logboom pipeline dedup orders --to orders-once
        logboom pipeline dedup orders --to orders-once --by order.id --within "1 hour" --continuous
    """
    place = job.value("checkpoint")
    with job.spark():
        run = job.run()
    job.report(run, checkpoint=place)


@job_command("window.window", supplies=("folder", "checkpoint"))
def window(
    job: Job,
    topic: TopicName,
    *,
    to: Annotated[Path | None, Parameter(name=["--to", "-t"])] = None,
    to_topic: str = "",
    queues: Queues = 0,
    checkpoint: Path | None = None,
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
    to
        The folder of the windows.
    to_topic
        Instead, the topic of the windows. Each is a JSON object, with the fields of --by as key,
        and the last millisecond of the window as message time.
    checkpoint
        The folder that records the progress; by default in the folder, or below .logboom/pipeline.
    """
    if (to is None) == (not to_topic):
        raise InvalidRequest("say either --to FOLDER or --to-topic TOPIC")
    with job.spark():
        if to is not None:
            run = job.run(folder=whole_path(to), checkpoint=checkpoint and whole_path(checkpoint))
        else:
            run = job.run(
                "window_to_topic",
                target=target_of(to_topic, job.given["servers"], queues),
                checkpoint=checkpoint_of(checkpoint, "window", topic, to_topic),
            )
    job.report(run)


@job_command("compact.compact", supplies=("target",))
def compact(job: Job, topic: TopicName, *, to_topic: str = "", queues: Queues = 0) -> None:
    """Keep the latest message of each key, without tombstones: as Parquet, and as a topic.

    A run reads what has arrived since the last one, so keys outlive the retention of their topic.
    To a topic it publishes the whole snapshot in one transaction; the header boom-snapshot has its
    number. Messages without a key are left out.

    For example:

        logboom pipeline compact prices --to prices/
        logboom pipeline compact prices --to prices/ --to-topic prices-now --queues 4

    Parameters
    ----------
    to_topic
        A topic to publish the snapshot to.
    """
    with job.spark():
        target = target_of(to_topic, job.given["servers"], queues) if to_topic else None
        run = job.run(target=target)
    job.report(run)


@job_command("dead_letters.triage", supplies=("width",))
def dlq(
    job: Job, group: GroupName, *, every: Annotated[str, Parameter(name="--every")] = "1 hour"
) -> None:
    """Count the dead letters of a group by cause, topic and time: what failed most often.

    Numbers and ids in causes become #, so that causes that differ only by these are counted as one.

    For example:

        logboom pipeline dlq billing
        logboom pipeline dlq billing --by cause,time --every "1 day" --cause "time-?out"

    Parameters
    ----------
    every
        With time: the length of an interval.
    """
    with job.spark():
        found = job.run(width=every)
    if job.given["output"] == "json":
        show_json({"job": "dlq", "group": group, "kinds": found})
        return
    kinds = job.value("by")
    show(found, [*kinds, "letters", "attempts", "first", "last", "sample"], job.given["output"])


@job_command("dead_letters.redrive", supplies=("checkpoint",))
def redrive(
    job: Job,
    group: GroupName,
    *,
    to: str = "",
    yes: Apply = False,
    checkpoint: Checkpoint = None,
) -> None:
    """Send chosen dead letters of a group back to the topics that they came from, each once.

    All readers of the topic receive them again (`logboom dlq redrive` sends them to the group
    alone). The checkpoint records which were sent, so that a later run leaves them out. Without
    --yes they are only counted.

    For example:

        logboom pipeline redrive billing --cause "time-?out"
        logboom pipeline redrive billing --cause "time-?out" --yes

    Parameters
    ----------
    to
        Send them to this topic instead.
    """
    place = checkpoint_of(checkpoint, "redrive", group)
    with job.spark() as (module, spark):
        if not yes:
            target = job.value("target")
            letters = module.open_letters(spark, target.servers, group, job.value("wanted"), place)
            left = module.sendable(letters, target).count()
            note(f"{left} dead letters would be sent back; say --yes to do it")
            if nowhere := letters.count() - left:
                note(f"{nowhere} more do not say where they come from: --to TOPIC sends them")
            return
        run = job.run(checkpoint=place)
    job.report(run, checkpoint=place)


for _job in (archive, replay, enrich, dedup, window, compact, dlq, redrive, lag, audit, init):
    app.command(_job)
