"""`logboom cluster`: a cluster on this machine that outlives the command."""

from __future__ import annotations

import difflib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from logboom.cli.catch_up_bar import bar, commit_index, percent
from logboom.cli.cluster_address import destination_of
from logboom.cli.cluster_init import init
from logboom.cli.cluster_status import read_cluster_status
from logboom.cli.connection import open_node_client
from logboom.cli.local_cluster import DATA_VARIABLE, cluster_folder
from logboom.cli.logged_lines import LineFilter, LoggedLine, LogLevel, NodeLog, merged
from logboom.cli.output import note, show
from logboom.cli.parameters import (
    SERVERS_VARIABLE,
    ClusterAddress,
    ClusterFolder,
    CredentialsFile,
    Output,
)
from logboom.cli.progress_bar import progress
from logboom.cli.restart_commands import restart_check, roll
from logboom.cli.upgrade_commands import app as upgrade
from logboom.client.checks.cluster_health import leads
from logboom.client.written_values import bytes_text
from logboom.deploy import detached
from logboom.deploy.detached import DATA, advice
from logboom.deploy.identity import resident_bytes
from logboom.deploy.layout import administrator
from logboom.wire.errors import InvalidRequest, StartError, Unavailable
from logboom.wire.event_table import EVENTS
from logboom.wire.log_format import LogForm
from logboom.wire.messages import StatsResult
from logboom.wire.view import View

app = App(
    name="cluster",
    help="A cluster on this machine: up, down, status, logs, roll. Any: init, restart-check, upgrade.",
)
app.command(init)
app.command(restart_check)
app.command(roll)
app.command(upgrade)

HELD = ("leads", "in_sync", "replicas", "caught_up")
LOG_PAUSE_S = 0.2
"""Seconds between reads of a followed log."""
COLOURS = {"warning": "33", "error": "31", "critical": "31", "debug": "2"}
"""Level → how a terminal shows its lines (ECMA-48)."""


