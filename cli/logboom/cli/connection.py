"""Connections of commands: immediate where nodes listen, a clear error where none does."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from logboom.cli.cluster_address import Destination, destination_of
from logboom.cli.local_cluster import cluster_folder
from logboom.cli.parameters import ClusterAddress, OperatorAddress
from logboom.client import Client, connect
from logboom.deploy.cluster_key import read_keys
from logboom.deploy.layout import KEY_FILE
from logboom.deploy.node_client import NodeClient
from logboom.wire.errors import StartError, Unavailable

PROBE_S: Final = 0.5
"""Seconds that an endpoint has to refuse a connection."""


def open_client(
    address: ClusterAddress | None, *, create_topics: bool = False, cluster_key: bytes = b""
) -> Client:
    """Connect to the given nodes, or to those of the cluster on this machine.

    `create_topics`: a topic that does not exist is created on first use.

    Raises:
        Unavailable: all of them refuse connections, so that waiting would be useless.
        StartError: the credentials file cannot be used.
        LogboomError: as `connect` does.
    """
    return connect_to(destination_of(address), create_topics=create_topics, cluster_key=cluster_key)


def connect_to(
    destination: Destination, *, create_topics: bool = False, cluster_key: bytes = b""
) -> Client:
    """Connect as `open_client` does, to a cluster that is resolved already."""
    ends = destination.endpoints
    if all(map(_refuses, ends)):
        text = f"nothing listens at {', '.join(ends)}"
        raise Unavailable(f"{text}: start a cluster with `logboom cluster up`, or say --servers")
    return connect(
        ends,
        create_topics=create_topics,
        cluster_key=cluster_key,
        credentials=destination.credentials,
    )


def open_node_client(destination: Destination) -> NodeClient:
    """Return connections to single nodes, as the user of a destination."""
    return NodeClient(destination.credentials)


def open_operator_client(address: OperatorAddress | None) -> Client:
    """Connect as `open_client` does, with the cluster key where the nodes are open.

    Raises:
        StartError: the nodes are open and there is no key, or a file cannot be used.
        LogboomError: as `open_client` does.
    """
    key_file = None if address is None else address.key_file
    key = operators_key(key_file, address)
    return connect_to(destination_of(address), cluster_key=key)


def open_keyed_client(address: OperatorAddress | None) -> Client:
    """Connect as `open_client` does, with the cluster key if one is given or found here, for a
    command that shows more to whoever has it.

    Raises:
        LogboomError: as `open_operator_client` does, but not without a key.
    """
    return connect_to(destination_of(address), cluster_key=found_key(address))


def found_key(address: OperatorAddress | None) -> bytes:
    """Return the cluster key if one is given or found here, else none.

    Raises:
        StartError: a file was given and cannot be used.
    """
    key_file = None if address is None else address.key_file
    try:
        return operators_key(key_file, address)
    except StartError:
        if key_file is not None:
            raise
        return b""


def operators_key(key_file: Path | None, address: ClusterAddress | None) -> bytes:
    """Return the cluster key, or both while it is changed, for a command that needs it; empty for a
    user with credentials, whose right `admin cluster` stands for it.

    It is read from the given file, or, unless other nodes are named, from the cluster on this
    machine.

    Raises:
        StartError: no file is given or found, or it cannot be used.
    """
    if destination_of(address).credentials is not None:
        return b""
    if key_file is None and (address is None or address.servers is None):
        data = cluster_folder(None)
        if data is not None and (data / KEY_FILE).exists():
            key_file = data / KEY_FILE
    if key_file is None:
        raise StartError(
            "this needs the cluster key: say --key-file FILE, or set LOGBOOM_KEY_FILE, with the "
            "cluster_key_file that the nodes' configs name"
        )
    return read_keys(key_file)


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
