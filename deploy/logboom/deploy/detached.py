"""A cluster that outlives the command that started it: `logboom cluster up|down|status`.

The running nodes are recorded in `cluster.json` in the cluster's folder. A process counts as ours
only if its start time matches too.
"""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from logboom.deploy import registry
from logboom.deploy.cluster_key import read_keys
from logboom.deploy.installed import check_installed
from logboom.deploy.layout import (
    FOUNDED_FILE,
    KEY_FILE,
    REMOVED_FILE,
    STATE_FILES,
    Layout,
    Size,
    administrator,
    broker_numbers,
    check_numbers,
    laid_out,
    lay_out,
    name_server_numbers,
)
from logboom.deploy.node_client import open_node_client
from logboom.deploy.node_credentials import CREDENTIALS_FILE
from logboom.deploy.polling import ask_until
from logboom.deploy.ports import NAME_SERVER_PORT, Ports
from logboom.deploy.process import NodeProcess, NodeSpec, Role
from logboom.deploy.rolling import RollingRestart
from logboom.wire.access.access_rules import node_user
from logboom.wire.base import UNDECODABLE
from logboom.wire.credentials_file import read_credentials
from logboom.wire.errors import StartError
from logboom.wire.log_format import LogForm
from logboom.wire.messages import StatsResult
from logboom.wire.private_files import FILE_MODE, make_folder, open_private, write_private
from logboom.wire.view import View

DATA: Final = Path(".logboom")
"""The default folder of a cluster on this machine."""
INITIAL_LABEL: Final = "initial"
"""Label of the key of a node that is let in later, as name servers call it too."""
STATE_FILE: Final = STATE_FILES[0]
LOCK_FILE: Final = STATE_FILES[1]
USUAL: Final = Size(3, 3, NAME_SERVER_PORT)
"""The default size of a new cluster."""
READY_S: Final = 60.0
ASK_S: Final = 1.0
STOP_S: Final = 90.0
"""Seconds that a node has to stop before it is killed: a broker hands over, and writes much down."""


class NodeRecord(Struct, frozen=True):
    """One node in the state file."""

    id: str
    role: Role
    endpoint: str
    pid: int
    started: int
    """Clock ticks since boot when the process began."""


class ClusterRecord(Struct, frozen=True):
    """The state file."""

    nodes: list[NodeRecord]
    base_port: int
    boot_id: str
    """The id of the machine's boot: pids and ticks of another boot mean nothing."""
    version: int = 1


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node of a detached cluster, as `logboom cluster status` shows it."""

    record: NodeRecord
    process: NodeProcess
    view: View | None
    """The node's own metadata; None if it does not answer."""
    stats: StatsResult | None


def up(
    data: Path,
    name_servers: int | None = None,
    brokers: int | None = None,
    base_port: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
    *,
    brokers_per_host: int | None = None,
    secure: bool | None = None,
    log: LogForm | None = None,
) -> list[NodeRecord]:
    """Start what does not run yet of a cluster under `data`; return when all nodes are ready.

    Args:
        data: The cluster's folder.
        name_servers: Their number; None: as many as the cluster has, or 3.
        brokers: Their number; None: as many as the cluster has, or `brokers_per_host`, or 3.
        base_port: The port of the first name server; None: the one it had, or 7701.
        progress: Called with a short description of each step.
        brokers_per_host: How many brokers in a row count as being on one host, which never gets two
            replicas of a queue; None: as the cluster had it, or this does not matter.
        secure: The nodes encrypt and know their users by keys; None: as the cluster had it, or
            not.
        log: The form of the nodes' logs; None: as the cluster had it, or text. A node that runs
            goes on in its own.

    Raises:
        StartError: a node did not start, the folder holds a cluster of another size, or another
            cluster uses the ports.
        InvalidRequest: the numbers of nodes are invalid.
    """
    check_installed()
    size = _size(data, name_servers, brokers, base_port, brokers_per_host, secure, log)
    held = len(name_server_numbers(data))
    check_numbers(size.name_servers, size.brokers, size.brokers_per_host, held=held)
    _check_ports(data, size)
    with _locked(data, progress):
        return _up(data, size, progress)


def _size(
    data: Path,
    name_servers: int | None,
    brokers: int | None,
    port: int | None,
    per_host: int | None,
    secure: bool | None,
    log: LogForm | None,
) -> Size:
    found = laid_out(data)
    known = found or USUAL
    if brokers is None:
        brokers = (
            known.brokers if per_host is None else max(per_host, found.brokers if found else 0)
        )
    return Size(
        known.name_servers if name_servers is None else name_servers,
        brokers,
        known.port if port is None else port,
        # As it can be read from the config files again.
        known.brokers_per_host if per_host is None else min(per_host, brokers),
        known.secure if secure is None else secure,
        known.log if log is None else log,
    )


