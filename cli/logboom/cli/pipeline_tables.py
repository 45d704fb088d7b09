"""`logboom pipeline compact`, `dlq` and `redrive`: jobs over all that a topic holds."""

from __future__ import annotations

from dataclasses import asdict

from logboom.cli.options import servers_or_default
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Apply
from logboom.cli.pipeline_options import (
    Checkpoint,
    Folder,
    From,
    Master,
    Output,
    Queues,
    Servers,
    Until,
    moment,
    names,
    whole,
)
from logboom.cli.pipeline_runs import checkpoint_of, rows_bar, spark_for, target_of, tell
from logboom.cli.progress_bar import progress


def compact(
    topic: str,
    *,
    to: Folder,
    to_topic: str = "",
    queues: Queues = 0,
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Keep the latest message of each key, without tombstones: as Parquet, and as a topic.

    A run reads what came since the last one, so keys outlive the retention of their topic. To a topic
    it publishes the whole snapshot in one transaction; the header boom-snapshot has its number.

    For example:

        logboom pipeline compact prices --to prices/
        logboom pipeline compact prices --to prices/ --to-topic prices-now --queues 4

    Parameters
    ----------
    topic
        The topic. Messages without a key are left out.
    to
        The folder of the snapshots, the last two of which are kept.
    to_topic
        Where to publish the snapshot too.
    """
    with spark_for("compact", master) as spark:
        from logboom.pipeline.jobs import compact as job

        target = target_of(to_topic, servers, queues) if to_topic else None
        where = servers_or_default(servers)
        with rows_bar("compact") as bar:
            run = job.compact(spark, where, topic, whole(to), target, on_rows=bar.to)
    tell(asdict(run), output)


def dlq(
    group: str,
    *,
    by: str = "cause,topic",
    every: str = "1 hour",
    cause: str = "",
    topic: str = "",
    from_: From = "",
    until: Until = "",
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Count the dead letters of a group by cause, topic and time: what went wrong most.

    Numbers and ids in causes become #, so that causes that differ by these alone are one.

    For example:

        logboom pipeline dlq billing
        logboom pipeline dlq billing --by cause,time --every "1 day" --cause "time-?out"

    Parameters
    ----------
    group
        The consumer group.
    by
        What to count by: cause, topic (where they come from), time; comma-separated.
    every
        With time: how long a stretch is.
    cause
        Only causes in which this regular expression is found.
    topic
        Only those that come from this topic.
    """
    with spark_for("dlq", master) as spark:
        from logboom.pipeline.jobs import dead_letters as job

        wanted = job.DeadLetterFilter(
            cause, topic, moment(from_, "--from"), moment(until, "--until")
        )
        with progress("dlq", None):
            found = job.triage(spark, servers_or_default(servers), group, wanted, names(by), every)
    if output == "json":
        show_json({"job": "dlq", "group": group, "kinds": found})
        return
    show(found, [*names(by), "letters", "attempts", "first", "last", "sample"], output)


def redrive(
    group: str,
    *,
    cause: str = "",
    topic: str = "",
    from_: From = "",
    until: Until = "",
    to: str = "",
    queues: Queues = 0,
    yes: Apply = False,
    checkpoint: Checkpoint = None,
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Send chosen dead letters of a group back to the topics that they came from, each once.

    All who read the topic get them again (`logboom dlq redrive` sends them to the group alone). The
    checkpoint remembers which were sent, so that a later run leaves them out. Without --yes they are
    only counted.

    For example:

        logboom pipeline redrive billing --cause "time-?out"
        logboom pipeline redrive billing --cause "time-?out" --yes

    Parameters
    ----------
    group
        The consumer group.
    cause
        Only causes in which this regular expression is found.
    topic
        Only those that come from this topic.
    to
        To this topic instead.
    """
    place = checkpoint_of(checkpoint, "redrive", group)
    with spark_for("redrive", master) as spark:
        from logboom.pipeline.jobs import dead_letters as job

        wanted = job.DeadLetterFilter(
            cause, topic, moment(from_, "--from"), moment(until, "--until")
        )
        target = target_of(to, servers, queues)
        if not yes:
            letters = job.open_letters(spark, target.servers, group, wanted, place)
            left = job.sendable(letters, target).count()
            note(f"{left} dead letters would be sent back; say --yes to do it")
            if nowhere := letters.count() - left:
                note(f"{nowhere} more do not say where they come from: --to TOPIC sends them")
            return
        with rows_bar("redrive") as bar:
            run = job.redrive(spark, target, group, wanted, place, on_rows=bar.to)
    tell({**asdict(run), "checkpoint": place}, output)
