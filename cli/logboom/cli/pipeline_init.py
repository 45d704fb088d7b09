"""`logboom pipeline init`: the jobs as a project for Spark's declarative pipelines."""

from __future__ import annotations

from pathlib import Path

from logboom.cli.cluster_address import destination_of
from logboom.cli.options import names
from logboom.cli.output import note
from logboom.cli.parameters import Servers
from logboom.pipeline.project import PYSPARK, Project, command, files
from logboom.wire.errors import InvalidRequest


def init(
    folder: Path,
    *,
    topic: str,
    schema: str,
    by: str = "",
    measure: str = "",
    width: str = "1 hour",
    group: str = "",
    servers: Servers = None,
) -> None:
    """Write a project for `spark-pipelines` that archives, counts and compacts a topic.

    The project has a table of all messages, a table of the last message of each key, counts by time
    windows as a table and as a topic, and a topic without duplicates. You can change it: it calls
    the functions of logboom.pipeline.jobs. A dry-run needs the nodes and the topic.

    For example:

        logboom pipeline init flights-pipeline --topic flights \\
            --schema "carrier string, dep_delay double" --by carrier --measure dep_delay

    Parameters
    ----------
    folder
        The folder to write, which is new or empty.
    topic
        The topic.
    schema
        Fields of the JSON values, as in SQL.
    by
        Fields to group by, comma-separated.
    measure
        Fields whose sum, average, minimum and maximum are computed, comma-separated.
    width
        The length of a window.
    group
        A consumer group whose dead letters are counted.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidRequest(f"{folder} exists already: name a new folder, or an empty one")
    wanted = Project(
        folder.resolve().name,
        (folder.resolve() / "storage").as_uri(),
        destination_of(servers).text,
        topic,
        schema,
        names(by),
        names(measure),
        width,
        group,
    )
    for name, text in files(wanted).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    note(f"written to {folder}. It needs: pip install 'logboom[spark]' '{PYSPARK}'. Then:")
    print(f"cd {folder}")
    print(command("dry-run"))
    print(command("run"))
