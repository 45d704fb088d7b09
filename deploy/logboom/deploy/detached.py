"""A cluster that goes on after the command that started it: `logboom cluster up|down|status`.

What runs is kept in `cluster.json` of the cluster's folder; a process is believed to be ours only
if its start time fits too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from logboom.deploy.asking import Asker
from logboom.deploy.installed import check_installed
from logboom.deploy.layout import Layout, check_numbers, lay_out
from logboom.deploy.ports import NAME_SERVER_PORT, Ports
from logboom.deploy.process import NodeProcess, NodeSpec, Role
from logboom.deploy.waiting import ask_until
from logboom.wire.errors import StartError
from logboom.wire.messages import StatsResult
from logboom.wire.view import View

STATE_FILE: Final = "cluster.json"
READY_S: Final = 20.0
ASK_S: Final = 1.0


class NodeRecord(Struct, frozen=True):
    """One node as the state file remembers it."""

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
    """Of the machine's boot: pids and ticks of another boot mean nothing."""
    version: int = 1


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node of a detached cluster, as `status` shows it."""

    record: NodeRecord
    process: NodeProcess
    view: View | None
    """The node's own metadata; None: it does not answer."""
    stats: StatsResult | None


def up(
    data: Path,
    name_servers: int,
    brokers: int,
    base_port: int = NAME_SERVER_PORT,
    progress: Callable[[str], None] = lambda _: None,
) -> list[NodeRecord]:
    """Start what does not run yet of a cluster under `data`; return when all nodes are ready.

    `progress` is told each step in a few words.

    Raises:
        StartError: a node did not start, or the folder holds a cluster of other numbers.
        InvalidRequest: the numbers make no cluster.
    """
    check_installed()
    check_numbers(name_servers, brokers)
    before = read(data)
    if before is not None:
        _check_same(before, data, name_servers, brokers, base_port)
    layout = lay_out(data, name_servers, brokers, Ports(base_port))
    running = {p.spec.id: p for p in processes(data) if p.alive}
    started: list[NodeProcess] = []
    create = not layout.founded
    try:
        for spec in layout.nodes:
            if spec.id not in running:
                progress(f"starting {spec.id}")
                started.append(NodeProcess.start(spec, attached=False, create=create))
        for process in started:
            process.wait_listening()
        progress("waiting until all nodes see each other")
        _wait_ready(layout)
        layout.mark_founded()
    # Ctrl-C too: nothing half-started stays behind. It is raised on.
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        every = [*running.values(), *(p for p in started if p.alive)]
        _write(data, every, base_port)
    known = read(data)
    return [] if known is None else known.nodes


def _check_same(
    before: ClusterRecord, data: Path, name_servers: int, brokers: int, base_port: int
) -> None:
    # A raft group does not grow by a config file, and brokers hold data.
    held = sum(1 for folder in data.glob("name-*") if (folder / "data").is_dir())
    if held and held != name_servers:
        raise StartError(
            f"{data} holds a cluster of {held} name servers, not {name_servers}: "
            f"ask for {held}, or give another folder with --data"
        )
    holders = sum(1 for folder in data.glob("broker-*") if (folder / "data").is_dir())
    if holders > brokers:
        raise StartError(
            f"{data} holds the data of {holders} brokers, more than {brokers}: "
            f"ask for {holders}, or give another folder with --data"
        )
    runs = any(process.alive for process in _processes(before, data))
    if runs and before.base_port != base_port:
        raise StartError(
            f"the cluster in {data} runs at port {before.base_port}, not {base_port}: "
            "stop it first with `logboom cluster down`"
        )


def _wait_ready(layout: Layout) -> None:
    ends = {spec.endpoint: spec.id for spec in layout.nodes}
    brokers = {spec.id for spec in layout.brokers}
    with Asker() as asker:

        def ask() -> list[str]:
            views = asker.views(list(ends), ASK_S, topics=[])
            return [
                name
                for end, name in ends.items()
                if end not in views or not brokers <= {b.id for b in views[end].brokers if b.alive}
            ]

        silent = ask_until(ask, lambda silent: not silent, READY_S)
    if silent:
        text = f"not ready after {READY_S:.0f} s: {', '.join(silent)}"
        raise StartError(f"{text}; look at `logboom cluster logs`")


def down(data: Path, progress: Callable[[str], None] = lambda _: None) -> list[str]:
    """Stop a detached cluster, brokers first; their data stays. Returns who was stopped."""
    ours = [process for process in processes(data) if process.alive]
    for role in ("broker", "name-server"):
        group = [process for process in ours if process.spec.role == role]
        for process in group:
            process.ask_to_stop()
        for process in group:
            progress(f"stopping {process.spec.id}")
            process.stop()
    with suppress(FileNotFoundError):
        (data / STATE_FILE).unlink()
    return [process.spec.id for process in ours]


def status(data: Path) -> list[NodeStatus]:
    """Every node of the cluster under `data` and what it says of itself."""
    known = processes(data)
    ends = [process.spec.endpoint for process in known if process.alive and not process.paused]
    with Asker() as asker:
        views = asker.views(ends, ASK_S) if ends else {}
        stats = asker.stats(list(views), ASK_S) if views else {}
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
    """The processes of the state file, running or not; none if there is no such file."""
    record = read(data)
    return [] if record is None else _processes(record, data)


def _processes(record: ClusterRecord, data: Path) -> list[NodeProcess]:
    data = data.absolute()
    same_boot = record.boot_id == _boot_id()
    return [
        NodeProcess(
            NodeSpec(node.id, node.role, data / node.id, node.endpoint),
            node.pid,
            # No process begins at a negative tick: of another boot, so none of ours.
            node.started if same_boot else -1,
        )
        for node in record.nodes
    ]


def read(data: Path) -> ClusterRecord | None:
    """The state file of a cluster's folder, or None.

    Raises:
        StartError: it is there and cannot be read.
    """
    path = data / STATE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        text = f"cannot read {path} ({error}): end the nodes by hand, then delete the file"
        raise StartError(text) from None


def _write(data: Path, running: Sequence[NodeProcess], base_port: int) -> None:
    nodes = [NodeRecord(p.spec.id, p.spec.role, p.spec.endpoint, p.pid, p.started) for p in running]
    nodes.sort(key=lambda node: (node.role != "name-server", node.id))
    encoded = msgspec.json.encode(ClusterRecord(nodes, base_port, _boot_id()))
    path = data / STATE_FILE
    scratch = path.with_suffix(".new")
    scratch.write_bytes(msgspec.json.format(encoded, indent=2))
    scratch.replace(path)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def endpoints(data: Path) -> list[str]:
    """The brokers of the detached cluster under `data`; empty if none runs."""
    return [p.spec.endpoint for p in processes(data) if p.spec.role == "broker" and p.alive]