@app.command
def up(
    *,
    name_servers: Annotated[int | None, Parameter(name=["--name-servers", "-n"])] = None,
    brokers: Annotated[int | None, Parameter(name=["--brokers", "-b"])] = None,
    brokers_per_host: int | None = None,
    secure: bool | None = None,
    log: LogForm | None = None,
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
    secure
        Encrypt every connection, and know nodes and users by keys. The administrator's credentials
        are in admin.toml of the folder; commands without --servers use them. By default as the
        cluster was last started.
    log
        Form of the nodes' logs, which `logboom cluster logs` shows; by default as the cluster was
        last started, or text.
    port
        The port of the first name server, 7701 in a new folder. Brokers begin 10 above (the
        eleventh 30 above), Raft 20 above.
    """
    data = data or DATA
    begun = time.monotonic()
    with progress("starting", None) as bar:
        nodes = detached.up(
            data,
            name_servers,
            brokers,
            port,
            bar.say,
            brokers_per_host=brokers_per_host,
            secure=secure,
            log=log,
        )
    took = time.monotonic() - begun
    rows = [{"node": n.id, "role": n.role, "endpoint": n.endpoint, "pid": n.pid} for n in nodes]
    show(rows, ["node", "role", "endpoint", "pid"], output)
    ends = ",".join(node.endpoint for node in nodes if node.role == "broker")
    text = f"ready after {took:.1f} s: connect({str(administrator(data) or ends)!r})"
    note(f"{text}; stop it with {advice('cluster down', data)}")


@app.command
def down(*, data: ClusterFolder = None) -> None:
    """Stop the cluster, brokers first; its data stays.

    For example:

        logboom cluster down
    """
    data = cluster_folder(data) or DATA
    with progress("stopping", None) as bar:
        stopped = detached.down(data, bar.say, note)
    note(f"stopped {', '.join(stopped)} of {data}" if stopped else f"no cluster of {data} runs")


@app.command
def status(
    *,
    data: ClusterFolder = None,
    # Not with the environment variable in it: --data comes before that.
    servers: Annotated[str | None, Parameter(name=["--servers", "-s"])] = None,
    credentials: CredentialsFile = None,
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
        Any nodes, host:port, comma-separated, of a cluster on other machines; by default those of
        LOGBOOM_SERVERS, unless --data is given.
    """
    if servers is None and (data is None or str(data) == os.environ.get(DATA_VARIABLE)):
        servers = os.environ.get(SERVERS_VARIABLE) or None
    if servers is not None:
        _status_from_afar(ClusterAddress(servers, credentials), output)
        return
    data = cluster_folder(data) or DATA
    nodes = detached.status(data)
    if not nodes:
        raise StartError(f"no cluster runs in {data}: start one with {advice('cluster up', data)}")
    newest = max((n.view for n in nodes if n.view), key=lambda v: v.version, default=None)
    commit = commit_index(node.stats for node in nodes)
    rows = [_row(node, newest, commit) for node in nodes]
    columns = ["node", "state", "endpoint", "pid", *HELD, "memory", "metrics"]
    show(rows, columns, output)
    _tell_of_no_leader(rows)


def _status_from_afar(address: ClusterAddress, output: Literal["table", "json"]) -> None:
    """Show the status of nodes whose processes are on other machines."""
    destination = destination_of(address)
    with open_node_client(destination) as node_client:
        standing, _ = read_cluster_status(node_client, destination.endpoints)
    if standing is None:
        raise Unavailable(f"no answer from {address.servers}: is a node up there?")
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
    show(rows, ["node", "state", "endpoint", *HELD, "metrics"], output)
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
        "metrics": None if stats is None else stats.counters.get("metrics_endpoint") or "off",
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
    level: Annotated[LogLevel, Parameter(name=["--level", "-l"])] = "debug",
    event: Annotated[list[str] | None, Parameter(name=["--event", "-e"], negative="")] = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    data: ClusterFolder = None,
    output: Annotated[Literal["text", "json"], Parameter(name=["--output", "-o"])] = "text",
) -> None:
    """Show what the nodes logged, by time; docs/LOGS.md lists all events.

    Logs of either form are shown, text or JSON.

        logboom cluster logs
        logboom cluster logs broker-1 --follow
        logboom cluster logs --level warning -n 100
        logboom cluster logs --event election --event 'isr_*'

    Parameters
    ----------
    node
        Only this node.
    lines
        How many of the last lines of each node.
    level
        Only lines of this level, and worse ones.
    event
        Only this event; again for further ones. A star at the end stands for any ending.
    follow
        Follow the logs until Ctrl-C.
    output
        json: one object a line, with time, level, node, event and its fields.
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
    wanted = LineFilter(level, _known_events(event or []))
    found = [NodeLog(name, path) for name, path in paths.items()]
    _print(merged(log.read_last(max(0, lines), wanted) for log in found), output)
    while follow:
        # Without inotify a growing file has to be polled. Ctrl-C ends the loop.
        time.sleep(LOG_PAUSE_S)
        _print(merged(log.read_more(wanted) for log in found), output)


def _known_events(events: list[str]) -> list[str]:
    """Return the events, which must exist, or begin like some that do."""
    for event in events:
        stem = event.removesuffix("*")
        if event in EVENTS or (stem != event and any(each.startswith(stem) for each in EVENTS)):
            continue
        near = difflib.get_close_matches(event, EVENTS, 3, 0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "docs/LOGS.md lists all"
        raise InvalidRequest(f"there is no event {event!r}: {hint}")
    return events


def _print(lines: Sequence[LoggedLine], output: Literal["text", "json"]) -> None:
    coloured = output == "text" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for line in lines:
        text = line.as_json() if output == "json" else line.shown()
        colour = COLOURS.get(line.level) if coloured else None
        print(text if colour is None else f"\x1b[{colour}m{text}\x1b[0m")
    sys.stdout.flush()
