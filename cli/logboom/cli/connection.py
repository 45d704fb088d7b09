"""Connections of commands: immediate where nodes listen, a clear error where none does."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from logboom.cli.local_cluster import cluster_folder
from logboom.cli.options import servers_or_default
from logboom.client import Client, connect
from logboom.client.client import parse_endpoints
from logboom.deploy.cluster_key import read_key
from logboom.deploy.layout import KEY_FILE
from logboom.wire.errors import StartError, Unavailable

PROBE_S: Final = 0.5
"""Seconds that an endpoint has to refuse a connection."""


def open_client(
    servers: str | None, *, create_topics: bool = False, cluster_key: bytes = b""
) -> Client:
    """Connect to the given nodes, or to those of the cluster on this machine.

    `create_topics`: a topic that does not exist is created on first use.

    Raises:
        Unavailable: all of them refuse connections, so that waiting would be useless.
        LogboomError: as `connect` does.
    """
    ends = parse_endpoints(servers_or_default(servers))
    if all(map(_refuses, ends)):
        text = f"nothing listens at {', '.join(ends)}"
        raise Unavailable(f"{text}: start a cluster with `logboom cluster up`, or say --servers")
    return connect(ends, create_topics=create_topics, cluster_key=cluster_key)


def operators_key(key_file: Path | None, servers: str | None) -> bytes:
    """Return the cluster key for a command that needs it.

    It is read from the given file, or, unless other nodes are named, from the cluster on this
    machine.

    Raises:
        StartError: no file is given or found, or it cannot be used.
    """
    if key_file is None and servers is None:
        data = cluster_folder(None)
        if data is not None and (data / KEY_FILE).exists():
            key_file = data / KEY_FILE
    if key_file is None:
        raise StartError(
            "this needs the cluster key: say --key-file FILE, or set LOGBOOM_KEY_FILE, with the "
            "cluster_key_file that the nodes' configs name"
        )
    return read_key(key_file)


def _refuses(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        # Silent or unknown for now: `connect` reports it better.
        return False
