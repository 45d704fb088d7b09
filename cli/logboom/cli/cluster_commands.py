"""`logboom cluster`: a cluster on this machine that goes on after the command."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.options import DATA, Data, Output
from logboom.cli.output import bytes_text, note, show
from logboom.cli.progress import progress
from logboom.deploy import detached
from logboom.deploy.identity import resident_bytes
from logboom.deploy.ports import NAME_SERVER_PORT
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.view import View

app = App(name="cluster", help="A cluster on this machine: up, down, status, logs.")

LOG_PAUSE_S = 0.2
"""How often a followed log is looked at."""


@app.command
def up(
    *,
    name_servers: Annotated[int, Parameter(name=["--name-servers", "-n"])] = 3,
    brokers: Annotated[int, Parameter(name=["--brokers", "-b"])] = 3,
    port: Annotated[int, Parameter(name=["--port", "-p"])] = NAME_SERVER_PORT,
    data: Data = DATA,
    output: Output = "table",
) -> None:
    """Start name servers and brokers in the background, and wait until they are ready.

    What runs already stays; what does not is started again on its data.

        logboom cluster up
        logboom cluster up --name-servers 1 --brokers 1 --data /tmp/boom

    Parameters
    ----------
    name_servers
        1, 3 or 5.
    brokers
        One or more; three hold three copies of everything.
    port
        Of the first name server; brokers begin at 10 above, raft at 20 above.
    data
        Where everything is kept.
    output
        table or json.
    """
    begun = time.monotonic()
    with progress("starting", None) as bar:
        nodes = detached.up(data, name_servers, brokers, port, bar.say)
    took = time.monotonic() - begun
    rows = [{"node": n.id, "role": n.role, "endpoint": n.endpoint, "pid": n.pid} for n in nodes]
    show(rows, ["node", "role", "endpoint", "pid"], output)
    ends = ",".join(node.endpoint for node in nodes if node.role == "broker")
    note(f"ready after {took:.1f} s: connect({ends!r}); stop it with `logboom cluster down`")


@app.command
def down(*, data: Data = DATA) -> None:
    """Stop the cluster, brokers first; its data stays.

    For example:

        logboom cluster down

    Parameters
    ----------
    data
        Where the cluster is kept.
    """
    with progress("stopping", None) as bar:
        stopped = detached.down(data, bar.say)
    note(f"stopped {', '.join(stopped)}" if stopped else f"no cluster of {data} runs")


@app.command
def status(*, data: Data = DATA, output: Output = "table") -> None:
    """Show each node: whether it answers, what it leads, how much memory it takes.

    For example:

        logboom cluster status
        logboom cluster status -o json

    Parameters
    ----------
    data
        Where the cluster is kept.
    output
        table or json.
    """
    nodes = detached.status(data)
    if not nodes:
        raise StartError(f"no cluster runs in {data}: start one with `logboom cluster up`")
    newest = max((n.view for n in nodes if n.view), key=lambda v: v.version, default=None)
    rows = [_row(node, newest) for node in nodes]
    columns = ["node", "state", "endpoint", "pid", "leads", "in_sync", "replicas", "memory"]
    show(rows, columns, output)


def _row(node: detached.NodeStatus, newest: View | None) -> dict[str, Any]:
    name = node.record.id
    queues = [] if newest is None else [q for topic in newest.topics for q in topic.queues]
    row: dict[str, Any] = {
        "node": name,
        "role": node.record.role,
        "state": _state(node),
        "endpoint": node.record.endpoint,
        "pid": node.record.pid,
        "memory": bytes_text(resident_bytes(node.record.pid)) if node.process.alive else None,
        "memory_bytes": resident_bytes(node.record.pid) if node.process.alive else 0,
        "counters": None if node.stats is None else node.stats.counters,
    }
    if node.record.role == "broker":
        row["leads"] = sum(queue.leader == name for queue in queues)
        row["in_sync"] = sum(name in queue.isr for queue in queues)
        row["replicas"] = sum(name in queue.replicas for queue in queues)
    else:
        row["leads"] = "raft" if newest is not None and newest.raft_leader == name else None
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
    data: Data = DATA,
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
        How many of the last lines of each.
    follow
        Go on as they write, until Ctrl-C.
    data
        Where the cluster is kept.
    """
    paths = {path.parent.name: path for path in sorted(data.glob("*/node.log"))}
    if not paths:
        raise StartError(f"no logs under {data}: start a cluster with `logboom cluster up`")
    if node is not None:
        if node not in paths:
            raise InvalidRequest(f"no node {node!r} under {data}: there are {', '.join(paths)}")
        paths = {node: paths[node]}
    ends = {name: _print_last(name, path, lines, len(paths) > 1) for name, path in paths.items()}
    while follow:
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
