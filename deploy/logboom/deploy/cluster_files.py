"""The files of a new cluster with encryption and users: `logboom cluster init`.

    DIR/
      admin.toml            credentials of the first administrator; stays with that person
      name-1/ … broker-1/   one folder to copy to each node:
        node.toml           its config file
        credentials.toml    its key pair
        cluster.key         the key that all nodes share

Files with keys have mode 0600, folders 0700. Nothing in a folder is ever overwritten.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from logboom.deploy.cluster_key import ensure_key, read_keys
from logboom.deploy.config_files import write
from logboom.deploy.layout import KEY_FILE, check_numbers
from logboom.deploy.node_credentials import (
    CREDENTIALS_FILE,
    ClusterKeys,
    SecureNode,
    curve_listener,
    ensure_credentials,
)
from logboom.deploy.ports import NAME_SERVER_PORT, RAFT_PORT
from logboom.wire.access.access_rules import is_node_user, user_name_fault
from logboom.wire.endpoints import endpoint_fault
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.sockets import check_endpoint

CONFIG_FILE: Final = "node.toml"
REPLACE_AFTER_S: Final = 900
"""Seconds after which a dead broker is replaced, on machines of their own: longer than a restart."""
DATA: Final = Path("/var/lib/logboom")
"""The usual folder of the nodes' data."""
_ID: Final = re.compile(r"[a-z0-9-]{1,64}")
RAFT_DISTANCE: Final = RAFT_PORT - NAME_SERVER_PORT
"""The port of a name server's Raft listener is so many above that for clients."""


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that files are made for."""

    id: str
    endpoint: str
    """host:port for clients."""
    raft_endpoint: str = ""
    """host:port for other name servers; empty: it is a broker."""

    @property
    def host(self) -> str:
        """The host of its endpoint."""
        return self.endpoint.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """What was made."""

    administrator: Path
    """The credentials file of the first administrator."""
    name_servers: list[NewNode]
    brokers: list[NewNode]


def parse_nodes(text: str, kind: str) -> list[tuple[str, str]]:
    """Return (id, endpoint) of each of the nodes in "host:port,id=host:port,…".

    Without an id they are called `kind`-1, `kind`-2 …

    Raises:
        InvalidRequest: an endpoint is invalid or nobody can dial it.
    """
    found: list[tuple[str, str]] = []
    for number, part in enumerate(text.split(","), 1):
        name, equals, endpoint = part.strip().rpartition("=")
        fault = endpoint_fault(endpoint)
        if fault is not None:
            raise InvalidRequest(fault)
        node = name if equals else f"{kind}-{number}"
        if not _ID.fullmatch(node):
            raise InvalidRequest(f"{node!r}: a node's id matches {_ID.pattern}, e.g. {kind}-1")
        found.append((node, endpoint))
    return found


def make_cluster_files(
    folder: Path,
    name_servers: Sequence[tuple[str, str]],
    brokers: Sequence[tuple[str, str]],
    administrator: str,
    *,
    key_file: Path | None = None,
    data: Path = DATA,
) -> ClusterFiles:
    """Make the files of a cluster in `folder`, which must not exist or be empty.

    Args:
        folder: The folder to make.
        name_servers: (id, endpoint) of each.
        brokers: (id, endpoint) of each.
        administrator: Name of the first administrator.
        key_file: The cluster key of a cluster that exists; None: a new one is made.
        data: The folder of the nodes' data, on each machine.

    Raises:
        StartError: the folder has something in it, or the key file cannot be used.
        InvalidRequest: the nodes or the name are invalid.
    """
    check_numbers(len(name_servers), len(brokers))
    fault = user_name_fault(administrator)
    if fault is not None:
        raise InvalidRequest(fault)
    if is_node_user(administrator):
        raise InvalidRequest(f"{administrator} is the user of a node: name an administrator")
    servers = [NewNode(name, endpoint, _above(endpoint)) for name, endpoint in name_servers]
    others = [NewNode(name, endpoint) for name, endpoint in brokers]
    _check_different(servers, others)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StartError(
            f"{folder} is not empty, and keys are never overwritten: name a new folder"
        )
    created = not folder.exists()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _make(folder, servers, others, administrator, key_file, data)
    # Ctrl-C too: half of the files would be of no use. The error is raised again.
    except BaseException:
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if created:
            folder.rmdir()
        raise


def _above(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    return check_endpoint(f"{host}:{int(port) + RAFT_DISTANCE}")


def _check_different(servers: Sequence[NewNode], brokers: Sequence[NewNode]) -> None:
    names = Counter(node.id for node in (*servers, *brokers))
    ends = Counter(node.endpoint for node in (*servers, *brokers))
    ends.update(node.raft_endpoint for node in servers)
    for name, count in names.items():
        if count > 1:
            raise InvalidRequest(f"two nodes are called {name}: give each its own id, id=host:port")
    for end, count in ends.items():
        if count > 1:
            raise InvalidRequest(
                f"two listeners would bind {end} (a name server's Raft listens {RAFT_DISTANCE} "
                "ports above it): give other ports"
            )


def _make(
    folder: Path,
    servers: list[NewNode],
    brokers: list[NewNode],
    administrator: str,
    key_file: Path | None,
    data: Path,
) -> ClusterFiles:
    nodes = [*servers, *brokers]
    for node in nodes:
        (folder / node.id).mkdir(mode=0o700)
    key = read_keys(key_file) if key_file is not None else None
    first = ensure_key(folder / nodes[0].id / KEY_FILE, key)
    for node in nodes[1:]:
        ensure_key(folder / node.id / KEY_FILE, read_keys(first))
    admin = folder / f"{administrator}.toml"
    keys = ensure_credentials(
        [
            SecureNode(n.id, folder / n.id / CREDENTIALS_FILE, n.endpoint, n.raft_endpoint)
            for n in nodes
        ],
        administrator,
        admin,
    )
    hosts = Counter(broker.host for broker in brokers)
    for server in servers:
        write(folder / server.id / CONFIG_FILE, _name_server(server, servers, keys, data))
    ends = [server.endpoint for server in servers]
    for broker in brokers:
        host = broker.host if hosts[broker.host] > 1 else ""
        write_broker(folder / broker.id, broker, ends, data=data, host=host)
    return ClusterFiles(admin, servers, brokers)


def _common(node: NewNode, data: Path) -> dict[str, Any]:
    return {
        "id": node.id,
        "data": data / node.id,
        "cluster_key_file": KEY_FILE,
        "credentials_file": CREDENTIALS_FILE,
    }


def _name_server(
    server: NewNode, servers: Sequence[NewNode], keys: ClusterKeys, data: Path
) -> dict[str, Any]:
    members = [
        {"id": each.id, "endpoint": each.endpoint, "raft_endpoint": each.raft_endpoint}
        for each in servers
    ]
    return _common(server, data) | {
        "listeners": [
            curve_listener("main", server.endpoint),
            curve_listener("raft", server.raft_endpoint, for_raft=True),
        ],
        "name_servers": members,
        "administrators": keys.administrators,
        "initial_nodes": keys.nodes,
        "replace_after_s": REPLACE_AFTER_S,
    }


def write_broker(
    folder: Path,
    broker: NewNode,
    name_servers: Sequence[str],
    *,
    data: Path = DATA,
    zone: str = "",
    host: str = "",
) -> None:
    """Write the config file of a broker whose key pair and cluster key are in `folder`.

    Args:
        folder: Where to write it.
        broker: The broker.
        name_servers: Endpoints of the name servers.
        data: The folder of the nodes' data on the broker's machine.
        zone: Its location; empty: its host.
        host: The machine that it shares with other brokers; empty: it has one alone.
    """
    settings = _common(broker, data) | {
        "listeners": [curve_listener("main", broker.endpoint)],
        "zone": zone or broker.host,
        "host": host or None,
        "name_servers": list(name_servers),
    }
    write(folder / CONFIG_FILE, settings)
