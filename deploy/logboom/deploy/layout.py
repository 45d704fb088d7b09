"""Layout of a cluster on one machine: its folder, its nodes and their config files.

    data/
      cluster.key           shared by all nodes, mode 0600
      founded               exists once the cluster was ready
      admin.toml            the administrator's credentials, if the cluster encrypts
      name-1/ … broker-1/   node.toml, node.log, the node's store in data/, and credentials.toml

An operator sets up three machines by hand in the same way (docs/OPERATING.md).
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from logboom.deploy.cluster_key import ensure_key
from logboom.deploy.config_files import write
from logboom.deploy.node_credentials import (
    ADMINISTRATOR,
    CREDENTIALS_FILE,
    ClusterKeys,
    SecureNode,
    curve_listener,
    ensure_credentials,
)
from logboom.deploy.ports import NAME_SERVER_PORT, Ports
from logboom.deploy.process import NodeSpec
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.listeners import metrics_address
from logboom.wire.log_format import LogForm
from logboom.wire.private_files import FILE_MODE, FOLDER_MODE, tighten

KEY_FILE: Final = "cluster.key"
ADMINISTRATOR_FILE: Final = "admin.toml"
FOUNDED_FILE: Final = "founded"
STATE_FILES: Final = ("cluster.json", "cluster.lock")
"""Files that `detached` writes beside the others."""
REMOVED_FILE: Final = "removed"
"""In a node's folder: the cluster has removed it, so it is not started again."""
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
    credentials: Path | None = None
    """The credentials file of its administrator; None: its nodes do not encrypt."""

    @property
    def founded(self) -> bool:
        """True if the cluster was ready once. From then on an empty name server is refused.

        Otherwise a name server that lost its disk could form a second cluster (see docs/SAFETY.md,
        R9).
        """
        return (self.data / FOUNDED_FILE).exists()

    def mark_founded(self) -> None:
        """Remember that the cluster was ready."""
        (self.data / FOUNDED_FILE).touch(mode=FILE_MODE)

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
    secure: bool = False
    """True if its nodes encrypt, and know their users by keys."""
    log: LogForm = "text"
    """The form of the nodes' logs."""


def laid_out(data: Path) -> Size | None:
    """Return the size of the cluster under `data` when it was last started, or None.

    If the cluster was never ready its port is ignored, because the port may have been the reason.

    Raises:
        StartError: its config files cannot be read, or all its name servers were removed.
    """
    first = _first_file(data)
    numbers = name_server_numbers(data)
    servers = sum((data / f"name-{number}" / "node.toml").exists() for number in numbers)
    brokers = len(broker_numbers(data))
    if not first.exists() and not (data / FOUNDED_FILE).exists():
        return None
    if not numbers and list(data.glob(f"name-*/{REMOVED_FILE}")):
        raise StartError(
            f"all name servers that {data} was made with have been removed from the group: start "
            "the nodes one by one, with `logboom node`"
        )
    files = [data / f"broker-{number}" / "node.toml" for number in broker_numbers(data)]
    hosts = Counter(_setting(path, "host", "") for path in files if path.exists())
    shared = max((count for host, count in hosts.items() if host), default=None)
    if not (data / FOUNDED_FILE).exists():
        return Size(servers, brokers, NAME_SERVER_PORT, shared, _is_secure(data), _log_form(data))
    port = _listen(first).rpartition(":")[2]
    if not port.isdecimal():
        raise _unreadable(first, f"it listens at {port!r}")
    # That of name-1, which may be gone.
    base = int(port) - (numbers[0] - 1 if numbers else 0)
    return Size(servers, brokers, base, shared, _is_secure(data), _log_form(data))


def name_server_numbers(data: Path, count: int | None = None) -> list[int]:
    """Return the numbers of the name servers that were laid out under `data`, as of brokers.

    One that joined the group later is left out: its file, which an operator wrote, does not list
    itself, and whoever started it starts it again.
    """

    def is_held(number: int) -> bool:
        path = data / f"name-{number}" / "node.toml"
        if not path.exists():
            return True
        members = _settings(path).get("name_servers", [])
        return any(each.get("id") == f"name-{number}" for each in members)

    return _numbers(data, "name", count, is_held)


def broker_numbers(data: Path, count: int | None = None) -> list[int]:
    """Return the numbers of the brokers of the cluster under `data`, of which it has `count`.

    They are those that it has (all of them without `count`), then new ones, above all that were ever
    given there. Brokers that were removed are left out.
    """
    return _numbers(data, "broker", count)


