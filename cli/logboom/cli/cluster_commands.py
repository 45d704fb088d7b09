"""`logboom cluster`: a cluster on this machine that outlives the command."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from logboom.cli.catch_up_bar import bar, commit_index, percent
from logboom.cli.cluster_status import leads, read_cluster_status
from logboom.cli.local_cluster import cluster_folder
from logboom.cli.output import bytes_text, note, show
from logboom.cli.parameters import ClusterFolder, Output
from logboom.cli.progress_bar import progress
from logboom.deploy import detached
from logboom.deploy.detached import DATA, advice
from logboom.deploy.identity import resident_bytes
from logboom.deploy.node_client import NodeClient
from logboom.wire.errors import InvalidRequest, StartError, Unavailable
from logboom.wire.messages import StatsResult
from logboom.wire.sockets import check_endpoint
from logboom.wire.view import View

app = App(name="cluster", help="A cluster on this machine: up, down, status, logs.")

HELD = ("leads", "in_sync", "replicas", "caught_up")
ASK_S = 2.0
LOG_PAUSE_S = 0.2
"""Seconds between reads of a followed log."""


@app.command
def up(
    *,
    name_servers: Annotated[int | None, Parameter(name=["--name-servers", "-n"])] = None,
    brokers: Annotated[int | None, Parameter(name=["--brokers", "-b"])] = None,
    brokers_per_host: int | None = None,
    port: Annotated[int | None, Parameter(name=["--port", "-p"])] = None,
    data: Annotated[ClusterFolder, Parameter(help="Where everything is kept: .logboom.")] = None,
    output: Output = "table",
) -> None:
    """Start name servers and brokers in the background, and wait until they are ready.

    Running nodes stay. Stopped nodes are started again on their data, with as many nodes and at
    the ports that the cluster had. Commands without --servers then use this cluster.

        logboom cluster up
        logboom cluster up --name-servers 1 --brokers 1 --data /tmp/boom
        logboom cluster up --brokers-per-host 4

    Parameters
    ----------
    name_servers
        1, 3 or 5; by default 3 in a new folder.
    brokers
        One or more; by default 3 in a new folder, which hold three copies of everything.
    brokers_per_host
        So many brokers count as one host, which is a zone and never gets two replicas of a queue.
        Alone it starts so many brokers, which use as many cores: with --brokers-per-host 4 this
        machine is one host and a topic has one replica. --brokers 6 --brokers-per-host 2 stands for
        three hosts.
    port
        The port of the first name server, 7701 in a new folder. Brokers begin 10 above (the
        eleventh 30 above), Raft 20 above.
    """
    data = data or DATA
    begun = time.monotonic()
    with progress("starting", None) as bar:
        nodes = detached.up(
            data, name_servers, brokers, port, bar.say, brokers_per_host=brokers_per_host
        )
    took = time.monotonic() - begun
    rows = [{"node": n.id, "role": n.role, "endpoint": n.endpoint, "pid": n.pid} for n in nodes]
    show(rows, ["node", "role", "endpoint", "pid"], output)
    ends = ",".join(node.endpoint for node in nodes if node.role == "broker")
    text = f"ready after {took:.1f} s: connect({ends!r})"
    note(f"{text}; stop it with {advice('cluster down', data)}")


@app.command
def down(*, data: ClusterFolder = None) -> None:
    """Stop the cluster, brokers first; its data stays.

    For example:

        logboom cluster down
    """
    data = cluster_folder(data) or DATA
    with progress("stopping", None) as bar:
        stopped = detached.down(data, bar.say)
    note(f"stopped {', '.join(stopped)} of {data}" if stopped else f"no cluster of {data} runs")


@app.command
def status(
    *,
    data: ClusterFolder = None,
    # Not from LOGBOOM_SERVERS: by default this is about the cluster on this machine.
    servers: Annotated[str | None, Parameter(name=["--servers", "-s"])] = None,
    output: Output = "table",
) -> None:
    """Show each node: whether it answers, what it leads, how far it has caught up.

    For example:

        logboom cluster status
        logboom cluster status --servers 10.0.0.1:7711
        logboom cluster status -o json

    Parameters
    ----------
    servers
        Any nodes, host:port, comma-separated, of a cluster on other machines.
    """
    if servers is not None:
        _status_from_afar(servers, output)
        return
    data = cluster_folder(data) or DATA
    nodes = detached.status(data)
    if not nodes:
        raise StartError(f"no cluster runs in {data}: start one with {advice('cluster up', data)}")
    newest = max((n.view for n in nodes if n.view), key=lambda v: v.version, default=None)
    commit = commit_index(node.stats for node in nodes)
    rows = [_row(node, newest, commit) for node in nodes]
    columns = ["node", "state", "endpoint", "pid", *HELD, "memory"]
    show(rows, columns, output)
    _tell_of_no_leader(rows)


def _status_from_afar(servers: str, output: Literal["table", "json"]) -> None:
    """Show the status of nodes whose processes are on other machines."""
    ends = [check_endpoint(end.strip()) for end in servers.split(",")]
    with NodeClient() as node_client:
        standing, _ = read_cluster_status(node_client, ends, ASK_S)
    if standing is None:
        raise Unavailable(f"no answer from {servers}: is a node up there?")
    view, answers = standing.view, standing.stats
    nodes = [(n.id, "name-server", n.endpoint) for n in view.name_servers]
    nodes += [(b.id, "broker", b.endpoint) for b in view.brokers]
    commit = commit_index(answers.values())
    rows = []
    for name, role, endpoint in nodes:
        stats = answers.get(name)
        row = {"node": name, "role": role, "endpoint": endpoint}
        row["state"] = "down" if stats is None else "up"
        rows.append(row | _held(name, role, view, stats, commit))
    show(rows, ["node", "state", "endpoint", *HELD], output)
    _tell_of_no_leader(rows)


def _tell_of_no_leader(rows: Sequence[Mapping[str, Any]]) -> None:
    servers = [row for row in rows if row["role"] == "name-server"]
    if any(row["leads"] == "raft" for row in servers):
        return
    up = sum(row["state"] == "up" for row in servers)
    text = f"no raft leader: {up} of {len(servers)} name servers answer"
    note(f"{text}; `logboom doctor` says what to do")


def _row(node: detached.NodeStatus, newest: View | None, commit: int) -> dict[str, Any]:
    name = node.record.id
    row: dict[str, Any] = {
        "node": name,
        "role": node.record.role,
        "state": _state(node),
        "endpoint": node.record.endpoint,
        "pid": node.record.pid,
        "memory": bytes_text(resident_bytes(node.record.pid)) if node.process.alive else None,
        "memory_bytes": resident_bytes(node.record.pid) if node.process.alive else 0,
    }
    return row | _held(name, node.record.role, newest, node.stats, commit)


def _held(
    name: str, role: str, newest: View | None, stats: StatsResult | None, commit: int
) -> dict[str, Any]:
    """Return what a node leads and holds, and how far it has caught up."""
    share = None if stats is None else percent(stats.counters, commit)
    row: dict[str, Any] = {
        "caught_up": bar(share),
        "caught_up_percent": share,
        "counters": None if stats is None else stats.counters,
    }
    if role == "name-server":
        row["leads"] = "raft" if stats is not None and leads(stats) else None
        return row
    # The broker's own report, because the metadata may not show yet that it is gone.
    row["leads"] = None if stats is None else stats.counters.get("leading")
    queues = [] if newest is None else [q for topic in newest.topics for q in topic.queues]
    row["in_sync"] = None if stats is None else sum(name in queue.isr for queue in queues)
    row["replicas"] = sum(name in queue.replicas for queue in queues)
    return row


def _state(node: detached.NodeStatus) -> str:
    if not node.process.alive:
        return "down"
    if node.process.paused:
        return "paused"
    return "up" if node.view is not None else "starting"


@app.command
def logs(
    node: str | None = None,
    *,
    lines: Annotated[int, Parameter(name=["--lines", "-n"])] = 20,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    data: ClusterFolder = None,
) -> None:
    """Show what the nodes logged.

    For example:

        logboom cluster logs
        logboom cluster logs broker-1 --follow

    Parameters
    ----------
    node
        Only this node.
    lines
        How many of the last lines of each node.
    follow
        Follow the logs until Ctrl-C.
    """
    data = cluster_folder(data) or DATA
    paths = {path.parent.name: path for path in sorted(data.glob("*/node.log"))}
    if not paths:
        text = f"no logs under {data}: start a cluster with {advice('cluster up', data)}"
        raise StartError(text)
    if node is not None:
        if node not in paths:
            raise InvalidRequest(f"no node {node!r} under {data}: there are {', '.join(paths)}")
        paths = {node: paths[node]}
    ends = {name: _print_last(name, path, lines, len(paths) > 1) for name, path in paths.items()}
    while follow:
        # Without inotify a growing file has to be polled. Ctrl-C ends the loop.
        time.sleep(LOG_PAUSE_S)
        ends = {name: _print_from(name, p, ends[name], len(paths) > 1) for name, p in paths.items()}


def _print_last(name: str, path: Path, lines: int, named: bool) -> int:
    content = path.read_bytes()
    _print(name, content.decode("utf-8", "replace").splitlines()[-lines:] if lines else [], named)
    return len(content)


def _print_from(name: str, path: Path, start: int, named: bool) -> int:
    with path.open("rb") as file:
        file.seek(start)
        new = file.read()
    whole = new[: new.rfind(b"\n") + 1]
    _print(name, whole.decode("utf-8", "replace").splitlines(), named)
    return start + len(whole)


def _print(name: str, lines: list[str], named: bool) -> None:
    for line in lines:
        print(f"{name}  {line}" if named else line)
    sys.stdout.flush()
