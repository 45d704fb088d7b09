"""Credentials files for the nodes and the first administrator of a cluster.

A file that is there is kept, because its public key may be known to the cluster by now. Only its
list of servers follows the layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from logboom.wire.access.access_rules import NODE_PREFIX
from logboom.wire.credentials import Credentials, Server
from logboom.wire.credentials_file import read_credentials, write_credentials
from logboom.wire.errors import StartError
from logboom.wire.key_pair import KeyPair
from logboom.wire.private_files import make_folder
from logboom.wire.sockets import make_key_pair

ADMINISTRATOR: Final = "admin"
"""The usual name of the first administrator."""
CREDENTIALS_FILE: Final = "credentials.toml"
"""A node's own credentials, beside its config file."""


@dataclass(frozen=True, slots=True)
class SecureNode:
    """A node with CURVE listeners: where its credentials lie, and where others dial it."""

    id: str
    path: Path
    """Its credentials file."""
    endpoint: str
    """host:port for clients and brokers."""
    raft_endpoint: str = ""
    """host:port for other name servers; empty: it is a broker."""


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The public keys of a cluster, as its name servers' config files list them."""

    administrators: dict[str, str]
    """User → public key."""
    nodes: dict[str, str]
    """Node id → public key."""


def ensure_credentials(
    nodes: Sequence[SecureNode], administrator: str, path: Path, cluster_id: str = ""
) -> ClusterKeys:
    """Write the credentials of all nodes, and those of the administrator to `path`.

    Raises:
        StartError: a file is there, and cannot be read or is somebody else's.
    """
    pairs = {node.id: _pair(node.path, NODE_PREFIX + node.id) for node in nodes}
    own = _pair(path, administrator)
    public = {name: pair.public for name, pair in pairs.items()}
    founders = [node for node in nodes if node.raft_endpoint]
    for node in nodes:
        servers = _servers(founders, public, raft=bool(node.raft_endpoint))
        user = NODE_PREFIX + node.id
        put_credentials(node.path, Credentials(user, cluster_id, pairs[node.id], servers))
    servers = _servers(nodes, public, raft=False)
    put_credentials(path, Credentials(administrator, cluster_id, own, servers))
    return ClusterKeys({administrator: own.public}, public)


def _pair(path: Path, user: str) -> KeyPair:
    if not path.exists():
        return make_key_pair()
    known = read_credentials(path)
    if known.user != user:
        text = f"{path} has the key of {known.user}, not of {user}: move it away, or correct `user`"
        raise StartError(text)
    return known.key_pair


def _servers(
    nodes: Sequence[SecureNode], public: Mapping[str, str], *, raft: bool
) -> tuple[Server, ...]:
    found = [Server(node.id, node.endpoint, public[node.id]) for node in nodes]
    if raft:
        found += [Server(node.id, node.raft_endpoint, public[node.id]) for node in nodes]
    return tuple(found)


def curve_listener(name: str, endpoint: str, *, for_raft: bool = False) -> dict[str, Any]:
    """Return an entry of `listeners` that encrypts, for a config file."""
    host, _, port = endpoint.rpartition(":")
    # ZeroMQ binds addresses and not names.
    numeric = host.startswith("[") or host.replace(".", "").isdigit()
    bound = (
        {"listen": endpoint} if numeric else {"listen": f"0.0.0.0:{port}", "advertise": endpoint}
    )
    return {"name": name, **bound, "security": "curve"} | ({"for_raft": True} if for_raft else {})


def put_credentials(path: Path, credentials: Credentials) -> None:
    """Write a credentials file, or replace it in one step if something in it has changed."""
    if not path.exists():
        make_folder(path.parent)
        write_credentials(path, credentials)
    elif read_credentials(path) != credentials:
        scratch = path.with_suffix(".new")
        scratch.unlink(missing_ok=True)
        write_credentials(scratch, credentials)
        scratch.replace(path)