def _numbers(
    data: Path,
    kind: Literal["name", "broker"],
    count: int | None,
    is_held: Callable[[int], bool] = lambda _: True,
) -> list[int]:
    given = sorted(
        int(number)
        for path in data.glob(f"{kind}-*")
        if (number := path.name.removeprefix(f"{kind}-")).isdecimal()
    )
    held = [
        each
        for each in given
        if not (data / f"{kind}-{each}" / REMOVED_FILE).exists() and is_held(each)
    ]
    if count is None:
        return held
    first = max(given, default=0) + 1
    return [*held, *range(first, first + count)][:count]


def administrator(data: Path) -> Path | None:
    """Return the administrator's credentials file of the cluster under `data`, if it encrypts."""
    return data / ADMINISTRATOR_FILE if _is_secure(data) else None


def _log_form(data: Path) -> LogForm:
    """Return the form of the logs of the cluster under `data`."""
    path = _first_file(data)
    return "json" if path.exists() and _settings(path).get("log") == "json" else "text"


def _is_secure(data: Path) -> bool:
    """Return True if the first name server that is left has a listener that encrypts."""
    path = _first_file(data)
    if not path.exists():
        return False
    return any(each.get("security") == "curve" for each in _settings(path).get("listeners", []))


def _first_file(data: Path) -> Path:
    """Return the config file of the first name server that is left, or that is to be made."""
    numbers = name_server_numbers(data)
    return data / f"name-{numbers[0] if numbers else 1}" / "node.toml"


def _listen(path: Path) -> str:
    """Return the first address that a node binds."""
    settings = _settings(path)
    found = (settings.get("listeners") or [settings])[0].get("listen")
    if not isinstance(found, str):
        raise _unreadable(path, f"listen is {found!r}")
    return found


def _setting(path: Path, key: str, default: str | None = None) -> str:
    """Return one text of a node's config file; without a default it must be there."""
    found = _settings(path).get(key, default)
    if not isinstance(found, str):
        raise _unreadable(path, f"{key} is {found!r}")
    return found


def _settings(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from None


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
    secure: bool = False,
    log: LogForm = "text",
) -> Layout:
    """Write the key and config files of a cluster under `data`, and say what nodes it has.

    With `secure` its nodes encrypt; those that have no key pair yet get one, and so does the
    administrator. `log` is the form of their logs.

    Raises:
        InvalidRequest: the numbers of nodes are invalid.
        StartError: a credentials file that is there cannot be used.
        OSError: the folder cannot be written.
    """
    held = len(name_server_numbers(data))
    check_numbers(name_servers, brokers, brokers_per_host, held=held)
    data = data.absolute()
    key = ensure_key(data / KEY_FILE)
    _tighten(data)
    # A number has its ports for ever, whoever is removed.
    own = name_server_numbers(data, name_servers)
    mains = [ports.name_server() for _ in range(max(own))]
    raft_ends = [ports.raft() for _ in range(max(own))]
    servers = tuple(
        NodeSpec(f"name-{n}", "name-server", data / f"name-{n}", mains[n - 1]) for n in own
    )
    rafts = {f"name-{n}": raft_ends[n - 1] for n in own}
    numbers = broker_numbers(data, brokers)
    ends = [ports.broker() for _ in range(max(numbers))]
    nodes = tuple(
        NodeSpec(f"broker-{n}", "broker", data / f"broker-{n}", ends[n - 1]) for n in numbers
    )
    members = [
        {"id": spec.id, "endpoint": spec.endpoint, "raft_endpoint": rafts[spec.id]}
        for spec in servers
    ]
    keys = _keys(data, (*servers, *nodes), rafts) if secure else None
    form = {"log": log} if log != "text" else {}
    servers = tuple(
        _write(
            spec,
            key,
            _listening(spec, keys, rafts[spec.id])
            | {"name_servers": members}
            | _metrics(ports, name_server_settings)
            | form,
            name_server_settings,
            adjust,
        )
        for spec in servers
    )
    endpoints = {"name_servers": [member["endpoint"] for member in members]}
    nodes = tuple(
        _write(
            spec,
            key,
            _listening(spec, keys)
            | endpoints
            | location_of(n - 1, zones, brokers_per_host)
            | _metrics(ports, broker_settings)
            | form,
            broker_settings,
            adjust,
        )
        for n, spec in zip(numbers, nodes, strict=True)
    )
    return Layout(data, servers, nodes, data / ADMINISTRATOR_FILE if secure else None)


