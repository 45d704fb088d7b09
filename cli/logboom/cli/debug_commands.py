"""`logboom debug`: what a developer asks for when something went wrong."""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from logboom.cli import debug_bundle
from logboom.cli.cluster_address import destination_of
from logboom.cli.connection import connect_to
from logboom.cli.local_cluster import cluster_folder
from logboom.cli.output import note
from logboom.cli.parameters import Servers
from logboom.client.written_values import bytes_text

app = App(name="debug", help="What a report of a fault needs: bundle.")


@app.command
def bundle(
    path: Path | None = None,
    *,
    logs: Annotated[
        list[Path] | None,
        Parameter(name=["--log", "-l"], negative="", help="A log file to add; may be repeated."),
    ] = None,
    servers: Servers = None,
) -> None:
    """Write logs, settings, state and statistics of all nodes into one archive.

    It holds no messages, no keys and no passwords, but names of topics, groups, users and hosts:
    only you may read the file. Logs of the cluster on this machine are in it; those of other
    machines are added with --log.

    For example:

        logboom debug bundle
        logboom debug bundle /tmp/fault.tar.gz --log broker-1.log --log broker-2.log

    Parameters
    ----------
    path
        The file to write; by default logboom-debug-TIME.tar.gz in the current folder.
    """
    where = path or Path(time.strftime("logboom-debug-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime()))
    destination = destination_of(servers)
    # Nodes that are named may be of any cluster: the logs of the one here may not be theirs.
    folder = None if servers is not None and servers.servers is not None else cluster_folder(None)
    with connect_to(destination) as boom:
        files = chain(
            debug_bundle.reports(boom, destination, lambda name: note(f"asking for {name}")),
            debug_bundle.logs(folder, logs or []),
        )
        size = debug_bundle.write(where, files)
    print(f"wrote {where}, {bytes_text(size)}")
