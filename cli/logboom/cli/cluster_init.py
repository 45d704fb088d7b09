"""`logboom cluster init`: keys, the first administrator and the config files of all nodes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from logboom.cli.output import note, show
from logboom.cli.parameters import Output
from logboom.deploy.cluster_files import (
    CONFIG_FILE,
    DATA,
    ClusterFiles,
    make_cluster_files,
    parse_nodes,
)
from logboom.deploy.node_credentials import ADMINISTRATOR


def init(
    folder: Path,
    /,
    *,
    name_servers: Annotated[str, Parameter(name=["--name-servers", "-n"])],
    brokers: Annotated[str, Parameter(name=["--brokers", "-b"])],
    admin: str = ADMINISTRATOR,
    data: Path = DATA,
    key_file: Path | None = None,
    output: Output = "table",
) -> None:
    """Make keys, the first administrator and the config files of all nodes of a new cluster.

    Every connection of such a cluster is encrypted, and every node and user is known by a key of its
    own. There is no password. FOLDER gets a folder for each node, to be copied to its machine, and
    the credentials file of the administrator, which stays with that person. Nothing is overwritten.

        logboom cluster init boom --brokers 10.0.0.1:7711 --name-servers 10.0.0.1:7701
        logboom cluster init boom --admin alice \\
            --name-servers 10.0.0.1:7701,10.0.0.2:7701,10.0.0.3:7701 \\
            --brokers 10.0.0.1:7711,10.0.0.2:7711,10.0.0.3:7711

    It only writes files. To start the nodes, do what it prints. docs/SECURITY.md has the whole way,
    and how a cluster that runs without encryption turns it on.

    Parameters
    ----------
    folder
        The folder to make. Keep it secret: it has the keys of all nodes until you have copied them.
    name_servers
        1, 3 or 5 as host:port that others dial, comma-separated; they are called name-1, name-2 …,
        or as id=host:port says. For each other they listen 20 ports above.
    brokers
        The same; they are called broker-1, broker-2 …
    admin
        Name of the first administrator.
    data
        Folder on each machine in which its nodes keep their data.
    key_file
        Cluster key of a cluster that exists; by default a new one is made.
    """
    servers, others = parse_nodes(name_servers, "name"), parse_nodes(brokers, "broker")
    files = make_cluster_files(folder, servers, others, admin, key_file=key_file, data=data)
    rows = [
        {
            "node": node.id,
            "host": node.host,
            "folder": str(folder / node.id),
            "command": f"logboom node {role} --config {node.id}/{CONFIG_FILE}",
        }
        for role, nodes in (("name-server", files.name_servers), ("broker", files.brokers))
        for node in nodes
    ]
    show(rows, ["node", "host", "folder", "command"], output)
    _tell(folder, files, data, founds=key_file is None)


def _tell(folder: Path, files: ClusterFiles, data: Path, *, founds: bool) -> None:
    """Print the next steps."""
    first = files.name_servers[0]
    quoted = shlex.quote(str(folder / first.id))
    note("")
    note("Next, for each node above:")
    note(f"1. copy its folder to its host:  scp -rp {quoted} {first.host}:/etc/logboom/")
    note(f"   and let only the user of the node read it; {data} must be writable for that user")
    note(
        "2. start it there, name servers first, with its command"
        + (" and --create" if founds else "")
    )
    if founds:
        note("   (--create only this first time: it founds the cluster; brokers have no --create)")
    admin = shlex.quote(str(files.administrator))
    note(f"3. look, as the administrator:  LOGBOOM_CREDENTIALS={admin} logboom doctor")
    note("4. make the first user:         logboom user create --help")
    note(
        f"Then keep {files.administrator} where only you read it, and delete the rest of {folder}."
    )