def _up(data: Path, size: Size, progress: Callable[[str], None]) -> list[NodeRecord]:
    _check_same(data, size)
    layout = lay_out(
        data,
        size.name_servers,
        size.brokers,
        Ports(size.port),
        brokers_per_host=size.brokers_per_host,
        secure=size.secure,
        log=size.log,
    )
    running = [p for p in processes(data) if p.alive]
    started: list[NodeProcess] = []
    create = not layout.founded
    ids = {process.spec.id for process in running}

    def start(specs: Sequence[NodeSpec]) -> None:
        for spec in specs:
            if spec.id not in ids:
                progress(f"starting {spec.id}")
                started.append(NodeProcess.start(spec, attached=False, create=create))
                # Immediately: if this process is killed, `down` still finds the started nodes.
                _write(data, [*running, *started], size.port)

    try:
        start(layout.name_servers)
        if any(process.spec.role == "name-server" for process in running):
            # Those that were missing may be needed for a majority, without which nobody is let in.
            for process in started:
                process.wait_listening()
            _admit(layout)
        start(layout.brokers)
        for process in started:
            process.wait_listening()
        progress("waiting until all nodes see each other")
        _wait_ready(layout, [*running, *started])
        layout.mark_founded()
    # Ctrl-C too: nothing half-started is left behind. The error is raised again.
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        alive = [p for p in (*running, *started) if p.alive]
        _write(data, alive, size.port)
        if alive:
            registry.remember(data)
    known = read(data)
    return [] if known is None else known.nodes


def _admit(layout: Layout) -> None:
    """Let the brokers into a cluster that encrypts, whose name servers run with older files."""
    if layout.credentials is None:
        return
    # Here, because most commands need no client.
    from logboom.client import connect

    with connect(layout.credentials) as boom:
        known = {user.name for user in boom.admin.users()}
        for spec in layout.brokers:
            user = node_user(spec.id)
            if user not in known:
                own = read_credentials(spec.folder / CREDENTIALS_FILE)
                boom.admin.create_user(user, own.key_pair.public, label=INITIAL_LABEL)


