"""`logboom node`: one node in the foreground, run from its config file."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from logboom.cli.parameters import ConfigFile
from logboom.deploy.node import run

app = App(name="node", help="One node in the foreground: name-server, broker.")


@app.command(name="name-server")
def name_server(
    *, config: ConfigFile, create: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Run a name server until SIGTERM or Ctrl-C.

    For example:

        logboom node name-server --config name-1.toml

    Parameters
    ----------
    create
        Found the cluster. Use it once, with an empty data folder.
    """
    return run("name-server", config, create=create)


@app.command
def broker(
    *,
    config: ConfigFile,
    instance: Annotated[int | None, Parameter(name=["--instance", "-i"])] = None,
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
    """
    return run("broker", config, instance=instance)