def _tighten(data: Path) -> None:
    """Take the rights of others on the files of a cluster away, which older versions gave them.

    A folder that holds something else, too, keeps its mode.
    """
    ours = {KEY_FILE, ADMINISTRATOR_FILE, FOUNDED_FILE, *STATE_FILES}
    found = list(data.iterdir())
    nodes = [path for path in found if (path / "node.toml").exists()]
    files = [path for path in found if path.name in ours]
    for path in (*nodes, *files):
        tighten(path)
    if len(nodes) + len(files) == len(found):
        data.chmod(FOLDER_MODE)


def with_another_broker(
    layout: Layout,
    ports: Ports,
    location: Mapping[str, str],
    broker_settings: Mapping[str, Any] | None = None,
    adjust: Adjust = dict,
) -> Layout:
    """Write the config file of one more broker, and return the layout with it.

    Its number is above all that were ever given in this folder. `location` has its zone and host, if
    the others have any.

    Raises:
        InvalidRequest: the nodes encrypt, so an operator has to admit the broker's key.
        OSError: the folder cannot be written.
    """
    if layout.credentials is not None:
        text = "the nodes encrypt: start the cluster again with more brokers, or admit its key"
        raise InvalidRequest(text)
    used = [path.name.removeprefix("broker-") for path in layout.data.glob("broker-*")]
    name = f"broker-{1 + max(int(number) for number in used if number.isdecimal())}"
    spec = NodeSpec(name, "broker", layout.data / name, ports.broker())
    own = _listening(spec, None) | {
        "name_servers": [server.endpoint for server in layout.name_servers],
        **location,
        **_metrics(ports, broker_settings),
    }
    written = _write(spec, layout.data / KEY_FILE, own, broker_settings, adjust)
    return replace(layout, brokers=(*layout.brokers, written))


def without_broker(layout: Layout, name: str) -> Layout:
    """Return the layout without a broker, whose files stay."""
    left = tuple(spec for spec in layout.brokers if spec.id != name)
    return replace(layout, brokers=left)


def _keys(data: Path, nodes: Sequence[NodeSpec], rafts: Mapping[str, str]) -> ClusterKeys:
    """Write the credentials files that are missing, and return the public keys."""
    places = [
        SecureNode(spec.id, spec.folder / CREDENTIALS_FILE, spec.endpoint, rafts.get(spec.id, ""))
        for spec in nodes
    ]
    return ensure_credentials(places, ADMINISTRATOR, data / ADMINISTRATOR_FILE)


def _listening(spec: NodeSpec, keys: ClusterKeys | None, raft: str = "") -> dict[str, Any]:
    """Return the settings of a node's listeners, and of the keys that it needs for them."""
    if keys is None:
        return {"listen": spec.endpoint} | ({"raft_listen": raft} if raft else {})
    listeners = [curve_listener("main", spec.endpoint)]
    admitted: dict[str, Any] = {}
    if raft:
        listeners.append(curve_listener("raft", raft, for_raft=True))
        admitted = {"administrators": keys.administrators, "initial_nodes": keys.nodes}
    return {"listeners": listeners, "credentials_file": CREDENTIALS_FILE} | admitted


def _metrics(ports: Ports, settings: Mapping[str, Any] | None) -> dict[str, str]:
    """Return where a node tells its metrics; nothing if `settings` say it, or it is as usual."""
    if settings is not None and "metrics_listen" in settings:
        return {}
    listen = ports.metrics()
    return {} if listen == "auto" else {"metrics_listen": listen}


def location_of(number: int, zones: Sequence[str], per_host: int | None) -> dict[str, str]:
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
            "data": spec.data_path,
            "cluster_key_file": key,
            **own,
            **(settings or {}),
        }
    )
    write(spec.config_path, config)
    listeners = config.get("listeners") or [config]
    first = listeners[0]["listen"]
    metrics = metrics_address(config.get("metrics_listen", "auto"), first)
    return replace(spec, endpoint=first, metrics_endpoint=metrics)


def check_numbers(
    name_servers: int, brokers: int, brokers_per_host: int | None = None, *, held: int = 0
) -> None:
    """Refuse numbers of nodes that make no cluster.

    `held` is the number of name servers that it has: after one was removed it may be even.

    Raises:
        InvalidRequest: they are invalid; the text states the rule.
    """
    if name_servers not in range(1, MAX_NAME_SERVERS + 1, 2) and name_servers != (held or None):
        raise InvalidRequest(
            f"{name_servers} name servers: choose 1, 3 or 5, an odd number has the same majority "
            "as the next even one"
        )
    if brokers < 1:
        raise InvalidRequest(f"{brokers} brokers: at least one is needed")
    if brokers_per_host is not None and brokers_per_host < 1:
        raise InvalidRequest(f"{brokers_per_host} brokers per host: at least one is needed")
