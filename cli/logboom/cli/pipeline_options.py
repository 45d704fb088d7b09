"""Options that the jobs of `logboom pipeline` share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from logboom.cli.options import time_ms
from logboom.cli.parameters import Output as AnyOutput
from logboom.cli.parameters import Servers as AnyServers
from logboom.wire.errors import InvalidRequest

Master: TypeAlias = Annotated[
    str,
    Parameter(
        name=["--master", "-m"],
        env_var="SPARK_MASTER",
        help="Where Spark runs: local[*] by default, or spark://host:7077.",
    ),
]
Servers: TypeAlias = Annotated[AnyServers, Parameter(help="Any nodes, host:port, comma-separated.")]
Output: TypeAlias = Annotated[AnyOutput, Parameter(help="table, or json: the whole report.")]
Start: TypeAlias = Annotated[
    str,
    Parameter(
        name="--start",
        help="Where a new job begins: earliest (default), latest, group:NAME, or JSON by topic and "
        "queue. A job that has a checkpoint goes on from there.",
    ),
]
AtOnce: TypeAlias = Annotated[
    int,
    Parameter(
        name="--at-once",
        help="Messages of a micro-batch at most. enrich takes 256 MiB at once by default, the others "
        "all that is there: for dedup and window, since queues of which one is ahead of another in "
        "time then have late messages.",
    ),
]
SkipLost: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--skip-lost",
        negative="",
        help="Go on where messages are gone that it was to read: retention was faster, or a topic "
        "was made anew.",
    ),
]
Checkpoint: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--checkpoint",
        help="The folder where it remembers how far it is; by default one below .logboom/pipeline.",
    ),
]
Remembered: TypeAlias = Annotated[Path | None, Parameter(name="--checkpoint")]
"""The same where the command says of itself what happens without."""
Continuous: TypeAlias = Annotated[
    bool, Parameter(name="--continuous", negative="", help="Go on until Ctrl-C.")
]
Every: TypeAlias = Annotated[
    str,
    Parameter(
        name="--every",
        help='With --continuous: how often it looks for more, such as "10 seconds".',
    ),
]
Folder: TypeAlias = Annotated[Path, Parameter(name=["--to", "-t"])]
Topic: TypeAlias = Annotated[
    str,
    Parameter(name=["--to", "-t"], help="The topic to write to, which has to exist (or --queues)."),
]
Queues: TypeAlias = Annotated[
    int, Parameter(name="--queues", help="Make the topic with so many queues if there is none.")
]
Delivery: TypeAlias = Annotated[
    Literal["exactly-once", "at-least-once"],
    Parameter(
        name="--delivery",
        help="exactly-once: each micro-batch is one transaction; at-least-once is cheaper, and "
        "after a failure some messages come twice.",
    ),
]
From: TypeAlias = Annotated[
    str, Parameter(name="--from", help="Message time: 2026-11-21T10:00:00Z, or ms since 1970.")
]
Until: TypeAlias = Annotated[
    str, Parameter(name="--until", help="The first message time that is left out.")
]


def moment(text: str, option: str) -> int | None:
    """A message time in ms; None if it was not said.

    Raises:
        InvalidRequest: it is none.
    """
    if not text:
        return None
    found = time_ms(text)
    if found is None:
        raise InvalidRequest(f"{option} {text!r} is no time: write 2026-11-21T10:00:00Z or ms")
    return found


def whole(path: Path) -> Path:
    """The whole path: Spark's JVM may have begun in another folder than this one.

    Raises:
        InvalidRequest: it is a URI: the jobs look into their folders themselves.
    """
    # Of two slashes a path keeps one.
    if found := re.match(r"([A-Za-z][\w+.-]+):/", str(path)):
        text = f"{path} is below {found[1]}:, and a job needs a folder that this machine has"
        raise InvalidRequest(f"{text}: mount it (docs/PIPELINE.md, Another machine)")
    return path.resolve()


def resolved(path: Path | None) -> Path | None:
    """The same of a path that need not be said."""
    return None if path is None else whole(path)


def names(text: str) -> list[str]:
    """Names of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]
