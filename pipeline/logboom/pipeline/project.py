"""The jobs as a project for `spark-pipelines`, which `logboom pipeline init` writes.

Spark keeps the checkpoints and runs the transformations in the order of their dependencies. The
transformations call the same functions as the commands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PYSPARK: Final = "pyspark[pipelines]==4.3.*"
"""The package that `spark-pipelines` needs in addition to the extra `[spark]`."""
QUEUES: Final = 4
"""Queues of topics that the project creates."""


@dataclass(frozen=True, slots=True)
class Project:
    """The parameters of a project."""

    name: str
    storage: str
    """The URI of a folder for checkpoints."""
    servers: str
    topic: str
    schema: str
    """Fields of the JSON values, such as "carrier string, delay double"."""
    by: Sequence[str] = ()
    measures: Sequence[str] = ()
    width: str = "1 hour"
    group: str = ""
    """The group whose dead letters are counted; "": none."""


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
    # Without a persistent catalog, a second run finds tables that it does not know.
    return (
        f"spark-pipelines {verb} --remote 'local[2]' "
        "--conf spark.sql.catalogImplementation=hive --conf spark.sql.warehouse.dir=warehouse"
    )


def _spec(wanted: Project) -> str:
    # Every JSON string is also a YAML string.
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
    letters = "- `dead_letters`: why messages of group " + wanted.group + " failed.\n"
    return f"""\
# {wanted.name}

Topic `{wanted.topic}` as tables and topics, by Spark's declarative pipelines.

- `archive`: every message, once.
- `latest`: the last message of each key.
- `windows`, and topic `{wanted.topic}-windows`: counts by time windows.
- topic `{wanted.topic}-once`: the messages without repetitions of a key.
{letters if wanted.group else ""}
Each run processes new messages, and writes each message to a topic once:

    pip install 'logboom[spark]' '{PYSPARK}'
    {command("dry-run")}
    {command("run")}

Nodes, topic and fields are named in `spark-pipeline.yml`.
"""


ARCHIVE: Final = '''\
"""Every message of the topic, once."""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declarative
from logboom.pipeline.jobs.archive import SCHEMA, archived


@dp.table
def archive():
    return archived(declarative.stream(spark, SCHEMA))
'''

LATEST: Final = '''\
"""The last message of each key, without tombstones."""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declarative
from logboom.pipeline.jobs.compact import latest as latest_of
from logboom.pipeline.jobs.compact import without_tombstones
from logboom.pipeline.jobs.message_frames import SCHEMA


@dp.materialized_view
def latest():
    return without_tombstones(latest_of(declarative.table(spark, SCHEMA)))
'''

DEDUP: Final = '''\
"""The messages without repetitions of a key, to a topic.

A message that is more than ten minutes later than the newest is left out. The order of keys
is not kept, unlike with `logboom pipeline dedup`.
"""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declarative
from logboom.pipeline.jobs.dedup import deduplicated
from logboom.pipeline.jobs.message_frames import COLUMNS, SCHEMA

dp.create_sink("once", "logboom", declarative.sink(spark, <ONCE>, queues=<QUEUES>))


@dp.append_flow(target="once")
def without_doubles():
    return deduplicated(declarative.stream(spark, SCHEMA), ["key"], "10 minutes").select(*COLUMNS)
'''

WINDOWS: Final = '''\
"""Counts and measures by time windows, as a table and to a topic."""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declarative
from logboom.pipeline.jobs.window import SCHEMA, WindowAggregation, as_values, windowed

WANTED = WindowAggregation(declarative.fields(spark), <WIDTH>, by=<BY>, measures=<MEASURES>)

dp.create_sink("counted", "logboom", declarative.sink(spark, <COUNTED>, queues=<QUEUES>))


@dp.table
def windows():
    return windowed(declarative.stream(spark, SCHEMA), WANTED)


@dp.append_flow(target="counted")
def windows_to_topic():
    return as_values(windowed(declarative.stream(spark, SCHEMA), WANTED), WANTED)
'''

DEAD_LETTERS: Final = '''\
"""Causes of the group's dead letters, counted by the topic that they came from."""

from pyspark import pipelines as dp

from logboom.pipeline.jobs import declarative
from logboom.pipeline.jobs.dead_letters import opened, triaged
from logboom.pipeline.jobs.message_frames import SCHEMA


@dp.materialized_view
def dead_letters():
    return triaged(opened(declarative.table(spark, SCHEMA, "%DLQ%" + <GROUP>)), ["cause", "topic"])
'''
