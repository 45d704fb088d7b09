"""`logboom node`: one node in the foreground, run from its config file; files of a new broker."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from logboom.cli.connection import open_operator_client
from logboom.cli.new_credentials import FIRST, NewCredentials
from logboom.cli.output import note
from logboom.cli.parameters import ConfigFile, OperatorServers
from logboom.deploy.cluster_files import CONFIG_FILE, DATA, NewNode, parse_nodes, write_broker
from logboom.deploy.cluster_key import ensure_key, read_keys
from logboom.deploy.layout import KEY_FILE
from logboom.deploy.node import run
from logboom.deploy.node_credentials import CREDENTIALS_FILE
from logboom.wire.access.access_rules import node_user
from logboom.wire.errors import InvalidRequest, LogboomError, StartError
from logboom.wire.log_format import LogForm

app = App(
    name="node", help="One node in the foreground: name-server, broker. Files of a new one: add."
)


@app.command(name="name-server")
def name_server(
    *,
    config: ConfigFile,
    create: Annotated[bool, Parameter(negative="")] = False,
    log: LogForm | None = None,
) -> int:
    """Run a name server until SIGTERM or Ctrl-C.

    For example:

        logboom node name-server --config name-1.toml

    Parameters
    ----------
    create
        Found the cluster. Use it once, with an empty data folder.
    log
        Form of the log on standard error; by default that of the config file, which is text.
    """
    return run("name-server", config, create=create, log=log)


@app.command
def broker(
    *,
    config: ConfigFile,
    instance: Annotated[int | None, Parameter(name=["--instance", "-i"])] = None,
    log: LogForm | None = None,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C; it hands its leaderships over before it ends.

    For example:

        logboom node broker --config broker-1.toml
        logboom node broker --config machine-a.toml --instance 2

    Parameters
    ----------
    instance
        Which of several brokers of this machine, from 1 on, that share the config file: its id is
        that of the file with -1, -2 …, it has a folder 1, 2 … in `data`, and it listens at the
        file's port, or so many above. No two replicas of a queue are placed on the machine.
    log
        Form of the log on standard error; by default that of the config file, which is text.
    """
    return run("broker", config, instance=instance, log=log)


@app.command
def add(
    name: Annotated[str, Parameter(help="The id of the broker, such as broker-4.")],
    endpoint: Annotated[str, Parameter(help="host:port that others dial.")],
    folder: Annotated[Path | None, Parameter(help="The folder to make; NAME by default.")] = None,
    *,
    zone: str = "",
    data: Path = DATA,
    servers: OperatorServers = None,
) -> None:
    """Let a further broker into a cluster that encrypts, and make its key pair and config file.

    The cluster gets its public key as that of the user node:NAME. FOLDER is then copied to its
    machine. No name server has to be restarted.

        logboom node add broker-4 10.0.0.4:7711 --key-file /etc/logboom/cluster.key

    Parameters
    ----------
    zone
        Its location, such as a rack; by default its host.
    data
        Folder on its machine in which nodes keep their data.
    """
    ((name, endpoint),) = parse_nodes(f"{name}={endpoint}", "broker")
    folder = Path(name) if folder is None else folder
    if folder.exists():
        raise StartError(f"{folder} exists, and keys are never overwritten: name a new folder")
    key_file = None if servers is None else servers.key_file
    key = None if key_file is None else read_keys(key_file)
    with open_operator_client(servers) as boom:
        if name in {broker.id for broker in boom.admin.brokers()}:
            raise InvalidRequest(f"there is a broker {name!r} already: give the new one its own id")
        known = [server.endpoint for server in boom.admin.name_servers()]
        folder.mkdir(mode=0o700, parents=True)
        try:
            with NewCredentials(boom, node_user(name), folder / CREDENTIALS_FILE) as made:
                boom.admin.create_user(node_user(name), made.public, label=FIRST)
        except LogboomError:
            # Without a key in it, the folder would only hinder the same command the next time.
            with suppress(OSError):
                folder.rmdir()
            raise
    write_broker(folder, NewNode(name, endpoint), known, data=data, zone=zone)
    if key is not None:
        ensure_key(folder / KEY_FILE, key)
    note(f"{folder} has what {name} needs; copy it to its machine, where only its user reads it")
    if key is None:
        note(f"copy the cluster key, which is on every other node, to {folder / KEY_FILE} there")
    quoted = shlex.quote(str(folder / CONFIG_FILE))
    note(f"start it there:  logboom node broker --config {quoted}")
    made.warn_of_no_servers()
