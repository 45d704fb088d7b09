"""Layout of a cluster on one machine: its folder, its nodes and their config files.

    data/
      cluster.key           shared by all nodes, mode 0600
      founded               exists once the cluster was ready
      name-1/ … broker-1/   node.toml, node.log and the node's store in data/

An operator sets up three machines by hand in the same way (docs/OPERATING.md).
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from logboom.deploy.cluster_key import ensure_key
from logboom.deploy.config_files import write
from logboom.deploy.ports import NAME_SERVER_PORT, Ports
from logboom.deploy.process import NodeSpec
from logboom.wire.errors import InvalidRequest, StartError

KEY_FILE: Final = "cluster.key"
FOUNDED_FILE: Final = "founded"
MAX_NAME_SERVERS: Final = 9

Adjust: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns the settings for a node's config file: for tests that put something between
the nodes, or give one node less room than the others."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of one cluster on this machine; name servers first."""

    data: Path
    name_servers: tuple[NodeSpec, ...]
    brokers: tuple[NodeSpec, ...]

    @property
    def founded(self) -> bool:
        """True if the cluster was ready once. From then on an empty name server is refused.

        Otherwise a name server that lost its disk could form a second cluster (see docs/SAFETY.md,
        R9).
        """
        return (self.data / FOUNDED_FILE).exists()

    def mark_founded(self) -> None:
        """Remember that the cluster was ready."""
        (self.data / FOUNDED_FILE).touch()

    @property
    def nodes(self) -> tuple[NodeSpec, ...]:
        """All nodes, in the order in which they start."""
        return self.name_servers + self.brokers

    def node(self, name: str) -> NodeSpec:
        """Return the node called `name`.

        Raises:
            InvalidRequest: there is no such node; the text lists the nodes.
        """
        for spec in self.nodes:
            if spec.id == name:
                return spec
        known = ", ".join(spec.id for spec in self.nodes)
        raise InvalidRequest(f"no node {name!r} in this cluster: it has {known}")


class Size(NamedTuple):
    """The numbers of nodes of a cluster, its first port, and how many brokers share a host."""

    name_servers: int
    brokers: int
    port: int
    brokers_per_host: int | None = None
    """None: the brokers name no host, so any of them may hold a replica of the same queue."""


def laid_out(data: Path) -> Size | None:
    """Return the size of the cluster under `data` when it was last started, or None.

    If the cluster was never ready its port is ignored, because the port may have been the reason.

    Raises:
        StartError: its config files cannot be read.
    """
    first = data / "name-1" / "node.toml"
    servers, brokers = (len(list(data.glob(f"{kind}-*/node.toml"))) for kind in ("name", "broker"))
    if not first.exists() and not (data / FOUNDED_FILE).exists():
        return None
    hosts = Counter(_setting(path, "host", "") for path in data.glob("broker-*/node.toml"))
    shared = max((count for host, count in hosts.items() if host), default=None)
    if not (data / FOUNDED_FILE).exists():
        return Size(servers, brokers, NAME_SERVER_PORT, shared)
    port = _setting(first, "listen").rpartition(":")[2]
    if not port.isdecimal():
        raise _unreadable(first, f"it listens at {port!r}")
    return Size(servers, brokers, int(port), shared)


def _setting(path: Path, key: str, default: str | None = None) -> str:
    """Return one text of a node's config file; without a default it must be there."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get(key, default)
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from None
    if not isinstance(found, str):
        raise _unreadable(path, f"{key} is {found!r}")
    return found


def _unreadable(path: Path, reason: str) -> StartError:
    text = f"cannot read {path} ({reason}): bring it back, or give another folder with --data"
    return StartError(text)


def lay_out(
    data: Path,
    name_servers: int,
    brokers: int,
    ports: Ports,
    *,
    zones: Sequence[str] = (),
    brokers_per_host: int | None = None,
    name_server_settings: Mapping[str, Any] | None = None,
    broker_settings: Mapping[str, Any] | None = None,
    adjust: Adjust = dict,
) -> Layout:
    """Write the key and config files of a cluster under `data`, and say what nodes it has.

    Raises:
        InvalidRequest: the numbers of nodes are invalid.
        OSError: the folder cannot be written.
    """
    check_numbers(name_servers, brokers, brokers_per_host)
    data = data.absolute()
    key = ensure_key(data / KEY_FILE)
    servers = tuple(
        NodeSpec(f"name-{n}", "name-server", data / f"name-{n}", ports.name_server())
        for n in range(1, name_servers + 1)
    )
    rafts = {spec.id: ports.raft() for spec in servers}
    nodes = tuple(
        NodeSpec(f"broker-{n}", "broker", data / f"broker-{n}", ports.broker())
        for n in range(1, brokers + 1)
    )
    members = [
        {"id": spec.id, "endpoint": spec.endpoint, "raft_endpoint": rafts[spec.id]}
        for spec in servers
    ]
    server_own = {"name_servers": members}
    servers = tuple(
        _write(
            spec, key, server_own | {"raft_listen": rafts[spec.id]}, name_server_settings, adjust
        )
        for spec in servers
    )
    endpoints = {"name_servers": [member["endpoint"] for member in members]}
    brokers_own = [
        endpoints | _location(number, zones, brokers_per_host) for number in range(brokers)
    ]
    nodes = tuple(
        _write(spec, key, own, broker_settings, adjust)
        for spec, own in zip(nodes, brokers_own, strict=True)
    )
    return Layout(data, servers, nodes)


def _location(number: int, zones: Sequence[str], per_host: int | None) -> dict[str, str]:
    """Return zone and host of a broker; a host is a zone of its own unless zones are given."""
    host = f"host-{number // per_host + 1}" if per_host else None
    zone = zones[number % len(zones)] if zones else host
    return {key: value for key, value in (("zone", zone), ("host", host)) if value is not None}


def _write(
    spec: NodeSpec,
    key: Path,
    own: Mapping[str, Any],
    settings: Mapping[str, Any] | None,
    adjust: Adjust,
) -> NodeSpec:
    """Write a node's config file; the node as that file has it."""
    config = adjust(
        {
            "id": spec.id,
            "listen": spec.endpoint,
            "data": spec.data_path,
            "cluster_key_file": key,
            **own,
            **(settings or {}),
        }
    )
    write(spec.config_path, config)
    return replace(spec, endpoint=config["listen"])


def check_numbers(name_servers: int, brokers: int, brokers_per_host: int | None = None) -> None:
    """Refuse numbers of nodes that make no cluster.

    Raises:
        InvalidRequest: they are invalid; the text states the rule.
    """
    if name_servers not in range(1, MAX_NAME_SERVERS + 1, 2):
        raise InvalidRequest(
            f"{name_servers} name servers: choose 1, 3 or 5, an odd number has the same majority "
            "as the next even one"
        )
    if brokers < 1:
        raise InvalidRequest(f"{brokers} brokers: at least one is needed")
    if brokers_per_host is not None and brokers_per_host < 1:
        raise InvalidRequest(f"{brokers_per_host} brokers per host: at least one is needed")
