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
def broker(*, config: ConfigFile) -> int:
    """Run a broker until SIGTERM or Ctrl-C; it hands its leaderships over before it ends.

    For example:

        logboom node broker --config broker-1.toml
    """
    return run("broker", config)
