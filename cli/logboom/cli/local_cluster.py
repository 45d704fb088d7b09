"""The cluster on this machine that a command uses unless `--servers` names nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from logboom.deploy import detached
from logboom.deploy.detached import DATA, advice
from logboom.deploy.layout import administrator
from logboom.deploy.ports import BROKER_PORT, LOOPBACK
from logboom.wire.errors import InvalidRequest, Unavailable

DATA_VARIABLE: Final = "LOGBOOM_DATA"


def cluster_folder(said: Path | None) -> Path | None:
    """Return the folder of the cluster, or None if there is none.

    It is the given folder, else that of LOGBOOM_DATA, else `.logboom` if a cluster was started
    there, else that of the only cluster that this user has running.

    Raises:
        InvalidRequest: several clusters run; the text names them.
    """
    if said is not None:
        return said
    if variable := os.environ.get(DATA_VARIABLE):
        return Path(variable)
    if detached.is_cluster(DATA):
        return DATA
    running = detached.running()
    if len(running) > 1:
        names = ", ".join(map(str, running))
        text = f"{len(running)} clusters run on this machine, in {names}"
        raise InvalidRequest(f"{text}: name one of them by {DATA_VARIABLE}, --data or --servers")
    return running[0] if running else None


def known_folders() -> list[Path]:
    """Return the folders of all clusters on this machine that a command could mean."""
    variable = os.environ.get(DATA_VARIABLE)
    own = [Path(variable)] if variable else []
    return [*own, DATA, *detached.running()]


def local_endpoints() -> str:
    """Return the endpoints of that cluster, comma-separated, or the default broker endpoint.

    Raises:
        InvalidRequest: several clusters run.
        Unavailable: it does not run. A node that listens in its place belongs to another cluster.
    """
    data = cluster_folder(None)
    if data is None:
        return f"{LOOPBACK}:{BROKER_PORT}"
    ends = detached.endpoints(data)
    if not ends:
        text = f"the cluster in {data} does not run: start it with {advice('cluster up', data)}"
        raise Unavailable(f"{text}, or name nodes of another by --servers")
    return ",".join(ends)


def local_credentials() -> Path | None:
    """Return the credentials file of that cluster's administrator; None: the cluster is open."""
    data = cluster_folder(None)
    return None if data is None else administrator(data)
