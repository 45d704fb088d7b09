"""`logboom pipeline archive` and `replay`: topics to Parquet, and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from logboom.cli.options import queue_numbers
from logboom.cli.output import note, show
from logboom.cli.pipeline_options import (
    AtOnce,
    Continuous,
    Every,
    Folder,
    From,
    Master,
    Output,
    Queues,
    Remembered,
    Servers,
    SkipLost,
    Start,
    Topic,
    Until,
    moment,
    names,
    resolved,
    whole,
)
from logboom.cli.pipeline_runs import (
    BROKEN,
    rows_bar,
    source_of,
    spark_for,
    target_of,
    tell,
    trigger,
)
from logboom.wire.errors import InvalidRequest

AUDIT = ("topic", "partition", "first", "last", "messages", "missing", "doubled")


def archive(
    topics: str,
    *,
    to: Folder,
    start: Start = "",
    at_once: AtOnce = 0,
    skip_lost: SkipLost = False,
    checkpoint: Remembered = None,
    continuous: Continuous = False,
    every: Every = "",
    gather: Annotated[bool, Parameter(name="--gather", negative="")] = False,
    audit: bool = True,
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> int:
    """Write topics to Parquet, by topic and day, each message once; then look whether all are there.

    Run again, it adds what came since. Exit code 1: messages are missing or doubled.

    For example:

        logboom pipeline archive flights --to archive/
        logboom pipeline archive flights,delays --to /data/archive --continuous --every "1 minute"

    Parameters
    ----------
    topics
        Which topics, comma-separated.
    to
        The folder of the archive.
    checkpoint
        The folder where it remembers how far it is; by default in the archive.
    gather
        Write one file a day and micro-batch, not one a queue: where messages are of many days.
    audit
        Look afterwards whether the offsets of each queue are there without gaps and doubles, up to
        where this run has read.
    """
    often = trigger(every, continuous=continuous)
    with spark_for("archive", master) as spark:
        from logboom.pipeline.jobs import archive as job

        to, remembered = whole(to), resolved(checkpoint)
        source = source_of(topics, servers, start, at_once, skip_lost=skip_lost)
        with rows_bar("archive") as bar:
            run = job.archive(
                spark, source, to, remembered, gather=gather, every=often, on_rows=bar.to
            )
        # Who said Ctrl-C wants no more to be begun.
        found = []
        if audit and not run.stopped:
            compacted = job.compacted_among(source["servers"], run.offsets)
            found = job.audit(spark, to, run, compacted)
    wrong = [row for row in found if row["missing"] or row["doubled"]]
    tell({**asdict(run), "audit": found}, output)
    if output == "table" and found:
        show(found, AUDIT, output)
    for row in wrong:
        place = f"queue {row['partition']} of topic {row['topic']!r}"
        note(f"{place}: {row['missing']} messages are missing, {row['doubled']} are doubled")
    return BROKEN if wrong else 0


def replay(
    folder: Path,
    *,
    to: Topic,
    topic: str = "",
    from_: From = "",
    until: Until = "",
    offsets: str = "",
    queue: Annotated[str | None, Parameter(name=["--queue", "-q"])] = None,
    key: str = "",
    keys: str = "",
    rate: int = 0,
    keep_queues: Annotated[bool, Parameter(name="--keep-queues", negative="")] = False,
    queues: Queues = 0,
    checkpoint: Remembered = None,
    master: Master = "",
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Send messages of an archive to a topic, each once, in the order of their queues.

    It goes in pieces, each a transaction. With --checkpoint a replay that broke off goes on where it
    was, and one that is done does nothing; without, each run sends everything.

    For example:

        logboom pipeline replay archive/ --topic flights --to flights-again --queues 8
        logboom pipeline replay archive/ --to again --from 2026-11-20T00:00:00Z --rate 1000
        logboom pipeline replay archive/ --to again --key UA --offsets 100:200 --queue 0

    Parameters
    ----------
    folder
        The archive.
    topic
        Only this topic of the archive.
    offsets
        Only these, FIRST:END in each queue: from FIRST to before END; either may be left out.
    queue
        Only these queues: 0 or 0,3 or 2-5.
    key
        Only these keys, comma-separated.
    keys
        Only keys in this range, FIRST:END by their bytes: from FIRST to before END.
    rate
        Messages a second at most.
    keep_queues
        To the queues that the messages had, instead of those of their keys.
    checkpoint
        The folder where it remembers how far it is; nowhere unless you say so.
    """
    if rate < 0:
        raise InvalidRequest(f"--rate is a number of messages a second, not {rate}")
    first, end = halves(offsets, "--offsets")
    key_first, key_end = halves(keys, "--keys")
    with spark_for("replay", master) as spark:
        from logboom.pipeline.jobs import replay as job

        wanted = job.ReplayFilter(
            topic,
            tuple(queue_numbers(queue) or ()),
            moment(from_, "--from"),
            moment(until, "--until"),
            number(first, "--offsets"),
            number(end, "--offsets"),
            tuple(names(key)),
            key_first,
            key_end,
        )
        target = target_of(to, servers, queues)
        with rows_bar("replay") as bar:
            run = job.replay(
                spark,
                whole(folder),
                wanted,
                target,
                resolved(checkpoint),
                rate=rate,
                keep_queues=keep_queues,
                on_rows=bar.to,
            )
    tell(asdict(run), output)


def halves(text: str, option: str) -> tuple[str, str]:
    """Both sides of FIRST:END.

    Raises:
        InvalidRequest: there is no colon.
    """
    if text and text.count(":") != 1:
        raise InvalidRequest(f"{option} is FIRST:END, such as 100:200, 100: or :200, not {text!r}")
    first, _, end = text.partition(":")
    return first.strip(), end.strip()


def number(text: str, option: str) -> int | None:
    """A number from 0; None if it was not said.

    Raises:
        InvalidRequest: it is none.
    """
    if text and not text.isdecimal():
        raise InvalidRequest(f"{option} has {text!r}, which is no number from 0")
    return int(text) if text else None