@contextmanager
def _locked(data: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Let one command at a time start and stop the nodes under `data`."""
    make_folder(data)
    with open_private(data / LOCK_FILE) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another command on this cluster")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_ports(data: Path, size: Size) -> None:
    """Refuse ports that another cluster of this user listens at, before anything is made."""
    ours = Ports(size.port)
    own = name_server_numbers(data, size.name_servers)
    mains = [ours.name_server() for _ in range(max(own))]
    wanted = {mains[number - 1] for number in own}
    numbers = broker_numbers(data, size.brokers)
    ends = [ours.broker() for _ in range(max(numbers))]
    wanted |= {ends[number - 1] for number in numbers}
    for other in running():
        if other == data.absolute():
            continue
        for process in processes(other):
            if process.alive and process.spec.endpoint in wanted:
                raise StartError(
                    f"{process.spec.id} of the cluster in {other} listens at "
                    f"{process.spec.endpoint}: choose other ports with --port, or stop it with "
                    f"{advice('cluster down', other)}",
                    "PORT_IN_USE",
                )


def _check_same(data: Path, size: Size) -> None:
    # A Raft group does not grow when a config file changes, and brokers hold data.
    held = sum((data / f"name-{n}" / "node.toml").exists() for n in name_server_numbers(data))
    if held and held != size.name_servers:
        raise StartError(
            f"{data} holds a cluster of {held} name servers, not {size.name_servers}: "
            f"ask for {held}, or give another folder with --data"
        )
    holders = sum((data / f"broker-{n}" / "data").is_dir() for n in broker_numbers(data))
    if holders > size.brokers:
        raise StartError(
            f"{data} holds the data of {holders} brokers, more than {size.brokers}: "
            f"ask for {holders}, or give another folder with --data"
        )
    before, known = read(data), laid_out(data)
    if before is None or known is None:
        return
    differs = ""
    if before.base_port != size.port:
        differs = f"at port {before.base_port}, not {size.port}"
    elif known.brokers_per_host != size.brokers_per_host:
        differs = f"with {_per_host(known)} per host, not {_per_host(size)}"
    elif known.secure != size.secure:
        differs = "with encryption" if known.secure else "without encryption"
    if differs and any(process.alive for process in _processes(before, data)):
        text = f"the cluster in {data} runs {differs}"
        raise StartError(f"{text}: stop it first with {advice('cluster down', data)}")


def _per_host(size: Size) -> str:
    number = size.brokers_per_host
    return "any number of brokers" if number is None else f"{number} brokers"


def _wait_ready(layout: Layout, nodes: Sequence[NodeProcess]) -> None:
    ends = {spec.endpoint: spec.id for spec in layout.nodes}
    brokers = {spec.id for spec in layout.brokers}
    with open_node_client(layout.credentials) as node_client:

        def ask() -> list[str]:
            for process in nodes:
                # If the process has ended, an answer from its endpoint is another cluster's.
                process.check()
            views = node_client.views(list(ends), ASK_S, topics=[])
            stats = node_client.stats([spec.endpoint for spec in layout.brokers], ASK_S)
            return not_ready(ends, brokers, views, stats)

        silent = ask_until(ask, lambda silent: not silent, READY_S)
    if silent:
        text = f"not ready after {READY_S:.0f} s: {', '.join(silent)}"
        raise StartError(f"{text}; look at {advice('cluster logs', layout.data)}")


def not_ready(
    ends: Mapping[str, str],
    brokers: Collection[str],
    views: Mapping[str, View],
    stats: Mapping[str, StatsResult],
) -> list[str]:
    """Return the nodes that do not see all brokers alive, or have not registered themselves.

    The metadata alone is not enough: it may have the process of before, which has just ended.

    Args:
        ends: The id of each node by its endpoint.
        brokers: The ids of those that are brokers.
        views: The metadata that each node has, by endpoint.
        stats: The figures of each broker, by endpoint.
    """
    found = []
    for end, name in ends.items():
        alive = {each.id for each in views[end].brokers if each.alive} if end in views else set()
        registered = name not in brokers or (
            end in stats and stats[end].counters.get("registered") != 0
        )
        if not registered or not alive.issuperset(brokers):
            found.append(name)
    return found


def down(
    data: Path,
    progress: Callable[[str], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Stop a detached cluster, brokers first, and return the nodes that were stopped.

    Their data stays.

    Args:
        data: The cluster's folder.
        progress: Called with a short description of each step.
        warn: Called with a description of each node that had to be killed.
    """
    if not data.is_dir():
        return []
    with _locked(data, progress):
        ours = [process for process in processes(data) if process.alive]
        for role in ("broker", "name-server"):
            group = [process for process in ours if process.spec.role == role]
            for process in group:
                process.ask_to_stop()
            for process in group:
                progress(f"stopping {process.spec.id}")
                _stop(process, warn)
        with suppress(FileNotFoundError):
            (data / STATE_FILE).unlink()
        registry.forget(data)
    return [process.spec.id for process in ours]


def _stop(process: NodeProcess, warn: Callable[[str], None]) -> None:
    if not process.stop(STOP_S):
        warn(
            f"WARNING: {process.spec.id} did not stop within {STOP_S:g} s and was killed: see "
            f"{process.spec.log_path}"
        )


def forget_node(
    node: str, endpoint: str, name_servers: Collection[str], folders: Iterable[Path]
) -> Path | None:
    """Start a node no more that its cluster has removed; return its folder, whose data stays.

    None: it is of no cluster in these folders that runs.

    Args:
        node: Its id, which other clusters use too.
        endpoint: Its endpoint, which a cluster that is stopped may have used before.
        name_servers: Endpoints of the name servers of its cluster: another one than the node must
            run there.
        folders: Folders of clusters on this machine.
    """
    for data in folders:
        folder = data.absolute() / node
        known = processes(data)
        if not any(p.spec.id == node and p.spec.endpoint == endpoint for p in known):
            continue
        if not _runs(name_servers, [p for p in known if p.spec.id != node]):
            continue
        with _locked(data, lambda _: None):
            record = read(data)
            left = [process for process in processes(data) if process.spec.id != node]
            if record is not None:
                _write(data, left, record.base_port)
            (folder / REMOVED_FILE).touch(mode=FILE_MODE)
        return folder
    return None


def folder_of(name_servers: Collection[str], folders: Iterable[Path]) -> Path | None:
    """Return which of these folders is that of the cluster with these name servers, if one is."""
    return next((data for data in folders if _runs(name_servers, processes(data))), None)


def _runs(name_servers: Collection[str], known: Iterable[NodeProcess]) -> bool:
    """Return True if one of these name servers is among the processes, and runs."""
    return any(
        p.spec.role == "name-server" and p.spec.endpoint in name_servers and p.alive for p in known
    )


@contextmanager
def rolling(
    data: Path,
    progress: Callable[[str], None] = lambda _: None,
    *,
    accept_unavailable: bool = False,
) -> Iterator[RollingRestart]:
    """Prepare a rolling restart of the detached cluster under `data`, whose nodes must all run.

    `progress` is told if another command is waited for, and of each node that had to be killed.

    Raises:
        StartError: a node does not run.
    """
    # Here, because most commands need no client.
    from logboom.client import connect

    down = [process.spec.id for process in processes(data) if not process.alive]
    size = laid_out(data)
    if down or size is None or len(processes(data)) < size.name_servers + size.brokers:
        missing = ", ".join(down) or "the cluster"
        raise StartError(
            f"{missing} does not run in {data}: start it with {advice('cluster up', data)}"
        )
    with _locked(data, progress):
        host = _DetachedNodes(data, size.port, progress)
        credentials = administrator(data)
        with (
            connect(
                [spec.endpoint for spec in host.specs],
                credentials=credentials,
                cluster_key=b"" if credentials else read_keys(data / KEY_FILE),
            ) as boom,
            open_node_client(credentials) as node_client,
        ):
            yield RollingRestart(
                host.specs, host, boom, node_client, accept_unavailable=accept_unavailable
            )


class _DetachedNodes:
    """The nodes of a detached cluster, which a rolling restart stops and starts."""

    def __init__(self, data: Path, port: int, warn: Callable[[str], None]) -> None:
        self._data = data
        self._port = port
        self._warn = warn
        self._processes = {process.spec.id: process for process in processes(data)}
        self.specs = [process.spec for process in self._processes.values()]

    def stop(self, name: str) -> None:
        """Stop a node gracefully, or else kill it and warn."""
        _stop(self._processes[name], self._warn)

    def start(self, name: str) -> None:
        """Start a node, and return when it listens."""
        process = NodeProcess.start(self._processes[name].spec, attached=False)
        self._processes[name] = process
        # Immediately: if this process is killed, `down` still finds the node.
        _write(self._data, [*self._processes.values()], self._port)
        process.wait_listening()


def status(data: Path) -> list[NodeStatus]:
    """Return every node of the cluster under `data`, with what it reports."""
    known = processes(data)
    ends = [process.spec.endpoint for process in known if process.alive and not process.paused]
    with open_node_client(administrator(data)) as node_client:
        views = node_client.views(ends, ASK_S) if ends else {}
        stats = node_client.stats(list(views), ASK_S) if views else {}
    record = read(data)
    records = {} if record is None else {node.id: node for node in record.nodes}
    return [
        NodeStatus(
            records[process.spec.id],
            process,
            views.get(process.spec.endpoint),
            stats.get(process.spec.endpoint),
        )
        for process in known
    ]


def processes(data: Path) -> list[NodeProcess]:
    """Return the processes in the state file, running or not, or none without a state file."""
    record = read(data)
    return [] if record is None else _processes(record, data)


def _processes(record: ClusterRecord, data: Path) -> list[NodeProcess]:
    data = data.absolute()
    same_boot = record.boot_id == _boot_id()
    return [
        NodeProcess(
            NodeSpec(node.id, node.role, data / node.id, node.endpoint),
            node.pid,
            # From another boot, so not ours: no process has a negative start tick.
            node.started if same_boot else -1,
        )
        for node in record.nodes
    ]


def read(data: Path) -> ClusterRecord | None:
    """Return the state file of a cluster's folder, or None.

    Raises:
        StartError: the file exists and cannot be read.
    """
    path = data / STATE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except FileNotFoundError:
        return None
    except (OSError, *UNDECODABLE) as error:
        text = f"cannot read {path} ({error}): end the nodes by hand, then delete the file"
        raise StartError(text) from None


def _write(data: Path, running: Sequence[NodeProcess], base_port: int) -> None:
    nodes = [NodeRecord(p.spec.id, p.spec.role, p.spec.endpoint, p.pid, p.started) for p in running]
    nodes.sort(key=lambda node: (node.role != "name-server", node.id))
    encoded = msgspec.json.encode(ClusterRecord(nodes, base_port, _boot_id()))
    path = data / STATE_FILE
    scratch = path.with_suffix(".new")
    write_private(scratch, msgspec.json.format(encoded, indent=2))
    scratch.replace(path)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def endpoints(data: Path) -> list[str]:
    """Return the endpoints of the detached cluster under `data`.

    These are its running brokers, or else its name servers, or none if no node runs.
    """
    alive = [process.spec for process in processes(data) if process.alive]
    brokers = [spec.endpoint for spec in alive if spec.role == "broker"]
    return brokers or [spec.endpoint for spec in alive]


def is_cluster(data: Path) -> bool:
    """True if a cluster was ever started in this folder and its data has not been deleted since."""
    return (data / FOUNDED_FILE).exists() or (data / STATE_FILE).exists()


def running() -> list[Path]:
    """Return the folders of all running clusters that this user started."""
    return [data for data in registry.folders() if endpoints(data)]


def advice(command: str, data: Path) -> str:
    """Return a command, such as "cluster down", as it is typed for the cluster under `data`."""
    usual = data.absolute() == DATA.absolute() and "LOGBOOM_DATA" not in os.environ
    return f"`logboom {command}`" if usual else f"`logboom {command} --data {_quoted(data)}`"


def _quoted(data: Path) -> str:
    return shlex.quote(str(data.absolute()))
