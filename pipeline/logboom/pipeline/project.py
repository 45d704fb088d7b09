"""The jobs as a project for `spark-pipelines`, which `logboom pipeline init` writes.

Spark keeps the checkpoints and runs what is new in the order in which it hangs together. The
transformations call the same functions as the commands do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PYSPARK: Final = "pyspark[pipelines]==4.3.*"
"""What `spark-pipelines` needs beside the extra `[spark]`."""
QUEUES: Final = 4
"""Of topics that the project makes."""


@dataclass(frozen=True, slots=True)
class Project:
    """The parameters of a project."""

    name: str
    storage: str
    """A URI of a folder, for checkpoints."""
    servers: str
    topic: str
    schema: str
    """Fields of the JSON values, such as "carrier string, delay double"."""
    by: Sequence[str] = ()
    measures: Sequence[str] = ()
    width: str = "1 hour"
    group: str = ""
    """Whose dead letters are counted; "": nobody's."""


def files(wanted: Project) -> dict[str, str]:
    """Return the texts of the project's files by path."""
    found = {
        "spark-pipeline.yml": _spec(wanted),
        "README.md": _readme(wanted),
        "transformations/archive.py": ARCHIVE,
        "transformations/dedup.py": _filled(DEDUP, wanted),
        "transformations/latest.py": LATEST,
        "transformations/windows.py": _filled(WINDOWS, wanted),
    }
    if wanted.group:
        found["transformations/dead_letters.py"] = _filled(DEAD_LETTERS, wanted)
    return found


def command(verb: str) -> str:
    """Return the command that makes Spark `run` or `dry-run` a project, in its folder."""
    # Without a catalog that lasts, a second run finds tables that it does not know.
    return (
        f"spark-pipelines {verb} --remote 'local[2]' "
        "--conf spark.sql.catalogImplementation=hive --conf spark.sql.warehouse.dir=warehouse"
    )


def _spec(wanted: Project) -> str:
    # A JSON string is a YAML string too, whatever is in it.
    told = json.dumps
    return f"""\
name: {told(wanted.name)}
storage: {told(wanted.storage)}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
  spark.sql.shuffle.partitions: "8"
  logboom.servers: {told(wanted.servers)}
  logboom.topic: {told(wanted.topic)}
  logboom.schema: {told(wanted.schema)}
"""


def _filled(text: str, wanted: Project) -> str:
    windows = {"by": list(wanted.by), "measures": list(wanted.measures), "width": wanted.width}
    values = {
        "ONCE": f"{wanted.topic}-once",
        "COUNTED": f"{wanted.topic}-windows",
        "GROUP": wanted.group,
        **{name.upper(): value for name, value in windows.items()},
    }
    for name, value in values.items():
        text = text.replace(f"<{name}>", json.dumps(value))
    return text.replace("<QUEUES>", str(QUEUES))


def _readme(wanted: Project) -> str:
    letters = "- `dead_letters`: why group " + wanted.group + " gave up messages.\n"
    return f"""\
# {wanted.name}

Topic `{wanted.topic}` as tables and topics, by Spark's declarative pipelines.

- `archive`: every message, once.
- `latest`: the last message of each key.
- `windows`, and topic `{wanted.topic}-windows`: counts by time windows.
- topic `{wanted.topic}-once`: the messages without those whose key came before.
{letters if wanted.group else ""}
Each run takes in what is new, and writes each message to a topic once:

    pip install 'logboom[spark]' '{PYSPARK}'
    {command("dry-run")}
    {command("run")}

Nodes, topic and fields are named in `spark-pipeline.yml`.
"""


ARCHIVE: Final = '''\
"""Every message of the topic, once."""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declared
from logboom.pipeline.jobs.archive import SCHEMA, archived


@dp.table
def archive():
    return archived(declared.stream(spark, SCHEMA))
'''

LATEST: Final = '''\
"""The last message of each key, without tombstones."""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declared
from logboom.pipeline.jobs.compact import latest as latest_of
from logboom.pipeline.jobs.compact import without_tombstones
from logboom.pipeline.jobs.message_frames import SCHEMA


@dp.materialized_view
def latest():
    return without_tombstones(latest_of(declared.table(spark, SCHEMA)))
'''

DEDUP: Final = '''\
"""The messages without those whose key came before, to a topic.

A message that is more than ten minutes later than the newest is left out. Keys keep no order here,
which `logboom pipeline dedup` does.
"""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declared
from logboom.pipeline.jobs.dedup import deduplicated
from logboom.pipeline.jobs.message_frames import COLUMNS, SCHEMA

dp.create_sink("once", "logboom", declared.sink(spark, <ONCE>, queues=<QUEUES>))


@dp.append_flow(target="once")
def without_doubles():
    return deduplicated(declared.stream(spark, SCHEMA), ["key"], "10 minutes").select(*COLUMNS)
'''

WINDOWS: Final = '''\
"""Counts and measures by time windows, as a table and to a topic."""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declared
from logboom.pipeline.jobs.window import SCHEMA, Windows, as_values, windowed

WANTED = Windows(declared.fields(spark), <WIDTH>, by=<BY>, measures=<MEASURES>)

dp.create_sink("counted", "logboom", declared.sink(spark, <COUNTED>, queues=<QUEUES>))


@dp.table
def windows():
    return windowed(declared.stream(spark, SCHEMA), WANTED)


@dp.append_flow(target="counted")
def windows_to_topic():
    return as_values(windowed(declared.stream(spark, SCHEMA), WANTED), WANTED)
'''

DEAD_LETTERS: Final = '''\
"""Why the group gave up messages: how many of each cause, by the topic that they came from."""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declared
from logboom.pipeline.jobs.dead_letters import opened, triaged
from logboom.pipeline.jobs.message_frames import SCHEMA


@dp.materialized_view
def dead_letters():
    return triaged(opened(declared.table(spark, SCHEMA, "%DLQ%" + <GROUP>)), ["cause", "topic"])
'''
